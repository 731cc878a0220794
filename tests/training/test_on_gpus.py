"""What a plan says of hours on GPUs, by hand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch.utils.flop_counter import FlopCounterMode

from diagevo.config.loading import resolve
from diagevo.config.models import GRPOConfig, TrainingConfig
from diagevo.config.resources import passes
from diagevo.planning.footprint import gpu_memory_plan
from diagevo.planning.on_gpus import Pace, spans
from diagevo.planning.shapes import KNOWN
from diagevo.training import trainer
from diagevo.training.trainer import PhaseTrainer
from tests.training import phase

EIGHT_B, FOUR_B = KNOWN["Qwen/Qwen3-8B-Base"], KNOWN["Qwen/Qwen3-4B-Instruct-2507"]
H100S = Pace(card=80, gpus=10, prompt=192, answer=576, longest=4096, row=6144, shards=10)
PHASE = GRPOConfig(max_steps=1, batch_questions=256, group=8, micro_batch=4)


def test_answers_take_the_reading_of_weights_and_cache_and_the_last_one_comes_alone() -> None:
    """8.19e9 weights, 294,912 bytes a token over two bytes: a step of 200 rows reads 16.38 GB and
    200 × 480 × 147,456 bytes, at 2.01e12 bytes a second; 1,000 answers on ten engines are half of what they
    decode at once."""
    full = (16.38147072e9 + 200 * 480 * 147_456) / 2.01e12 + 0.004 + 200 * 16.38147072e9 / 494.5e12
    tail = (4096 - 576) * (16.38147072e9 / 2.01e12 + 0.004)
    prefill = 100 * 192 * 16.38147072e9 / 494.5e12 / 10
    assert H100S.drawn(100, 10, 200, EIGHT_B) == pytest.approx(prefill + 0.5 * 576 * full + tail, rel=1e-9)


def test_an_update_is_shared_by_the_ranks_and_takes_what_its_settings_ask() -> None:
    """Two operations a weight and token forward, for checkpointing, backward twice, and for the reference:
    ten. Attention over 768 tokens: 36 layers of 4,096 with 384 before each in the mean, and as often."""
    weights, attention = 2 * 8_190_735_360, 2 * 36 * 4096 * 768

    def seconds(of_weights: int, of_attention: int) -> float:
        return 2048 * 768 * (of_weights * weights + of_attention * attention) / 395.6e12 / 10

    alone, several = PHASE.model_copy(update={"beta": 0.0}), PHASE.model_copy(update={"updates": 4})
    adapters = replace(H100S, lora=64, shards=None)
    assert H100S.updated(PHASE, EIGHT_B) == pytest.approx(seconds(5, 5))
    assert H100S.updated(alone, EIGHT_B) == pytest.approx(seconds(4, 4))
    assert H100S.updated(several, EIGHT_B) == pytest.approx(seconds(6, 6))
    assert adapters.updated(PHASE, EIGHT_B) == pytest.approx(seconds(4, 5))
    long = replace(H100S, prompt=1536, answer=4608)
    share = 1 - 8 * 5 * weights * 2048 * 768 / 395.6e12 / 10 / long.updated(PHASE, EIGHT_B)
    assert share == pytest.approx(0.1, abs=0.01), "at 6,144 tokens"


def test_where_the_link_is_slower_than_the_cards_what_ranks_exchange_counts() -> None:
    """82 GB a micro-batch of 8B: three gatherings of 16.4 GB, and gradients of 32.8 GB. A rank of four has a
    quarter of it; over PCIe 22.4 GB/s. Whole models send their gradients of float32 twice, once an update."""
    cards = replace(H100S, card=48, gpus=4, shards=4, row=3072)
    small = PHASE.model_copy(update={"micro_batch": 1})
    micro_batches = 2048 * 768 / 4 / 3072
    sent = micro_batches * 81.907 * 0.75 / 22.4
    assert cards.updated(small, EIGHT_B) == pytest.approx(sent, rel=1e-4)
    assert replace(cards, card=80).updated(small, EIGHT_B) < sent / 4, "it computes for longer"
    alone = replace(cards, shards=None)
    few = PHASE.model_copy(update={"batch_questions": 1})
    assert alone.updated(few, EIGHT_B) == pytest.approx(2 * 32.763 * 0.75 / 22.4, rel=1e-4)
    lora = replace(alone, lora=64).updated(few, EIGHT_B)
    assert lora < alone.updated(few, EIGHT_B) / 3


def _operations(start: Path, folder: Path, **changes: Any) -> int:
    """Of the update of a phase's first step, as torch counts them: without the drawing of its rollouts."""
    counters: list[FlopCounterMode] = []

    def counted(name: str, right: Any) -> Any:
        def call(*given: Any, **named: Any) -> Any:
            with FlopCounterMode(display=False) as counter:
                found = right(*given, **named)
            counters.append(counter)
            return found

        return call

    training = TrainingConfig(lora=changes.pop("lora", None))
    settings = phase.SETTINGS.model_copy(update={"max_steps": 1, "micro_batch": 64, **changes})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(trainer, "draw", counted("draw", trainer.draw))
        patched.setattr(PhaseTrainer, "training_step", counted("step", PhaseTrainer.training_step))
        phase.trained(start, folder, settings=settings, training=training)
    drawn, whole = (counter.get_total_flops() for counter in counters)
    return whole - drawn


