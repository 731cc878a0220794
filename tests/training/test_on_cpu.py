"""What a plan says of a CPU, by hand."""

import pytest

from diagevo.config.models import Config
from diagevo.planning.on_cpu import PROCESS, SHARE, peaks, seconds
from diagevo.planning.shapes import Shape
from tests.run.small import small_config

# Width 4, one head, one layer: 160 weights and 8 of norms; 10·4 + 4 outside: 212.
TINY = Shape(
    hidden=4, intermediate=8, layers=1, query=4, key=4, vocabulary=10, tied=True, small=8, context=64
)


def tiny_config(**changes: dict[str, object]) -> Config:
    phase = {"max_steps": 1, "batch_questions": 2, "group": 2, "micro_batch": 3}
    return small_config(
        challenger_grpo=phase,
        solver_grpo=phase,
        sampling={"max_prompt_tokens": 6, "max_new_tokens": 4},
        round={"candidates": 5, "responses": 2, "challenger_votes": 3},
        validation={"samples": 2, "temperatures": [0.5]},
        **changes,
    )


def test_an_update_holds_weights_gradients_moments_and_what_its_tokens_left() -> None:
    assert TINY.weights == 212
    warm = {"documents": "builtin:arithmetic", "steps": 2, "batch_documents": 4, "micro_batch": 2}
    found = {peak.stage: dict(peak.parts) for peak in peaks(tiny_config(warm_start=warm), TINY)}
    # A token keeps 10·4 + 2·(4 + 4) + 4·8 = 88 numbers, and 2 × 10 of the head; a row has 10 tokens.
    assert found["warm-start"] == {
        "process": PROCESS,
        "weights": 848,
        "gradients": 848,
        "Adam": 1696,
        "copy to save": 2544,
        "activations": 4 * 20 * 88,
        "logits": 2 * 4 * 20 * 10,
    }
    assert found["challenger"]["activations"] == 4 * 30 * 88
    assert (found["challenger"]["reference"], found["challenger"]["frozen solver"]) == (848, 848)
    assert "frozen solver" not in found["solver"]
    assert found["candidates, votes"]["cache"] == 4 * 10 * 10 * 8


def test_time_is_operations_by_the_pace() -> None:
    warm = {"documents": "builtin:arithmetic", "steps": 2, "batch_documents": 4}
    first, each = seconds(tiny_config(warm_start=warm), TINY, pace=424 / SHARE, questions=7)
    # The warm start; a validation at two temperatures and greedily: 3·7·6 and 7·5·4.
    assert first == pytest.approx(3 * 8 * 10 + 126 + 140)
    # In tokens of one pass: candidates 5·6 + 5·4, votes 5·6 + 10·4; a phase samples 2·6 + 4·4 and passes four
    # times over 4 rows of 10; votes of the challenger's four questions 4·6 + 12·4; a validation.
    assert each == pytest.approx(50 + 70 + 2 * (28 + 160) + 72 + 126 + 140)
