"""What a step plays: rows in batches and ranks, micro-batches by their tokens; no gradient depends on the
cut."""

from itertools import compress, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from diagevo.training.micro_batches import deal, in_place, pack, sequences
from diagevo.training.phase import TrainingRow
from diagevo.training.plan import PhasePlan, plan_phase
from diagevo.training.saving import SavesAndStops
from tests.training import phase

ROWS = [TrainingRow(f"q{i}", [{"role": "user", "content": str(i)}]) for i in range(11)]


def plan(rows: int = 11, **changes: Any) -> PhasePlan:
    values: dict[str, Any] = {"batch_questions": 4, "max_steps": 9, "group": 2, "ranks": 1, "seed": 0}
    return plan_phase(ROWS[:rows], **(values | changes))


def test_a_pass_plays_every_row_once_and_keeps_the_last_partial_batch() -> None:
    found = plan()
    assert [len(batch) for batch in found.batches] == [4, 4, 3]
    assert sorted(row.row_id for batch in found.batches for row in batch) == sorted(
        row.row_id for row in ROWS
    )


def test_the_pass_is_shuffled_by_the_seed_alone() -> None:
    assert plan().batches == plan(ranks=2).batches
    assert plan().batches != plan(seed=1).batches
    assert [row.row_id for row in plan().batches[0]] != ["q0", "q1", "q2", "q3"]


def test_more_rows_than_the_steps_hold_leave_a_seeded_sample() -> None:
    found = plan(max_steps=2)
    assert found.batches == plan().batches[:2]


def test_a_group_stays_together_in_the_order_of_the_ranks() -> None:
    found = plan(ranks=2)
    slots = [slot for rank in range(2) for slot in found.slots(1, rank)]
    assert [slot.sample for slot in slots] == [0, 1] * 4
    assert [slot.row.row_id for slot in slots[::2]] == [row.row_id for row in found.batches[0]]


def test_ranks_get_equal_shares_and_padding_counts_nowhere() -> None:
    found = plan(ranks=4)  # The last batch has 3 rows of 2: 6 completions for 4 ranks, padded to 8.
    shares = [found.slots(3, rank) for rank in range(4)]
    assert [len(share) for share in shares] == [2, 2, 2, 2]
    real = [slot for share in shares for slot in share if not slot.padding]
    assert [slot.row.row_id for slot in real[::2]] == [row.row_id for row in found.batches[2]]
    assert len(real) == found.completions(3) == 6
    assert all(not slot.padding for rank in range(4) for slot in found.slots(1, rank))


def test_another_plan_has_another_digest() -> None:
    digests = {plan().digest(), plan(seed=1).digest(), plan(rows=10).digest(), plan(group=4).digest()}
    assert len(digests) == 4
    assert plan(ranks=2).digest() == plan().digest()


def test_a_micro_batch_holds_what_its_budget_does_and_rows_of_like_length() -> None:
    """Two rows of 13 take the 26, then three of at most 8; one above the budget has one to itself."""
    assert pack([13, 7, 12, 8, 6], 26) == [[0, 2], [3, 1, 4]]
    assert pack([13, 39], 26) == [[1], [0]]
    assert deal([[0, 1, 2], [3], [4, 5]], 2) == [[[0], [3]], [[1, 2], [4, 5]]]
    assert deal([[0]], 1) == [[[0]]]


def fewest(lengths: list[int], budget: int) -> int:
    """Micro-batches at least: the first row with each choice of others, and so on."""
    if not lengths:
        return 0
    first, *others = lengths
    found = []
    for chosen in product([True, False], repeat=len(others)):
        rows = [first, *compress(others, chosen)]
        if len(rows) == 1 or len(rows) * max(rows) <= budget:
            left = compress(others, [not taken for taken in chosen])
            found.append(1 + fewest([*left], budget))
    return min(found)


def test_no_other_micro_batches_would_be_fewer() -> None:
    draw = np.random.default_rng(1)
    for _ in range(60):
        lengths, budget = draw.integers(1, 20, 6).tolist(), int(draw.integers(10, 60))
        assert len(pack(lengths, budget)) == fewest(lengths, budget)


@pytest.mark.parametrize("full", [2, 4])
@pytest.mark.parametrize("rows", [256, 512])
def test_a_step_takes_at_most_15_percent_more_micro_batches_than_its_tokens_need(
    full: int, rows: int
) -> None:
    """Completions of eight ranks with lengths as reasoning has them: log-normal around 700 tokens, cut off at
    4,096; prompts of 60 to 400. `full`: completions of full length in a micro-batch, as profiles say.
    """
    draw, shares, budget = np.random.default_rng(0), [], full * (2048 + 4096)
    for _ in range(20):
        completions = np.minimum(draw.lognormal(np.log(700), 0.8, 8 * rows).astype(int) + 1, 4096)
        lengths = (completions + np.repeat(draw.integers(60, 400, rows), 8)).tolist()
        dealt = deal(pack(lengths, budget), 8)
        assert sorted(row for rank in dealt for part in rank for row in part) == list(range(8 * rows))
        assert len({len(rank) for rank in dealt}) == 1
        parts = [part for rank in dealt for part in rank]
        assert all(len(part) * max(lengths[row] for row in part) <= budget for part in parts)
        assert rows / full > 4 * len(dealt[0]), "what rows of full length alone would take"
        shares.append(len(parts) * budget / sum(lengths))
    assert max(shares) <= 1.15


def test_sequences_end_in_one_column_and_what_is_found_for_them_is_put_back() -> None:
    batch = {
        "prompt_ids": torch.tensor([[1, 2, 3], [0, 0, 4]]),
        "prompt_mask": torch.tensor([[1, 1, 1], [0, 0, 1]]),
        "completion_ids": torch.tensor([[5, 0, 0], [6, 7, 8]]),
        "completion_mask": torch.tensor([[1, 0, 0], [1, 1, 1]]),
    }
    ids, mask, completion = sequences(batch)
    assert ids.tolist() == [[1, 2, 3, 5], [4, 6, 7, 8]], "four columns for six"
    assert mask.tolist() == [[1, 1, 1, 1], [1, 1, 1, 1]]
    found = in_place(ids[:, -completion:], batch) * batch["completion_mask"]
    assert found.tolist() == batch["completion_ids"].tolist()


@pytest.mark.slow
@pytest.mark.parametrize("micro_batch", [1, 2, 5])
def test_no_gradient_depends_on_how_a_step_is_cut(
    micro_batch: int, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[dict[str, torch.Tensor]] = []
    cuts: list[int] = []
    backward = Accelerator.backward

    def noted(self: Any, args: Any, state: Any, control: Any, **given: Any) -> None:
        found.append({name: value.grad.clone() for name, value in given["model"].named_parameters()})

    def counted(self: Any, loss: Any, **options: Any) -> None:
        cuts.append(micro_batch)
        backward(self, loss, **options)

    monkeypatch.setattr(SavesAndStops, "on_pre_optimizer_step", noted)
    monkeypatch.setattr(Accelerator, "backward", counted)
    for cut in (64, micro_batch):
        changed = {"micro_batch": cut, "max_steps": 1, "batch_questions": 5, "max_grad_norm": 1e6}
        phase.trained(tiny_model, tmp_path / str(cut), settings=phase.SETTINGS.model_copy(update=changed))
    assert len(cuts) > 2, "one, and more than one"
    whole, parts = found
    assert max(float(value.abs().max()) for value in whole.values()) > 1e-2
    assert max(float((whole[name] - parts[name]).abs().max()) for name in whole) < 1e-6
