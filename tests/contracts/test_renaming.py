"""An auditor corrects a cause's words: everybody reads the new ones, and its story keeps the old."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from sqlalchemy import text

from diagevo.errors import ConfigError, NotFoundError, OutOfOrderError
from diagevo.memory.audit.verify import verify
from diagevo.memory.compare.replay import steps
from diagevo.memory.events import EVENT_TYPES, Event, Trait
from diagevo.memory.history import History, open_history
from diagevo.memory.log.artifacts import Artifacts
from diagevo.memory.stories.cause_story import Renamed
from diagevo.memory.stories.references import resolve
from diagevo.memory.stories.why import why_cause
from diagevo.memory.transfer.bundle import export_bundle, import_bundle
from diagevo.memory.transfer.fork import fork
from diagevo.memory.transfer.rebuilding import rebuild_projections
from tests.contracts.databases import Store

OLD, NEW = "drops a carry", "forgets to carry the ten"


@pytest.fixture
def renamed(played: Store) -> Store:
    """Two committed rounds; then c1 has another description."""
    with played.open() as memory:
        event = memory.rename("c1", NEW)
        assert (event.number, event.before) == (1, OLD)
    return played


def _well(history: History, run: str, root: Path) -> None:
    """It verifies, its view shows the new words, and its story the old ones."""
    assert verify(history.log, run, root / run).faults == []
    with history.database.read() as connection:
        shown = text("SELECT description FROM v_cause WHERE run_id = :run")
        assert connection.execute(shown, {"run": run}).scalars().all() == [NEW]
    one = History(history.database, run, root)
    story = why_cause(one, "c1", one.end)
    assert story.description == NEW
    [turn] = [turn for turn in story.turns if isinstance(turn, Renamed)]
    assert (turn.round, turn.before, turn.after) == (2, OLD, NEW)
    assert resolve(one, "carry the ten", one.end).id == "c1"


def test_the_new_words_are_everywhere_and_the_old_ones_in_the_story(renamed: Store, tmp_path: Path) -> None:
    history = open_history(renamed.url, "a", root=renamed.root)
    with closing(history.database):
        names = ("question_id", "failure_id")
        named = {getattr(fact.event, name, "reference") for fact in history.log.facts("a") for name in names}
        Artifacts(history.database).put_many(sorted(named))
        _well(history, "a", renamed.root)
        assert history.state(history.after(2)).causes["c1"].description == NEW
        assert history.state(history.after(1)).causes["c1"].description == OLD
        said = [
            (s.subject, s.before, s.after) for s in steps(history, 2, history.end) if s.type == "CauseRenamed"
        ]
        assert said == [("c1", f"“{OLD}”", f"“{NEW}”")]
        fork(history, 2, "forked", root=renamed.root)
        _well(history, "forked", renamed.root)
        fork(history, 1, "before", root=renamed.root)
        export_bundle(history, history.end, tmp_path / "bundle")
        import_bundle(tmp_path / "bundle", history.database, "imported", root=renamed.root)
        _well(history, "imported", renamed.root)
        rebuild_projections(history)
        _well(history, "a", renamed.root)
    with renamed.open("before") as memory:
        assert memory.cause("c1").description == OLD


def test_a_cause_is_near_what_it_was_found_as_whatever_it_is_called(store: Store) -> None:
    from tests.memory.play import first_round

    with store.open() as memory:
        memory.vectors([OLD], lambda texts: np.eye(4, dtype=np.float32)[:1])
        first_round(memory, [(OLD, "add", 1)])
        before = memory.similar_causes(np.array([1, 0, 0, 0], np.float32))
        memory.rename("c1", NEW)
        assert memory.similar_causes(np.array([1, 0, 0, 0], np.float32)) == before
    with store.open() as memory:
        assert memory.similar_causes(np.array([1, 0, 0, 0], np.float32)) == before
        known = memory.state.known_cause(memory.cause("c1"))
        assert (known.description, known.found_as) == (NEW, OLD)


def test_words_go_back_and_forth_and_each_time_is_an_event(renamed: Store) -> None:
    with renamed.open() as memory:
        for number, words in enumerate((OLD, NEW, OLD), start=2):
            assert memory.rename("c1", words).number == number
        assert memory.cause("c1").description == OLD
    with renamed.log() as log:
        assert verify(log, "a", renamed.root / "a").faults == []


def test_a_renaming_that_changes_nothing_or_comes_too_early_is_refused(renamed: Store) -> None:
    with renamed.open() as memory:
        with pytest.raises(OutOfOrderError, match="it already has this description"):
            memory.rename("c1", NEW)
        with pytest.raises(NotFoundError, match="has no cause c9"):
            memory.rename("c9", NEW)
        memory.open_round(3)
        with pytest.raises(OutOfOrderError, match="round 3 is open"):
            memory.rename("c1", OLD)


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        ("", "the description is empty"),
        (" ", "the description is empty"),
        ("two\nlines", r"the description must be one line of text: it has '\\n'"),
        ("two\u2028lines", r"the description must be one line of text: it has '\\u2028'"),
        ("a bell \a", r"the description must be one line of text: it has '\\x07'"),
        ("x" * 501, "the description has 501 characters, at most 500 are allowed"),
        ("x" * 500, None),
        ("a joiner as in می\u200cخواهم", None),
    ],
)
def test_a_description_of_a_person_is_a_line(renamed: Store, words: str, refused: str | None) -> None:
    with renamed.open() as memory:
        before = memory.state.sequence
        if refused is None:
            assert memory.rename("c1", words).description == words
        else:
            with pytest.raises(ConfigError, match=refused):
                memory.rename("c1", words)
            assert memory.state.sequence == before


@pytest.mark.parametrize("event", EVENT_TYPES.values(), ids=EVENT_TYPES)
def test_each_event_declares_its_traits_and_its_sentence(event: type[Event]) -> None:
    assert isinstance(event.__dict__.get("traits"), Trait)
    assert event.sentence is not Event.sentence
