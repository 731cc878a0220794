"""A view gives what it gave before it was written anew: those of revision 0001 wherever nothing was
superseded or resumed, those of 0002 in every history."""

import json
import re
from collections.abc import Iterable
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from diagevo.memory.log.database import Database
from tests.contracts.databases import Store
from tests.memory.read.histories import histories

FROZEN = Path(__file__).parents[2] / "contracts" / "frozen"
BEFORE = {name: json.loads((FROZEN / f"views_{name}.json").read_text()) for name in ("0001", "0002")}
"""The views of a revision, those that the next one changed."""
LEFT = {"void"}
"""Columns that are no more."""
RENAMED = {
    "epsilon_next": "epsilon_committed",
    "epsilon_next_value": "epsilon_committed_value",
    "probability": "probability_committed",
}


@pytest.mark.parametrize("revision", BEFORE)
@pytest.mark.parametrize("seed", range(3))
def test_every_view_has_the_rows_that_it_had(store: Store, seed: int, revision: str) -> None:
    histories(store, seed, again=revision != "0001", assign=False)
    compared = 0
    with closing(Database(store.url)) as database, database.write() as connection:
        for name, query in BEFORE[revision][store.dialect].items():
            query = re.sub(r"\bv_(\w+)", r"old_\1", query)
            connection.exec_driver_sql(f"CREATE VIEW old_{name[2:]} AS {query}")
            found = connection.exec_driver_sql(f"SELECT * FROM old_{name[2:]}")
            columns = [column for column in found.keys() if column not in LEFT]  # noqa: SIM118
            old = [tuple(row[column] for column in columns) for row in found.mappings()]
            today = ", ".join(RENAMED.get(column, column) for column in columns)
            new = connection.exec_driver_sql(f"SELECT {today} FROM {name}")
            assert _spelled(new) == _spelled(old), name
            compared += len(old)
        connection.rollback()
    assert compared > 40


def _spelled(rows: Iterable[Iterable[Any]]) -> list[str]:
    """Rows in an order of their own; PostgreSQL's sum of sums is a decimal."""
    return sorted(repr([int(cell) if isinstance(cell, Decimal) else cell for cell in row]) for row in rows)
