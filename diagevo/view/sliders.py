"""What the sliders of the what-if page move over: exact answers worked out here, looked up there.

Held open-loop, ε is a closed form of k, and everything else a step function of θ_up: one entry for each mean
p₁ that occurs. The filter's thresholds choose among the votes, which are counted by kind. The browser
compares whole numbers and puts k into Equation 1; it knows nothing else.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from diagevo.equations.policy import BUILT_IN
from diagevo.memory.compare.whatif import Answer, Changes, what_ifs
from diagevo.memory.read.opened_rounds import Observed
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
    own = _own(observed)
    stops = {"k": K_STOPS, "theta": thetas, "tau": TAU_STOPS, "p_low": SHARE_STOPS, "p_high": SHARE_STOPS}
    stops = {name: sorted({*found, *own[name][-1:]}) for name, found in stops.items()}
    thetas = stops["theta"]
    recorded, *answers = what_ifs(observed, [Changes(), *(Changes(theta_up=theta) for theta in thetas)])
    return {
        "rounds": [_round(one) for one in observed],
        "recorded": _outcomes(observed, recorded),
        "theta": [_outcomes(observed, answer) for answer in answers],
        "stops": {name: [_pair(value) for value in found] for name, found in stops.items()},
        "own": {
            name: {"at": stops[name].index(values[-1]), "always": len(set(values)) == 1}
            for name, values in own.items()
            if values
        },
    }


def _own(observed: Sequence[Observed]) -> dict[str, list[Fraction]]:
    """What the run was played with, round by round. A slider stands where the last round has it."""
    return {
        "k": [one.following.settings.k for one in observed],
        "theta": [one.configured.settings.theta_up for one in observed],
        "tau": [one.configured.filter.tau for one in observed],
        "p_low": [one.configured.filter.p_low for one in observed],
        "p_high": [one.configured.filter.p_high for one in observed],
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
    filter_, following = one.configured.filter, one.following.settings
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
    """ε is there where a policy of one's own gave it, else the page knows it from Equation 1."""
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
