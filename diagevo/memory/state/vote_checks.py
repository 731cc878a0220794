"""A candidate's counts, label and verdict, recomputed from its votes by the functions that the loop uses, and
later judgements checked against the configuration.

The votes, the question and the cause that it was written for are facts. The counts are not: a candidate that
disagrees is refused, when it is recorded and at every replay.
"""

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import msgspec

from diagevo.equations.filter import (
    Verdict,
    counted,
    failing,
    reason,
    reason_of_rewards,
    verdict,
    verdict_of_rewards,
    votes_of_rewards,
)
from diagevo.equations.proposers import MeasuredProposal, earned
from diagevo.equations.settings import Filter
from diagevo.errors import InconsistentError
from diagevo.memory.events import (
    CandidateScored,
    DuplicateJudged,
    GroupIngested,
    NodePairJudged,
    RunConfigured,
    StepTrained,
)
from diagevo.memory.state.stored_config import filter_of


class Judging(msgspec.Struct, frozen=True):
    """The settings by which a round's candidates are judged."""

    filter: Filter
    true_labels: bool
    """Labels are a world's true answers, not majorities (a control)."""
    responses: int | None
    """N, if the configuration sets it."""
    sources: frozenset[str]
    """The method's allowed sources of labels."""


VOTED = frozenset({"votes"})
VOTES_SAY = VOTED | {"document"}
"""Sources of labels that are the majority of the recorded votes."""
LABELS: Mapping[str, frozenset[str]] = {
    "r-few": VOTED | {"human"},
    "absolute-zero": frozenset({"executor"}),
    "darc": frozenset({"document"}),
    "spice": frozenset({"proposer"}),
}
"""Methods whose labels are not all majorities, with their sources. A forged log cannot pass a label off
as a fact if its method has none."""


def judging(config: Mapping[str, Any]) -> Judging:
    """From a stored configuration."""
    round_ = config.get("round", {})
    return Judging(
        filter_of(config),
        round_.get("true_labels", False) is True,
        round_.get("responses"),
        LABELS.get(config.get("method", ""), VOTED),
    )


def refuse_unfounded(event: CandidateScored, by: Judging) -> None:
    """Raises InconsistentError if counts, label or verdict are not what the votes give."""
    votes, responses, label = event.votes, event.responses, event.label
    if responses != by.responses is not None and event.votes_are == "answers":
        raise InconsistentError(f"it has {responses} responses, round.responses is {by.responses}")
    if event.verdict == "invalid":
        _refuse_scores(event)
        return
    if event.invalid_reason is not None:
        raise InconsistentError("only an invalid question has a reason why it is invalid")
    answer, first, second, total = counted(votes)
    if responses < 1 or total > responses:
        raise InconsistentError(f"{total} votes of {responses} responses")
    if event.label_from not in by.sources:
        raise InconsistentError(f"no label of its method comes from: {event.label_from}")
    if event.votes_are == "rewards":
        right = _of_rewards(event)
    else:
        if (event.first, event.second) != (first, second):
            raise InconsistentError(
                f"its votes give {first} and {second} of {responses}, recorded are {event.first} and"
                f" {event.second}"
            )
        if (event.label_from == "executor") != (event.task is not None):
            raise InconsistentError("a task that was executed has its label from there, and no other has")
        if event.task is not None and event.truth is not None and label != event.truth:
            raise InconsistentError("its label is not the true answer, which its task has in this world")
        if not by.true_labels:
            if event.label_from in VOTES_SAY and label != answer:
                raise InconsistentError("its label is not the answer that has the most votes")
        elif label is not None and label != event.truth:
            raise InconsistentError("its label is not the true answer")
        if label is None and event.reference is not None:
            raise InconsistentError("a question without a label has no response that agrees with it")
        right = verdict(first, second, responses, label is not None, by.filter)
    if event.verdict != right:
        raise InconsistentError(
            f"its votes give {right} ({_why(event, by.filter)}), recorded is {event.verdict}"
        )
    if label is None and event.label_true is not None:
        raise InconsistentError("there is no label that could be true")
    if not 0 <= event.undecided <= len(votes) * (len(votes) - 1) // 2:
        raise InconsistentError(f"{event.undecided} undecided pairs of {len(votes)} answers")


def _refuse_scores(event: CandidateScored) -> None:
    """A question that was never asked has no votes or label."""
    scored = event.votes or event.first or event.second or event.label is not None or event.undecided
    if event.label_from != "votes" or event.votes_are != "answers":
        raise InconsistentError("an invalid question has no label, and so no source of one")
    if scored or event.reference is not None or event.label_true is not None:
        raise InconsistentError("an invalid question has no votes, counts, label or reference")


def _of_rewards(event: CandidateScored) -> Verdict:
    passes, responses = event.first, event.responses
    if event.second != responses - passes or event.votes != votes_of_rewards(passes, responses):
        raise InconsistentError(
            f"its votes are not {passes} passed and {responses - passes} failed of {responses} rewards"
        )
    return verdict_of_rewards(passes, responses)


