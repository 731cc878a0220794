"""`diagevo memory what-if`: the record under other settings, each row with how far it can be trusted."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diagevo.equations.policy import BUILT_IN
from diagevo.errors import ConfigError
from diagevo.text.escaping import shortened
from diagevo.text.fractions import LARGEST, fraction
from diagevo.text.lines import listed
from diagevo.text.numbers import number

from .. import options
from ..call import CommandContext
from ..opening import opened
from ..render.result import Result, Rows
from ..render.table import columns

if TYPE_CHECKING:
    from diagevo.memory.read.opened_rounds import Observed

_LIMITS = {
    "k": (0, LARGEST, "above 0 and at most 1e308"),
    "theta_up": (0, 1, "between 0 and 1"),
    "tau": (1, LARGEST, "at least 1 and at most 1e308"),
    "p_low": (0, 1, "between 0 and 1"),
    "p_high": (0, 1, "between 0 and 1"),
}
FILTERED = ("tau", "p_low", "p_high")
REPLAY = columns(
    "round, status, failures: F, epsilon_next: ε next, active: Active, mastered: Mastered, "
    "promoted, reactivated"
)
RETENTION = columns("round, status, candidates, kept, share, label_truth: labels true, own: the run's own")
RECORDED = "exact for the recorded questions"
"""For a filter: after a round that would have trained on other questions, the next questions would differ
too."""
_CHANGED = ("failures", "epsilon_next", "active", "mastered", "kept")
"""The figures of a row that are shown beside the recorded ones."""
_REPLAYED = (*_CHANGED[:4], "z", "promoted", "reactivated", "frequencies")


Values = Mapping[str, str]
"""The changed settings, by name, as given; the rest is as recorded."""


@options.command(
    "memory what-if",
    rows=True,
    example="""diagevo memory what-if --theta-up 0.8
    diagevo memory what-if --k 0.2 --round 3
    diagevo memory what-if --tau 2 --p-low 1/3
    diagevo memory what-if --drop c42""",
)
def what_if(
    call: CommandContext,
    *,
    k: Annotated[str | None, typer.Option(metavar="K", help="Balance of free and targeted prompts.")] = None,
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

    Each row is marked exact, open-loop or needs a rerun. What a filter (--tau, --p-low, --p-high)
    would keep is exact for the recorded questions. To try many values, use the sliders of `diagevo view`.
    """
    given = {"k": k, "theta_up": theta_up, "tau": tau, "p_low": p_low, "p_high": p_high}
    values = {name: checked(text, name) for name, text in given.items() if text is not None}
    if not drop and not values:
        raise ConfigError(
            "no setting is changed", hint="name a change: --k, --theta-up, --tau, --p-low, --p-high or --drop"
        )
    return _answer(call, values, drop or [], round)


def checked(text: str, name: str) -> str:
    """A number within its bounds, as given. Raises ConfigError."""
    text = text.strip()
    low, high, allowed = _LIMITS[name]
    shown = shortened(text)
    try:
        value = fraction(text)
    except ValueError as error:
        raise ConfigError(
            f"{name} is {shown}: it must be {allowed}",
            hint="give a number like 0.7 or a fraction like 7/10",
        ) from error
    if not low <= value <= high or (name == "k" and not value):
        raise ConfigError(f"{name} is {shown}: it must be {allowed}", hint="give another value")
    return text


def _answer(call: CommandContext, values: Values, drop: Sequence[str], round_: int | None) -> Result[Any]:
    from diagevo.memory.read.opened_rounds import observations
    from diagevo.memory.stories.references import resolve

    with opened(call) as history:
        as_of = history.as_of(round_) if round_ is not None else history.end
        dropped = frozenset(resolve(history, ref, as_of, "cause").id for ref in drop)
        observed = observations(history, as_of)
        if not observed:
            raise ConfigError(f"run {history.run_id} has no committed round")
        rows = _rows(observed, values, dropped, round_)
    parts, notes = _screen(rows), _remarks(rows)
    own = dict.fromkeys(one.following.settings.policy for one in observed)
    notes += [
        f"schedule.policy {name}: audits do not run its code, so its ε stay as recorded"
        for name in own
        if name not in BUILT_IN
    ]
    recorded = columns(", ".join(f"was_{name}" for name in _CHANGED))
    every = (*columns("change"), *RETENTION, *REPLAY[2:], *recorded)
    return Result(rows, every, parts, run=history.run_id, as_of=as_of, notes=notes)


