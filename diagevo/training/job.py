"""What a launched phase is told, as one JSON file, and how its ranks talk to the process that launched them.

Messages of a rank, each a tuple that begins with its name:
  ("hello", rank)                       the rank is up
  ("at", text)                          what it does now; the last one names a rank that hangs
  ("step", step, rollouts, rewards)     from rank 0 alone; it waits for the answer: None, or a StoppedSafely
  ("done", summary)                     from rank 0 alone
  ("error", kind, message, hint)        it ends after this
"""

import importlib
import json
import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from diagevo.config.models import GRPOConfig, HardwareConfig, SamplingConfig
from diagevo.errors import ConfigError
from diagevo.training.rollouts import Reward, TrainingRow

KEY = "DIAGEVO_LAUNCH_KEY"  # environment variable with the key of the connection, in hex
JOB_FILE = "job.json"  # in the phase's folder of logs, as long as it is played


@dataclass(frozen=True, slots=True)
class RewardSpec:
    """A reward by name, so that every rank can build its own: `factory` is "package.module:function".

    The function is called with `arguments` (JSON values) as keywords and returns a `Reward`.
    """

    factory: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def build(self) -> Reward:
        module, _, name = self.factory.partition(":")
        try:
            function = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise ConfigError(f"there is no reward {self.factory!r} ({error}).") from error
        return function(**self.arguments)


@dataclass(frozen=True, slots=True)
class Job:
    start: Path
    rows: tuple[TrainingRow, ...]
    reward: RewardSpec
    settings: GRPOConfig
    sampling: SamplingConfig
    output: Path
    work: Path
    seed: int
    resume: bool
    hardware: HardwareConfig
    address: str

    def write(self, path: Path) -> None:
        payload = {
            "start": str(self.start.resolve()),
            "rows": [asdict(row) for row in self.rows],
            "reward": asdict(self.reward),
            "settings": self.settings.model_dump(mode="json"),
            "sampling": self.sampling.model_dump(mode="json"),
            "output": str(self.output.resolve()),
            "work": str(self.work.resolve()),
            "seed": self.seed,
            "resume": self.resume,
            "hardware": self.hardware.model_dump(mode="json"),
            "address": self.address,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(payload, ensure_ascii=False), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "Job":
        payload = json.loads(path.read_text(encoding="utf-8"))
        return cls(
            start=Path(payload["start"]),
            rows=tuple(TrainingRow(**row) for row in payload["rows"]),
            reward=RewardSpec(**payload["reward"]),
            settings=GRPOConfig.model_validate(payload["settings"]),
            sampling=SamplingConfig.model_validate(payload["sampling"]),
            output=Path(payload["output"]),
            work=Path(payload["work"]),
            seed=payload["seed"],
            resume=payload["resume"],
            hardware=HardwareConfig.model_validate(payload["hardware"]),
            address=payload["address"],
        )


def connection_key() -> bytes:
    """The key that all ranks know. Raises ConfigError where it was not given."""
    try:
        return bytes.fromhex(os.environ[KEY])
    except (KeyError, ValueError) as error:
        raise ConfigError(
            f"training on several machines needs a common secret, and {KEY} holds none",
            hint=f"export {KEY}=$(openssl rand -hex 32) once, and give every machine the same",
        ) from error


def place_of(address: str) -> str | tuple[str, int]:
    """A socket's path, or host and port, as `multiprocessing.connection` takes them."""
    if address.startswith("/"):
        return address
    host, _, port = address.rpartition(":")
    return host, int(port)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
