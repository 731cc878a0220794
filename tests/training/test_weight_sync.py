"""Checksums of weights, by hand. That a stale engine is found by them: test_colocate.py, with a real vLLM."""

import torch

from diagevo.config.models import TrainingConfig
from diagevo.training.measures import COMPLETIONS, CUT_OFF, HIGHEST, LOWEST, TENSORS_APART, measured
from diagevo.training.weight_sync import checksum


def test_a_checksum_adds_up_the_bits_so_that_parts_and_padding_do_not_matter() -> None:
    one = torch.tensor([1.0, 2.0, -0.0], dtype=torch.bfloat16)
    assert checksum(one) == 0x3F80 + 0x4000 - 0x8000
    assert checksum(torch.ones(3)) == 3 * 0x3F800000
    parts = torch.randn(4, 8), torch.randn(2, 8)
    assert checksum(torch.cat([*parts, torch.zeros(3, 8)])) == sum(map(checksum, parts))
    assert checksum(parts[0].T) == checksum(parts[0])


def test_the_least_change_of_one_weight_changes_it() -> None:
    weights = torch.randn(1000, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    moved = weights.clone()
    moved[17] = torch.nextafter(moved[17], torch.tensor(torch.inf, dtype=torch.bfloat16))
    assert abs(checksum(moved) - checksum(weights)) == 1


def test_one_tensor_that_differs_in_one_step_is_found() -> None:
    step = {LOWEST: 0.0, HIGHEST: 1.0, COMPLETIONS: 8.0, CUT_OFF: 0.0}

    def findings(*apart: float) -> tuple[str, ...]:
        log = [step | {TENSORS_APART: value} for value in apart]
        return measured(log, TrainingConfig(), reference=False, attention="sdpa").findings

    assert findings(0.0, 0.0) == ()
    assert findings(0.0, 1.0) == ("stale_sampler",)
