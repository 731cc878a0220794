"""A run that came from outside: where it sends requests, with which keys, by which commands and code, is the
word of whoever wrote the bundle. It counts only when the user says it too."""

import copy
import shlex
from collections.abc import Mapping
from typing import Any

from diagevo.config.sources import KeyPath, dotted, keys
from diagevo.equations.policy import BUILT_IN
from diagevo.errors import ConfigError

REACHING: tuple[KeyPath, ...] = (
    ("roles", "diagnostician", "base_url"),
    ("roles", "diagnostician", "api_key_env"),
    ("roles", "embedder", "base_url"),
    ("roles", "embedder", "api_key_env"),
    ("schedule", "policy"),
)
"""What reaches another machine, a secret of the environment, a command line or code."""


def said_again(stored: Mapping[str, Any], run: str, said: Mapping[KeyPath, Any]) -> dict[str, Any]:
    """The configuration of a run from outside with these keys as `said` has them: the values of the user's
    own files, variables and `--set`, by key.

    Raises ConfigError where the run has one, other than the default, that the user did not say.
    """
    values = copy.deepcopy(dict(stored))
    missing = {}
    for path in REACHING:
        section: Any = values
        for name in path[:-1]:
            section = section.get(name) if isinstance(section, dict) else None
        if not isinstance(section, dict):
            continue
        if path in said:
            section[path[-1]] = said[path]
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
    """Whether a key of `REACHING` reaches nothing with this value: the default, or a policy of our own."""
    if path == ("schedule", "policy"):
        return value in BUILT_IN
    default = keys()[path].default
    return value == (list(default) if isinstance(default, tuple) else default)
