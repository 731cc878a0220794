"""The steps of a phase in order, and how a step's rollouts are cut into micro-batches by their tokens."""

from collections.abc import Sequence
from itertools import chain
from typing import Any

import torch
from torch.nn.functional import pad
from torch.utils.data import Dataset

from diagevo.training.plan import PhasePlan


class Steps(Dataset):
    """The steps of a phase in order; each item has the rows of one rank."""

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
                "part": slot.row.part,
                "sample": slot.sample,
                "padding": slot.padding,
            }
            for slot in self._plan.slots(place + 1, self._rank)
        ]
        return {"rows": rows}


def pack(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """The rows of each micro-batch: as many as fit into `budget` tokens at the length of its longest, and at
    least one. Rows of similar length go together; no other order needs fewer micro-batches."""
    packed: list[list[int]] = []
    longest = 0
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if not packed or (len(packed[-1]) + 1) * longest > budget:
            packed.append([])
            longest = lengths[row]
        packed[-1].append(row)
    return packed


def deal(packed: Sequence[Sequence[int]], ranks: int) -> list[list[list[int]]]:
    """The same rows as micro-batches for each rank: equally many, made by halving the largest."""
    found = [list(rows) for rows in packed]
    while len(found) % ranks:
        largest = max(range(len(found)), key=lambda place: len(found[place]))
        rows = found[largest]
        found[largest : largest + 1] = [rows[: len(rows) // 2], rows[len(rows) // 2 :]]
    return [found[rank::ranks] for rank in range(ranks)]


class Dealt:
    """The rows of all ranks, redistributed: a rank with long rows would keep the others waiting.

    Args:
        batch: Equally many rows on each rank.
        budget: Maximum tokens of a micro-batch with more than one row.
        accelerator: Of the ranks, which must all call this.
    """

    def __init__(self, batch: dict[str, Any], budget: int, accelerator: Any) -> None:
        self._accelerator = accelerator
        lengths = accelerator.gather(batch["prompt_mask"].sum(1) + batch["completion_mask"].sum(1)).tolist()
        self._count = len(batch["prompt_mask"])
        self._packed = deal(pack(lengths, budget), accelerator.num_processes)
        self.most = max(
            len(rows) * max(lengths[row] for row in rows) for packed in self._packed for rows in packed
        )
        """Tokens of the largest micro-batch."""
        mine = self._packed[accelerator.process_index]
        held = {
            name: self._of_all(name, value)[[row for rows in mine for row in rows]]
            for name, value in batch.items()
            if torch.is_tensor(value) and value.ndim
        }
        self._width = held["completion_ids"].size(1)
        cuts = torch.arange(sum(map(len, mine))).split([len(rows) for rows in mine])
        self.micro_batches = [trim(select(held, rows)) for rows in cuts]
        """This rank's micro-batches, without padding columns: as many as the others have."""

    def given_back(self, found: Sequence[torch.Tensor]) -> torch.Tensor:
        """Results computed here for each micro-batch, returned to the rows' original ranks."""
        here = torch.cat([pad(values, (0, self._width - values.size(1))) for values in found])
        ranks = self._accelerator.num_processes
        everyone = self._accelerator.gather(self._accelerator.pad_across_processes(here, dim=0))
        place = {
            row: rank * (len(everyone) // ranks) + number
            for rank, packed in enumerate(self._packed)
            for number, row in enumerate(chain.from_iterable(packed))
        }
        first = self._accelerator.process_index * self._count
        return everyone[[place[row] for row in range(first, first + self._count)]]

    def _of_all(self, name: str, value: torch.Tensor) -> torch.Tensor:
        """Of all ranks, as wide as the widest: prompts end in the last column."""
        whole = self._accelerator.pad_across_processes(value, dim=1, pad_first=name.startswith("prompt"))
        return self._accelerator.gather(whole)


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
    """Results for the last tokens of `sequences`, moved to the positions of the completion."""
    return _shifted(values, batch["completion_mask"].sum(1) - batch["completion_mask"].size(1))


def _shifted(values: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    """Each row rotated right by this many columns."""
    columns = torch.arange(values.size(1), device=values.device)
    return values.gather(1, (columns - by.unsqueeze(1)) % values.size(1))


def trim(batch: dict[str, Any]) -> dict[str, Any]:
    """Remove columns that are padding in every row: prompts on the left, completions on the right."""
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
