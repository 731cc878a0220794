"""What the ranks of a run are started with, as one JSON file, and what they and the run say to each other.

Messages to a rank, each a tuple that begins with its name:
  ("play", phase)                       a phase, as grpo.py plays it
  ("sample", asked)                     a policy answers what comes; a `SamplingRequest`
  ("ask", prompts)                      some of it: (place, prompt, samples of that text before it), several
  ("enough",)                           nothing more will come
  ("answer", answer)                    to a step: None, or a StoppedSafely that ends the phase after it
  ("overdue",)                          the step under way is to be broken off, with those before it saved
  ("end",)                              it ends

Messages of a rank:
  ("hello", rank)                       the rank is up
  ("at", text)                          what it does now; the last one names a rank that hangs
  ("step", step, rollouts, rewards)     from rank 0 alone; it waits for the answer
  ("updated", step, metrics)            from rank 0 alone: the step's weights are there
  ("ready", messages)                   the policy is there; so many "ask" may be unanswered at once
  ("answered", completions)             of one "ask", by place and sample
  ("done", summary)                     of a phase or of what was asked; it waits for what is next
  ("error", error)                      it ends after this; an error of ours, or another's text
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from pydantic import BaseModel

from diagevo.config.models import HardwareConfig, SamplingConfig, TrainingConfig
from diagevo.private import private_folder
from diagevo.sampling.sampler import SamplingParams

NAME = "launch.json"  # in the folder of the ranks' logs, until all of them have read it


@dataclass(frozen=True, slots=True)
class SamplingRequest:
    """A call of a sampler, but for its prompts."""

    policy: Path
    n: int
    params: SamplingParams
    seed: int
    template_kwargs: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchSpec:
    """What a rank is, and where it finds the run and the other ranks."""

    model: Path
    """The solver that the run started from."""
    hardware: HardwareConfig
    sampling: SamplingConfig
    training: TrainingConfig
    address: str | tuple[str, int]
    """Where the run listens: a socket's path, or host and port on a cluster."""
    rendezvous: tuple[str, int]
    """Host and port at which the ranks find each other."""
    key: str
    """What authenticates a rank to the run, in hex. It also tells one launch from another."""

    def write(self, path: Path) -> None:
        """Whole or not at all, and for this user alone: it holds the key."""
        private_folder(path.parent)
        staging = path.with_name(f".staging-{path.name}")
        staging.unlink(missing_ok=True)
        with open(os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            placed = replace(self, model=self.model.resolve())
            file.write(msgspec.json.encode(placed, enc_hook=_plain))
        staging.replace(path)

    @classmethod
    def read(cls, path: Path) -> "LaunchSpec":
        return msgspec.json.decode(path.read_bytes(), type=cls, dec_hook=_made)


def _plain(part: Any) -> Any:
    return part.model_dump(mode="json") if isinstance(part, BaseModel) else str(part)


def _made(kind: type, value: Any) -> Any:
    return kind.model_validate(value) if issubclass(kind, BaseModel) else kind(value)
