"""The README's page on the memory as a library, played: one round by hand, then the next round's schedule."""

from fractions import Fraction
from pathlib import Path

import diagevo


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
