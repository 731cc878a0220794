"""The causes that two evaluations share, each pair with the reason, and those of only one.

Two diagnoses rarely use the same words: a clause is counted over different responses. So causes are compared
by their words without counts, then by the prompts that they fail on.
"""

import re
from dataclasses import dataclass

from diagevo.memory.history import History
from diagevo.memory.read.asking import select_rows
from diagevo.memory.read.pass_rates import CauseRate
from diagevo.text.numbers import count

_COUNTS = re.compile(r"\s*\(\d[^()]*\)")
"""`(35 of 35 failures, 0 of 287 passes)`, `(16 of 23)`: what a clause was counted over."""
ALIKE = 0.5
"""Minimum share of either cause's prompts, among those that both runs asked, that two causes must have in
common: below it, hard prompts are the likelier explanation."""


@dataclass(frozen=True, slots=True)
class MatchedCause:
    """A cause of the first run, of the second, or of both."""

    first: CauseRate | None
    second: CauseRate | None
    reason: str
    """Why they are one; empty for a cause that only one run has."""


@dataclass(frozen=True, slots=True)
class _Member:
    """`v_cause_question`."""

    question: str
    cause_id: str


def matched_causes(
    a: History, b: History, causes_a: tuple[CauseRate, ...], causes_b: tuple[CauseRate, ...]
) -> list[MatchedCause]:
    """Every cause of either once, those of both first, then by failures."""
    left = dict.fromkeys(one.cause_id for one in causes_a)
    right = {one.cause_id: one for one in causes_b}
    found: list[MatchedCause] = []

    if a.run_id == b.run_id:  # two models or steps of one run share its causes
        for first in causes_a:
            if (second := right.pop(first.cause_id, None)) is not None:
                found.append(MatchedCause(first, second, "one cause of the run"))
                del left[first.cause_id]
        return _ordered(found, causes_a, left, right)

    def match(first: CauseRate, second: CauseRate, reason: str) -> None:
        found.append(MatchedCause(first, second, reason))
        del left[first.cause_id], right[second.cause_id]

    for first in causes_a:
        for second in list(right.values()):
            if first.cause_id in left and plain_words(first) == plain_words(second):
                match(first, second, "the same words")
    members_a, members_b = _members(a), _members(b)
    asked = _asked(a) & _asked(b)
    shared = sorted(
        (
            (len(own & other) / len(own | other), first, second, own, other)
            for first in causes_a
            for second in causes_b
            if first.cause_id in left and second.cause_id in right
            if (own := members_a.get(first.cause_id, set()) & asked)
            if (other := members_b.get(second.cause_id, set()) & asked)
        ),
        key=lambda one: -one[0],
    )
    for share, first, second, own, other in shared:
        if share >= ALIKE and first.cause_id in left and second.cause_id in right:
            both = count(len(own & other), "prompt")
            match(first, second, f"{both} in common, of {len(own)} and {len(other)} that both runs asked")
    return _ordered(found, causes_a, left, right)


def _ordered(
    found: list[MatchedCause],
    causes_a: tuple[CauseRate, ...],
    left: dict[str, None],
    right: dict[str, CauseRate],
) -> list[MatchedCause]:
    found.sort(
        key=lambda one: -max(one.first.failures if one.first else 0, one.second.failures if one.second else 0)
    )
    found += [MatchedCause(one, None, "") for one in causes_a if one.cause_id in left]
    found += [MatchedCause(None, one, "") for one in right.values()]
    return found


def plain_words(cause: CauseRate) -> str:
    """Its description without the counts of its clauses."""
    return " ".join(_COUNTS.sub("", cause.description).lower().split())


def _members(history: History) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for one in select_rows(history, "v_cause_question", _Member):
        found.setdefault(one.cause_id, set()).add(one.question)
    return found


@dataclass(frozen=True, slots=True)
class _Prompt:
    """`v_prompt`."""

    question: str


def _asked(history: History) -> set[str]:
    return {one.question for one in select_rows(history, "v_prompt", _Prompt)}
