"""A phase in two real processes over gloo, against the same phase in one.

Most are forked; tests/run/test_processes.py starts them as the program does.
"""

import os
import time
from pathlib import Path

import pytest

from diagevo.config.models import HardwareConfig
from diagevo.errors import ConfigError, ServiceError, StoppedSafely
from diagevo.training import checkpoints
from diagevo.training.grpo import Rollout
from diagevo.training.launch_spec import RewardSpec
from tests.training.forked_ranks import ForkedRank
from tests.training.launched import LOGS, assert_steps_of_one, launch

pytestmark = pytest.mark.slow
Reports = dict[int, tuple[list[Rollout], list[float]]]


def two(timeout: float = 300.0) -> HardwareConfig:
    return HardwareConfig(device="cpu", processes=2, threads=1, rank_timeout=timeout)


@pytest.mark.usefixtures("forked")
def test_two_processes_play_the_phase_of_one_also_when_one_was_killed_on_the_way(
    tiny_model: Path, tmp_path: Path
) -> None:
    with pytest.raises(ServiceError) as caught:
        launch(tiny_model, tmp_path, two(), kill=1)
    assert "rank 1 of 2" in caught.value.message
    assert "SIGKILL" in caught.value.message
    assert "measuring the rollouts of step 2" in caught.value.message
    assert "rank-1.log" in caught.value.message

    summary, reports = launch(tiny_model, tmp_path, two(), resume=True)
    logs = sorted(path.name for path in (tmp_path / LOGS).iterdir())
    assert logs == ["rank-0.log", "rank-1.log"], "the launch spec is gone once it is done"
    assert (summary.steps, summary.resumed_from, sorted(reports)) == (3, 1, [2, 3])
    assert_steps_of_one(tiny_model, tmp_path / "one", reports)
    assert_close(tmp_path / "final", tmp_path / "one/final")


def assert_close(a: Path, b: Path) -> None:
    import torch
    from safetensors.torch import load_file

    first, second = (load_file(folder / "model.safetensors") for folder in (a, b))
    moved = load_file(b.parent / "work/checkpoint-2/model.safetensors")
    for name, value in first.items():
        # Sums are taken in another order; a step of Adam is 1e-3 for each weight.
        assert torch.allclose(value, second[name], atol=2e-4), name
    assert any(not torch.allclose(value, moved[name], atol=2e-4) for name, value in first.items())


@pytest.mark.usefixtures("forked")
def test_a_rank_that_hangs_ends_the_run_with_its_name(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(ServiceError) as caught:
        launch(tiny_model, tmp_path, two(timeout=10.0), hang=1)
    assert "rank 1 of 2 did not answer" in caught.value.message
    assert "measuring the rollouts of step 2" in caught.value.message


def test_a_server_that_cannot_be_kept_up_ends_the_ranks_that_ask_it(tiny_model: Path, tmp_path: Path) -> None:
    calls: list[float] = []

    def keep_up() -> None:
        calls.append(time.monotonic())
        if len(calls) == 5:
            raise ServiceError("the server is not started again")

    with pytest.raises(ServiceError, match="not started again"):
        launch(tiny_model, tmp_path, two(), keep_up=keep_up)
    assert not [name for name in os.listdir("/proc") if name.isdigit() and _runs(name, str(tmp_path))]


def test_a_stop_is_obeyed_by_all_ranks_once_the_step_is_saved(
    forked: list[ForkedRank], tiny_model: Path, tmp_path: Path
) -> None:
    def stop(step: int) -> None:
        raise StoppedSafely(f"stopped after step {step}", hint="go on")

    with pytest.raises(StoppedSafely) as caught:
        launch(tiny_model, tmp_path, two(), on_step=stop)
    assert (caught.value.message, caught.value.hint) == ("stopped after step 1", "go on")
    assert checkpoints.find(tmp_path / "work").step == 1
    assert [rank.status() for rank in forked] == [1, 1], "each has ended itself"


def _runs(pid: str, text: str) -> bool:
    try:
        return text.encode() in Path(f"/proc/{pid}/cmdline").read_bytes() and int(pid) != os.getpid()
    except OSError:
        return False


def test_a_reward_that_cannot_be_built_is_an_error_of_the_configuration(
    tiny_model: Path, tmp_path: Path
) -> None:
    spec = RewardSpec("tests.training.phase:NoReward")
    with pytest.raises(ConfigError, match=r"no reward 'tests\.training\.phase:NoReward'"):
        spec.build()
