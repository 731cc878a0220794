"""vLLM inside the trainer, on the CPU: it samples with the weights that the step before left."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from diagevo.config.models import HardwareConfig
from diagevo.errors import StoppedSafely, WrongTrainingError
from diagevo.progress import StopFlag
from diagevo.training.phase import Rollout, TrainingSummary
from tests.sampling.real_vllm import REAL_VLLM, make_wide_model
from tests.training import phase

pytestmark = REAL_VLLM


@pytest.fixture(autouse=True)
def _linear_layers_as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU vLLM packs weights for its kernels when it loads them, and cannot take others after that."""
    monkeypatch.setattr("vllm.model_executor.layers.utils.check_cpu_sgl_kernel", lambda *_: False)
    monkeypatch.setattr("vllm._custom_ops._supports_onednn", False)


HARDWARE = HardwareConfig(device="cpu", colocate_vllm=True)


class Varied(phase.LetterReward):
    """No two completions of a step get the same, so that each step has a gradient."""

    def measure(self, rollouts: Sequence[Rollout]) -> list[Any]:
        return [sum(map(ord, rollout.text)) for rollout in rollouts]


def played(start: Path, folder: Path, learning_rate: float) -> TrainingSummary:
    settings = phase.SETTINGS.model_copy(update={"learning_rate": learning_rate})
    return phase.trained(start, folder, reward=Varied(), settings=settings, hardware=HARDWARE)


def nothing(*_: Any) -> None: ...


def test_its_weights_follow_the_policy(tmp_path: Path) -> None:
    """Three steps that move the weights far. vLLM computes in bfloat16 here, the trainer in float32."""
    followed = played(make_wide_model(tmp_path / "start"), tmp_path / "a", 0.05)
    assert followed.measures.sampling_gap is not None
    assert followed.measures.sampling_gap < 0.3
    assert [entry["sampling/tensors_apart"] for entry in followed.log] == [0, 0, 0]


@pytest.mark.parametrize("broken", ["sync", "engine"])
def test_a_sync_that_does_nothing_ends_the_phase_at_its_second_step_at_the_papers_learning_rate(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log-probabilities cannot tell: the gap is as small as with the right weights."""
    start = make_wide_model(tmp_path / "start")
    right = played(start, tmp_path / "right", 1e-6).measures
    if broken == "sync":
        monkeypatch.setattr("trl.generation.vllm_generation.VLLMGeneration.sync_weights", nothing)
    else:
        model = import_module("vllm.model_executor.models.qwen3").Qwen3ForCausalLM
        load, calls = model.load_weights, []

        def once(self: Any, weights: Any) -> Any:  # as the engine starts, and no more
            calls.append(weights)
            return load(self, weights) if len(calls) == 1 else set()

        monkeypatch.setattr(model, "load_weights", once)
    with pytest.raises(WrongTrainingError, match="the sampler of step 2 did not have the trainer's") as error:
        played(start, tmp_path / "stale", 1e-6)
    found: Any = error.value.measures
    assert found.steps == 2
    assert "stale_sampler" in found.findings
    assert "wrong_sampler" not in found.findings
    assert phase.last_saved(tmp_path / "stale" / "work") == 1
    assert right.sampling_gap is not None
    assert found.sampling_gap < 2 * right.sampling_gap


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


def test_the_seed_decides_what_it_draws(tmp_path: Path) -> None:
    start = make_wide_model(tmp_path / "start")

    def drawn(name: str, seed: int) -> list[tuple[str, int, str]]:
        found: list[tuple[str, int, str]] = []

        def note(step: int, rollouts: list[Any], rewards: list[float]) -> None:
            found.extend((r.row_id, r.sample, r.text) for r in rollouts)

        phase.trained(start, tmp_path / name, hardware=HARDWARE, seed=seed, on_step=note)
        return sorted(found)

    first = drawn("a", 5)
    assert drawn("b", 5) == first
    other = drawn("c", 6)
    assert [place[:2] for place in other] == [place[:2] for place in first]
    assert sum(a[2] != b[2] for a, b in zip(first, other, strict=True)) > len(first) / 2
