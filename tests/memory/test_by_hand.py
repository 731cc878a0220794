"""The README's page on the memory as a library, played: one round by hand, then the next round's schedule."""

from fractions import Fraction
from pathlib import Path

import pytest

import diagevo
from diagevo.errors import ConfigError, OutOfOrderError
from diagevo.memory.audit.verify import verify
from diagevo.memory.memory import Memory


def test_a_round_played_by_hand_sets_the_next_schedule(tmp_path: Path) -> None:
    memory = diagevo.open(f"sqlite:///{tmp_path}/a.db", run="a")

    schedule = memory.open_round(1)
    assert schedule.epsilon == 1  # nothing is known yet: free exploration
    plan = schedule.draw(2, seed=7)
    assert [draw.mode for draw in plan] == ["free", "free"]

    put = memory.artifacts.put
    question, reference = put("What is 17 + 25?"), put(r"7+5=12, carry 1; 1+2+1=4: \boxed{42}")
    memory.score(
        [
            diagevo.CandidateScored(
                question_id="r1.q0",
                question=question,
                mode="free",
                cause_id=None,
                stitched_cause_id=None,
                responses=12,
                votes=[("42", 8), ("32", 4)],
                first=8,
                second=4,
                label="42",
                verdict="kept",
                reference=reference,
            )
        ]
    )
    memory.observe(
        [
            diagevo.FailureObserved(
                failure_id=f"r1.q0.a{sample}",
                question_id="r1.q0",
                stage="solver",
                attempt=1,
                step=1,
                trajectory=put(r"7+5=12; 1+2=3: \boxed{32}"),
                reference=reference,
            )
            for sample in (2, 5)
        ]
    )
    memory.diagnosed(
        [
            diagevo.FailureDiagnosed(
                failure_id=failure.failure_id,
                attempt=failure.attempt,
                supplied=[],
                verdict="new_cause",
                cause_id=None,
                description="drops the carry when adding a column",
            )
            for failure in memory.undiagnosed()
        ]
    )
    first, second = memory.unsettled()
    memory.settle(
        first.failure_id,
        judged=diagevo.DuplicateJudged(
            failure_id=first.failure_id, candidates=[], nearest=None, duplicate=False, cause_id=None
        ),
        assigned=diagevo.NodeAssigned(
            failure_id=first.failure_id, shortlist=[], node_id=None, new_label="add numbers column by column"
        ),
    )
    memory.settle(
        second.failure_id,
        judged=diagevo.DuplicateJudged(
            failure_id=second.failure_id, candidates=[], nearest=None, duplicate=True, cause_id="c1"
        ),
    )
    committed = memory.commit()
    assert (committed.failures, committed.epsilon_next) == (2, "1/3")  # F₁ = 2, z = 1, k = 1/2

    schedule = memory.open_round(2)
    assert schedule.epsilon == Fraction(1, 3)
    assert {cause: share.p for cause, share in schedule.shares.items()} == {"c1": Fraction(1)}
    assert {draw.cause for draw in schedule.draw(50, seed=7)} == {
        None,
        "drops the carry when adding a column",
    }
    memory.close()


def _undiagnosed(memory: Memory, round: int, failures: int) -> None:
    """A round with a kept question and failures that nobody diagnosed."""
    [draw] = memory.open_round(round).draw(1, seed=7)
    question = diagevo.voted(memory, draw, "What is 17 + 25?", [r"\boxed{42}"] * 8 + [r"\boxed{32}"] * 4)
    assert question.reference is not None
    memory.score([question])
    memory.observe(
        [
            diagevo.FailureObserved(
                failure_id=f"r{round}.q0.a{sample}",
                question_id=question.question_id,
                stage="solver",
                attempt=1,
                step=1,
                trajectory=memory.artifacts.put(r"7+5=12; 1+2=3: \boxed{32}"),
                reference=question.reference,
            )
            for sample in range(failures)
        ]
    )


def test_failures_that_nobody_diagnosed_are_refused_at_commit_or_kept_for_later(tmp_path: Path) -> None:
    with diagevo.open(f"sqlite:///{tmp_path}/a.db", run="a") as memory:
        _undiagnosed(memory, 1, failures=2)
        head = memory.log.head("a")
        with pytest.raises(OutOfOrderError, match="2 of 2 failures are not diagnosed") as refused:
            memory.commit()
        assert 'commit(undiagnosed="keep")' in str(refused.value.hint)
        with pytest.raises(ConfigError, match="'later', not one of refuse, keep"):
            memory.commit(undiagnosed="later")  # pyright: ignore[reportArgumentType]
        assert memory.log.head("a") == head  # nothing is written

        kept = memory.commit(undiagnosed="keep")
        assert (kept.undiagnosed, kept.failures, kept.epsilon_next) == (2, 0, "1")
        _undiagnosed(memory, 2, failures=1)
        memory.commit(undiagnosed="keep")

        # Later somebody looks at them: two of the three are of one cause, which then has f = F = 2.
        frame = diagevo.read(f"sqlite:///{tmp_path}/a.db", "a").failures()
        waiting = frame.filter(frame["cause_id"].is_null())["failure_id"].to_list()
        assert waiting == ["r1.q0.a0", "r1.q0.a1", "r2.q0.a0"]
        cause = memory.add_cause("drops the carry", waiting[0], by="me").cause_id
        memory.assign([waiting[0], waiting[2]], cause, by="me")
        assert memory.cause(cause).frequency == 2
        assert memory.causes_of(waiting) == {waiting[0]: cause, waiting[1]: None, waiting[2]: cause}
        assert memory.open_round(3).epsilon == Fraction(1, 3)  # F = F₁, so z = 1, and k = 1/2
        committed = memory.commit()
        assert (committed.failures, committed.reference_failures) == (2, 2)
        assert verify(memory.log, "a", memory.folder, deep=True).faults == []


def test_what_a_diagnosis_was_supplied_with_is_told_by_its_type(tmp_path: Path) -> None:
    with diagevo.open(f"sqlite:///{tmp_path}/a.db", run="a") as memory:
        _undiagnosed(memory, 1, failures=1)
        with pytest.raises(ConfigError, match=r"supplied\[0\] is a object") as refused:
            memory.diagnosed(
                [
                    diagevo.FailureDiagnosed(
                        failure_id="r1.q0.a0",
                        attempt=1,
                        supplied=[object()],  # pyright: ignore
                        verdict="slip",
                        cause_id=None,
                        description=None,
                    )
                ]
            )
        assert "help(diagevo.memory.events.FailureDiagnosed)" in str(refused.value.hint)
