"""Which causes a prompt that comes back aims at: a rule of ours, for trainers whose prompts are not written
for a cause.

A prompt aims at the Active cause that most of its last failures were assigned to (ties: the older cause), and
is stitched to the Mastered one, where there is one. Its last failures are those of the last round in which
it had any that were assigned to a cause. So Equations 6 and 7 work for a data set that is read again: P_t(e)
are the prompts that come back.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from diagevo.memory.events import CandidateScored, CauseCreated, CauseMatched, CauseState, number_of
from diagevo.memory.log.log import Log


@dataclass(frozen=True, slots=True)
class Aim:
    """An Active cause, and a Mastered one beside it."""

    cause_id: str
    stitched_cause_id: str | None = None

    @classmethod
    def still(
        cls, cause_id: str | None, stitched: str | None, states: Mapping[str, CauseState]
    ) -> "Aim | None":
        """What a prompt that was drawn for these causes aims at now that they are in these states."""
        if cause_id is None or states.get(cause_id) != "active":
            return None
        return cls(
            cause_id, stitched if stitched is not None and states.get(stitched) == "mastered" else None
        )


class LastFailures:
    """Of every prompt that ever failed, the causes of its last failures, by the digest of its text."""

    def __init__(self) -> None:
        self._causes: dict[str, tuple[int, Counter[str]]] = {}

    def read(self, log: Log, run_id: str, rounds: Sequence[int]) -> None:
        """Take in what was committed in these rounds, which come in order."""
        if not rounds:
            return
        wanted = set(rounds)
        questions: dict[str, str] = {}
        types = ["CandidateScored", "CauseCreated", "CauseMatched"]
        for recorded in log.read(run_id, types=types, rounds=(rounds[0], rounds[-1])):
            if recorded.round not in wanted:
                continue
            match recorded.event:
                case CandidateScored() as scored if scored.verdict in ("kept", "too_hard"):
                    questions[scored.question_id] = scored.question
                case (
                    CauseCreated(failure_id=failure_id, cause_id=cause_id)
                    | CauseMatched(failure_id=failure_id, cause_id=cause_id)
                ):
                    digest = questions[failure_id.rpartition(".")[0]]
                    round_, causes = self._causes.get(digest, (0, Counter()))
                    if round_ != recorded.round:
                        causes = Counter()
                        self._causes[digest] = recorded.round, causes
                    causes[cause_id] += 1
                case _:
                    pass

    def aim(self, digest: str, states: Mapping[str, CauseState]) -> Aim | None:
        """What the prompt aims at while the causes are in these states; None: nothing, it is free."""
        _, causes = self._causes.get(digest, (0, Counter[str]()))
        ranked = sorted(causes, key=lambda cause_id: (-causes[cause_id], number_of(cause_id)))
        active = next((c for c in ranked if states.get(c) == "active"), None)
        if active is None:
            return None
        return Aim(active, next((c for c in ranked if states.get(c) == "mastered"), None))
