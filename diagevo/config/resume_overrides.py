"""Settings that may change on resume: memory, hardware and time limits, not what the run computes.

In an imported run, the endpoints, keys, commands and code were chosen by the bundle's author: they count
only if the user gives them too.
"""

import copy
import shlex
from collections.abc import Mapping
from typing import Any

from diagevo.config.loading import apply_overrides, value_at
from diagevo.config.models import Config
from diagevo.config.sources import KeyPath, Layer, dotted, keys
from diagevo.equations.policy import BUILT_IN
from diagevo.errors import ConfigError

ADJUSTABLE = (
    "hardware.",
    *(f"{role}_grpo.{name}" for role in ("challenger", "solver") for name in ("micro_batch", "save_steps")),
    "warm_start.save_steps",
    *(f"training.{bound}" for bound in ("first_kl", "sampling_gap")),
    "round.keep_checkpoints",
    *(f"diagnosis.{name}" for name in ("workers", "max_calls", "max_tokens")),
    *(
        f"roles.{r}.{name}"
        for r in ("diagnostician", "embedder")
        for name in ("base_url", "api_key_env", "timeout")
    ),
)
"""Keys and prefixes of keys; except the precision, which changes the results."""


def refuse_fixed(given: Layer, run: str) -> None:
    """Raise ConfigError for a key that changes what the run computes."""
    names = [dotted(path) for path in given.values]
    fixed = [name for name in names if not name.startswith(ADJUSTABLE) or name == "hardware.precision"]
    if fixed:
        settings = " ".join(f"--set {key}=…" for key in fixed)
        raise ConfigError(
            f"{', '.join(fixed)} cannot change when a run is resumed; memory, hardware and time limits can",
            hint=f"for a new run with other settings: diagevo runs fork {run}@N {settings}",
        )


def adjusted(stored: Mapping[str, Any], given: Layer, run: str) -> tuple[dict[str, Any], Config]:
    """The configuration of a run, with what is `given`: applied to the one in the log and validated. Raises
    ConfigError for a key that changes what the run computes, and for an invalid value.
    """
    refuse_fixed(given, run)
    config = apply_overrides(stored, given, run)
    values, checked = Layer(), config.model_dump(mode="json")
    for path in given.values:
        values.put(path, value_at(checked, path), given.sources[path])
    return values.nested(stored), config


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Each changed key, with its values."""
    default = {path: field.default for path, field in keys().items()}

    def value(tree: Mapping[str, Any], path: KeyPath) -> Any:
        for name in path:
            if name not in tree:
                return default[path]
            tree = tree[name]
        return tree

    changed = [path for path in keys() if value(before, path) != value(after, path)]
    return [f"{dotted(path)} {value(before, path)} → {value(after, path)}" for path in changed]


REACHING: tuple[KeyPath, ...] = (
    ("roles", "diagnostician", "base_url"),
    ("roles", "diagnostician", "api_key_env"),
    ("roles", "embedder", "base_url"),
    ("roles", "embedder", "api_key_env"),
    ("roles", "judge", "base_url"),
    ("roles", "judge", "api_key_env"),
    ("schedule", "policy"),
)
"""Settings that reach another machine, a secret in the environment, a command line or code."""


def confirmed(stored: Mapping[str, Any], run: str, provided: Mapping[KeyPath, Any]) -> dict[str, Any]:
    """The configuration of an imported run with these keys as `provided` has them: the values of the user's
    own files, variables and `--set`, by key.

    Raises ConfigError if the run has a non-default one that the user did not give.
    """
    values = copy.deepcopy(dict(stored))
    missing = {}
    for path in REACHING:
        section: Any = values
        for name in path[:-1]:
            section = section.get(name) if isinstance(section, dict) else None
        if not isinstance(section, dict):
            continue
        if path in provided:
            section[path[-1]] = provided[path]
        elif path[-1] in section and not harmless(path, section[path[-1]]):
            missing[dotted(path)] = section[path[-1]]
    if missing:
        listed = ", ".join(f"{key} ({value!r})" for key, value in missing.items())
        given = " ".join(f"--set {shlex.quote(key)}=…" for key in missing)
        raise ConfigError(
            f"run {run} was imported, so these of its settings count only if you give them too: {listed}",
            hint=f"give your own, or these if you trust them: {given}, or the same keys in diagevo.yaml",
        )
    return values


def harmless(path: KeyPath, value: Any) -> bool:
    """Whether a key of `REACHING` is harmless with this value: the default, or a built-in policy."""
    if path == ("schedule", "policy"):
        return value in BUILT_IN
    default = keys()[path].default
    return value == (list(default) if isinstance(default, tuple) else default)
