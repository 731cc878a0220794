"""A training of TRL's GRPOTrainer on the shipped model with a memory beside it, for test_trl_callback.py.

Forked (tests/forked.py) with a folder and what is asked of it as JSON. Of every four completions in a row the
first passes, whatever it says: so every group has one pass and three failures.
"""

import json
import os
import resource
import sqlite3
import sys
from pathlib import Path
from typing import Any

from accelerate import PartialState
from datasets import Dataset
from transformers import TrainerCallback, set_seed
from trl.trainer.grpo_config import GRPOConfig
from trl.trainer.grpo_trainer import GRPOTrainer
from trl.trainer.rloo_config import RLOOConfig
from trl.trainer.rloo_trainer import RLOOTrainer

import diagevo
from diagevo.arithmetic import WEIGHTS
from diagevo.config.models import DiagnosisConfig, DiagnosticianRole
from diagevo.diagnosis.diagnostician import Diagnostician, Extraction
from diagevo.diagnosis.embedder import HashingEmbedder, identity
from diagevo.diagnosis.openai_diagnostician import OpenAIDiagnostician
from diagevo.errors import ServiceError
from diagevo.integrations.trl import RoundCallback, prompts
from diagevo.memory.log import database
from diagevo.memory.memory import Memory
from tests.diagnosis.rounds import Scripted

GROUP = 4
EMBEDDER = HashingEmbedder(64)


def well() -> Scripted:
    """Every failure is the one cause."""
    return Scripted(
        lambda pair: Extraction("new_cause", description="misses the point"),
        lambda text, candidates: candidates[0].cause_id if candidates else None,
        lambda text, shortlist: shortlist[0].node_id if shortlist else "points",
    )


def first_of_four(prompts: list[Any], **_: Any) -> list[float | None]:
    """By place in the batch of all ranks, each of which has as many."""
    first = PartialState().process_index * len(prompts)
    return [float((first + place) % GROUP == 0) for place in range(len(prompts))]


def nothing(prompts: list[Any], trainer_state: Any, **_: Any) -> list[float | None]:
    """Not a reward in step 1, NaN in step 2; then as above."""
    if trainer_state.global_step < 2:
        return [None if trainer_state.global_step == 0 else float("nan")] * len(prompts)
    return first_of_four(prompts)


def by_its_words(prompts: list[Any], completions: list[Any], **_: Any) -> list[float | None]:
    """By what it says: rollouts that differ are rewarded differently."""
    return [float(sum(map(ord, one[0]["content"])) % 2) for one in completions]


def of_a_hundred(prompts: list[Any], **more: Any) -> list[float | None]:
    return [100 * (reward or 0) for reward in first_of_four(prompts, **more)]


def tidy(prompts: list[Any], **_: Any) -> list[float | None]:
    """Of the form alone, which is always right."""
    return [0.6] * len(prompts)


async def brevity(prompts: list[Any], **_: Any) -> list[float | None]:
    """Says nothing of the first completion of a batch."""
    return [None if place == 0 else -1.0 for place in range(len(prompts))]


REWARDS: dict[str, Any] = {"first": first_of_four, "nothing": nothing, "two": [first_of_four, brevity]}
REWARDS |= {"words": by_its_words, "hundred": of_a_hundred, "tidy": [tidy, first_of_four]}


class Reported(TrainerCallback):
    """Prints what TRL reports."""

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **_: Any
    ) -> None:
        figures = {name: value for name, value in (logs or {}).items() if name.startswith("memory/")}
        print("reported", json.dumps(figures), flush=True)


