"""An auditor says that a cause is no fault of the model: it leaves the curriculum, and its story says why."""

from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest
from sqlalchemy import text

from diagevo.errors import ConfigError, OutOfOrderError
from diagevo.memory.audit.verify import verify
from diagevo.memory.compare.memory_diff import diff_memory
from diagevo.memory.compare.replay import compare_with_commit, describe, steps
from diagevo.memory.compare.whatif import Changes, what_if
from diagevo.memory.history import History, open_history
from diagevo.memory.log.artifacts import Artifacts
from diagevo.memory.read.opened_rounds import observations
from diagevo.memory.read.round_figures import rounds
from diagevo.memory.stories.cause_story import Dismissed, Reinstated
from diagevo.memory.stories.why import why_cause
from diagevo.memory.transfer.bundle import export_bundle, import_bundle
from diagevo.memory.transfer.fork import fork
from diagevo.memory.transfer.rebuilding import rebuild_projections
from tests.contracts.databases import Store
from tests.memory.play import candidate, failure, first_round, new_cause, settle_duplicate

WHY = "the grader wants a unit"


@pytest.fixture
def dismissed(store: Store) -> Store:
    """After round 1: c1 with 3 failures, c2 with 1. c1 is dismissed; in round 2 one more failure is of it."""
    with store.open() as memory:
        first_round(memory, [("drops a carry", "add", 3), ("swaps digits", "copy", 1)])
        assert (memory.state.failures, memory.state.epsilon) == (4, Fraction(1, 3))  # 4/(4 + 4·2)
        assert memory.dismiss("c1", WHY, "ada").number == 1
        assert (memory.state.failures, memory.state.epsilon) == (1, Fraction(2, 3))  # 4/(4 + 1·2)
        schedule = memory.open_round(2)
        assert {draw.cause_id for draw in schedule.draw(50, seed=1)} == {None, "c2"}
        memory.score([candidate("r2.q0"), candidate("r2.q1", 6, cause="c2")])
        memory.observe([failure("r2.q0.a0")])
        memory.diagnosed([new_cause("r2.q0.a0", "drops a carry again")])
        settle_duplicate(memory, "r2.q0.a0", "c1")
        committed = memory.commit()
        assert (committed.failures, committed.active, committed.mastered) == (1, 1, 0)
        cause = memory.cause("c1")
        assert (cause.state, cause.frequency) == ("dismissed", 4)
    return store


def _well(history: History, run: str, root: Path) -> None:
    """It verifies; rows, story, replay and diff agree that c1 is dismissed."""
    assert verify(history.log, run, root / run).faults == []
    one = History(history.database, run, root)
    with history.database.read() as connection:
        shown = text("SELECT cause_id, state, frequency FROM v_cause WHERE run_id = :run ORDER BY number")
        rows = [tuple(row) for row in connection.execute(shown, {"run": run})]
        assert rows == [("c1", "dismissed", 4), ("c2", "active", 1)]
        shown = text(
            "SELECT state, probability_committed FROM v_cause_history WHERE run_id = :run AND round = 2"
        )
        assert {tuple(row) for row in connection.execute(shown, {"run": run})} == {
            ("dismissed", None),
            ("active", "1"),
        }
    story = why_cause(one, "c1", one.end)
    assert (story.state, story.how, story.since, story.frequency) == ("dismissed", "dismissed", 1, 4)
    [turn] = [turn for turn in story.turns if isinstance(turn, Dismissed)]
    assert (turn.round, turn.because, turn.by, turn.frequency) == (1, WHY, "ada", 3)
    assert turn.at.startswith("20")
    memory = describe(one.state(one.end, snapshots=False))
    assert (memory.active, memory.mastered, memory.dismissed, memory.failures) == (1, 0, 1, 1)
    assert [(node.active, node.dismissed, node.failures) for node in memory.skill_nodes] == [
        (0, 1, 0),
        (1, 0, 1),
    ]
    assert compare_with_commit(one, one.end) == []
    assert [line.epsilon_next for line in rounds(one)] == [Fraction(2, 3), memory.epsilon_next]


