"""`diagevo memory what-if`: what is asked, as numbers within their bounds."""

from typing import Annotated, Any

import typer

from diagevo.errors import ConfigError
from diagevo.text.fractions import LARGEST, fraction

from .. import options
from ..call import Call
from ..render.result import Result
from ..screens.whatif import answer

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
    example="""diagevo memory what-if --theta-up 0.8
    diagevo memory what-if --k 0.2 --round 3
    diagevo memory what-if --tau 2 --p-low 1/3
    diagevo memory what-if --drop c42""",
)
def what_if(
    call: Call,
    *,
    k: Annotated[str | None, typer.Option(metavar="K", help="Balance of free and targeted.")] = None,
    theta_up: Annotated[
        str | None, typer.Option(metavar="SHARE", help="Mean p1 at which a cause is Mastered.")
    ] = None,
    tau: Annotated[
        str | None, typer.Option(metavar="RATIO", help="Ratio by which the majority must lead.")
    ] = None,
    p_low: Annotated[str | None, typer.Option(metavar="SHARE", help="Below it: too hard.")] = None,
    p_high: Annotated[str | None, typer.Option(metavar="SHARE", help="Above it: too easy.")] = None,
    drop: Annotated[
        list[str] | None, typer.Option(metavar="REF", help="Leave this cause out; may be repeated.")
    ] = None,
    round: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Change it only at the commit of round N.")
    ] = None,
) -> Result[Any]:
    """Replay the record with other settings.

    Each row says whether it is exact, open-loop or needs a rerun. What a filter (--tau, --p-low, --p-high)
    would keep is exact for the recorded questions. Many values at once: the sliders of `diagevo view`.
    """
    given = {"k": k, "theta_up": theta_up, "tau": tau, "p_low": p_low, "p_high": p_high}
    values = {name: checked(text, name) for name, text in given.items() if text is not None}
    if not drop and not values:
        raise ConfigError(
            "nothing is changed", hint="name a change: --k, --theta-up, --tau, --p-low, --p-high or --drop"
        )
    return answer(call, values, drop or [], round)


def checked(text: str, name: str) -> str:
    """A number within its bounds, as it was written. Raises ConfigError."""
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
    return text
