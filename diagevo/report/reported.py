"""Figures that other systems' papers report, from a CSV, beside what runs came to."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from diagevo.errors import ConfigError, NotFoundError
from diagevo.evaluation.ablation import variant
from diagevo.report.scores import GROUPS, NINE, RunResult
from diagevo.report.tables import TITLES, Cell, ReportTable, cells_of, main_columns
from diagevo.text.escaping import visible

MARK = "†"
WORDS = ("solver", "method", "source")
R_ZERO = variant("r-zero").title
BASE = "Base"
HINT = (
    f"the head names {', '.join(WORDS)} and columns such as gsm8k, Math Avg., Overall; scores are percentages"
)


@dataclass(frozen=True, slots=True)
class Reported:
    """What a paper reports of a method on a solver: percentages by column."""

    solver: str
    method: str
    source: str
    scores: Mapping[str, float]

    @property
    def label(self) -> str:
        return f"{self.solver}: {self.method}{MARK}"


def read_reported(file: Path) -> list[Reported]:
    """One line a solver and method; an empty cell: not reported. Raises ConfigError with the line."""
    try:
        with file.open(encoding="utf-8-sig", newline="") as opened:
            table = csv.DictReader(opened, strict=True)
            heads = table.fieldnames or ()
            if lacking := [name for name in WORDS if name not in heads]:
                raise ConfigError(f"{file}: there is no column {lacking[0]}", hint=HINT)
            columns = {name: _column(file, name) for name in heads if name not in WORDS}
            found = [_line(file, table.line_num, row, columns) for row in table]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"{file} cannot be read as CSV: {reason}", hint=HINT) from error
    if not found:
        raise ConfigError(f"{file} has no line below its head", hint=HINT)
    labels = [each.label for each in found]
    if twice := next((label for label in labels if labels.count(label) > 1), None):
        raise ConfigError(f"{file}: {visible(twice.removesuffix(MARK))} is given twice")
    return found


def _column(file: Path, name: str) -> str:
    """The table's column that a head means: by the benchmark's name or its title."""
    titles = {entry.title.casefold(): key for key, entry in NINE.items()}
    known = {column.casefold(): column for column in main_columns()} | titles
    wanted = name.strip().casefold()
    if wanted not in known:
        raise ConfigError(f"{file}: there is no column {visible(name)!r} in the table", hint=HINT)
    return known[wanted]


def _line(file: Path, line: int, row: Mapping[str, str | None], columns: Mapping[str, str]) -> Reported:
    words = {name: (row[name] or "").strip() for name in WORDS}
    empty = next((name for name in ("solver", "method") if not words[name]), None)
    if empty is not None or None in row or any(row[name] is None for name in columns):
        what = f"no {empty}" if empty else "not as many cells as the head"
        raise ConfigError(f"{file}, line {line}: {what}", hint=HINT)
    scores = {}
    for name, column in columns.items():
        text = (row[name] or "").strip()
        if not text:
            continue
        try:
            scores[column] = float(text)
        except ValueError:
            scores[column] = float("nan")
        if not 0 <= scores[column] <= 100:
            raise ConfigError(f"{file}, line {line}: {visible(text)!r} is not a percentage", hint=HINT)
    return Reported(words["solver"], words["method"], words["source"], scores)


def with_reported(
    content: ReportTable, found: Sequence[RunResult], reported: Sequence[Reported]
) -> ReportTable:
    """The main table with the reported rows above the runs', each marked. Of what was measured here too, the
    measured figures stand alone, as in the paper; `baselines` has both."""
    reported = [each for each in reported if not _measured(found, each)]
    rows = {each.label: {c: Cell(value, None, 1) for c, value in each.scores.items()} for each in reported}
    present = {column for values in rows.values() for column in values} | set(content.columns)
    columns = [column for column in main_columns() if column in present]
    columns += [column for column in content.columns if column not in columns]
    return replace(
        content,
        columns=tuple(columns),
        rows={**rows, **content.rows},
        note=f"{content.note} {MARK} {_sources(reported)}",
    )


def _sources(reported: Sequence[Reported]) -> str:
    if not reported:
        return "Reported: nothing that was not measured here."
    named = ", ".join(dict.fromkeys(each.source for each in reported if each.source))
    return f"Reported, not measured here{f' ({named})' if named else ''}."


def baselines(found: Sequence[RunResult], reported: Sequence[Reported]) -> ReportTable:
    """The paper's check of its baselines: each solver's base model and R-Zero, reported beside measured.

    Raises NotFoundError where nothing was both reported and measured.
    """
    rows: dict[str, dict[str, Cell]] = {}
    for each in reported:
        own = _measured(found, each)
        measured = cells_of(own, GROUPS)
        if measured and each.method in (BASE, R_ZERO):
            known = {c: Cell(each.scores[c], None, 1) for c in GROUPS if c in each.scores}
            rows[f"{each.solver}: {each.method} (reported)"] = known
            rows[f"{each.solver}: {each.method} (reproduced)"] = measured
    if not rows:
        raise NotFoundError(
            f"no {BASE} or {R_ZERO} was both reported and measured on one solver",
            hint="measure: diagevo eval run all --run RUN --round 0, and a run with --set method=r-zero",
        )
    note = f"Averages over whole benchmarks, unweighted. {_sources(reported)}"
    return ReportTable(TITLES["baselines"], tuple(GROUPS), rows, note)


def _measured(found: Sequence[RunResult], reported: Reported) -> list[RunResult]:
    """The runs of a reported method on its solver, whose name may stand with or without who made it, that
    were measured on something reported."""
    return [
        run
        for run in found
        if run.system == reported.method
        and reported.solver in (run.solver, run.solver.rpartition("/")[2])
        and run.scores.keys() & reported.scores.keys()
    ]
