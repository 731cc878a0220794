"""Bundles that somebody changed with care: rows written anew behind the types of their columns, and heads and
hashes made to fit."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from diagevo.memory.events.records import GENESIS, Recorded
from tests.attack.damage import declare, without_types

Rows = list[dict[str, Any]]


def rows_of(bundle: Path, table: str) -> Rows:
    """The rows of a table."""
    with closing(sqlite3.connect(bundle)) as file:
        file.row_factory = sqlite3.Row
        return [dict(row) for row in file.execute(f"SELECT * FROM {table} ORDER BY rowid")]


def write_rows(bundle: Path, table: str, rows: Rows) -> None:
    """Put these rows in the place of a table's, whatever their types."""
    with closing(sqlite3.connect(bundle, isolation_level=None)) as file:
        tables = file.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
        declare(file, [(name, without_types(sql)) for name, sql in tables])
        file.execute(f"DELETE FROM {table}")
        for row in rows:
            names, marks = ", ".join(row), ", ".join("?" * len(row))
            file.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", list(row.values()))
        declare(file, tables)


def seal(rows: Rows) -> str:
    """Hash all of the events again; the head."""
    previous = GENESIS
    for row in rows:
        row["previous_hash"] = previous
        row["hash"] = previous = Recorded(**row).computed_hash
    return previous


def forge_events(bundle: Path, change: Callable[[Rows], None]) -> None:
    """Change events and hash all of them again: a chain that holds, of a history that nobody played."""
    rows = rows_of(bundle, "event")
    change(rows)
    head = seal(rows)
    write_rows(bundle, "event", rows)
    [run] = rows_of(bundle, "run")
    write_rows(bundle, "run", [run | {"sequence": len(rows), "hash": head}])


def alter(bundle: Path, *statements: str) -> None:
    """Do what plain SQL can."""
    with closing(sqlite3.connect(bundle, isolation_level=None)) as file:
        for statement in statements:
            file.execute(statement)
