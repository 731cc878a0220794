"""What the sliders of the what-if page move over: exact answers worked out here, looked up there.

Held open-loop, ε is a closed form of k, and everything else a step function of θ_up: one entry for each mean
p₁ that occurs. The filter's thresholds choose among the votes, which are counted by kind. The browser
compares whole numbers and puts k into Equation 1; it knows nothing else.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from diagevo.memory.audit.timeline.rounds import Observed
from diagevo.memory.audit.whatif import Answer, Changes, what_if

STOPS, ANSWERS = 200, 2_000
"""Stops of the θ slider at most, and answers by stop and round; of more breakpoints, evenly chosen ones. Each
is exact."""
K_STOPS = tuple(Fraction(n, 20) for n in range(1, 61))
TAU_STOPS = tuple(Fraction(n, 20) for n in range(20, 101))
SHARE_STOPS = tuple(Fraction(n, 40) for n in range(41))


def sliders(observed: Sequence[Observed]) -> dict[str, Any]:
    """All that the page's script needs. Fractions are pairs of whole numbers."""
    recorded = what_if(observed, Changes())
    thetas = theta_stops(observed)
    answers = [what_if(observed, Changes(theta_up=theta)) for theta in thetas]
    return {
        "rounds": [_round(one) for one in observed],
        "recorded": _answer(recorded),
        "theta": [
            {"theta": _pair(theta)} | _answer(answer) for theta, answer in zip(thetas, answers, strict=True)
        ],
        "stops": {
            "k": [_pair(k) for k in K_STOPS],
            "tau": [_pair(tau) for tau in TAU_STOPS],
            "p_low": [_pair(share) for share in SHARE_STOPS],
            "p_high": [_pair(share) for share in SHARE_STOPS],
        },
    }


def theta_stops(observed: Sequence[Observed]) -> list[Fraction]:
    """Each mean p₁ that occurs is the largest θ_up that it reaches: between two of them nothing changes.
    Above the last nothing is promoted, which 1 stands for where no mean is 1."""
    scores = sorted({tally.score for one in observed for tally in one.scores.values()} | {Fraction(1)})
    most = max(10, min(STOPS, ANSWERS // len(observed)))
    if len(scores) <= most:
        return scores
    return [scores[round(n * (len(scores) - 1) / (most - 1))] for n in range(most)]


def _round(one: Observed) -> dict[str, Any]:
    """The settings in force, and the votes by kind."""
    filter_, following = one.filter, one.following.settings
    return {
        "round": one.round,
        "k": _pair(following.k),
        "policy": following.policy,
        "fixed": None if following.fixed_epsilon is None else _pair(following.fixed_epsilon),
        "theta": _pair(one.settings.theta_up),
        "filter": {
            "variant": filter_.variant,
            "tau": _pair(filter_.tau),
            "p_low": _pair(filter_.p_low),
            "p_high": _pair(filter_.p_high),
        },
        "votes": [
            {
                "first": kind.first,
                "second": kind.second,
                "responses": kind.responses,
                "votes": kind.labelled and kind.valid,
                "rewards": kind.rewards,
                "kept": kind.verdict == "kept",
                "truth": kind.label_true,
                "count": count,
            }
            for kind, count in one.votes.items()
        ],
    }


def _answer(answer: Answer) -> dict[str, Any]:
    return {
        "rounds": [
            {
                "F": one.failures,
                "F1": one.reference_failures,
                "epsilon": _pair(one.epsilon_next),
                "active": one.active,
                "mastered": one.mastered,
                "promoted": len(one.promoted),
                "reactivated": len(one.reactivated),
                "alike": one.alike,
            }
            for one in answer.rounds
        ]
    }


def _pair(value: Fraction) -> list[int]:
    return [value.numerator, value.denominator]