def test_a_dismissed_cause_leaves_the_curriculum_in_every_copy_of_the_log(
    dismissed: Store, tmp_path: Path
) -> None:
    history = open_history(dismissed.url, "a", root=dismissed.root)
    with closing(history.database):
        names = ("question_id", "failure_id")
        named = {getattr(fact.event, name, "reference") for fact in history.log.facts("a") for name in names}
        Artifacts(history.database).put_many(sorted(named))
        _well(history, "a", dismissed.root)
        stepped = [s for s in steps(history, 1, history.end) if s.type == "CauseDismissed"]
        assert [(s.before, s.after, s.failures) for s in stepped] == [
            ("Active, f = 3", "Dismissed, f = 3", 1)
        ]
        assert compare_with_commit(history, history.after(1)) == []
        [change] = diff_memory(history, history.after(0), history.after(1)).causes[:1]
        assert change.what == ("created", "dismissed")
        fork(history, 2, "forked", root=dismissed.root)
        _well(history, "forked", dismissed.root)
        export_bundle(history, history.end, tmp_path / "bundle")
        import_bundle(tmp_path / "bundle", history.database, "imported", root=dismissed.root)
        _well(history, "imported", dismissed.root)
        rebuild_projections(history)
        _well(history, "a", dismissed.root)
        [first, second] = what_if(observations(history, history.end), Changes()).rounds
        assert (first.failures, first.epsilon_next, first.active) == (1, Fraction(2, 3), 1)
        assert (second.failures, second.epsilon_next, second.active, second.mastered) == (
            1,
            Fraction(2, 3),
            1,
            0,
        )
        assert not first.differs
        assert not second.differs


def test_a_dismissal_that_is_taken_back_counts_what_was_matched_since(dismissed: Store) -> None:
    with dismissed.open() as memory:
        with pytest.raises(ConfigError, match="dismissed already"):
            memory.dismiss("c1", WHY, "ada")
        assert memory.reinstate("c1", "bob").number == 2
        cause = memory.cause("c1")
        assert (cause.state, cause.frequency) == ("active", 4)
        assert (memory.state.failures, memory.state.epsilon) == (5, Fraction(2, 7))  # 4/(4 + 5·2)
        with pytest.raises(ConfigError, match="is not dismissed"):
            memory.reinstate("c1", "bob")
        with pytest.raises(ConfigError, match="the reason is empty"):
            memory.dismiss("c2", " ", "bob")
        memory.open_round(3)
        with pytest.raises(OutOfOrderError, match="round 3 is open"):
            memory.dismiss("c2", WHY, "bob")
        memory.commit()
    history = open_history(dismissed.url, "a", root=dismissed.root)
    with closing(history.database):
        story = why_cause(history, "c1", history.end)
        assert [turn.event for turn in story.turns if isinstance(turn, Dismissed | Reinstated)] == [
            "dismissed",
            "reinstated",
        ]
        assert verify(history.log, "a", dismissed.root / "a").faults == []
        played = what_if(observations(history, history.end), Changes(drop=frozenset({"c2"}))).rounds
        assert [one.failures for one in played] == [0, 4, 4]


def test_a_mastered_cause_is_mastered_again_or_active_with_what_failed_since(store: Store) -> None:
    with store.open() as memory:
        first_round(memory, [("drops a carry", "add", 2), ("swaps digits", "copy", 1)])
        memory.open_round(2)
        memory.score([candidate("r2.q0", 9, cause="c1"), candidate("r2.q1", 9, cause="c2")])
        assert (memory.commit().mastered, memory.state.failures) == (2, 0)
        memory.dismiss("c1", WHY, "ada")
        memory.dismiss("c2", WHY, "ada")
        memory.open_round(3)
        memory.score([candidate("r3.q0")])
        memory.observe([failure("r3.q0.a0")])
        memory.diagnosed([new_cause("r3.q0.a0", "drops a carry")])
        settle_duplicate(memory, "r3.q0.a0", "c1")
        assert memory.commit().failures == 0
        memory.reinstate("c1", "ada")
        memory.reinstate("c2", "ada")
        assert [(c.state, c.frequency) for c in memory.state.causes.values()] == [
            ("active", 1),
            ("mastered", 0),
        ]
        assert memory.state.failures == 1


def test_what_supersedes_a_round_restores_what_was_dismissed_before_it(dismissed: Store) -> None:
    with dismissed.open() as memory:
        memory.reinstate("c1", "ada")
        memory.supersede(2, "diagnosed again")
        cause = memory.cause("c1")
        assert (cause.state, cause.frequency) == ("dismissed", 3)
        assert (memory.state.failures, memory.state.epsilon) == (1, Fraction(2, 3))
        assert memory.dismiss("c2", WHY, "ada").number == 3
        assert memory.state.failures == 0
    history = open_history(dismissed.url, "a", root=dismissed.root)
    with closing(history.database):
        assert verify(history.log, "a", dismissed.root / "a").faults == []
        story = why_cause(history, "c1", history.end)
        assert (story.state, story.frequency) == ("dismissed", 3)
