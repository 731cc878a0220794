"""The micro-batches of a phase: which come when, and how a step's rollouts are cut into them."""

from typing import Any

import torch
from torch.utils.data import Dataset

from diagevo.training.plan import PhasePlan


class MicroSteps(Dataset):
    """The micro-batches of a phase in order; each item carries the rows of its whole step for one rank."""

    def __init__(self, plan: PhasePlan, rank: int) -> None:
        self._plan = plan
        self._rank = rank
        self._places = [
            (step, index) for step in range(1, plan.steps + 1) for index in range(plan.micro_batches(step))
        ]

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, place: int) -> dict[str, Any]:
        step, index = self._places[place]
        rows = [
            {
                "prompt": slot.row.prompt,
                "row_id": slot.row.row_id,
                "sample": slot.sample,
                "padding": slot.padding,
            }
            for slot in self._plan.slots(step, self._rank)
        ]
        return {"index": index, "count": self._plan.micro_batches(step), "rows": rows}


def split(batch: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """Rows of like length together, without the columns that are padding in all of them."""
    order = batch["completion_mask"].sum(1).argsort(descending=True, stable=True)
    tokens = {"num_items_in_batch": batch["num_items_in_batch"]}
    return [trim(select(batch, rows)) | tokens for rows in order.tensor_split(count)]


def select(batch: dict[str, Any], rows: torch.Tensor) -> dict[str, Any]:
    return {name: value[rows] for name, value in batch.items() if torch.is_tensor(value) and value.ndim}


def sequences(batch: dict[str, Any]) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Prompts with their completions: token ids, attention mask, and how many tokens are completions."""
    ids = torch.cat([batch["prompt_ids"], batch["completion_ids"]], dim=1)
    mask = torch.cat([batch["prompt_mask"], batch["completion_mask"]], dim=1)
    return ids, mask, batch["completion_ids"].size(1)


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
