"""What `memory what-if` is asked: numbers as given, what is allowed, options that exclude each other."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from diagevo.errors import ConfigError
from diagevo.exact import LARGEST, fraction

FILTERED = ("tau", "p_low", "p_high")
KEYS = {"k": "schedule.k", "theta_up": "memory.theta_up"} | {name: f"filter.{name}" for name in FILTERED}
_LIMITS = {
    "k": (0, LARGEST, "above 0 and at most 1e308"),
    "theta_up": (0, 1, "between 0 and 1"),
    "tau": (1, LARGEST, "at least 1 and at most 1e308"),
    "p_low": (0, 1, "between 0 and 1"),
    "p_high": (0, 1, "between 0 and 1"),
}


@dataclass(frozen=True, slots=True)
class Given:
    """A number, and how it was written."""

    text: str
    value: Fraction


Values = Mapping[str, Given]
"""What is changed, by name; the rest is as recorded."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The options, read. A sweep without values is the whole curve of τ."""

    values: Values
    drop: tuple[str, ...]
    swept: str | None
    several: tuple[Given, ...]

    @property
    def curve(self) -> bool:
        return self.swept is not None and not self.several

    def each(self) -> list[Values]:
        """The changes of each answer: one, or one a value of the sweep."""
        if self.swept is None:
            return [self.values]
        every = [{**self.values, self.swept: one} for one in self.several]
        return [{name: one[name] for name in KEYS if name in one} for one in every]


def asked(given: Mapping[str, str | None], drop: Sequence[str], sweep: str | None) -> Asked:
    """Read the options. Raises ConfigError for what is no number, is out of bounds, or changes nothing."""
    values = {name: _number(text, name) for name, text in given.items() if text is not None}
    swept, several = (None, ()) if sweep is None else _sweep(sweep)
    if sweep is None and not drop and not values:
        raise ConfigError(
            "nothing is changed",
            hint="name what: --k, --theta-up, --tau, --p-low, --p-high, --drop or --sweep",
        )
    if swept in values:
        raise ConfigError(
            f"--sweep {sweep} and {_option(swept)} both give {swept}", hint="leave one of the two out"
        )
    found = Asked(values, tuple(drop), swept, several)
    if found.curve:
        _only_the_filter(values, drop)
    return found


def _only_the_filter(values: Values, drop: Sequence[str]) -> None:
    idle = [_option(name) for name in values if name not in FILTERED] + (["--drop"] if drop else [])
    if idle:
        raise ConfigError(
            f"--sweep tau draws what the filter keeps, and {', '.join(idle)}"
            f" {'changes' if len(idle) == 1 else 'change'} nothing in it",
            hint="ask the two apart; --p-low and --p-high go with the curve",
        )


def _sweep(text: str) -> tuple[str, tuple[Given, ...]]:
    name, equals, listed = text.partition("=")
    name = name.replace("-", "_").strip()
    if name not in KEYS or (not equals and name != "tau"):
        hint = "for example k=0.2,0.5,1,2, or tau alone"
        raise ConfigError(f"--sweep {text} names no values of a parameter", hint=hint)
    return name, tuple(_number(value, name) for value in listed.split(",")) if equals else ()


def _number(text: str, name: str) -> Given:
    text = text.strip()
    low, high, allowed = _LIMITS[name]
    told = text if len(text) <= 80 else f"{text[:80]}…"
    try:
        value = fraction(text)
    except ValueError as error:
        raise ConfigError(
            f"{name} is {told}: it must be {allowed}",
            hint="give a number like 0.7 or a fraction like 7/10",
        ) from error
    if not low <= value <= high or (name == "k" and not value):
        raise ConfigError(f"{name} is {told}: it must be {allowed}", hint="give another value")
    return Given(text, value)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
