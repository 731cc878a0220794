"""Runs, models and steps side by side: the pass rate of each by tag, and its failures by cause."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ..render.result import Rows
from ..render.table import Column

if TYPE_CHECKING:
    from diagevo.view.slice_table import SliceRow, SliceTable

SHOWN = 12
"""Maximum tags, and causes; --json has all."""


def beside_rows(table: "SliceTable", names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The table as values: a row per tag or cause, with the cell of each column."""
    for kind, rows in (("all", [table.whole]), ("tag", table.tags), ("cause", table.causes)):
        for row in rows:
            cells = [
                None
                if cell is None
                else {"share": cell.share, "interval": list(cell.interval), "part": cell.part}
                | {"whole": cell.whole, "prompts": cell.prompts}
                for cell in row.cells
            ]
            yield {"kind": kind, "name": row.name, "cause_id": row.cause_id, "run": row.run} | {
                "cells": [{"of": name, "share": cell} for name, cell in zip(names, cells, strict=True)]
            }


def beside(table: "SliceTable", names: Sequence[str]) -> Iterator[str | Rows]:
    """Two tables, of passes and of failures."""
    yield "pass rate, with its 95% interval:\n"
    yield _rows("of", [table.whole, *table.tags[:SHOWN]], names)
    if (left := len(table.tags) - SHOWN) > 0:
        yield f"{left} more tags: --json\n"
    if table.causes:
        yield "share of the prompts with a failure of this cause:\n"
        yield _rows("cause", table.causes[:SHOWN], names)
    if (left := len(table.causes) - SHOWN) > 0:
        yield f"{left} more causes: --json\n"


def _rows(first: str, rows: "Sequence[SliceRow]", names: Sequence[str]) -> Rows:
    shown = [
        {first: row.name} | {f"c{n}": None if cell is None else str(cell) for n, cell in enumerate(row.cells)}
        for row in rows
    ]
    return Rows([*(Column(f"c{n}", name) for n, name in enumerate(names)), Column(first, first)], shown)
