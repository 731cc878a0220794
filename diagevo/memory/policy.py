"""A policy of one's own: a class in a file, known by the digest of its bytes, and exactly these are run; its
answers are checked. Nothing here runs code before the digest is the one that the log names.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any, cast

from diagevo.equations.policy import BUILT_IN, Known, Policy, ScheduledCause
from diagevo.errors import ConfigError
from diagevo.memory.events import Model
from diagevo.memory.log.log import Log
from diagevo.memory.state.model import MemoryState

ROLE = "policy"
"""Its place among the models of RunConfigured: name and digest."""


@dataclass(frozen=True, slots=True)
class PolicySource:
    """Where a policy's class is written."""

    name: str
    """`file.py:Class`, as the configuration has it."""
    file: Path
    content: bytes

    @property
    def digest(self) -> str:
        return sha256(self.content).hexdigest()


def named(config: Mapping[str, Any]) -> str | None:
    """The policy of one's own that a stored configuration names."""
    name = config.get("schedule", {}).get("policy", BUILT_IN[0])
    return None if name in BUILT_IN else str(name)


def find(name: str) -> PolicySource:
    """The source of a policy, unread by Python. Raises ConfigError where there is none."""
    file = Path(name.rpartition(":")[0]).expanduser()
    try:
        return PolicySource(name, file, file.read_bytes())
    except OSError as error:
        raise ConfigError(
            f"schedule.policy {name}: {file} cannot be read: {error.strerror}",
            hint="name a file and its class: folder/file.py:Class",
        ) from error


def load(source: PolicySource) -> Policy:
    """Run the source and make its class. Raises ConfigError where it fails or is no policy."""
    wanted = source.name.rpartition(":")[2]
    with_module = f"schedule.policy {source.name}"
    try:
        made = getattr(_module(source), wanted)()
    except Exception as error:  # whatever somebody's code raises, told with its place
        raise ConfigError(
            f"{with_module} cannot be made: {type(error).__name__}: {error}",
            hint=f"{source.file} must have a class {wanted} that is made without arguments",
        ) from error
    lacking = [name for name in ("epsilon", "draw") if not callable(getattr(made, name, None))]
    if lacking:
        raise ConfigError(
            f"{with_module} has no {' and no '.join(lacking)}",
            hint="a policy has two methods: epsilon(known) and draw(rng, epsilon, known)",
        )
    return Own(source.name, made)


def _module(source: PolicySource) -> ModuleType:
    """The module of exactly these bytes. A dataclass looks for its module by name."""
    module = ModuleType(f"diagevo_policy_{source.digest[:12]}")
    module.__file__ = str(source.file)
    sys.modules[module.__name__] = module
    exec(compile(source.content, source.file, "exec"), module.__dict__)
    return module


class Own:
    """Somebody's policy, whose answers are checked before they are recorded."""

    def __init__(self, name: str, policy: Policy) -> None:
        self._name = name
        self._policy = policy

    def epsilon(self, known: Known) -> Fraction:
        told: object = self._asked("epsilon", known)
        if isinstance(told, bool) or not isinstance(told, int | Fraction) or not 0 <= told <= 1:
            raise ConfigError(
                f"schedule.policy {self._name}: epsilon gave {told!r}",
                hint="it must be exact and from 0 to 1: a Fraction",
            )
        return Fraction(told)

    def draw(self, rng: Random, epsilon: Fraction, known: Known) -> ScheduledCause | None:
        told: object = self._asked("draw", rng, epsilon, known)
        if told is not None and told not in known.active:
            raise ConfigError(
                f"schedule.policy {self._name}: draw gave {told!r}",
                hint="it must be one of known.active, or None for free exploration",
            )
        return cast("ScheduledCause | None", told)

    def _asked(self, method: str, *arguments: object) -> object:
        try:
            return getattr(self._policy, method)(*arguments)
        except Exception as error:  # whatever somebody's code raises, told with its place
            raise ConfigError(
                f"schedule.policy {self._name}: {method} failed: {type(error).__name__}: {error}",
                hint="nothing was recorded; fix the class, then resume",
            ) from error


def models_of(config: Mapping[str, Any]) -> dict[str, Model]:
    """The entry of RunConfigured for a policy of one's own: its name, and the digest of its source."""
    name = named(config)
    return {} if name is None else {ROLE: Model(name=name, revision=find(name).digest)}


class Policies:
    """The policies of one's own that a run names, loaded once each."""

    def __init__(self, log: Log, run_id: str, config: Mapping[str, Any]) -> None:
        """`config` is the user's own."""
        self.said: str | None = named(config)
        self._config = config
        self._log = log
        self._run_id = run_id
        self._loaded: dict[tuple[str, str], Policy] = {}

    def of(self, state: MemoryState) -> Policy | None:
        """The policy of the next round; None where it is one of this program. Raises ConfigError where its
        source is not there, fails, or is not what was recorded, and where the run came from outside and the
        user did not name it too."""
        name = named(self._config if state.config is None else state.config)
        if name is None:
            return None
        if self.said is None and self._log.imported(self._run_id) is not None:
            raise ConfigError(
                f"run {self._run_id} was imported, and code that it names is not run: schedule.policy {name}",
                hint="read that file; if you trust it, name it in your own configuration",
            )
        source = find(self.said or name)
        if state.config is not None and state.policy != source.digest:
            before = "unrecorded" if state.policy is None else f"{state.policy[:12]}…"
            raise ConfigError(
                f"schedule.policy {name} has changed since run {self._run_id} was configured: the digest of"
                f" {source.file} is {source.digest[:12]}…, and was {before}",
                hint="restore it, or fork the run with another file: diagevo runs fork RUN@N"
                " --set schedule.policy=FILE:CLASS",
            )
        key = source.name, source.digest
        if key not in self._loaded:
            self._loaded[key] = load(source)
        return self._loaded[key]
