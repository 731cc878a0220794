"""Which rows a phase uses at which step, and how ranks share a step. Pure, no torch.

One pass: no row is used twice, and the last batch is the remainder. TRL requires every generation batch to
be full, so the trainer reads this plan instead of using TRL's sampler. A group's G completions are adjacent
in rank order, which is the order of the gathered rollouts.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from diagevo.training.phase import TrainingRow


@dataclass(frozen=True, slots=True)
class Slot:
    """One completion to draw: sample `sample` of `row`. Padding fills the ranks evenly and never counts."""

    row: TrainingRow
    sample: int
    padding: bool = False


@dataclass(frozen=True, slots=True)
class PhasePlan:
    """The rows of each step. `batches[s]` are the rows of step s + 1; only the last batch may be smaller."""

    batches: tuple[tuple[TrainingRow, ...], ...]
    group: int
    ranks: int

    @property
    def steps(self) -> int:
        return len(self.batches)

    def slots(self, step: int, rank: int) -> list[Slot]:
        """The completions that `rank` draws at `step` (from 1): equally many on every rank.

        If G times the rows of a smaller last batch is not divisible by the ranks, copies of its last
        group fill it up; they are marked as padding and excluded from rewards, loss and rollouts.
        """
        rows = self.batches[step - 1]
        slots = [Slot(row, sample) for row in rows for sample in range(self.group)]
        while len(slots) % self.ranks:
            slots += [Slot(rows[-1], sample, padding=True) for sample in range(self.group)]
        share = len(slots) // self.ranks
        return slots[rank * share : (rank + 1) * share]

    def completions(self, step: int) -> int:
        """Completions of `step` on all ranks, without padding."""
        return len(self.batches[step - 1]) * self.group

    def digest(self) -> str:
        """Names the plan: a checkpoint is only resumed under the plan that wrote it."""
        ids = [[row.row_id for row in batch] for batch in self.batches]
        prompts = [[row.prompt for row in batch] for batch in self.batches]
        payload = json.dumps([ids, prompts, self.group], ensure_ascii=False)
        return hashlib.sha256(payload.encode()).hexdigest()


def plan_phase(
    rows: Sequence[TrainingRow],
    *,
    batch_questions: int,
    max_steps: int,
    group: int,
    ranks: int,
    seed: int,
    in_order: bool = False,
) -> PhasePlan:
    """One seeded shuffle of `rows`, or with `in_order` none, cut into batches; what does not fit into
    `max_steps` is left out."""
    rng, places = np.random.default_rng(seed), np.arange(len(rows))
    order = (places if in_order else rng.permutation(places))[: max_steps * batch_questions]
    batches = tuple(
        tuple(rows[i] for i in order[start : start + batch_questions])
        for start in range(0, len(order), batch_questions)
    )
    return PhasePlan(batches=batches, group=group, ranks=ranks)
