"""What variants change in a run that is really played: several settings in each, every one seen by itself.

`python -m tests.evaluation.variants FOLDER` plays each variant alone.
"""

from pathlib import Path

import pytest

from diagevo.evaluation.ablation import VARIANTS
from tests.run.small import play

from .variants import MUST, config_of, facts

pytestmark = pytest.mark.slow


def test_every_variant_has_something_to_show() -> None:
    """A control changes an amount of what another variant shows."""
    assert set(MUST) == {variant.name for variant in VARIANTS if variant.table != "control"}


def test_a_frozen_targeted_run_without_state_updates_and_contested_questions(tmp_path: Path) -> None:
    config = config_of("frozen-challenger", "targeted-only", "no-state-updates", "absolute-only")
    play(tmp_path, config, run_id="a", rounds=2)
    found = facts(tmp_path, "a")
    assert not found.challenger_trained
    assert found.epsilons == [1, 0]
    assert (set(found.modes[0]), set(found.modes[1])) == ({"free"}, {"targeted"})
    assert (found.promoted, found.reactivated, found.pairs) == (0, 0, [])
    assert found.verdicts["contested"] == 0
    assert found.verdicts["too_easy"] > 0


def test_a_free_run_without_a_filter(tmp_path: Path) -> None:
    play(tmp_path, config_of("free-only", "no-filter"), run_id="a", rounds=2)
    found = facts(tmp_path, "a")
    assert found.challenger_trained
    assert found.epsilons == [1, 1]
    assert [set(modes) for modes in found.modes] == [{"free"}, {"free"}]
    assert set(found.verdicts) <= {"kept", "invalid", "no_label"}
    assert any(4 * e.first > 3 * e.responses for e in found.scored if e.verdict == "kept")


def test_r_zero_is_played_with_its_own_votes_band_and_groups_and_asks_nobody(tmp_path: Path) -> None:
    config = config_of("r-zero")
    assert (config.challenger_grpo.group, config.solver_grpo.group) == (4, 5)
    play(tmp_path, config, run_id="a", rounds=2)
    found = facts(tmp_path, "a")
    assert MUST["r-zero"](found)
    assert found.verdicts["kept"] > 0
    assert found.challenger_trained