def _why(event: CandidateScored, settings: Filter) -> str:
    if event.votes_are == "rewards":
        return reason_of_rewards(event.first, event.responses)
    p1, p2 = (Fraction(votes, event.responses) for votes in (event.first, event.second))
    return reason(p1, p2, event.label is not None, settings)


PASS_AT = 0.5
"""If no configuration sets it."""


def refuse_ungrouped(event: GroupIngested, config: Mapping[str, Any]) -> None:
    """Raises InconsistentError if passes and failures do not follow from the group's rewards."""
    pass_at = float(config.get("ingest", {}).get("pass_at", PASS_AT))
    failed, responses = failing(event.rewards, pass_at), len(event.rewards)
    passes = responses - len(failed)
    if event.passes != passes:
        raise InconsistentError(
            f"{passes} of {responses} rewards are {pass_at:g} or more, recorded are {event.passes} passes"
        )
    contrast = 0 < passes < responses
    if (event.reference is not None) != contrast:
        raise InconsistentError("a group has a reference exactly where some passed and some failed")
    kept = [one.sample for one in event.failed]
    if kept != failed and (contrast or kept):  # of groups in which all failed, version 1 may have kept none
        raise InconsistentError("its failed rollouts are not those whose rewards did not pass")
    least, most = (1, passes) if contrast else (0, min(passes, 1))  # version 1 kept the reference alone
    if len(event.passed) not in (least, most) or (contrast and event.passed[0] != event.reference):
        raise InconsistentError("its passed responses are not those whose rewards passed")


def refuse_unearned(event: StepTrained, config: Mapping[str, Any]) -> None:
    """Raises InconsistentError where rewards are not those that their measures give."""
    measured = [MeasuredProposal(*msgspec.structs.astuple(one)) for one in event.measured]
    if not measured:
        return
    rewards = [reward for group in event.groups for reward in group.rewards]
    if event.stage != "challenger" or len(measured) != len(rewards):
        raise InconsistentError("its measures are not one of each of the challenger's completions")
    for one in measured:
        if one.right is not None and not 0 <= one.right <= one.answers > 0:
            raise InconsistentError(f"{one.right} of {one.answers} answers cannot be right")
    if config.get("method") == "darc" and not all(one.level in (1, 2, 3) for one in measured):
        raise InconsistentError("the levels of its method are 1, 2 and 3")
    given = earned(config.get("method", ""), measured)
    if given is None:
        raise InconsistentError("no reward of its method follows from measures")
    for place, (right, recorded) in enumerate(zip(given, rewards, strict=True), 1):
        # Another machine's exponential may differ in its last bit.
        if not math.isclose(right, recorded, rel_tol=1e-12):
            raise InconsistentError(
                f"what was measured gives completion {place} the reward {right:g}, recorded is {recorded:g}"
            )


SECTIONS = frozenset(
    {"absolute_zero", "anchors", "corpus", "darc", "diagnosis", "filter", "hardware", "ingest", "memory"}
    | {"reward", "roles", "round", "sampling"}
    | {"challenger_grpo", "schedule", "solver_grpo", "training", "validation", "warm_start"}
)
"""Sections of a configuration: each has settings under it. A test compares them with the actual settings."""


def refuse_shapeless(event: RunConfigured) -> None:
    """Raises InconsistentError for anything that cannot be a run's configuration."""
    if not event.config and "challenger" in event.models:
        raise InconsistentError("it names a challenger, and has no settings that one is trained with")
    for name in SECTIONS & event.config.keys():
        if not isinstance(event.config[name], Mapping):
            raise InconsistentError(f"{name} of its configuration is no section")


def refuse_unscreened(event: DuplicateJudged, config: Mapping[str, Any]) -> None:
    """Raises InconsistentError if the causes shown are not those above θ_dup."""
    theta = config.get("memory", {}).get("theta_dup")
    if theta is None:  # a trainer may screen as it likes
        return
    if below := [one.similarity for one in event.candidates if one.similarity <= theta]:
        raise InconsistentError(f"memory.theta_dup is {theta:g}, and a cause at {below[0]:g} was shown")
    nearest = event.nearest
    if nearest is not None and nearest.similarity > theta and nearest not in event.candidates:
        at = nearest.similarity
        raise InconsistentError(f"memory.theta_dup is {theta:g}, and the nearest, at {at:g}, was not shown")


def refuse_unlisted(event: NodePairJudged, config: Mapping[str, Any]) -> None:
    """Raises InconsistentError if the nodes are not above θ_merge."""
    theta = config.get("memory", {}).get("theta_merge")
    if theta is not None and event.similarity < round(theta, 6):  # recorded with six digits
        raise InconsistentError(f"memory.theta_merge is {theta:g}, and the nodes are at {event.similarity:g}")
