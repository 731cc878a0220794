"""A person says which cause a failure is of: it is counted there, in every copy of the log, and its story
says who said so."""

from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest
from sqlalchemy import text

from diagevo.errors import ConfigError, NotFoundError, OutOfOrderError
from diagevo.memory.audit.verify import verify
from diagevo.memory.compare.memory_diff import diff_memory
from diagevo.memory.compare.replay import compare_with_commit, describe, steps
from diagevo.memory.compare.whatif import Changes, what_if
from diagevo.memory.events import FailureUnassigned
from diagevo.memory.history import History, open_history
from diagevo.memory.log.artifacts import Artifacts
from diagevo.memory.memory import Memory
from diagevo.memory.read.counts import counts
from diagevo.memory.read.opened_rounds import observations
from diagevo.memory.stories.cause_story import Added, Assigned, Unassigned
from diagevo.memory.stories.failures import FailureStory
from diagevo.memory.stories.why import story_of, why_cause
from diagevo.memory.transfer.bundle import export_bundle, import_bundle
from diagevo.memory.transfer.fork import fork
from diagevo.memory.transfer.rebuilding import rebuild_projections
from diagevo.memory.writer import Item
from tests.contracts.databases import Store
from tests.memory.play import candidate, failure, first_round, new_cause, other, settle_duplicate

NOTE = "km, not m"
FIRST = [("drops a carry", "add", 3), ("swaps digits", "copy", 1)]
"""Round 1: r1.q0.a0 to a2 are of c1, r1.q1.a0 is of c2."""


def _causes(memory: Memory) -> list[tuple[str, str, int]]:
    return [(c.cause_id, c.state, c.frequency) for c in memory.state.causes.values()]


@pytest.fixture
def assigned(store: Store) -> Store:
    """After round 1 a1 is taken from c1 to c2, and a2 to a cause in the person's own words; round 2 follows,
    with a slip that is no slip."""
    with store.open() as memory:
        first_round(memory, FIRST)
        assert (memory.state.failures, memory.state.epsilon) == (4, Fraction(1, 3))
        [event] = memory.assign(["r1.q0.a1"], "c2", "ada", NOTE)
        assert (event.number, event.cause_id, event.note) == (2, "c2", NOTE)
        assert _causes(memory) == [("c1", "active", 2), ("c2", "active", 2)]
        assert memory.add_cause("reads the unit wrong", "r1.q0.a2", "ada").cause_id == "c3"
        memory.assign(["r1.q0.a2"], "c3", "ada")
        assert _causes(memory) == [("c1", "active", 1), ("c2", "active", 2), ("c3", "active", 1)]
        assert (memory.state.failures, memory.state.epsilon) == (4, Fraction(1, 3))
        schedule = memory.open_round(2)
        assert {cause: str(p) for cause, p in schedule.shares.items()} == {
            "c1": "1/4",
            "c2": "2/4",
            "c3": "1/4",
        }
        memory.score([candidate("r2.q0"), candidate("r2.q1", 6, cause="c2")])
        memory.observe([failure("r2.q0.a0"), failure("r2.q0.a1")])
        memory.diagnosed([new_cause("r2.q0.a0", "drops a carry again"), other("r2.q0.a1", "slip")])
        settle_duplicate(memory, "r2.q0.a0", "c1")
        assert memory.commit().failures == 5
        memory.assign(["r2.q0.a1"], "c3", "bob")
        assert memory.causes_of(["r2.q0.a1", "r1.q0.a1", "r1.q0.a0"]) == {
            "r2.q0.a1": "c3",
            "r1.q0.a1": "c2",
            "r1.q0.a0": "c1",
        }
        assert _causes(memory) == [("c1", "active", 2), ("c2", "active", 2), ("c3", "active", 2)]
        assert (memory.state.failures, memory.state.epsilon) == (6, Fraction(1, 4))  # 4/(4 + 6·2)
    return store


