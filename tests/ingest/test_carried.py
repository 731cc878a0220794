"""What a person said of failures stays, whatever diagnosis comes after it."""

from diagevo.ingest.rounds import Rounds
from diagevo.memory.audit.verify import verify
from diagevo.memory.compare.whatif import Changes, what_if
from diagevo.memory.events import FailureAssigned
from diagevo.memory.history import History
from diagevo.memory.memory import Memory
from diagevo.memory.read.opened_rounds import observations
from diagevo.memory.stories.why import why_cause
from tests.ingest.conftest import step
from tests.ingest.test_recording import diagnose, record

OWN = "reads the unit wrong"


def _causes(memory: Memory) -> dict[str, int]:
    return {c.description: c.frequency for c in memory.state.causes.values()}


def _well(memory: Memory) -> None:
    """It verifies, and what was recorded, played again, gives the same memory."""
    assert verify(memory.log, "a", memory.folder).faults == []
    history = History(memory.database, "a", memory.root)
    last = what_if(observations(history, history.end), Changes()).rounds[-1]
    assert last.frequencies == {c.cause_id: c.frequency for c in memory.state.active()}
    for cause_id in memory.state.causes:
        story = why_cause(history, cause_id, history.end)
        assert (story.state, story.frequency) == ("active", memory.cause(cause_id).frequency)


def _words(memory: Memory, failure: str) -> str | None:
    cause_id = memory.causes_of([failure])[failure]
    return None if cause_id is None else memory.cause(cause_id).description


def test_what_a_person_said_is_kept_by_every_later_diagnosis(memory: Memory) -> None:
    record(memory, step(1, a="+--", b="+-"), step(2, c="+-"))
    diagnose(memory, {"a": "drops a carry", "b": "swaps digits", "c": "drops a carry"})
    assert _causes(memory) == {"drops a carry": 3, "swaps digits": 1}
    own = memory.add_cause(OWN, "r1.q0.a1", "ada").cause_id
    memory.assign(["r1.q0.a1"], own, "ada", "km, not m")
    memory.assign(["r1.q2.a1"], "c2", "ada")
    memory.assign(["r1.q0.a2"], "c2", "ada")
    memory.unassign(["r1.q0.a2"], "ada")
    assert _causes(memory) == {"drops a carry": 1, "swaps digits": 2, OWN: 1}
    Rounds(memory).supersede(1, "diagnosed again")
    # Only what a person named is there when the diagnosis begins, and no failure is counted under it.
    assert _causes(memory) == {OWN: 0, "swaps digits": 0}
    diagnose(memory, {"a": "forgets the ten", "b": "forgets the ten", "c": "forgets the ten"})
    assert _words(memory, "r2.q0.a1") == OWN
    assert _words(memory, "r2.q2.a1") == "swaps digits"
    assert _words(memory, "r2.q0.a2") == "forgets the ten"
    assert _causes(memory) == {OWN: 1, "swaps digits": 1, "forgets the ten": 2}
    _well(memory)
    said = [fact.event for fact in memory.log.chosen("a", [FailureAssigned])][-2:]
    assert [(one.by, one.note) for one in said] == [("ada", "km, not m"), ("ada", None)]
    # Taken back there it is no word any more: the next diagnosis stands.
    memory.unassign(["r2.q0.a1"], "ada")
    Rounds(memory).supersede(2, "diagnosed again")
    diagnose(memory, {"a": "forgets the ten", "b": "forgets the ten", "c": "forgets the ten"})
    assert _causes(memory) == {OWN: 0, "swaps digits": 1, "forgets the ten": 3}
    _well(memory)


def test_what_was_said_of_rounds_that_stand_stays_where_a_later_one_is_superseded(memory: Memory) -> None:
    record(memory, step(1, a="+-"), step(2, b="+-"), step(3, a="+-"), step(4, b="+-"))
    diagnose(memory, {"a": "drops a carry", "b": "swaps digits"})
    memory.assign(["r1.q0.a1"], "c2", "ada")
    Rounds(memory).supersede(2, "diagnosed again")
    assert memory.causes_of(["r1.q0.a1"]) == {"r1.q0.a1": "c2"}
    assert _causes(memory) == {"drops a carry": 0, "swaps digits": 2}
    diagnose(memory, {"a": "swaps digits", "b": "swaps digits"})
    assert _causes(memory) == {"drops a carry": 0, "swaps digits": 4}
    _well(memory)


def test_a_prompt_that_comes_back_aims_at_the_cause_that_a_person_named(memory: Memory) -> None:
    record(memory, step(1, a="+-", b="+-"), step(2, c="++"))
    diagnose(memory, {"a": "drops a carry", "b": "swaps digits"})
    memory.assign(["r1.q0.a1"], "c2", "ada")
    record(memory, step(3, a="+-"), step(4, b="+-"))
    diagnose(memory, {"a": "swaps digits", "b": "swaps digits"})
    assert [memory.question(f"r2.q{n}").cause_id for n in (0, 1)] == ["c2", "c2"]
