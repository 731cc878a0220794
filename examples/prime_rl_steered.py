"""A taskset of verifiers whose tasks come in the order that a memory of causes draws, for prime-rl.

Beside the training run, on the machine of its orchestrator, which alone pulls tasks off a taskset:

    diagevo ingest prime-rl OUTPUT --run math --follow --steer next.json --dataset train.jsonl
        --set roles.diagnostician.engine=local

and name it in prime-rl's configuration, with `pip install --no-deps diagevo` in its environment and this
folder on PYTHONPATH. Each row of train.jsonl has `prompt` and `answer`:

    [[orchestrator.train.source]]
    name = "math"

    [orchestrator.train.source.env.taskset]
    id = "prime-rl-steered"
    dataset = "train.jsonl"
    draws = "next.json"
"""

import json
from collections.abc import Iterator
from pathlib import Path

import verifiers.v1 as vf

from diagevo.integrations.next_draws import NextDraws

__all__ = ["SteeredTaskset"]


class RowData(vf.TaskData):
    answer: str


class RowTask(vf.Task[RowData]):
    @vf.reward
    async def correct(self, trace: vf.Trace) -> float:
        """1 where the boxed answer is the row's. Put your own reward here."""
        return float(f"\\boxed{{{self.data.answer}}}" in trace.last_reply)


class SteeredConfig(vf.TasksetConfig):
    dataset: Path = Path("train.jsonl")
    draws: Path = Path("next.json")


class SteeredTaskset(vf.Taskset[RowTask, SteeredConfig]):
    INFINITE = True

    def load(self) -> Iterator[RowTask]:
        rows = [json.loads(line) for line in self.config.dataset.read_text(encoding="utf-8").splitlines()]
        for draw in NextDraws(self.config.draws):
            row = rows[draw["row"]]
            data = RowData(idx=draw["row"], prompt=row["prompt"], answer=row["answer"])
            yield RowTask(data, self.config.task)
