"""What another trainer's files gave a run, read once: groups that stand, and the causes of their failures."""

from collections import Counter
from dataclasses import dataclass, field

from diagevo.memory.audit.groups import Attempts
from diagevo.memory.events import (
    CandidateScored,
    CauseCreated,
    CauseMatched,
    FailureObserved,
    GroupIngested,
)
from diagevo.memory.history import History


@dataclass(slots=True)
class Rollouts:
    """Up to a round, or of all rounds and what waits for one."""

    steps: dict[tuple[int, int], list[GroupIngested]] = field(
        default_factory=dict[tuple[int, int], list[GroupIngested]]
    )
    """By the round that plays them, and their step."""
    questions: dict[str, CandidateScored] = field(default_factory=dict[str, CandidateScored])
    """Groups that were played, as questions, in order of the log."""
    causes: dict[str, Counter[str]] = field(default_factory=dict[str, Counter[str]])
    """Of each cause, its failures by question."""
    descriptions: dict[str, str] = field(default_factory=dict[str, str])
    failures: int = 0
    """Observed ones."""
    against_answers: int = 0
    """Of them those of a group that nothing passed in."""

    @property
    def standing(self) -> list[GroupIngested]:
        return [group for _, groups in sorted(self.steps.items()) for group in groups]

    def prompts(self) -> dict[str, dict[int, list[GroupIngested]]]:
        """The groups of each prompt by its digest, by step."""
        found: dict[str, dict[int, list[GroupIngested]]] = {}
        for group in self.standing:
            found.setdefault(group.question, {}).setdefault(group.step, []).append(group)
        return found

    def last_causes(self, wanted: set[str]) -> dict[str, str]:
        """By prompt, the cause of most failures of its last group that has any."""
        of_question: dict[str, Counter[str]] = {}
        for cause, asked in self.causes.items():
            for question_id, failures in asked.items():
                of_question.setdefault(question_id, Counter())[cause] = failures
        return {
            scored.question: of_question[question_id].most_common(1)[0][0]
            for question_id, scored in self.questions.items()  # the last one stays
            if scored.question in wanted and question_id in of_question
        }


def rate(groups: list[GroupIngested]) -> float:
    """The share of their rollouts that passed."""
    return sum(one.passes for one in groups) / sum(len(one.rewards) for one in groups)


def rollouts(history: History, until: int | None = None) -> Rollouts:
    """Those that a run holds; `until` a round, unless it is the last one: then all that was recorded."""
    state = history.state(history.end)
    whole = until is None or until >= history.end.round
    counted = [round_ for round_ in state.counted() if whole or round_ <= (until or 0)]  # one a batch
    counts, attempts = set(counted), Attempts.of(history.log, history.run_id)
    found = Rollouts()
    types = (GroupIngested, CandidateScored, FailureObserved, CauseCreated, CauseMatched)
    for fact in history.events(*types):
        match fact.event:
            case GroupIngested() as group:
                waits = fact.round - len(counted)  # its batch, behind those that were played
                if (whole or waits <= 0) and not attempts.void(group.step, group.attempt):
                    played = state.last_opened + waits if waits > 0 else counted[fact.round - 1]
                    found.steps.setdefault((played, group.step), []).append(group)
            case _ if fact.round not in counts:
                pass
            case CandidateScored() as scored:
                found.questions[scored.question_id] = scored
            case FailureObserved(against=against):
                found.failures += 1
                found.against_answers += against == "answer"
            case CauseCreated(cause_id=cause, failure_id=failure, description=words):
                found.descriptions[cause] = words
                found.causes[cause] = Counter([failure.rpartition(".")[0]])
            case CauseMatched(cause_id=cause, failure_id=failure):
                found.causes[cause][failure.rpartition(".")[0]] += 1
    return found
