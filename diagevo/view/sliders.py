"""What the sliders of the what-if page move over: exact answers worked out here, looked up there.

Held open-loop, ε is a closed form of k, and everything else a step function of θ_up: one entry for each mean
p₁ that occurs. The filter's thresholds choose among the votes, which are counted by kind. The browser
compares whole numbers and puts k into Equation 1; it knows nothing else.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from diagevo.equations.policy import BUILT_IN
from diagevo.memory.audit.timeline.rounds import Observed
from diagevo.memory.audit.whatif import Answer, Changes, what_ifs
from diagevo.text.escaping import json_text

STOPS, ANSWERS = 200, 2_000
"""Stops of the θ slider at most, and answers by stop and round; of more breakpoints, evenly chosen ones. Each
is exact."""
K_STOPS = tuple(Fraction(n, 20) for n in range(1, 61))
TAU_STOPS = tuple(Fraction(n, 20) for n in range(20, 101))
SHARE_STOPS = tuple(Fraction(n, 40) for n in range(41))


def script(observed: Sequence[Observed]) -> str:
    """All that the page moves over, as a file that a page opened from a disk can load too."""
    return f"globalThis.diagevoWhatIf = {json_text(sliders(observed))};\n"


def sliders(observed: Sequence[Observed]) -> dict[str, Any]:
    """Fractions are pairs of whole numbers; an outcome of a round is a row of them, as `_outcomes` has it."""
    thetas = theta_stops(observed) if observed else []
    recorded, *answers = what_ifs(observed, [Changes(), *(Changes(theta_up=theta) for theta in thetas)])
    return {
        "rounds": [_round(one) for one in observed],
        "recorded": _outcomes(observed, recorded),
        "theta": [_outcomes(observed, answer) for answer in answers],
        "stops": {
            "k": [_pair(k) for k in K_STOPS],
            "theta": [_pair(theta) for theta in thetas],
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
        "policy": following.policy if following.policy in BUILT_IN else "own",
        "fixed": None if following.fixed_epsilon is None else _pair(following.fixed_epsilon),
        "filter": {
            "variant": filter_.variant,
            "tau": _pair(filter_.tau),
            "p_low": _pair(filter_.p_low),
            "p_high": _pair(filter_.p_high),
        },
        "votes": [
            [
                *(kind.first, kind.second, kind.responses),
                *(kind.labelled and kind.valid, kind.rewards, kind.verdict == "kept", kind.label_true),
                count,
            ]
            for kind, count in one.votes.items()
        ],
    }


def _outcomes(observed: Sequence[Observed], answer: Answer) -> list[list[Any]]:
    """ε is there where a policy of one's own said it, else the page knows it from Equation 1."""
    rows: list[list[Any]] = []
    for round_, one in zip(observed, answer.rounds, strict=True):
        own = [] if round_.following.settings.policy in BUILT_IN else [_pair(one.epsilon_next)]
        changed = len(one.promoted), len(one.reactivated)
        rows.append(
            [one.failures, one.reference_failures, one.active, one.mastered, *changed, one.alike, *own]
        )
    return rows


def _pair(value: Fraction) -> list[int]:
    return [value.numerator, value.denominator]
