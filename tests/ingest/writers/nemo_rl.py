"""NeMo-RL: GRPO's filter of prompts (`use_dynamic_sampling`) and the step's file that is written after it.

The filter and the writer are its own functions; what a step logs is the block of `grpo_train` that says so.
"""

# The trainer is a checkout, and no dependency of ours.
# pyright: reportMissingImports=false

import ast
import json
import os
import random
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import torch

from tests.ingest.writers.taken import Truth, taken

PROMPTS, GENERATIONS, STEPS = 3, 4, 3
SYSTEM = "Answer in \\boxed{}."


def ids(text: str) -> Any:
    return torch.tensor([ord(c) % 997 + 3 for c in text])


def batch(rng: random.Random, number: int, batched: Any, *, dynamic: bool) -> Any:
    """A batch of generations: two of five prompts pass or fail as a whole. Every second has a tool's turn."""
    rows, rewards = [], []
    for place in range(PROMPTS):
        signs = [float(rng.random() < 0.5) for _ in range(GENERATIONS)]
        if rng.random() < 0.4:
            signs = [signs[0]] * GENERATIONS
        for sample, reward in enumerate(signs):
            name = f"{number}.{place}.{sample}"
            log = [("system", SYSTEM)] if dynamic else []
            log.append(("user", f"{place} + {number}?"))
            if sample % 2:
                log += [("assistant", f"[{name}] call"), ("tool", f"{name}: user: 0")]
            # the third and the fourth say the same, whatever they are worth
            log.append(("assistant", f"[{name}] a" if sample < 2 else "I do not know."))
            rows.append([{"role": r, "content": t, "token_ids": ids(t)} for r, t in log])
            rewards.append(reward)
    return batched({"message_log": rows, "total_reward": torch.tensor(rewards)})


def logging_block(file: Path) -> Any:
    """What `grpo_train` logs of a step."""
    text = file.read_text(encoding="utf-8")
    train = next(
        n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef) and n.name == "grpo_train"
    )
    [block] = [
        node
        for node in ast.walk(train)
        if isinstance(node, ast.If)
        and "train_data_step" in (ast.get_source_segment(text, node) or "")
        and "_should_log_nemo_gym_responses" in ast.unparse(node.test)
    ]
    return compile(ast.Module([block], []), str(file), "exec")


def play(checkout: Path, folder: Path, *, dynamic: bool) -> Truth:
    from nemo_rl.data import llm_message_utils as messages
    from nemo_rl.distributed.batched_data_dict import BatchedDataDict as Batched

    grpo = checkout / "nemo_rl" / "algorithms" / "grpo.py"
    names: dict[str, Any] = {"torch": torch, "BatchedDataDict": Batched, "np": numpy, "os": os, "json": json}
    sampling = taken(grpo, "dynamic_sampling", dict(names))
    baseline_and_std = taken(
        checkout / "nemo_rl" / "algorithms" / "utils.py", "calculate_baseline_and_std_per_prompt", dict(names)
    )
    write = taken(checkout / "nemo_rl" / "utils" / "logger.py", "log_batched_dict_as_jsonl", dict(names))
    logger = SimpleNamespace(base_log_dir=str(folder))
    logger.log_batched_dict_as_jsonl = lambda data, name: write(logger, data, name)
    config = SimpleNamespace(
        grpo=SimpleNamespace(
            num_prompts_per_step=PROMPTS,
            num_generations_per_prompt=GENERATIONS,
            use_dynamic_sampling=dynamic,
            dynamic_sampling_max_gen_batches=20,
            deduplicate_multimodal_data=False,
        )
    )
    timer = SimpleNamespace(time=lambda _: nullcontext())
    block = logging_block(grpo)
    rng, truth, number = random.Random(int(dynamic)), Truth(), 0
    for step in range(STEPS):
        rows: Any = None
        cache, complete, tries, played = None, False, 0, []
        while not complete:
            number, tries = number + 1, tries + 1
            rows = batch(rng, number, Batched, dynamic=dynamic)
            rewards = rows["total_reward"]
            played += zip(rows["message_log"], rewards.tolist(), strict=True)
            asked = [[m for m in log if m["role"] in ("system", "user")] for log in rows["message_log"]]
            inputs, _ = messages.batched_message_log_to_flat_message(asked, {"token_ids": 0})
            baseline, std = baseline_and_std(
                inputs["token_ids"], rewards, torch.ones_like(rewards), leave_one_out_baseline=True
            )
            rows, complete, cache, _ = sampling(rows, std, baseline, tries, config, timer, cache)
        logs = rows["message_log"]
        messages.add_loss_mask_to_message_log(logs, ["assistant"])
        flat, lengths = messages.batched_message_log_to_flat_message(logs, {"token_ids": 0})
        zeros = torch.zeros(len(logs), 1)
        block_names = {
            "_should_log_nemo_gym_responses": lambda _: False,
            "master_config": config,
            "repeated_batch": rows,
            "flat_messages": flat,
            "rewards": rows["filtered_reward"] if dynamic else rows["total_reward"],
            "input_lengths": lengths,
            "train_data": {
                "input_ids": flat["token_ids"],
                "token_mask": flat["token_loss_mask"],
                "sample_mask": torch.ones(len(logs)),
                **dict.fromkeys(("advantages", "generation_logprobs", "prev_logprobs"), zeros),
            },
            "logger": logger,
            "total_steps": step,
        }
        exec(block, block_names)
        kept = {id(log[0]["token_ids"]) for log in logs}
        for log, reward in played:
            if id(log[0]["token_ids"]) not in kept:
                continue
            texts = [m["content"] for m in log]
            asked_of = 2 if dynamic else 1
            prompt = "\n\n".join(texts[:asked_of])
            truth.add(f"{step} {prompt}", step + 1, prompt, texts[asked_of:], reward)
    return truth


def main(checkout: Path, folder: Path, commit: str) -> None:
    for name in ("dynamic", "plain"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        play(checkout, folder / name, dynamic=name == "dynamic").write(folder / name, f"NeMo-RL {commit}")
