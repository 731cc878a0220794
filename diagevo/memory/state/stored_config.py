"""A stored configuration, parsed: the part that the memory and the audits use. A missing key has the paper's
value, because another trainer may have written only its own; an unknown key is refused, because its setting
would silently get the paper's value too."""

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from typing import Any, cast

import msgspec

from diagevo.config.former import in_todays_names
from diagevo.config.method import (
    FilterConfig,
    MemoryConfig,
    RoundConfig,
    ScheduleConfig,
    Section,
    unknown_keys,
)
from diagevo.equations.policy import BUILT_IN
from diagevo.equations.settings import Filter, Settings, Variant
from diagevo.errors import DamagedError, StoreError
from diagevo.memory.events import RunConfigured
from diagevo.text.fractions import fraction

_SECTIONS: Mapping[str, type[Section]] = {
    "filter": FilterConfig,
    "memory": MemoryConfig,
    "round": RoundConfig,
    "schedule": ScheduleConfig,
}
"""The keys that the memory reads. A trainer may keep anything in others, and in its own sections."""
_encode = msgspec.json.Encoder(enc_hook=str).encode


@dataclass(frozen=True, slots=True)
class Configured:
    """The settings in force in a round."""

    config: Mapping[str, Any]
    """The stored form."""
    settings: Settings
    filter: Filter
    theta_dup: float
    """Above this cosine the diagnostician is asked about duplicates."""


@contextmanager
def _reading() -> Generator[None]:
    """A stored configuration may contain anything: another trainer wrote it, or anyone with access to the
    file."""
    try:
        yield
    except (ValueError, TypeError, AttributeError, OverflowError) as error:  # pydantic's is the first
        problem = "; ".join(str(error).splitlines()[:3])
        raise DamagedError(f"a stored configuration cannot be read: {problem}") from error


def leaves(config: Mapping[str, Any], section: str = "") -> Iterator[tuple[str, Any]]:
    """Its values by dotted keys."""
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(cast("Mapping[str, Any]", value), f"{section}{key}.")
        else:
            yield f"{section}{key}", value


def unread(config: Mapping[str, Any]) -> list[str]:
    """Dotted keys in the sections that the memory reads that are not settings."""
    found = (unknown_keys(config.get(name), section, f"{name}.") for name, section in _SECTIONS.items())
    return [key for keys in found for key in keys]


def read_today(event: RunConfigured, run: str) -> RunConfigured:
    """The configuration as it would be written today. Raises StoreError for a key that is no setting's."""
    found = msgspec.structs.replace(event, config=in_todays_names(event.config))
    if unknown := unread(found.config):
        here = version("diagevo")
        raise StoreError(
            f"run {run} was configured by DiagEvo {event.version} with {', '.join(unknown)}, which"
            f" DiagEvo {here} does not know: read without it, the run would follow another rule",
            hint=f"read it with the DiagEvo that wrote it: pip install diagevo=={event.version}"
            if event.version != here
            else "read it with the build of DiagEvo that wrote it",
        )
    return found


def configured(config: Mapping[str, Any]) -> Configured:
    """Read a stored configuration."""
    with _reading():
        theta_dup = config.get("memory", {}).get("theta_dup", MemoryConfig.model_fields["theta_dup"].default)
        return Configured(config, settings_of(config), filter_of(config), float(theta_dup))


@_reading()
def settings_of(config: Mapping[str, Any]) -> Settings:
    """The settings of the schedule and the promotions."""
    return _settings(_encode([config.get("memory", {}), config.get("schedule", {}), config.get("seed", 0)]))


@lru_cache(maxsize=64)
def _settings(sections: bytes) -> Settings:
    """Cached by text: each round asks several times."""
    of_memory, of_schedule, seed = msgspec.json.decode(sections)
    memory, schedule = MemoryConfig.model_validate(of_memory), ScheduleConfig.model_validate(of_schedule)
    found: dict[str, Any] = {**dict(memory), **dict(schedule), "seed": int(seed)}
    return Settings(**{name: found[name] for name in Settings.__struct_fields__})


@_reading()
def filter_of(config: Mapping[str, Any]) -> Filter:
    """The filter of the candidates."""
    section, fields = config.get("filter", {}), FilterConfig.model_fields
    return _filter(*(str(section.get(name, fields[name].default)) for name in Filter.__struct_fields__))


@lru_cache(maxsize=64)
def _filter(low: str, high: str, tau: str, variant: str) -> Filter:
    """The same object for the same words: each round asks, and comparing it with itself costs nothing."""
    return Filter(fraction(low), fraction(high), fraction(tau), cast("Variant", variant))


def filter_in(config: FilterConfig) -> Filter:
    """The filter of a configuration that is not stored yet."""
    return Filter(config.p_low, config.p_high, config.tau, config.variant)


def own_policy_of(config: Mapping[str, Any]) -> str | None:
    """The custom policy that a stored configuration names, FILE:CLASS; None for a built-in one."""
    name = config.get("schedule", {}).get("policy", BUILT_IN[0])
    return None if name in BUILT_IN else str(name)
