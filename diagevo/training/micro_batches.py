"""The steps of a phase in order, and how a step's rollouts are cut into micro-batches by their tokens."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils.data import Dataset

from diagevo.training.plan import PhasePlan


class Steps(Dataset):
    """The steps of a phase in order; each item holds the rows of one rank."""

    def __init__(self, plan: PhasePlan, rank: int) -> None:
        self._plan = plan
        self._rank = rank

    def __len__(self) -> int:
        return self._plan.steps

    def __getitem__(self, place: int) -> dict[str, Any]:
        rows = [
            {
                "prompt": slot.row.prompt,
                "row_id": slot.row.row_id,
                "sample": slot.sample,
                "padding": slot.padding,
            }
            for slot in self._plan.slots(place + 1, self._rank)
        ]
        return {"rows": rows}


def pack(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """The rows of each micro-batch: as many as `budget` tokens hold at the length of its longest, and one at
    least. Rows of like length come together; no other order needs fewer."""
    packed: list[list[int]] = []
    longest = 0
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if not packed or (len(packed[-1]) + 1) * longest > budget:
            packed.append([])
            longest = lengths[row]
        packed[-1].append(row)
    return packed


def spread(packed: Sequence[Sequence[int]], count: int) -> list[list[int]]:
    """The same rows in `count` micro-batches, which are as many as on the rank that needs most."""
    found = [list(rows) for rows in packed]
    while len(found) < count:
        largest = max(range(len(found)), key=lambda place: len(found[place]))
        rows = found[largest]
        found[largest : largest + 1] = [rows[: len(rows) // 2], rows[len(rows) // 2 :]]
    return found


def select(batch: dict[str, Any], rows: Sequence[int] | torch.Tensor) -> dict[str, Any]:
    return {name: value[rows] for name, value in batch.items() if torch.is_tensor(value) and value.ndim}


def sequences(batch: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Prompts with their completions: token ids, attention mask, and how many tokens are completions.

    All end in the last column, so that none is wider than the longest; `in_place` undoes it.
    """
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    behind = batch["completion_mask"].size(1) - batch["completion_mask"].sum(1)
    completion = batch["completion_ids"].size(1)
    width = max(completion + 1, int(mask.sum(1).max()))
    return _shifted(ids, behind)[:, -width:], _shifted(mask, behind)[:, -width:], completion


def in_place(values: torch.Tensor, batch: dict[str, Any]) -> torch.Tensor:
    """What was found for the last tokens of `sequences`, where the completion has them."""
    return _shifted(values, batch["completion_mask"].sum(1) - batch["completion_mask"].size(1))


def _shifted(values: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    """Each row so many columns to the right; what leaves it comes in on the left."""
    columns = torch.arange(values.size(1), device=values.device)
    return values.gather(1, (columns - by.unsqueeze(1)) % values.size(1))


def trim(batch: dict[str, Any]) -> dict[str, Any]:
    """Cut the columns that hold padding in every row: prompts on the left, completions on the right."""
    prompt = int(batch["prompt_mask"].sum(1).max())
    width = max(1, int(batch["completion_mask"].sum(1).max()))
    cut = dict(batch)
    for name in ("prompt_ids", "prompt_mask"):
        cut[name] = batch[name][:, -prompt:]
    for name in ("completion_ids", "completion_mask", "ref_per_token_logps", "old_per_token_logps",
                 "sampling_per_token_logps", "importance_sampling_ratio"):  # fmt: skip
        if name in batch and batch[name].ndim == 2 and batch[name].size(1) > 1:
            cut[name] = batch[name][:, :width]
    return cut
