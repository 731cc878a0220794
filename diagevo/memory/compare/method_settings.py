"""The settings that make up a run's method: what runs share that differ only in their seeds."""

import hashlib
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from diagevo.config.sources import dotted, keys
from diagevo.memory.history import Configuration, History
from diagevo.memory.state.stored_config import leaves
from diagevo.text.fractions import fraction

ELSEWHERE = frozenset(
    {
        "seed",
        "profile",
        "round.keep_checkpoints",
        "diagnosis.workers",
        "diagnosis.retries",
        "training.first_kl",
        "training.sampling_gap",
    }
)
"""Keys that say where and how a run is executed, not its method; so do the hardware section, and the keys of
`_APART` in every section."""
_APART = frozenset({"base_url", "api_key_env", "timeout", "micro_batch", "save_steps"})
UNTRAINED = ("roles.solver.", "sampling.", "validation.")
"""What can differ in a model that no round has trained."""


def method(history: History, last: int) -> dict[str, str]:
    """The settings that rounds 1 to `last` were played with, by dotted key; in a fork with changed
    settings, each with its rounds. A setting that is not stored has its default. With 0: the settings before
    any round."""
    commits = [commit for commit in history.commits if commit.round <= last]
    if not commits:
        settings = _settings(history.configurations[0])
        return {key: value for key, value in settings.items() if key.startswith(UNTRAINED)}
    played = [
        next(c for c in reversed(history.configurations) if c.position < commit.position)
        for commit in commits
    ]
    of_round = [_settings(configuration) for configuration in played]
    names = dict.fromkeys(key for settings in of_round for key in settings)
    rounds = [commit.round for commit in commits]
    return {key: by_round(rounds, [settings.get(key, "–") for settings in of_round]) for key in names}


def _settings(configuration: Configuration) -> dict[str, str]:
    values = {dotted(path): field.default for path, field in keys().items()}
    values |= dict(leaves(configuration.event.config))
    templates = repr(sorted(configuration.event.prompts.items())).encode()
    values["prompt templates"] = hashlib.sha256(templates).hexdigest()[:8]
    values |= {f"revision of {role}": model.revision for role, model in configuration.event.models.items()}
    return {key: as_written(value) for key, value in sorted(values.items()) if _of_method(key)}


def _of_method(key: str) -> bool:
    return key not in ELSEWHERE and not key.startswith("hardware.") and key.split(".")[-1] not in _APART


def as_written(value: Any) -> str:
    """A setting as a person writes it: 0.5 for the 1/2 of the log."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "none"}[value]
    try:
        exact = fraction(str(value))
    except ValueError:
        return str(value)
    short = f"{float(exact):g}"
    return short if fraction(short) == exact else str(exact)


def family(history: History) -> frozenset[str]:
    """The run and its ancestors by fork: two runs with a common one share rounds."""
    origins = (configuration.event.origin for configuration in history.configurations)
    return frozenset({history.run_id, *(origin.run for origin in origins if origin is not None)})


def by_round(rounds: Sequence[int], words: Sequence[str]) -> str:
    """The value alone if it holds in every round, else each value with its rounds."""
    groups = [
        (word, [n for n, _ in of]) for word, of in groupby(zip(rounds, words, strict=True), itemgetter(1))
    ]
    if len(groups) == 1:
        return groups[0][0]
    return ", ".join(f"{word} in {span(of)}" for word, of in groups)


def span(rounds: Sequence[int]) -> str:
    """round 3, or rounds 1 to 3."""
    first, last = rounds[0], rounds[-1]
    return f"round {first}" if first == last else f"rounds {first} to {last}"
