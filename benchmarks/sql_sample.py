"""`python -m benchmarks.sql_sample FILE`: a text-to-SQL evaluation, as `examples/sql_eval.jsonl` has it.

Responses are those of `causes.planted.sql`, each composed anew; what they are worth is not planned but found:
a query is run in SQLite, and passes where its rows are those of a right one. `feedback` is what the database
says of a query that does not run, or how its rows differ.
"""

import json
import random
import re
import sqlite3
import sys
from collections.abc import Iterator
from itertools import count, groupby
from pathlib import Path
from typing import Any

from benchmarks.causes.planted import sql

QUESTIONS, RESPONSES, SEED = 100, 6, 7
_TABLE = re.compile(r"(\w+)\(([\w, ]+)\)")
_CLAUSE = re.compile(
    r"\s*(SELECT|WITH|FROM|JOIN|INNER|LEFT|WHERE|GROUP|HAVING|ORDER|LIMIT|FETCH|OFFSET|--)", re.IGNORECASE
)
_FIRST = re.compile(r"\bWhich \d")
"""Questions that ask for the first ones."""

Rows = list[tuple[Any, ...]]


def rows() -> Iterator[dict[str, Any]]:
    rng, asked = random.Random(SEED), set[str]()
    while len(asked) < QUESTIONS:
        prompt = sql.prompt(rng)
        question = f"{prompt.question}\nAnswer with one query for SQLite."
        if question in asked:
            continue
        asked.add(question)
        database = _filled(question, rng)
        right = next(
            text
            for seed in count()
            if "FETCH" not in (text := _written(prompt, random.Random(seed), None)).upper()
        )
        expected = _outcome(database, right, question)
        usual, failing = rng.choice(prompt.modes), rng.choice((0.0, 0.3, 0.5, 0.7))
        for place in range(RESPONSES):
            fails = place >= 2 and rng.random() < failing
            response = _written(prompt, rng, None if not fails else "" if rng.random() < 0.12 else usual)
            got = _outcome(database, response, question)
            row = {"prompt": question, "response": response, "reward": float(got == expected)}
            yield row | ({} if got == expected else {"feedback": _feedback(got, expected)})


def _written(prompt: sql.Prompt, rng: random.Random, mode: str | None) -> str:
    return str(prompt.write(rng, mode)[0])


def _filled(question: str, rng: random.Random) -> sqlite3.Connection:
    """The question's two tables, with parents that have no child, empty cells, and values that repeat."""
    (parents, names), (child, columns) = (
        (name, found.split(", ")) for name, found in _TABLE.findall(question)[:2]
    )
    database = sqlite3.connect(":memory:")
    database.execute(f"CREATE TABLE {parents} ({', '.join(names)})")
    database.execute(f"CREATE TABLE {child} ({', '.join(columns)})")
    for parent in range(1, 13):
        database.execute(f"INSERT INTO {parents} VALUES (?, ?)", (parent, f"{parents} {parent}"))
        for _ in range(rng.choice((0, 0, 3, 8, 14))):
            cell = (
                None,
                parent,
                rng.randint(5, 700),
                f"kind {rng.randrange(4)}",
                rng.choice((None, "2024-05-01")),
            )
            database.execute(f"INSERT INTO {child} VALUES (?, ?, ?, ?, ?)", cell)
    database.execute(f"UPDATE {child} SET id = rowid")
    return database


def _outcome(database: sqlite3.Connection, response: str, question: str) -> Rows | str:
    """The rows of the response's query, sorted where no order is asked for; else what is wrong with it."""
    lines = [line for line in response.splitlines() if _CLAUSE.match(line)]
    try:
        found: Rows = database.execute("\n".join(lines).rstrip("; ")).fetchall()
    except sqlite3.Error as error:
        return str(error)
    names = [
        (row[0], *(float(cell or 0) for cell in row[1:] if not isinstance(cell, str))) for row in found if row
    ]
    if "Rank" in question:  # those of one value may come in any order
        return [row for _, equal in groupby(names, key=lambda row: row[1:]) for row in sorted(equal, key=str)]
    kept = [row[:1] for row in names] if "Which" in question else names
    return kept if _FIRST.search(question) else sorted(kept, key=str)


def _feedback(got: Rows | str, expected: Rows | str) -> str:
    if isinstance(got, str):
        return f"error: {got}"
    return f"{len(got)} rows, expected {len(expected)}" if len(got) != len(expected) else "rows differ"


if __name__ == "__main__":
    with Path(sys.argv[1]).open("w", encoding="utf-8") as out:
        out.writelines(json.dumps(each) + "\n" for each in rows())
