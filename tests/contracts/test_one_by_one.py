"""Candidates scored one by one: any order and any portions, the writer killed between two."""

from fractions import Fraction

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diagevo.errors import OutOfOrderError
from diagevo.memory.audit.verify import verify
from diagevo.memory.events import CandidateScored
from diagevo.memory.memory import Memory
from tests.contracts.databases import Store
from tests.memory.play import candidate, failure, first_round, new_cause, opened, settle_new

CAUSES = [None, "c1", "c2"]
ENDS = ["the first failure", "the solver's stage", "the commit"]
ASKED = st.tuples(st.sampled_from(CAUSES), st.integers(0, 12), st.sampled_from([12, 10]))


def second_round(memory: Memory) -> None:
    first_round(memory, [("drops a carry", "add", 2), ("swaps digits", "copy", 1)])
    memory.open_round(2, seed=3)


def ended(memory: Memory, by: str) -> tuple[str, list[str]]:
    """The hash of the committed memory, and the causes that were Mastered before the first failure."""
    if by == "the solver's stage":
        memory.start_stage("solver")
        memory.complete_stage("solver")
    if by == "the first failure":
        memory.observe([failure("r2.q0.a0")])
        memory.diagnosed([new_cause("r2.q0.a0", "skips a line")])
        settle_new(memory, "r2.q0.a0", label="read every line")
    committed = memory.commit()
    history = memory.log.read(memory.run_id, types=["CausePromoted"])
    return committed.state_hash, sorted(one.event.key() for one in history)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=st.lists(ASKED, max_size=6), by=st.sampled_from(ENDS), data=st.data(), killed=st.integers(0, 7))
def test_any_order_and_any_portions_give_the_memory_of_one_call(
    asked: list[tuple[str | None, int, int]],
    by: str,
    data: st.DataObject,
    killed: int,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    whole: list[CandidateScored] = [candidate("r2.q0")]
    whole += [
        candidate(f"r2.q{number}", min(first, of), cause=cause, responses=of)
        for number, (cause, first, of) in enumerate(asked, 1)
    ]
    means = {
        cause: [Fraction(min(first, of), of) for aims, first, of in asked if aims == cause]
        for cause in CAUSES[1:]
    }
    right = [cause for cause, all_ in means.items() if all_ and sum(all_) / len(all_) >= Fraction(7, 10)]
    with opened(tmp_path_factory.mktemp("whole")) as memory:
        second_round(memory)
        promoted = memory.score(whole)
        expected = ended(memory, by)
    assert [each.cause_id for each in promoted] == right == expected[1]
    folder = tmp_path_factory.mktemp("portions")
    with opened(folder) as memory:
        second_round(memory)
        drawn = memory.schedule(2).draw(8, seed=3)
        left = data.draw(st.permutations(whole))
        while left:
            portion, left = left[: (size := data.draw(st.integers(1, len(left))))], left[size:]
            given_ = memory.score(portion)
            assert memory.score(portion) == given_
            assert memory.schedule(2).draw(8, seed=3) == drawn
            if len(left) <= killed:
                break
        assert memory.state.causes["c1"].state == memory.state.causes["c2"].state == "active"
    with opened(folder) as memory:  # its writer is another one; who resumes scores what is not there, or all
        assert memory.open_round(2).draw(8, seed=3) == drawn
        assert memory.score(whole) == promoted
        assert ended(memory, by) == expected
        assert verify(memory.log, memory.run_id, memory.folder).faults == []


def test_after_the_promotions_no_candidate_is_taken(store: Store) -> None:
    with store.open() as memory:
        second_round(memory)
        assert [each.cause_id for each in memory.score([candidate("r2.q0", 12, cause="c1")])] == ["c1"]
        assert memory.score([candidate("r2.q1", 3, cause="c1")]) == []  # (1 + 1/4) / 2 is below 7/10
        assert memory.promote() == []
        assert [each.cause_id for each in memory.score([candidate("r2.q2", 11, cause="c1")])] == ["c1"]
        [promoted] = memory.promote()  # (12 + 3 + 11) / 36
        assert (promoted.cause_id, promoted.questions, promoted.consistency) == ("c1", 3, "13/18")
        assert memory.promote() == [promoted]
        events = memory.log.count("a")
        with pytest.raises(OutOfOrderError, match="all candidates are scored before promotions"):
            memory.score([candidate("r2.q3", cause="c1")])
        assert memory.log.count("a") == events
        assert memory.commit().mastered == 1
