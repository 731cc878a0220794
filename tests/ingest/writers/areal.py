"""AReaL: the episodes of its workflow of several turns, grouped, as its executor dumps them.

All three are its own code; the model, its tokenizer and the reward are made up.
"""

# The trainer is a checkout, and no dependency of ours.
# pyright: reportMissingImports=false

import asyncio
import json
import logging
import os
import random
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import aiofiles.os
import torch

from tests.ingest.writers.taken import Truth, taken

TASKS, GROUP, VERSIONS = 9, 4, 3
AGAIN = "\nuser\nThat is wrong. Try again.\nassistant\n"


class Characters:
    """A tokenizer whose tokens are characters."""

    eos_token_id = 3

    def decode(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        return "".join(map(chr, ids))


def ids(text: str) -> list[int]:
    return [ord(c) for c in text]


class Model:
    """Answers once, or more often until it is right."""

    def __init__(self, turns: list[str], version: int) -> None:
        self.turns, self.version = iter(turns), version

    async def agenerate(self, request: Any) -> SimpleNamespace:
        await asyncio.sleep(0)
        said = [*ids(next(self.turns)), 3]
        return SimpleNamespace(
            input_tokens=list(request.input_ids),
            output_tokens=said,
            output_len=len(said),
            output_logprobs=[-0.5] * len(said),
            output_versions=[self.version] * len(said),
        )


def main(checkout: Path, folder: Path, made_with: str) -> None:
    """`single` has a turn a sample, `turns` up to three, `alone` a sample a task."""
    names: dict[str, Any] = {
        "torch": torch,
        "F": torch.nn.functional,
        "asyncio": asyncio,
        "uuid": uuid,
        "os": os,
        "json": json,
        "aiofiles": aiofiles,
        "ModelRequest": SimpleNamespace,
        "apply_chat_template": lambda _, messages, **__: ids(messages),
        "workflow_context": SimpleNamespace(stat_scope=lambda: ""),
        "stats_tracker": SimpleNamespace(get=lambda _: SimpleNamespace(scalar=lambda **_: None)),
    }
    data, workflow = checkout / "areal" / "utils" / "data.py", checkout / "areal" / "workflow"
    for name in ("is_multi_modal_key", "_pad_cat_dim0", "concat_padded_tensors"):
        taken(data, name, names)
    episode = taken(workflow / "multi_turn.py", "arun_episode", dict(names), within="MultiTurnWorkflow")
    infra = checkout / "areal" / "infra"
    dump = taken(infra / "workflow_executor.py", "_dump_trajectory", dict(names), within="WorkflowExecutor")
    executor: Any = SimpleNamespace(
        _get_tokenizer=Characters, logger=logging.getLogger("areal"), inference_engine=None
    )
    rng = random.Random(7)
    for kind in ("single", "turns", "alone"):
        truth = Truth()
        executor._get_dump_dir = lambda is_eval, kind=kind: str(folder / kind / "rollout")
        for task in range(TASKS):
            version = task * VERSIONS // TASKS
            place = task // GROUP if kind == "alone" else task
            asked = f"user\nQuestion {place}\nassistant\n"
            found: list[Any] = []
            for sample in range(1 if kind == "alone" else GROUP):
                right = rng.random() < 0.5
                count = (rng.choice([1, 2, 3]) if right else 3) if kind == "turns" else 1
                said = [f"[{task}.{sample}, turn {t}] it is {t}" for t in range(count)]
                rewards = iter([0.0] * (count - 1) + [float(right)])

                async def reward(*_: Any, rewards: Any = rewards, **__: Any) -> float:
                    return next(rewards)

                workflow_: Any = SimpleNamespace(
                    tokenizer=Characters(),
                    max_turns=3 if kind == "turns" else 1,
                    turn_discount=0.9,
                    gconfig=SimpleNamespace(new=lambda **_: None),
                    async_reward_fn=reward,
                    multi_turn_prompt_ids=ids(AGAIN),
                )
                found.append(asyncio.run(episode(workflow_, Model(said, version), {"messages": asked})))
                value = float(torch.tensor(float(right) * 0.9 ** (count - 1), dtype=torch.float32))
                name = f"{version}.{place}"  # of tasks of one sample, what a version was asked
                truth.add(name, version, asked.strip(), said, value)
            merged = names["concat_padded_tensors"](found)
            done, why = asyncio.run(dump(executor, merged, task, False))
            assert done, why
        truth.write(folder / kind, made_with)