def _well(history: History, run: str, root: Path) -> None:
    """It verifies; rows, views, stories, replay and what-if have the failures where the person has them."""
    assert verify(history.log, run, root / run).faults == []
    one = History(history.database, run, root)
    with history.database.read() as connection:

        def rows(sql: str) -> list[tuple[object, ...]]:
            return [tuple(row) for row in connection.execute(text(sql), {"run": run})]

        shown = "SELECT cause_id, state, frequency FROM v_cause WHERE run_id = :run ORDER BY number"
        assert rows(shown) == [("c1", "active", 2), ("c2", "active", 2), ("c3", "active", 2)]
        shown = "SELECT failure_id, cause_id, via FROM v_trajectory WHERE run_id = :run ORDER BY failure_id"
        assert rows(shown) == [
            ("r1.q0.a0", "c1", "new cause"),
            ("r1.q0.a1", "c2", "assigned"),
            ("r1.q0.a2", "c3", "assigned"),
            ("r1.q1.a0", "c2", "new cause"),
            ("r2.q0.a0", "c1", "deduplication"),
            ("r2.q0.a1", "c3", "assigned"),
        ]
        shown = "SELECT cause_id, failures, questions FROM v_cause_rate WHERE run_id = :run ORDER BY cause_id"
        assert rows(shown) == [("c1", 2, 2), ("c2", 2, 2), ("c3", 2, 2)]
        shown = 'SELECT failure_id, cause_id, "by", note FROM v_assignment WHERE run_id = :run ORDER BY 1'
        assert rows(shown) == [
            ("r1.q0.a1", "c2", "ada", NOTE),
            ("r1.q0.a2", "c3", "ada", None),
            ("r2.q0.a1", "c3", "bob", None),
        ]
        shown = "SELECT cause_id, failures FROM v_cause_history WHERE run_id = :run AND round = 1 ORDER BY 1"
        assert rows(shown) == [("c1", 3), ("c2", 1)]  # as its commit recorded them
    assert [(each.round, each.cause_id, each.failures, each.questions) for each in counts(one).causes] == [
        (1, "c1", 1, 1),
        (1, "c2", 2, 2),
        (1, "c3", 1, 1),
        (2, "c1", 1, 1),
        (2, "c2", 0, 0),  # it was aimed at
        (2, "c3", 1, 1),
    ]
    story = why_cause(one, "c3", one.end)
    assert [turn.event for turn in story.turns if isinstance(turn, Added | Assigned | Unassigned)] == [
        "added",
        "assigned",
        "assigned",
    ]
    assert (story.state, story.frequency, story.node_label) == ("active", 2, "add")
    out = [turn for turn in why_cause(one, "c1", one.end).turns if isinstance(turn, Unassigned)]
    assert [(turn.failure_id, turn.by, turn.frequency) for turn in out] == [
        ("r1.q0.a1", "ada", 2),
        ("r1.q0.a2", "ada", 1),
    ]
    failed = story_of(one, "r1.q0.a1", one.end)
    assert isinstance(failed, FailureStory)
    assert (failed.diagnosed, failed.cause_id) == ("c1", "c2")
    assert [(said.cause_id, said.by, said.note) for said in failed.moves] == [("c2", "ada", NOTE)]
    memory = describe(one.state(one.end, snapshots=False))
    assert (memory.failures, memory.active) == (6, 3)
    assert compare_with_commit(one, one.end) == []
    first, second = what_if(observations(one, one.end), Changes()).rounds
    assert (first.frequencies, first.epsilon_next) == ({"c1": 1, "c2": 2, "c3": 1}, Fraction(1, 3))
    assert (second.frequencies, second.epsilon_next) == ({"c1": 2, "c2": 2, "c3": 2}, Fraction(1, 4))


def test_a_failure_is_counted_where_a_person_says_in_every_copy_of_the_log(
    assigned: Store, tmp_path: Path
) -> None:
    history = open_history(assigned.url, "a", root=assigned.root)
    with closing(history.database):
        names = ("question_id", "failure_id")
        named = {getattr(fact.event, name, "reference") for fact in history.log.facts("a") for name in names}
        Artifacts(history.database).put_many(sorted(named))
        _well(history, "a", assigned.root)
        stepped = [s for s in steps(history, 1, history.end) if s.type.startswith("Failure")]
        assert [(s.subject, s.before, s.after, s.failures) for s in stepped] == [
            ("c1", "Active, f = 3", "Active, f = 2", 3),
            ("c2", "Active, f = 1", "Active, f = 2", 4),
            ("c1", "Active, f = 2", "Active, f = 1", 3),
            ("c3", "Active, f = 0", "Active, f = 1", 4),
        ]
        changed = diff_memory(history, history.after(1), history.after(2)).causes
        assert [(one.cause_id, one.what, one.frequency) for one in changed] == [
            ("c1", ("counted",), (1, 2)),
            ("c3", ("counted",), (1, 2)),
        ]
        fork(history, 2, "forked", root=assigned.root)
        _well(history, "forked", assigned.root)
        export_bundle(history, history.end, tmp_path / "bundle")
        import_bundle(tmp_path / "bundle", history.database, "imported", root=assigned.root)
        _well(history, "imported", assigned.root)
        rebuild_projections(history)
        _well(history, "a", assigned.root)


def test_what_is_taken_back_is_as_diagnosed(assigned: Store) -> None:
    with assigned.open() as memory:
        with pytest.raises(ConfigError, match=r"nobody assigned r1\.q0\.a0"):
            memory.unassign(["r1.q0.a0"], "ada")
        memory.unassign(["r1.q0.a1", "r1.q0.a2", "r2.q0.a1"], "ada")
        assert _causes(memory) == [("c1", "active", 4), ("c2", "active", 1), ("c3", "active", 0)]
        assert memory.causes_of(["r2.q0.a1"]) == {"r2.q0.a1": None}
        with pytest.raises(ConfigError, match="nobody assigned"):
            memory.unassign(["r2.q0.a1"], "ada")
        assert memory.assign(["r1.q0.a1"], "c1", "ada")[0].cause_id == "c1"  # confirmed: a word of its own
        assert memory.assign(["r1.q0.a1"], "c1", "ada") == []
        assert _causes(memory)[0] == ("c1", "active", 4)
        memory.open_round(3)
        with pytest.raises(OutOfOrderError, match="round 3 is open"):
            memory.assign(["r1.q0.a1"], "c2", "ada")
        memory.commit()
        assert memory.state.failures == 5
    history = open_history(assigned.url, "a", root=assigned.root)
    with closing(history.database):
        assert verify(history.log, "a", assigned.root / "a").faults == []
        played = what_if(observations(history, history.end), Changes()).rounds
        assert played[-1].frequencies == {"c1": 4, "c2": 1, "c3": 0}


