"""vLLM inside the trainer, on the CPU: it samples with the weights that the step before left."""

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

from diagevo.config.models import HardwareConfig, TrainingConfig
from diagevo.errors import StoppedSafely, WrongTrainingError
from diagevo.progress import StopFlag
from diagevo.training import grpo
from diagevo.training.phase import Phase, Rollout, TrainingRow, TrainingSummary
from diagevo.training.weight_sync import send_adapter
from tests.sampling.real_vllm import REAL_VLLM, make_wide_model
from tests.sampling.test_smollm2 import FOLDER as SMOLLM2
from tests.training import phase
from tests.training.test_lora import kl

pytestmark = [*REAL_VLLM, pytest.mark.usefixtures("an_engine_inside")]
IDS = [7, 8, 9, 10, 11, 12, 30, 40, 50, 60]
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
    """Three steps that move the weights far, in float32 on both sides. The sampler's log-probabilities are of
    what top-p leaves, so they are higher by up to -log 0.99."""
    followed = played(make_wide_model(tmp_path / "start"), tmp_path / "a", 0.05)
    assert followed.measures.sampling_gap is not None
    assert followed.measures.sampling_gap < 0.0101
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


class Looking:
    """As a phase ends: the engine's log-probabilities of the whole vocabulary beside the trainer's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, served: Path) -> None:
        """`served`: a folder for the adapter."""
        self.apart = list[float]()
        """KL(served, trained) of each phase."""
        self.learned = list[float]()
        """KL(base, trained)."""
        self.shared = list[float]()
        """Which part of the base's numbers the trainer has in the engine's memory."""
        self._served = served
        self._write = grpo._write_output
        vllm = import_module("vllm")
        monkeypatch.setattr(vllm, "LLM", partial(vllm.LLM, max_logprobs=-1))
        monkeypatch.setattr(grpo, "_write_output", self._look)

    def _look(self, trainer: Any, phase: Phase, notes: dict[str, Any]) -> None:
        generation, model = trainer.vllm_generation, trainer.accelerator.unwrap_model(trainer.model).eval()
        assert send_adapter(generation, self._served) == 0
        self.shared.append(shared(generation))
        wanted = import_module("vllm").SamplingParams(max_tokens=1, prompt_logprobs=-1)
        [found] = generation.llm.generate([{"prompt_token_ids": IDS}], wanted, use_tqdm=False)
        served = torch.tensor([[at[i].logprob for i in sorted(at)] for at in found.prompt_logprobs[1:]])
        with torch.no_grad():
            trained = model(torch.tensor([IDS])).logits[0, :-1]
            with model.disable_adapter():
                base = model(torch.tensor([IDS])).logits[0, :-1]
        served, trained, base = (of.double().log_softmax(-1) for of in (served, trained, base))
        self.apart.append(kl(served, trained))
        self.learned.append(kl(base, trained))
        self._write(trainer, phase, notes)


def shared(generation: Any) -> float:
    engine = generation.llm.llm_engine.model_executor.driver_worker.model_runner.model
    places = [(t.data_ptr(), t.data_ptr() + t.nbytes) for t in engine.parameters()]
    frozen = [
        t for name, t in generation.model.named_parameters() if ".lora_" not in name and not t.requires_grad
    ]
    within = [any(a <= t.data_ptr() and t.data_ptr() + t.nbytes <= b for a, b in places) for t in frozen]
    return sum(t.numel() for t, is_ in zip(frozen, within, strict=True) if is_) / sum(
        t.numel() for t in frozen
    )


def twelve_steps(start: Path, folder: Path, **settings: Any) -> TrainingSummary:
    rows = tuple(TrainingRow(f"q{i}", [{"role": "user", "content": f"{i}+{i}?"}]) for i in range(12))
    changes = {"learning_rate": 1e-5, "batch_questions": 1, "max_steps": 12, "save_steps": 12}
    summary = phase.trained(
        start,
        folder,
        reward=Varied(),
        settings=phase.SETTINGS.model_copy(update=changes),
        rows=rows,
        hardware=HARDWARE,
        training=TrainingConfig(lora=8),
        **settings,
    )
    assert [entry["sampling/tensors_apart"] for entry in summary.log] == [0] * 12
    return summary


def test_an_adapter_is_served_unmerged_as_it_was_trained_also_in_the_phase_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float32: the rounding of arithmetic in bfloat16 alone is 1e-3."""
    looking = Looking(monkeypatch, tmp_path / "last")
    first = twelve_steps(make_wide_model(tmp_path / "start"), tmp_path / "first").final
    twelve_steps(first, tmp_path / "second")
    print(f"KL(served, trained) {looking.apart}, KL(base, trained) {looking.learned}")
    assert looking.shared == [1, 1], "one copy of the base"
    assert max(looking.apart) < 1e-10
    assert looking.learned[0] > 1000 * max(looking.apart)
    assert looking.learned[1] > looking.learned[0], "the second phase went on"


@pytest.mark.slow
@pytest.mark.skipif(not SMOLLM2.is_dir(), reason=f"{SMOLLM2} is not here; make it: make lm")
def test_an_adapter_of_a_known_model_is_served_as_it_was_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking = Looking(monkeypatch, tmp_path / "last")
    twelve_steps(SMOLLM2, tmp_path, sampling=phase.SAMPLING.model_copy(update={"max_prompt_tokens": 64}))
    print(f"KL(served, trained) {looking.apart}, KL(base, trained) {looking.learned}")
    assert looking.shared == [1]
    assert looking.apart[0] < 1e-8
    assert looking.learned[0] > 1000 * looking.apart[0]


@pytest.mark.slow
@pytest.mark.skipif(not SMOLLM2.is_dir(), reason=f"{SMOLLM2} is not here; make it: make lm")
def test_the_weights_of_a_known_model_arrive_after_each_step(tmp_path: Path) -> None:
    summary = phase.trained(
        SMOLLM2,
        tmp_path,
        reward=Varied(),
        settings=phase.SETTINGS.model_copy(
            update={"learning_rate": 1e-6, "batch_questions": 1, "max_steps": 2}
        ),
        sampling=phase.SAMPLING.model_copy(update={"max_prompt_tokens": 64}),
        hardware=HARDWARE,
    )
    assert [entry["sampling/tensors_apart"] for entry in summary.log] == [0, 0]
    assert summary.measures.sampling_gap is not None
    assert summary.measures.sampling_gap < 0.0101


def test_an_adapter_that_the_engine_has_of_an_earlier_step_ends_the_phase(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine: Any = import_module("vllm.v1.engine.llm_engine").LLMEngine
    add, calls = engine.add_lora, []

    def once(self: Any, request: Any) -> Any:
        calls.append(request)
        return add(self, request) if len(calls) == 1 else False

    monkeypatch.setattr(engine, "add_lora", once)
    settings = phase.SETTINGS.model_copy(update={"learning_rate": 1e-6})
    with pytest.raises(WrongTrainingError, match="the sampler of step 2 did not have the trainer's"):
        phase.trained(
            make_wide_model(tmp_path / "start"),
            tmp_path,
            reward=Varied(),
            settings=settings,
            hardware=HARDWARE,
            training=TrainingConfig(lora=8),
        )
    assert phase.last_saved(tmp_path / "work") == 1


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
