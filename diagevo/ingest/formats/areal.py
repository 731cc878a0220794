"""AReaL's `rollout/{version}/{task}.jsonl`: a task has the samples of one prompt, in the folder of the last
version of the policy that wrote to them."""

from pathlib import Path
from typing import Any

from diagevo.errors import ConfigError
from diagevo.ingest.formats.messages import unmarked
from diagevo.ingest.formats.rows import ANOTHER, Row, named, number, step_of, with_reward
from diagevo.ingest.lines import typed
from diagevo.ingest.rollouts import IngestedRollout, RolloutStep


class ArealRow(Row):
    task_id: int
    prompt: str
    completion: str


def load(folder: Path, step: int, *, reward: str | None) -> RolloutStep:
    """The rollouts of a version. Where each task has one sample, those of a prompt are its group."""
    files = sorted(folder.glob("*.jsonl"), key=lambda file: (len(file.stem), file.stem))
    if not files:
        raise ConfigError(f"{folder} has no rollout file: expected TASK.jsonl", hint=ANOTHER)
    type_ = with_reward(ArealRow, reward or "reward")
    tasks: list[list[Any]] = [[row for _, row in typed(file, type_)] for file in files]
    grouped = any(len(rows) > 1 for rows in tasks)
    found: list[IngestedRollout | None] = []
    for rows in tasks:
        prompt = _prompt([row.prompt for row in rows])
        for row in rows:
            asked, value = prompt or row.prompt, number(row.reward)
            response = unmarked((row.prompt + row.completion)[len(asked) :])
            group = str(row.task_id) if grouped else None
            found.append(
                None if value is None else IngestedRollout(unmarked(asked), response, value, None, group)
            )
    return step_of(step, f"{folder.name}/{named(files)}", found)


def _prompt(prompts: list[str]) -> str:
    """What the samples of a task were asked. AReaL counts a prompt's end from the number of trained tokens,
    so the first turns of an answer in several stand in `prompt`: then it is the lines that all begin with."""
    first, last = min(prompts, default=""), max(prompts, default="")
    common = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first if common == len(first) else first[: first.rfind("\n", 0, common) + 1]