class Fault(TrainerCallback):
    """Something is out of order from the start of the training until `until` steps are done."""

    def __init__(self, name: str, folder: Path, until: int) -> None:
        self.name, self.folder, self.until = name, folder, until
        self.held: sqlite3.Connection | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.name == "locked":
            self.held = sqlite3.connect(self.folder / "mine.db", isolation_level=None)
            self.held.execute("BEGIN IMMEDIATE")
        if self.name == "disk":
            resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step != self.until:
            return
        if self.name == "killed":
            os._exit(9)
        if self.held is not None:
            self.held.execute("ROLLBACK")
        if self.name == "disk":
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        self.name = "over"

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.name == "disk":  # the memory is closed on a disk with room again
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    def diagnostician(self) -> Diagnostician:
        one = well()
        extract = one.extraction

        def failing(pair: Any) -> Extraction:
            if self.name == "service":
                raise ServiceError("the diagnostician is gone", hint="go on with --resume")
            if self.name == "broken":
                raise ValueError("it is my own and it is broken; its key is sk-abcdefghijklmnopqrstuvwx")
            return extract(pair)

        one.extraction = failing
        return one


def endpoint(url: str, memory: Memory) -> Diagnostician:
    """A language model's, which gives a request up at once."""
    role = DiagnosticianRole(engine="openai", model="m", base_url=url)
    return OpenAIDiagnostician(role, DiagnosisConfig(), memory.artifacts, retries=0)


def asked(count: int) -> Dataset:
    """The first two rows are the same prompt."""
    texts = ["What is 1 + 1?", *(f"What is {number} + 1?" for number in range(1, count))]
    rows = [{"prompt": [{"role": "user", "content": text}], "answer": 7, "right": "8"} for text in texts]
    return Dataset.from_list(rows)


def main() -> None:
    folder, told = Path(sys.argv[1]), json.loads(sys.argv[2])
    set_seed(0)
    database.BUSY_SECONDS = 0.1
    with PartialState(cpu=True).main_process_first():
        embedder = None if told.get("asked") else identity(EMBEDDER)
        memory = diagevo.open(f"sqlite:///{folder}/mine.db", run="mine", embedder=embedder)
    fault = Fault(told.get("fault", ""), folder, told.get("until", 10**9))
    reward = REWARDS[told.get("reward", "first")]
    arguments = {
        "output_dir": str(folder / "out"),
        "per_device_train_batch_size": 16,
        "num_generations": GROUP,
        "max_completion_length": 4,
        "learning_rate": 1e-6,
        "report_to": "none",
        "save_strategy": "no",
        "logging_strategy": "no",
        "gradient_checkpointing": False,
        "disable_tqdm": True,
        "use_cpu": True,
        "bf16": False,
    }
    rows = asked(told.get("rows", 8))
    url = told.get("url")
    diagnostician = fault.diagnostician() if url is None else endpoint(url, memory)
    one: tuple[Any, Any] = (RLOOTrainer, RLOOConfig) if told.get("rloo") else (GRPOTrainer, GRPOConfig)
    trained, configured = one
    trainer = trained(
        str(WEIGHTS),
        reward_funcs=reward,
        args=configured(**arguments | told["arguments"]),
        train_dataset=prompts(memory, lambda draw: rows[draw.index % len(rows)])
        if told.get("drawn")
        else prompts(memory, rows)
        if told.get("steered")
        else rows,
        eval_dataset=Dataset.from_list([{"prompt": "of the evaluation"}]) if told.get("eval") else None,
    )
    given: dict[str, Any] = {"diagnostician": diagnostician, "embedder": EMBEDDER}
    if told.get("asked"):
        given = {"model": "asked", "base_url": told["asked"]}
    for _ in range(told.get("callbacks", 1)):
        trainer.add_callback(
            RoundCallback(memory, trainer, steps=told["steps"], **given, **told.get("named", {}))
        )
    if told.get("report"):
        trainer.add_callback(Reported())
    trainer.add_callback(fault)
    if told.get("eval"):
        trainer.evaluate()
    for _ in range(told.get("trainings", 1)):
        trainer.train(resume_from_checkpoint=told.get("resume"))
    print(f"trained {trainer.state.global_step} steps", flush=True)
    memory.close()
