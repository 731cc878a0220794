"""Whether a round made from ingested groups has their candidates and failures, and no others.

The fold sees a round's candidates long after its groups and cannot keep them all; here they are read
together. If the files have no answer, a candidate's label was extracted from its reference's text: it is not
recomputed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import count, zip_longest

from diagevo.memory.events import CandidateScored, FailureObserved, GroupIngested
from diagevo.memory.events.decode import Fact
from diagevo.memory.log.artifacts import digest_of
from diagevo.memory.log.log import Log
from diagevo.memory.state.model import Attempts, MemoryState

Made = CandidateScored | FailureObserved


def first_mismatch(log: Log, state: MemoryState) -> tuple[int, str] | None:
    """Position and fault of the first event that does not match its groups, or of a group out of order.
    `state` is the fold of the run."""
    run_id = state.run_id
    if not log.count(run_id, GroupIngested.__name__):
        return None
    return mismatch(
        state,
        Attempts(log.chosen(run_id, [GroupIngested])),
        lambda batch: log.chosen(run_id, [GroupIngested], (batch, batch)),
        lambda number: log.chosen(run_id, [CandidateScored, FailureObserved], (number, number)),
    )


def mismatch(
    state: MemoryState,
    attempts: Attempts,
    ingested: Callable[[int], Iterable[Fact[GroupIngested]]],
    own: Callable[[int], Iterable[Fact[Made]]],
) -> tuple[int, str] | None:
    """`first_mismatch` for the groups of a batch and the events of a round, however they are read."""
    for number in count(1):
        groups = list(ingested(state.batch(number)))
        # Waiting rounds follow the opened ones without a gap.
        if not groups and number > state.last_opened:
            return None
        counts = bool(state.counted([number]))
        if (
            found := next(_mismatches(groups, own(number), number, attempts, counts=counts), None)
        ) is not None:
            return found
    return None


def _mismatches(
    ingested: Iterable[Fact[GroupIngested]],
    facts: Iterable[Fact[Made]],
    number: int,
    attempts: Attempts,
    *,
    counts: bool,
) -> Iterator[tuple[int, str]]:
    """Of round `number`, from the groups of its batch and its own events, in order. A superseded round was
    made from the groups that were valid then."""
    candidates: list[tuple[int, CandidateScored]] = []
    failures: list[tuple[int, FailureObserved]] = []
    for fact in facts:
        if isinstance(fact.event, CandidateScored):
            candidates.append((fact.position, fact.event))
        else:
            failures.append((fact.position, fact.event))
    made = candidates[0][0] if candidates else None
    groups: list[GroupIngested] = []
    places = Counter[tuple[int, int]]()
    for fact in ingested:
        group = fact.event
        if group.group != (place := places[group.attempt, group.step]):
            yield fact.position, f"group {place} of step {group.step} comes next"
        places[group.attempt, group.step] += 1
        if made is not None and fact.position > made:
            if counts:
                yield fact.position, f"round {number} was made before this group of step {group.step}"
        elif not attempts.void(group.step, group.attempt, made):
            groups.append(group)
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
    asked = Counter(failure.question_id for _, failure in failures)
    expected = sum(
        len(group.failed)
        for question_id, group in of_question.items()
        if group.reference is not None or asked[question_id]  # against the answer: all of a group or none
    )
    if len(failures) != expected:
        position = failures[-1][0] if failures else candidates[-1][0]
        yield position, f"round {number} has {len(failures)} failures of {expected} in its ingested groups"


def _other(candidate: CandidateScored, group: GroupIngested) -> str | None:
    """The first field in which the candidate differs from the group."""
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
        f"{question_id}.a{failed.sample}": (failed.trajectory, *_against(group), group.step, "solver")
        for question_id, group in of_question.items()
        for failed in group.failed
    }
    for position, failure in failures:
        observed = (failure.trajectory, failure.reference, failure.against, failure.step, failure.stage)
        if waiting.pop(failure.failure_id, None) != observed:
            yield position, f"{failure.failure_id} is not a failed rollout of its ingested group"


def _against(group: GroupIngested) -> tuple[str | None, str]:
    """What the failures of a group are compared with: a pass, the known answer, or nothing."""
    if group.reference is None:
        return (digest_of(""), "nothing") if group.answer is None else (digest_of(group.answer), "answer")
    return group.reference, "response"
