"""A stored configuration, read: what the memory and the audits look at. What is absent has the paper's value,
because another trainer may have written only what is its own."""

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from diagevo.config.method import FilterConfig, MemoryConfig, ScheduleConfig
from diagevo.equations.settings import Filter, Settings, Variant
from diagevo.errors import DamagedError
from diagevo.text.fractions import fraction


@dataclass(frozen=True, slots=True)
class Configured:
    """What was in force in a round."""

    config: Mapping[str, Any]
    """As it is stored."""
    settings: Settings
    filter: Filter
    theta_dup: float
    """Above this cosine the diagnostician is asked about duplicates."""


@contextmanager
def _reading() -> Generator[None]:
    """A stored configuration holds whatever somebody wrote: another trainer, or who could reach the file."""
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


def configured(config: Mapping[str, Any]) -> Configured:
    """Read a stored configuration."""
    with _reading():
        theta_dup = config.get("memory", {}).get("theta_dup", MemoryConfig.model_fields["theta_dup"].default)
        return Configured(config, settings_of(config), filter_of(config), float(theta_dup))


@_reading()
def settings_of(config: Mapping[str, Any]) -> Settings:
    """What the schedule and the promotions are made with."""
    memory = MemoryConfig.model_validate(_known(MemoryConfig, config.get("memory", {})))
    schedule = ScheduleConfig.model_validate(_known(ScheduleConfig, config.get("schedule", {})))
    found: dict[str, Any] = {**dict(memory), **dict(schedule), "seed": int(config.get("seed", 0))}
    return Settings(**{name: found[name] for name in Settings.__struct_fields__})


@_reading()
def filter_of(config: Mapping[str, Any]) -> Filter:
    """What the candidates are judged by."""
    section, fields = config.get("filter", {}), FilterConfig.model_fields
    return _filter(*(str(section.get(name, fields[name].default)) for name in Filter.__struct_fields__))


@lru_cache(maxsize=64)
def _filter(low: str, high: str, tau: str, variant: str) -> Filter:
    """The same object for the same words: each round asks, and comparing it with itself costs nothing."""
    return Filter(fraction(low), fraction(high), fraction(tau), cast("Variant", variant))


def filter_in(config: FilterConfig) -> Filter:
    """The filter of a configuration that is not stored yet."""
    return Filter(config.p_low, config.p_high, config.tau, config.variant)


def _known(section: type[MemoryConfig] | type[ScheduleConfig], values: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration may hold keys of another version; those of this one decide."""
    return {key: value for key, value in values.items() if key in section.model_fields}
