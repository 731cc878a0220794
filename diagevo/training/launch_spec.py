"""What a launched phase is told, as one JSON file, and how its ranks talk to the process that launched them.

Messages of a rank, each a tuple that begins with its name:
  ("hello", rank)                       the rank is up
  ("at", text)                          what it does now; the last one names a rank that hangs
  ("step", step, rollouts, rewards)     from rank 0 alone; it waits for the answer
  ("finished", step)                    from rank 0 alone: the step's weights are there
  ("done", summary)                     from rank 0 alone
  ("error", error)                      it ends after this; an error of ours, or another's text

Messages to a rank:
  ("answer", answer)                    to the step: None, or a StoppedSafely that ends the phase after it
  ("overdue",)                          the step under way is to be broken off, with those before it saved
"""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
from pydantic import BaseModel

from diagevo.private import private_folder
from diagevo.training.phase import Phase

NAME = "launch.json"  # in the folder of the phase's logs, as long as the phase is played


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """A phase, and where its ranks find the launcher and each other."""

    phase: Phase
    address: str | tuple[str, int]
    """Where the launcher listens: a socket's path, or host and port on a cluster."""
    rendezvous: tuple[str, int]
    """Host and port at which the ranks find each other."""
    key: str
    """What authenticates a rank to the launcher, in hex. It also tells one launch from another."""

    def write(self, path: Path) -> None:
        """Whole or not at all, and for this user alone: it holds the key."""
        phase = self.phase
        placed = replace(
            phase, start=phase.start.resolve(), output=phase.output.resolve(), work=phase.work.resolve()
        )
        private_folder(path.parent)
        staging = path.with_name(f".staging-{path.name}")
        staging.unlink(missing_ok=True)
        with open(os.open(staging, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(msgspec.json.encode(replace(self, phase=placed), enc_hook=_plain))
        staging.replace(path)

    @classmethod
    def read(cls, path: Path) -> "LaunchSpec":
        return msgspec.json.decode(path.read_bytes(), type=cls, dec_hook=_made)


def _plain(part: Any) -> Any:
    return part.model_dump(mode="json") if isinstance(part, BaseModel) else str(part)


def _made(kind: type, value: Any) -> Any:
    return kind.model_validate(value) if issubclass(kind, BaseModel) else kind(value)
