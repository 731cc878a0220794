"""vLLM inside the trainer, on the CPU: it samples with the weights that the step before left."""

from pathlib import Path
from typing import Any

import pytest

from diagevo.config.models import HardwareConfig
from diagevo.errors import WrongTrainingError
from diagevo.training.phase import TrainingSummary
from tests.sampling.real_vllm import REAL_VLLM, make_wide_model
from tests.training import phase

pytestmark = REAL_VLLM


@pytest.fixture(autouse=True)
def _linear_layers_as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU vLLM packs weights for its kernels when it loads them, and cannot take others after that."""
    monkeypatch.setattr("vllm.model_executor.layers.utils.check_cpu_sgl_kernel", lambda *_: False)
    monkeypatch.setattr("vllm._custom_ops._supports_onednn", False)


def played(start: Path, folder: Path) -> TrainingSummary:
    """Three steps that move the weights far."""
    settings = phase.SETTINGS.model_copy(update={"learning_rate": 0.05})
    hardware = HardwareConfig(device="cpu", colocate_vllm=True)
    return phase.trained(start, folder, settings=settings, hardware=hardware)


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
