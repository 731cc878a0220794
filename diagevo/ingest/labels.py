"""Exports failures to a spreadsheet for labelling by a person, and imports it; measures agreement
with the diagnosis."""

import csv
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from diagevo.errors import ConfigError, DiagEvoError
from diagevo.ingest.formats.cells import cells
from diagevo.memory.history import History
from diagevo.memory.memory import Memory, refuse_no_line
from diagevo.memory.read.asking import select_rows
from diagevo.private import atomic_file
from diagevo.text.escaping import csv_text, from_csv, shortened

COLUMNS = ("id", "prompt", "response", "passing_response", "cause_id", "cause", "label", "note")
LONGEST_CELL = 32_000
"""Maximum characters: an Excel cell holds 32,767, and longer text runs into the next cells."""


@dataclass(frozen=True, slots=True)
class _Named:
    failure_id: str


@dataclass(frozen=True, slots=True)
class _Failure:
    """`v_trajectory`."""

    failure_id: str
    question: str | None
    trajectory: str | None
    reference: str | None
    cause_id: str | None
    cause: str | None


@dataclass(frozen=True, slots=True)
class Agreement:
    """The agreement of two people, or a person and the diagnosis, on the same failures."""

    labelled: int
    agreed: int
    kappa: Fraction | None
    """Cohen's (1960): agreement beyond what their shares of each cause give by chance, from -1 to 1. None if
    both have the same single cause throughout."""

    @property
    def share(self) -> Fraction | None:
        return Fraction(self.agreed, self.labelled) if self.labelled else None


def agreement(pairs: Iterable[tuple[str | None, str | None]]) -> Agreement:
    """The agreement of two raters. `pairs`: each one's cause of a failure; None, for no cause, counts as
    a class."""
    both = Counter(pairs)
    n, agreed = both.total(), sum(number for (a, b), number in both.items() if a == b)
    one, other = Counter[str | None](), Counter[str | None]()
    for (a, b), number in both.items():
        one[a] += number
        other[b] += number
    chance = Fraction(sum(number * other[a] for a, number in one.items()), n * n) if n else Fraction(1)
    return Agreement(n, agreed, None if chance == 1 else (Fraction(agreed, n) - chance) / (1 - chance))


def export_labels(history: History, file: Path, limit: int | None = 30, seed: int = 0) -> int:
    """Write unassigned failures as CSV, drawn at random, so that agreement on them holds for all. `label`
    takes a cause in your own words, or its id; `note` says why.

    Args:
        history: The run.
        file: A new file.
        limit: Maximum number; None for all.
        seed: Seed of the draw.

    Returns:
        How many were written.

    Raises:
        FileExistsError: The file is there: it may have labels.
        ConfigError: Every failure is assigned, or there is none.
    """
    unsaid = "failure_id NOT IN (SELECT failure_id FROM v_assignment WHERE run_id = :run)"
    committed = "round <= :last"
    last = {"last": history.state(history.end).round}
    there = select_rows(history, "v_failure", _Named, f"{unsaid} AND {committed}", last, order="position")
    names = [one.failure_id for one in there]
    if not names:
        raise ConfigError(
            f"run {history.run_id} has no unlabelled failure",
            hint=f"see what it has: diagevo memory show --run {history.run_id}",
        )
    if limit is not None and len(names) > limit:
        chosen = set(random.Random(seed).sample(names, limit))
        names = [name for name in names if name in chosen]
    if file.exists():
        raise FileExistsError(17, "it exists, and may have labels", str(file))
    # Half a sheet would be labelled as if it were complete. With its mark Excel reads UTF-8.
    with atomic_file(file) as part, part.open("a", encoding="utf-8-sig", newline="") as target:
        writer = csv.writer(target)
        writer.writerow(COLUMNS)
        for one in _failures(history, names):
            cells_ = one.question, one.trajectory, one.reference, one.cause_id, one.cause
            writer.writerow([one.failure_id, *map(_cell, cells_), "", ""])
    return len(names)


def _cell(text: str | None) -> str:
    cell = csv_text(text or "")
    return cell if len(cell) <= LONGEST_CELL else f"{cell[:LONGEST_CELL]}…"


