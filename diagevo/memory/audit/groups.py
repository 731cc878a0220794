"""Whether a round that was made of ingested groups has their candidates and failures, and no others.

The fold meets a round's candidates long after its groups and cannot keep them all; here a round's own are
read together. Where the files have no answer, a candidate's label was read out of its reference's text: it is
not made again.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import count, takewhile, zip_longest

from diagevo.memory.events import CandidateScored, FailureObserved, GroupIngested
from diagevo.memory.events.decode import full
from diagevo.memory.log.log import Log, Payload
from diagevo.memory.state.model import MemoryState

TYPES = tuple(event.__name__ for event in (GroupIngested, CandidateScored, FailureObserved))


def first_stranger(log: Log, state: MemoryState) -> tuple[int, str] | None:
    """Position and fault of the first event that is not its groups', or of a group out of its place. `state`
    is the fold of the run."""
    if not log.count(state.run_id, GroupIngested.__name__):
        return None
    opened = state.round if state.open is None else state.open.number
    rounds = ((n, list(log.payloads(state.run_id, TYPES, (n, n)))) for n in count(1))
    # Rounds that wait come without a gap after those that were opened.
    there = takewhile(lambda told: told[0] <= opened or told[1], rounds)
    return next((stranger for number, told in there for stranger in strangers(told, number)), None)


def strangers(told: Iterable[Payload], number: int) -> Iterator[tuple[int, str]]:
    """Of round `number`, from its events of these types in order."""
    groups: list[GroupIngested] = []
    places = Counter[int]()
    candidates: list[tuple[int, CandidateScored]] = []
    failures: list[tuple[int, FailureObserved]] = []
    for payload in told:
        match full(payload.type, payload.schema_version, payload.payload):
            case GroupIngested() as group:
                if candidates:
                    yield payload.position, f"round {number} was made before this group of step {group.step}"
                if group.group != (place := places[group.step]):
                    yield payload.position, f"group {place} of step {group.step} comes next"
                places[group.step] += 1
                groups.append(group)
            case CandidateScored() as candidate:
                candidates.append((payload.position, candidate))
            case FailureObserved() as failure:
                failures.append((payload.position, failure))
            case _:
                pass
    if not groups or not candidates:
        return
    of_question: dict[str, GroupIngested] = {}
    for pair, group in zip_longest(candidates, groups):
        if pair is None or group is None:
            yield (
                candidates[-1][0],
                f"round {number} has {len(candidates)} candidates of {len(groups)} ingested groups",
            )
            return
        position, candidate = pair
        of_question[candidate.question_id] = group
        if wrong := _other(candidate, group):
            name = f"group {group.group} of step {group.step}"
            yield position, f"the {wrong} of {candidate.question_id} is not that of its {name}"
    yield from _other_failures(failures, of_question)
    if len(failures) != (expected := sum(len(group.failed) for group in groups)):
        position = failures[-1][0] if failures else candidates[-1][0]
        yield position, f"round {number} has {len(failures)} failures of {expected} in its ingested groups"


def _other(candidate: CandidateScored, group: GroupIngested) -> str | None:
    """What of the candidate is not the group's."""
    same = {
        "kind of votes": candidate.votes_are == "rewards",
        "question": candidate.question == group.question,
        "number of responses": candidate.responses == len(group.rewards),
        "number of passes": candidate.first == group.passes,
        "label": group.answer is None or candidate.label == group.answer,
        "reference": candidate.reference == group.reference,
    }
    return next((what for what, is_same in same.items() if not is_same), None)


def _other_failures(
    failures: list[tuple[int, FailureObserved]], of_question: dict[str, GroupIngested]
) -> Iterator[tuple[int, str]]:
    waiting = {
        f"{question_id}.a{failed.sample}": (failed.trajectory, group.reference, group.step, "solver")
        for question_id, group in of_question.items()
        for failed in group.failed
    }
    for position, failure in failures:
        said = (failure.trajectory, failure.reference, failure.step, failure.stage)
        if waiting.pop(failure.failure_id, None) != said:
            yield position, f"{failure.failure_id} is no failed rollout of its ingested group"
