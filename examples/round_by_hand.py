"""One round by hand, with a trainer of your own: votes, a failure, what the diagnostician said, the commit.

Run it: python examples/round_by_hand.py FOLDER (a new one).
Then: diagevo memory why c1 --db FOLDER/diagevo.db
"""

import sys
from pathlib import Path

import diagevo


def main(folder: str) -> None:
    with diagevo.open(f"sqlite:///{folder}/diagevo.db", run="hand") as memory:
        schedule = memory.open_round(1)  # ε₁ = 1: nothing is known yet
        [draw] = schedule.draw(1, seed=7)
        text = memory.artifacts.put
        question = diagevo.CandidateScored(
            question_id="r1.q0",
            question=text("Solve √(x + 2) = x."),
            mode=draw.mode,
            cause_id=draw.cause_id,
            stitched_cause_id=draw.stitched_cause_id,
            responses=12,
            votes=[("2", 8), ("-1", 4)],
            first=8,
            second=4,
            label="2",
            verdict="kept",
            reference=text("Squaring gives 2 and -1; only 2 solves the equation: \\boxed{2}"),
        )
        memory.score([question])
        failure = diagevo.FailureObserved(
            failure_id="r1.q0.a3",
            question_id="r1.q0",
            stage="solver",
            attempt=1,
            step=1,
            trajectory=text("Squaring gives 2 and -1: \\boxed{-1}"),
            reference=question.reference,
        )
        memory.observe([failure])
        memory.diagnosed(
            [
                diagevo.FailureDiagnosed(
                    failure_id="r1.q0.a3",
                    attempt=1,
                    supplied=[],
                    verdict="new_cause",
                    cause_id=None,
                    description="keeps candidates that the original equation rules out",
                )
            ]
        )
        memory.settle(
            "r1.q0.a3",
            judged=diagevo.DuplicateJudged(
                failure_id="r1.q0.a3", candidates=[], nearest=None, duplicate=False, cause_id=None
            ),
            assigned=diagevo.NodeAssigned(
                failure_id="r1.q0.a3", shortlist=[], node_id=None, new_label="checking candidates"
            ),
        )
        committed = memory.commit()
        print(f"F = {committed.failures}, ε₂ = {committed.epsilon_next}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/round_by_hand.py FOLDER (a new one)")
    if (Path(sys.argv[1]) / "diagevo.db").exists():
        sys.exit(f"{sys.argv[1]} has a database already, and its round 1 is over: name a new folder")
    main(sys.argv[1])
