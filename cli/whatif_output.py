"""The answers of `memory what-if`: rows that say how far each can be trusted."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from diagevo.errors import ConfigError

from . import render
from .memory_common import opened, where
from .options import Call
from .render import Column, fraction
from .screen import listed, percent

if TYPE_CHECKING:
    from diagevo.memory.history import AsOf, History
    from diagevo.memory.retention import Filter, Point
    from diagevo.memory.whatif import Observed

REPLAY = (
    Column("change"),
    Column("round", align="right"),
    Column("status"),
    Column("failures", "F", "right"),
    Column("was_failures", "was", "right"),
    Column("epsilon_next", "ε next", "right"),
    Column("was_epsilon_next", "was", "right"),
    Column("active", "Active", "right"),
    Column("was_active", "was", "right"),
    Column("mastered", "Mastered", "right"),
    Column("was_mastered", "was", "right"),
    Column("promoted"),
    Column("reactivated"),
)
RETENTION = (
    Column("change"),
    Column("round", align="right"),
    Column("status"),
    Column("candidates", align="right"),
    Column("kept", align="right"),
    Column("was_kept", "was", "right"),
    Column("share", align="right"),
    Column("label_truth", "labels true", "right"),
)
CURVE = (
    Column("tau", "τ up to"),
    Column("status"),
    Column("kept", align="right"),
    Column("share", align="right"),
    Column("label_truth", "labels true", "right"),
    Column("bar", ""),
)
_REPLAYED = ("k", "theta_up")
_FILTERED = ("tau", "p_low", "p_high")
_LIMITS = {"k": (0, None), "theta_up": (0, 1), "tau": (1, None), "p_low": (0, 1), "p_high": (0, 1)}
_KEYS = {"k": "schedule.k", "theta_up": "memory.theta_up"} | {name: f"filter.{name}" for name in _FILTERED}
_BAR = 40

Values = Mapping[str, Fraction | None]


def answer(
    call: Call,
    values: Values,
    drop: Sequence[str],
    swept: tuple[str, Sequence[Fraction | None] | None] | None,
    round_: int | None,
) -> None:
    """Ask the log, print the rows."""
    from diagevo.memory.opening import runs_folder
    from diagevo.memory.references import resolve
    from diagevo.memory.retention import filter_of
    from diagevo.memory.whatif import observations

    _check(values)
    if swept is None and not drop and all(value is None for value in values.values()):
        raise ConfigError(
            "nothing is changed",
            hint="name what: --k, --theta-up, --tau, --p-low, --p-high, --drop or --sweep",
        )
    with opened(call) as history:
        as_of = history.as_of(round_) if round_ is not None else history.end
        dropped = frozenset(resolve(history, ref, as_of, "cause").id for ref in drop)
        observed = observations(history, as_of)
        if not observed:
            raise ConfigError(f"run {history.run_id} has no committed round to ask about")
        chosen = filter_of(history.configuration(as_of).config)
        if swept is not None and swept[1] is None:
            _curve(call, history, as_of, observed if round_ is None else observed[-1:], chosen)
            return
        asked: list[Values] = [values]
        if swept is not None:
            name, several = swept
            asked = [{**values, name: value} for value in several or ()]
        for one in asked:
            _check(one)
        kept = runs_folder(history.database) / history.run_id / "config.yaml"
        config = kept if kept.exists() else None
        rows = [
            row
            for one in asked
            for row in _rows(history.run_id, observed, one, dropped, chosen, round_, config)
        ]
    _print(call, history, as_of, rows)


def _check(values: Values) -> None:
    for name, value in values.items():
        low, high = _LIMITS[name]
        if value is not None and (
            value < low or (high is not None and value > high) or (name == "k" and not value)
        ):
            span = (
                f"above {low}"
                if name == "k"
                else f"at least {low}"
                if high is None
                else f"between {low} and {high}"
            )
            raise ConfigError(f"{name} is {value}: it must be {span}")
    low, high = values["p_low"], values["p_high"]
    if low is not None and high is not None and low > high:
        raise ConfigError(f"p_low {low} is above p_high {high}")


def _rows(
    run_id: str,
    observed: Sequence["Observed"],
    values: Values,
    dropped: frozenset[str],
    chosen: "Filter",
    round_: int | None,
    config: Path | None,
) -> list[dict[str, Any]]:
    """The rows of one set of changes: retention where the filter changes, and the replay."""
    from dataclasses import replace

    from diagevo.memory.retention import first_changed, retention
    from diagevo.memory.whatif import Changes, what_if

    change = _named(values, dropped)
    rows: list[dict[str, Any]] = []
    rerun = None
    if any(values[name] is not None for name in _FILTERED):
        asked = replace(chosen, **{name: value for name in _FILTERED if (value := values[name]) is not None})
        kept = retention(observed, asked)
        if round_ is not None:
            kept = kept[-1:]
        rerun = first_changed(kept)
        rows += [
            {
                "kind": "retention",
                "change": change,
                "round": r.round,
                "status": "exact",
                "candidates": r.candidates,
                "kept": r.kept,
                "was_kept": r.recorded,
                "kept_both": r.both,
                "share": r.share,
                "label_truth": r.label_truth,
            }
            for r in kept
        ]
    told = what_if(observed, Changes(values["k"], values["theta_up"], dropped, round_ or 1))
    for r in told.rounds:
        if round_ is not None and r.round != round_:
            continue
        row: dict[str, Any] = {"kind": "replay", "change": change, "round": r.round, "status": r.status}
        if rerun is not None and r.round >= rerun:
            row |= {"status": "needs a rerun", "command": _command(run_id, rerun, values, config)}
        else:
            row |= {
                "failures": r.failures,
                "z": r.z,
                "epsilon_next": r.epsilon_next,
                "active": r.active,
                "mastered": r.mastered,
                "promoted": list(r.promoted),
                "reactivated": list(r.reactivated),
                "frequencies": dict(r.frequencies),
                "diverges": told.diverges,
            }
        row |= {
            "was_failures": r.recorded_failures,
            "was_epsilon_next": r.recorded_epsilon_next,
            "was_active": r.recorded_active,
            "was_mastered": r.recorded_mastered,
        }
        rows.append(row)
    return rows


def _named(values: Values, dropped: frozenset[str]) -> str:
    words = [f"{name} = {float(value):g}" for name, value in values.items() if value is not None]
    words += [f"without {cause}" for cause in sorted(dropped, key=lambda c: int(c[1:]))]
    return ", ".join(words)


def _command(run_id: str, rerun: int, values: Values, config: Path | None) -> str:
    """The line that plays the run again from where it would have gone another way. There is no commit before
    round 1 to fork from: that is a new run of the same configuration."""
    settings = " ".join(f"--set {_KEYS[name]}={value}" for name, value in values.items() if value is not None)
    if rerun == 1:
        return f"diagevo train {'' if config is None else f'-c {config} '}{settings}"
    return f"diagevo runs fork {run_id} --round {rerun - 1} {settings}"


def _print(call: Call, history: "History", as_of: "AsOf", rows: list[dict[str, Any]]) -> None:
    place = {"run": history.run_id, "as_of": where(as_of)}
    if call.format != "table":
        render.rows(call, (*RETENTION, *REPLAY[3:]), rows, **place)
        return
    for kind, columns in (("retention", RETENTION), ("replay", REPLAY)):
        chosen = [row for row in rows if row["kind"] == kind]
        if chosen:
            render.rows(call, columns, [_shown(row) for row in chosen])
    for line in _remarks(rows):
        render.say(call, line)


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    """Lists of causes for a person: how many, and the first of them; a dash for none."""
    return {
        key: (f"{len(value)}: {listed(value, 4)}" if value else None) if isinstance(value, list) else value
        for key, value in row.items()
    }


def _remarks(rows: Sequence[dict[str, Any]]) -> list[str]:
    """What the statuses mean here: once a change, at the first round that it concerns."""
    remarks = []
    told: set[tuple[str, str]] = set()
    for row in rows:
        if (row["change"], row["status"]) in told:
            continue
        told.add((row["change"], row["status"]))
        if row["status"] == "open-loop":
            first = row["diverges"]
            since = (
                f"from round {first} on the run would have drawn other questions"
                if first
                else "a cause is missing"
            )
            remarks.append(f"{row['change']}: {since}; open-loop rows hold the recorded ones fixed")
        elif row["status"] == "needs a rerun":
            remarks.append(
                f"{row['change']}: from round {row['round']} on the solver would have trained on other"
                f" questions; run: {row['command']}"
            )
    return remarks


def _curve(
    call: Call, history: "History", as_of: "AsOf", observed: Sequence["Observed"], chosen: "Filter"
) -> None:
    """Retention as a function of τ, whole."""
    from diagevo.memory.retention import retention_by_tau

    points = retention_by_tau(observed, chosen)
    rows = [_point(point) for point in points]
    if call.format == "table":
        band = f"p₁ from {fraction(chosen.p_low)} to {fraction(chosen.p_high)}"
        span = f"round {observed[0].round}" if len(observed) == 1 else f"rounds 1 to {observed[-1].round}"
        render.say(
            call, f"{span}: {points[0].candidates} questions, {band}; recorded with τ = {float(chosen.tau):g}"
        )
        rows = [row | {"bar": _bar(point)} for row, point in zip(rows, points, strict=True)]
    render.rows(call, CURVE, rows, run=history.run_id, as_of=where(as_of))


def _point(point: "Point") -> dict[str, Any]:
    return {
        "tau": "any" if point.tau is None else point.tau,
        "status": "exact",
        "kept": point.kept,
        "candidates": point.candidates,
        "share": point.share,
        "label_truth": point.label_truth,
    }


def _bar(point: "Point") -> str:
    return "█" * round(_BAR * float(point.share)) + f" {percent(point.share)}"
