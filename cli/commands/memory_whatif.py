"""`diagevo memory what-if`: what is asked, as numbers within their bounds, and which options exclude each
other."""

from collections.abc import Mapping, Sequence
from typing import Annotated

import typer

from diagevo.errors import ConfigError
from diagevo.exact import LARGEST, fraction

from .. import options
from ..call import Call
from ..screens.whatif import FILTERED, KEYS, Asked, Given, Values, answer

_LIMITS = {
    "k": (0, LARGEST, "above 0 and at most 1e308"),
    "theta_up": (0, 1, "between 0 and 1"),
    "tau": (1, LARGEST, "at least 1 and at most 1e308"),
    "p_low": (0, 1, "between 0 and 1"),
    "p_high": (0, 1, "between 0 and 1"),
}


@options.command(
    "memory what-if",
    rows=True,
    pages=True,
    example="""diagevo memory what-if --theta-up 0.8
    diagevo memory what-if --k 0.2 --round 3
    diagevo memory what-if --drop c42
    diagevo memory what-if --sweep k=0.2,0.5,1,2
    diagevo memory what-if --sweep tau""",
)
def what_if(
    call: Call,
    *,
    k: Annotated[str | None, typer.Option("--k", metavar="K", help="Balance of free and targeted.")] = None,
    theta_up: Annotated[
        str | None, typer.Option("--theta-up", metavar="SHARE", help="Mean p1 at which a cause is Mastered.")
    ] = None,
    tau: Annotated[
        str | None, typer.Option("--tau", metavar="RATIO", help="Ratio by which the majority must lead.")
    ] = None,
    p_low: Annotated[str | None, typer.Option("--p-low", metavar="SHARE", help="Below it: too hard.")] = None,
    p_high: Annotated[
        str | None, typer.Option("--p-high", metavar="SHARE", help="Above it: too easy.")
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option("--drop", metavar="REF", help="Leave this cause out; may be repeated.")
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option(
            "--sweep",
            metavar="NAME=VALUES",
            help="Several values of k, theta_up, tau, p_low or p_high; tau alone: the whole curve.",
        ),
    ] = None,
    round: Annotated[
        int | None,
        typer.Option("--round", metavar="N", min=1, help="Change it at the commit of round N alone."),
    ] = None,
) -> None:
    """Counterfactual replay over what was recorded; each row says exact, open-loop or needs a rerun."""
    given = {"k": k, "theta_up": theta_up, "tau": tau, "p_low": p_low, "p_high": p_high}
    answer(call, _asked(given, drop or [], sweep), round)


def _asked(given: Mapping[str, str | None], drop: Sequence[str], sweep: str | None) -> Asked:
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
            hint="ask the two separately; --p-low and --p-high go with the curve",
        )


def _sweep(text: str) -> tuple[str, tuple[Given, ...]]:
    name, equals, listed = text.partition("=")
    name = name.replace("-", "_").strip()
    if name not in KEYS or (not equals and name != "tau"):
        hint = "for example k=0.2,0.5,1,2, or tau alone"
        raise ConfigError(f"--sweep {text} does not name a parameter and its values", hint=hint)
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
