"""What a plan says of hours on GPUs, by hand."""

import pytest

from diagevo.config.loading import resolve
from diagevo.training.footprint import loads
from diagevo.training.on_gpus import Pace, spans
from diagevo.training.shapes import KNOWN

EIGHT_B, FOUR_B = KNOWN["Qwen/Qwen3-8B-Base"], KNOWN["Qwen/Qwen3-4B-Instruct-2507"]
H100S = Pace(card=80, gpus=10, prompt=192, answer=576, longest=4096)


def test_answers_take_the_reading_of_weights_and_cache_and_the_last_one_comes_alone() -> None:
    """8.19e9 weights, 294,912 bytes a token over two bytes: a step of 200 rows reads 16.38 GB and
    200 × 480 × 147,456 bytes, at 2.01e12 bytes a second; 1,000 answers on ten engines are half of what they
    decode at once."""
    full = (16.38147072e9 + 200 * 480 * 147_456) / 2.01e12 + 0.004 + 200 * 16.38147072e9 / 494.5e12
    tail = (4096 - 576) * (16.38147072e9 / 2.01e12 + 0.004)
    prefill = 100 * 192 * 16.38147072e9 / 494.5e12 / 10
    assert H100S.drawn(100, 10, 200, EIGHT_B) == pytest.approx(prefill + 0.5 * 576 * full + tail, rel=1e-9)


def test_an_update_is_shared_by_the_ranks() -> None:
    assert H100S.updated(2048, EIGHT_B) == pytest.approx(2048 * 768 * 10 * 8_190_735_360 / 395.6e12 / 10)


def _minutes(*settings: str, questions: int = 0) -> dict[str, float]:
    config = resolve(profile="qwen3-8b", settings=settings, environ={"XDG_CONFIG_HOME": "/nowhere"}).config
    found = loads(config, EIGHT_B, EIGHT_B, FOUR_B)
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