def _failures(history: History, names: Sequence[str]) -> Iterator[_Failure]:
    """Failures from the view, a few hundred texts at a time."""
    for start in range(0, len(names), 500):
        part = {f"f{place}": name for place, name in enumerate(names[start : start + 500])}
        among = f"failure_id IN ({', '.join(f':{name}' for name in part)})"
        yield from select_rows(history, "v_trajectory", _Failure, among, part, order="position")


@dataclass(frozen=True, slots=True)
class Labelled:
    """What was read from a file."""

    labelled: int
    """Rows with a label."""
    untouched: int
    assigned: int
    """Failures that were not assigned to this cause before."""
    added: tuple[str, ...]
    """Causes that are new."""
    agreement: Agreement
    """Agreement of the labels with the diagnosis of the same failures."""


@dataclass(frozen=True, slots=True)
class _Row:
    place: str
    failure_id: str
    label: str
    note: str | None


def import_labels(memory: Memory, file: Path, by: str) -> Labelled:
    """Import labels: each names its failure's cause.

    A file is accepted as a whole or not at all. A label is the id of a cause, its description, or your own
    words; the same words are one cause. A row without a label is left as it is.

    Args:
        memory: The run.
        file: CSV or TSV, as a spreadsheet saves it.
        by: Who labelled.

    Raises:
        ConfigError: A row cannot be accepted; the message names its line.
        OutOfOrderError: A round is open.
    """
    rows, untouched = _rows(file)
    to: dict[tuple[str, str | None], list[str]] = {}
    added: list[str] = []
    with memory.atomic():
        known = {_same(cause.description): cause.cause_id for cause in reversed(memory.state.causes.values())}
        said: list[tuple[str, str]] = []
        for row in rows:
            try:
                if row.note is not None:
                    refuse_no_line("note", row.note)
                cause_id = _cause(memory, known, row, by, added)
                memory.causes_of([row.failure_id])
                to.setdefault((cause_id, row.note), []).append(row.failure_id)
                said.append((row.failure_id, cause_id))
            except DiagEvoError as error:
                hint = error.hint or "list the causes: diagevo memory show"
                raise type(error)(f"{row.place}: {error.message}", hint=hint) from error
        diagnosed = memory.diagnosed_as([name for name, _ in said])
        assigned = 0
        for (cause_id, note), names in to.items():
            assigned += len(memory.assign(names, cause_id, by, note))
    found = agreement((cause_id, diagnosed[name]) for name, cause_id in said)
    return Labelled(len(rows), untouched, assigned, tuple(added), found)


def _cause(memory: Memory, known: dict[str, str], row: _Row, by: str, added: list[str]) -> str:
    """The cause that a label names; a new one if it is the person's own words."""
    if row.label[:1] == "c" and row.label[1:].isdecimal():
        return memory.cause(row.label).cause_id
    if _same(row.label) not in known:
        known[_same(row.label)] = memory.add_cause(row.label, row.failure_id, by).cause_id
        added.append(known[_same(row.label)])
    return known[_same(row.label)]


def _same(words: str) -> str:
    """The key for comparing labels: case and blanks do not matter."""
    return " ".join(words.casefold().split())


def _rows(file: Path) -> tuple[list[_Row], int]:
    """Rows with a label, and how many have none."""
    found: dict[str, _Row] = {}
    untouched = 0
    for line, row in cells(file):
        place = f"{file}, line {line}"
        if missing := [name for name in ("id", "label") if name not in row]:
            raise ConfigError(
                f"{file} has no column {missing[0]}",
                hint=f"its columns: {shortened(', '.join(row))}; a sheet to fill in: diagevo memory label"
                " --export FILE.csv",
            )
        label, note = (from_csv(str(row.get(name) or "")).strip() for name in ("label", "note"))
        if not label and note:
            raise ConfigError(f"{place} has a note and no label", hint="fill in its cause, or clear both")
        if not label:
            untouched += 1
            continue
        one = _Row(place, str(row["id"]).strip(), " ".join(label.split()), note or None)
        if (before := found.get(one.failure_id)) is not None and before.label != one.label:
            raise ConfigError(
                f"{place} labels {one.failure_id} again, as something else", hint=f"see {before.place}"
            )
        found[one.failure_id] = one
    if not found and not untouched:
        raise ConfigError(f"{file} has no rows", hint="write one: diagevo memory label --export FILE.csv")
    return list(found.values()), untouched
