"""vLLM inside the trainer, on the CPU: it samples with the weights that the step before left."""

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from diagevo.config.models import HardwareConfig
from diagevo.errors import StoppedSafely, WrongTrainingError
from diagevo.progress import StopFlag
from diagevo.training.phase import TrainingSummary
from tests.sampling.real_vllm import REAL_VLLM, make_wide_model
from tests.training import phase

pytestmark = REAL_VLLM


@pytest.fixture(autouse=True)
def _linear_layers_as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU vLLM packs weights for its kernels when it loads them, and cannot take others after that."""
    monkeypatch.setattr("vllm.model_executor.layers.utils.check_cpu_sgl_kernel", lambda *_: False)
    monkeypatch.setattr("vllm._custom_ops._supports_onednn", False)


HARDWARE = HardwareConfig(device="cpu", colocate_vllm=True)


def played(start: Path, folder: Path) -> TrainingSummary:
    """Three steps that move the weights far."""
    settings = phase.SETTINGS.model_copy(update={"learning_rate": 0.05})
    return phase.trained(start, folder, settings=settings, hardware=HARDWARE)


def test_its_weights_follow_the_policy_and_the_phase_ends_itself_where_they_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = make_wide_model(tmp_path / "start")
    followed = played(start, tmp_path / "a").measures
    assert followed.sampling_gap is not None
    assert followed.sampling_gap < 0.3  # vLLM computes in bfloat16 here, the trainer in float32.

    from trl.generation.vllm_generation import VLLMGeneration

    def nothing(self: Any) -> None: ...

    monkeypatch.setattr(VLLMGeneration, "sync_weights", nothing)
    with pytest.raises(WrongTrainingError, match="the log-prob gap between sampler and trainer is"):
        played(start, tmp_path / "b")


def test_an_overdue_stop_is_heard_within_a_generation_and_the_step_before_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine: Any = import_module("vllm.v1.engine.llm_engine").LLMEngine
    start = make_wide_model(tmp_path / "start")
    stop, reported, engine_steps, step = StopFlag(), list[int](), list[int](), engine.step

    def stopping(self: Any) -> Any:
        if reported == [1]:
            engine_steps.append(len(engine_steps))
            stop.set_overdue()
        return step(self)

    changes: Any = {
        "settings": phase.SETTINGS.model_copy(update={"save_steps": 9}),
        "hardware": HARDWARE,
        "on_step": lambda step, rollouts, rewards: reported.append(step),
    }
    with monkeypatch.context() as patched:
        patched.setattr(engine, "step", stopping)
        with pytest.raises(StoppedSafely):
            phase.trained(start, tmp_path, stop=stop, **changes)
    assert engine_steps == [0]  # of the twelve tokens of a completion
    assert phase.last_saved(tmp_path / "work") == 1
    assert phase.trained(start, tmp_path, **changes).resumed_from == 1
    assert reported == [1, 2, 3]
