"""What a challenger earns by what was measured, by hand and in the log."""

import math
from dataclasses import dataclass
from typing import Any

import pytest

from diagevo.equations.proposers import MeasuredProposal, earned
from diagevo.errors import InconsistentError
from diagevo.memory.events import GroupRewards, MeasuredReward, StepTrained
from diagevo.memory.state.vote_checks import refuse_unearned

NONE = MeasuredProposal(None)


def test_absolute_zero_earns_what_is_not_yet_solved() -> None:
    step = [MeasuredProposal(right, 8) for right in (0, 1, 6, 8)]
    assert earned("absolute-zero", [*step, NONE]) == [-0.5, 0.875, 0.25, -0.5, -1.0]


def test_spice_earns_most_where_half_are_right_and_nothing_unrelated() -> None:
    """v = 1/4 at p = 1/2; at p = 1/4 v is 3/16, (1/16)^2 = 1/256, and exp(-1/256 * 50) = exp(-25/128)."""
    step = [MeasuredProposal(4, 8), MeasuredProposal(2, 8), MeasuredProposal(4, 8, related=False), NONE]
    assert earned("spice", step) == pytest.approx([1.0, math.exp(-25 / 128), 0.0, -1.0])


def test_darc_earns_by_level_and_rank_within_a_document_alone() -> None:
    """Easy .5 earns .7, moderate .5 earns 1; the easier is not 1/5 ahead, so each loses a tenth."""
    easy, moderate = (MeasuredProposal(5, 10, level=level, document="a") for level in (1, 2))
    elsewhere = moderate._replace(document="b")
    assert earned("darc", [easy, moderate]) == pytest.approx([0.6, 0.9])
    assert earned("darc", [easy, elsewhere]) == pytest.approx([0.7, 1.0])
    assert earned("darc", [easy._replace(right=0), NONE._replace(level=2)]) == [-0.1, -1.0]


def test_other_methods_rewards_do_not_follow_from_so_little() -> None:
    assert earned("diagevo", [NONE]) is None


@dataclass(frozen=True)
class Logged:
    method: str
    measured: list[MeasuredReward]
    rewards: list[float]
    stage: str = "challenger"


HALF = MeasuredReward(4, 8, related=True, level=0, document="")
EASY = MeasuredReward(8, 10, related=True, level=1, document="a")


@pytest.mark.parametrize(
    ("logged", "said"),
    [
        (Logged("absolute-zero", [HALF], [0.5]), None),
        (Logged("spice", [HALF], [1.0]), None),
        (Logged("darc", [EASY], [1.0]), None),
        (Logged("diagevo", [], [0.25]), None),
        (Logged("absolute-zero", [HALF], [0.25]), "completion 1 the reward 0.5, recorded is 0.25"),
        (Logged("spice", [HALF], [1.0 + 1e-9]), "recorded is 1"),
        (Logged("darc", [EASY, EASY], [1.0, 0.5]), "completion 2 the reward 1, recorded is 0.5"),
        (Logged("darc", [HALF], [1.0]), "levels of its method"),
        (Logged("spice", [HALF], [1.0], "solver"), "of each of the challenger's completions"),
        (Logged("spice", [HALF], [1.0, 1.0]), "of each of the challenger's completions"),
        (Logged("spice", [MeasuredReward(9, 8, True, 0, "")], [1.0]), "9 of 8 answers"),
        (Logged("spice", [MeasuredReward(0, 0, True, 0, "")], [1.0]), "0 of 0 answers"),
        (Logged("r-zero", [HALF], [1.0]), "no reward of its method"),
    ],
)
def test_a_log_whose_rewards_do_not_follow_from_its_measures_is_refused(
    logged: Logged, said: str | None
) -> None:
    groups = [GroupRewards("r1.u0", logged.rewards)]
    event = StepTrained(logged.stage, 1, 1, groups, None, None, None, None, logged.measured)
    config: dict[str, Any] = {"method": logged.method}
    if said is None:
        refuse_unearned(event, config)
        return
    with pytest.raises(InconsistentError, match=said):
        refuse_unearned(event, config)