def test_a_promotion_closes_what_failed_before_it_whoever_says_so(store: Store) -> None:
    """Equation 8 counts failures since the last promotion: one of round 1 says nothing of a cause that was
    mastered in round 2, and one of round 2 makes it Active again."""
    with store.open() as memory:
        first_round(memory, FIRST)
        memory.open_round(2)
        memory.score([candidate("r2.q0", 9, cause="c1"), candidate("r2.q1")])
        memory.observe([failure("r2.q1.a0")])
        memory.diagnosed([new_cause("r2.q1.a0", "swaps digits again")])
        settle_duplicate(memory, "r2.q1.a0", "c2")
        memory.commit()
        assert _causes(memory) == [("c1", "mastered", 0), ("c2", "active", 2)]
        memory.assign(["r1.q1.a0"], "c1", "ada")
        assert _causes(memory) == [("c1", "mastered", 0), ("c2", "active", 1)]
        memory.assign(["r1.q0.a0"], "c2", "ada")
        assert _causes(memory) == [("c1", "mastered", 0), ("c2", "active", 2)]
        memory.assign(["r2.q1.a0"], "c1", "ada")
        assert _causes(memory) == [("c1", "active", 1), ("c2", "active", 1)]
        memory.unassign(["r2.q1.a0"], "ada")
        assert _causes(memory) == [("c1", "mastered", 0), ("c2", "active", 2)]
        memory.unassign(["r1.q0.a0", "r1.q1.a0"], "ada")
        assert _causes(memory) == [("c1", "mastered", 0), ("c2", "active", 2)]
        memory.assign(["r1.q1.a0", "r2.q1.a0"], "c1", "ada")
        assert _causes(memory) == [("c1", "active", 1), ("c2", "active", 0)]
        memory.dismiss("c2", "no fault", "ada")
        memory.reinstate("c2", "ada")
        assert _causes(memory)[1] == ("c2", "active", 0)  # never mastered, so not Mastered
        assert [draw.cause_id for draw in memory.open_round(3).draw(40, seed=0) if draw.cause_id != "c1"]
        memory.commit()
    history = open_history(store.url, "a", root=store.root)
    with closing(history.database):
        assert verify(history.log, "a", store.root / "a").faults == []
        story = why_cause(history, "c1", history.end)
        assert (story.state, story.frequency, story.how) == ("active", 1, "assigned")


def test_what_cannot_be_assigned_is_refused(assigned: Store) -> None:
    with assigned.open() as memory:
        for given, words in (
            ("r9.q0.a0", "has no failure r9.q0.a0"),
            ("c1", "c1 is not the id of a failure"),
            ("r1.q0.a9", "has no failure r1.q0.a9"),
        ):
            with pytest.raises(NotFoundError, match=words):
                memory.assign([given], "c1", "ada")
        with pytest.raises(NotFoundError, match="no cause c9"):
            memory.assign(["r1.q0.a0"], "c9", "ada")
        with pytest.raises(ConfigError, match="the note is empty"):
            memory.assign(["r1.q0.a0"], "c2", "ada", " ")
        with pytest.raises(ConfigError, match="c1 already has this description"):
            memory.add_cause("drops a carry", "r1.q0.a0", "ada")
        memory.supersede(2, "once more")
        with pytest.raises(NotFoundError, match="round 2 of run a is superseded by round 3"):
            memory.assign(["r2.q0.a1"], "c1", "ada")
        # Back to what round 2 began with: what was said of round 1 before it stays.
        assert _causes(memory) == [("c1", "active", 1), ("c2", "active", 2), ("c3", "active", 1)]
    history = open_history(assigned.url, "a", root=assigned.root)
    with closing(history.database):
        assert verify(history.log, "a", assigned.root / "a").faults == []


def test_a_word_that_does_not_fit_its_failure_is_found(assigned: Store) -> None:
    """The fold alone cannot: it forgets the failures of a round at its commit."""
    with assigned.open() as memory:
        [(placed, _)] = memory._placed(["r1.q0.a0"]).values()
        with memory.atomic():
            number = memory.state.assignments + 1
            event = FailureUnassigned(number=number, cause_id="c2", failure=placed, by="eve")
            memory._run.append([Item(event, round=2)])
    with assigned.log() as log:
        [fault] = verify(log, "a", assigned.root / "a").faults
        assert fault.message.endswith("r1.q0.a0 is counted under c1")