def _rows(
    observed: Sequence["Observed"],
    values: Values,
    dropped: frozenset[str],
    round_: int | None,
) -> list[dict[str, Any]]:
    """Rows of retention if the filter changes, and of the replay."""
    from diagevo.memory.compare.whatif import Changes, first_changed, retention, what_if

    change = _named(values, dropped)

    def row(kind: str, number: int, status: str, **figures: Any) -> dict[str, Any]:
        return {"kind": kind, "change": change, "round": number, "status": status, **figures}

    rows: list[dict[str, Any]] = []
    rerun = None
    filtered = {name: fraction(values[name]) for name in FILTERED if name in values}
    if filtered:
        over = observed if round_ is None else observed[-1:]
        kept = retention(over, filtered)
        rerun = first_changed(kept)
        for r, own in zip(kept, over, strict=True):
            figures = {name: getattr(r, name) for name in ("candidates", "kept", "share", "label_truth")}
            figures |= {"was_kept": r.recorded, "kept_both": r.both}
            figures["own"] = ", ".join(
                f"{name} = {getattr(own.configured.filter, name)}" for name in filtered
            )
            rows.append(row("retention", r.round, RECORDED, **figures))
    replayed = {name: fraction(values[name]) for name in ("k", "theta_up") if name in values}
    outcome = what_if(observed, Changes(**replayed, drop=dropped, since=round_ or 1))
    for r in outcome.rounds:
        if round_ is not None and r.round != round_:
            continue
        exact = rerun is None or r.round < rerun
        figures = {name: getattr(r, name) for name in _REPLAYED} if exact else {}
        figures |= {"diverges": outcome.diverges} if exact else {}
        figures |= {f"was_{name}": getattr(r, f"recorded_{name}") for name in _CHANGED if name != "kept"}
        rows.append(row("replay", r.round, r.status if exact else "needs a rerun", **figures))
    return rows


def _named(values: Values, dropped: frozenset[str]) -> str:
    from diagevo.memory.events import number_of

    words = [f"{name} = {text}" for name, text in values.items()]
    words += [f"without {cause}" for cause in sorted(dropped, key=number_of)]
    return ", ".join(words)


def _screen(rows: list[dict[str, Any]]) -> list[str | Rows]:
    """Two tables at most, below the change."""
    parts: list[str | Rows] = [rows[0]["change"]]
    for kind, wanted in (("retention", RETENTION), ("replay", REPLAY)):
        if chosen := [_shown(row) for row in rows if row["kind"] == kind]:
            parts.append(Rows(wanted, chosen))
    return parts


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """A row for a person: a changed figure as `0.333 → 0.500`, and only the first of many causes."""
    shown = {
        key: listed(value, 4) or None if isinstance(value, tuple) else value for key, value in row.items()
    }
    for key in _CHANGED:
        was = row.get(f"was_{key}")
        if was is not None and row.get(key) != was:
            shown[key] = f"{_figure(was)} → {_figure(row[key]) if key in row else '?'}"
    return shown


def _figure(value: Any) -> str:
    return "–" if value is None else str(value) if isinstance(value, int) else number(value)


def _remarks(rows: Sequence[dict[str, Any]]) -> list[str]:
    """What the statuses mean here, each once, for the first round that it applies to."""
    remarks = []
    for row in {row["status"]: row for row in reversed(rows)}.values():
        if row["status"] == "open-loop":
            first = row["diverges"]
            since = (
                f"from round {first} on the run would have drawn other questions"
                if first
                else "a cause is missing"
            )
            remarks.append(f"{row['change']}: {since}; open-loop rows hold the recorded ones fixed")
        elif row["status"] == "needs a rerun":
            since = f"from round {row['round']} on the solver would have trained on other questions"
            remarks.append(f"{row['change']}: {since}")
    return remarks