def test_the_passes_of_an_update_are_those_that_torch_counts(tiny_model: Path, tmp_path: Path) -> None:
    """On a CPU nothing is computed twice for checkpointing: so many passes of two operations a weight."""

    def counted(name: str, **changes: Any) -> float:
        settings = phase.SETTINGS.model_copy(update={k: v for k, v in changes.items() if k != "lora"})
        expected = sum(passes(settings, changes.get("lora")))
        return _operations(tiny_model, tmp_path / name, **changes) / expected

    one = counted("alone", beta=0.0)
    assert counted("reference", beta=0.01) == pytest.approx(one, rel=0.02)
    assert counted("several", beta=0.01, updates=2) == pytest.approx(one, rel=0.02)
    assert counted("adapters", beta=0.01, lora=1) == pytest.approx(one, rel=0.1)


def _minutes(*settings: str, questions: int = 0) -> dict[str, float]:
    config = resolve(profile="qwen3-8b", settings=settings, environ={"XDG_CONFIG_HOME": "/nowhere"}).config
    found = gpu_memory_plan(config, EIGHT_B, EIGHT_B, FOUR_B)
    return {s.part: s.seconds / 60 for s in spans(config, found, 80, EIGHT_B, FOUR_B, questions)}


def _a_step(found: dict[str, float]) -> float:
    """Seconds of one of the solver's twelve, less than a checkpoint takes to be written."""
    drawn, updates = (found[f"solver: {part}"] for part in ("rollouts", "updates"))
    return min(98.29, 60 * (drawn + updates) / 12)


def test_a_round_has_loads_saving_validation_and_what_the_others_wait_for() -> None:
    """A phase reads 65.5 GB, copies 98.3 GB three times, an eighth a GPU, and waits for the last of them and
    the 32.8 GB of the policy to be written; steps take longer than the others. 73,728 calls of the
    diagnostician take 3,174 s to read and 2,242 to write; meanwhile the solver trains."""
    found = _minutes(questions=600)
    assert found["challenger: start, loads"] == pytest.approx((90 + 10 + 65.53) / 60, abs=0.01)
    assert found["challenger: saving"] == found["solver: saving"]
    assert found["solver: saving"] == pytest.approx((3 * 98.29 / 5 / 8 + 98.29 + 32.76) / 60, abs=0.01)
    assert _minutes("solver_grpo.save_steps=1")["solver: saving"] == pytest.approx(
        (12 * 98.29 / 40 + 11 * (98.29 - _a_step(found)) + 98.29 + 32.76) / 60, abs=0.02
    )
    solver = sum(minutes for part, minutes in found.items() if part.startswith("solver"))
    step = 2 * FOUR_B.weights / 2.01e12 + 0.004
    asked = 73_728 * (2600 * 2 * FOUR_B.weights / 494.5e12 + 150 * step / 64) / 60
    assert found["waiting for the diagnostician"] == pytest.approx(asked - solver)
    assert found["validation"] > 0
    assert "validation" not in _minutes()
    assert _minutes("diagnosis.failures_per_question=1")["waiting for the diagnostician"] == 0


def test_a_solver_that_trains_alone_has_no_time_of_a_challenger() -> None:
    assert not any(part.startswith("challenger") for part in _minutes("round.train_challenger=false"))
