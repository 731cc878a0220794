"""A small database, every way to damage it, and which damage does not matter.

A cell is damaged behind SQLite's back: the schema is loosened first, so that any value of any type goes into
any column, and put back afterwards. A byte is changed in the file.
"""

import random
import re
import shutil
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from diagevo.evaluation.store import EVALUATION
from diagevo.memory.log.artifacts import Artifacts, Reply
from diagevo.memory.log.database import Database
from tests.memory.audit.played import play

RUN = "played"
PAGE_SIZE = 512
"""SQLite's smallest: the file is small, and each table still has pages of its own."""

UNIMPORTANT: Mapping[tuple[str, str], str] = {
    ("run", "created_at"): "a time for people: the order of `runs list`",
    ("run", "imported"): "this database's own mark, which no event has: nothing can be compared with it",
    ("round_summary", "committed_at"): "a time for people; the commit's event has its own, under the hash",
    ("snapshot", "run_id"): "a snapshot that is not found costs time only",
    ("snapshot", "version"): "a snapshot of another version is not read",
    ("reply", "model"): "a reply that no request finds is asked for again",
    ("reply", "request"): "a reply that no request finds is asked for again",
    ("reply", "input_tokens"): "what a reply cost, shown to people; events have it under the hash",
    ("reply", "output_tokens"): "what a reply cost, shown to people; events have it under the hash",
    ("vector", "model"): "no digest in the log, and verify's note says so",
    ("vector", "text_hash"): "no digest in the log, and verify's note says so",
    ("vector", "vector"): "no digest in the log, and verify's note says so",
}
"""Cells whose change `verify --deep` may pass over where the type stays, each with the reason."""
CONDITIONS = (
    '{"samples":1,"whole":true,"judge":null,"temperature":0,"top_p":1,"max_new_tokens":64,"seed":0,"batch":1,'
    '"prompts":{},"source":"hand","data":"0","model":"solver","revision":"1","run":"played","round":1,'
    '"version":"1","questions":1,"benchmark":"math500"}'
)
UNDIGESTED = ("evaluation", "evaluation_result", "oracle")
"""Whole tables of which the log knows nothing: verify's note says so."""

Cells = dict[tuple[str, Any, str], Any]
"""By table, row and column."""


@dataclass(frozen=True)
class Cell:
    """One cell is given another value. `kind` names it in reports."""

    table: str
    row: int
    column: str
    kind: str

    def __str__(self) -> str:
        return f"{self.table}.{self.column} of row {self.row} as {self.kind}"


@dataclass(frozen=True)
class Byte:
    """One byte of the file is changed."""

    offset: int
    flip: int
    """What it is combined with by exclusive or: 1 to 255."""

    def __str__(self) -> str:
        return f"byte {self.offset} of page {self.offset // PAGE_SIZE + 1} ^ {self.flip}"


KINDS: Mapping[str, str] = {
    "null": "NULL",
    "an integer": "7",
    "a huge integer": "9223372036854775807",
    "a float": "0.5",
    "a text": "'x'",
    "an empty text": "''",
    "bytes": "X'00FF'",
    "broken JSON": """'{{"a":'""",
    "its own bytes": "CAST({column} AS BLOB)",
    "its own text": "CAST({column} AS TEXT)",
    "undecodable text": "CAST(X'80FF' AS TEXT)",
}
"""What a cell becomes, as SQL."""


class Base:
    """The database that is damaged, and what was in it."""

    def __init__(self, folder: Path, rounds: int = 2) -> None:
        self.folder = folder
        self.file = folder / "diagevo.db"
        play(f"sqlite:///{self.file}", RUN, root=folder, rounds=rounds)
        _add_the_rest(self.file)
        with closing(sqlite3.connect(self.file, isolation_level=None)) as file:
            for statement in ("journal_mode = DELETE", f"page_size = {PAGE_SIZE}"):
                file.execute(f"PRAGMA {statement}")
            file.execute("VACUUM")
        self.content = self.file.read_bytes()
        self.cells = cells(self.file)
        self._loose = folder / "loose.db"
        self._loosen()

    def copy(self, folder: Path) -> Path:
        """A home of its own with the file and the chain's heads; the file."""
        shutil.copytree(self.folder / RUN, folder / RUN, dirs_exist_ok=True)
        return Path(shutil.copy(self.file, folder / "diagevo.db"))

    @cached_property
    def _schema(self) -> list[tuple[str, str]]:
        with closing(sqlite3.connect(self.file)) as file:
            query = "SELECT name, sql FROM sqlite_master WHERE type = 'table'"
            return file.execute(query).fetchall()

    @cached_property
    def _triggers(self) -> list[tuple[str, str]]:
        with closing(sqlite3.connect(self.file)) as file:
            query = "SELECT name, sql FROM sqlite_master WHERE type = 'trigger'"
            return file.execute(query).fetchall()

    def _loosen(self) -> None:
        shutil.copy(self.file, self._loose)
        with closing(sqlite3.connect(self._loose, isolation_level=None)) as file:
            for name, _ in self._triggers:
                file.execute(f"DROP TRIGGER {name}")
            declare(file, [(name, without_types(sql)) for name, sql in self._schema])

    def damage(self, file: Path, case: Cell | Byte) -> bool:
        """Make `file` the base with this damage; False where SQLite cannot hold it, or nothing changed."""
        if isinstance(case, Byte):
            content = bytearray(self.content)
            content[case.offset] ^= case.flip
            file.write_bytes(content)
            return True
        shutil.copy(self._loose, file)
        with closing(sqlite3.connect(file, isolation_level=None)) as opened:
            opened.execute("PRAGMA journal_mode = OFF")
            opened.execute("PRAGMA synchronous = OFF")
            value = KINDS[case.kind].format(column=case.column)
            try:
                opened.execute(f"UPDATE {case.table} SET {case.column} = {value} WHERE rowid = {case.row}")
            except sqlite3.IntegrityError:  # a row's number, or another row has this key
                return False
            declare(opened, self._schema)
            for _, sql in self._triggers:
                opened.execute(sql)
        return cells(file) != self.cells

    def cell_cases(self) -> Iterator[Cell]:
        """Every cell as every kind of value."""
        for table, row, column in self.cells:
            if table != "sqlite_master":
                for kind in KINDS:
                    yield Cell(table, row, column, kind)

    def byte_cases(self, seed: int) -> Iterator[Byte]:
        """Every byte, each changed in one way."""
        chance = random.Random(seed)
        for offset in range(len(self.content)):
            yield Byte(offset, chance.randrange(1, 256))

    def changed(self, file: Path) -> set[str] | None:
        """What plain SQL reads otherwise and matters; None where it cannot be read to its end.

        Pages that hold nothing, counters of SQLite's own and the space between cells are never read.
        """
        try:
            found = cells(file)
        except (sqlite3.Error, MemoryError):
            return None
        names = self.cells.keys() | found.keys()
        differ = [name for name in names if self.cells.get(name, ...) != found.get(name, ...)]
        return {f"{t}.{column} of {row}" for t, row, column in differ if not self._unimportant(t, column)}

    def _unimportant(self, table: str, column: str) -> bool:
        return (table, column) in UNIMPORTANT or table in UNDIGESTED


def _add_the_rest(path: Path) -> None:
    """A row in each table that no round fills, and a text that no event names."""
    database = Database(str(path))
    Artifacts(database).put("the template")
    Artifacts(database).remember_reply("hand-diagnostician", "9" * 64, Reply("a reply in flight", 5, 2))
    with database.write() as connection:
        row = dict.fromkeys((c.name for c in EVALUATION.c), None)
        named = {"benchmark": "math500", "model": "solver", "conditions": CONDITIONS, "questions": 1}
        row |= {"evaluation_id": "e1", "run_id": RUN, "round": 1, "began_at": "2026-01-01", **named}
        row |= {"metrics": '{"score":0.5,"score_se":0.1,"mean_at_k":0.5}', "finished_at": "2026-01-02"}
        connection.execute(EVALUATION.insert().values(row))
        for values in (
            """evaluation_result VALUES ('e1', 0, 'algebra', 'number', '[]', '4', '["4"]', '[false]',
            '["4"]', '[true]', NULL, NULL, '[true]', 1.0)""",
            """oracle VALUES ('played', 1, 'r1.q0', 'What?', '4', '4', 'human', NULL)""",
        ):
            connection.exec_driver_sql(f"INSERT INTO {values}")
    database.close()


_TYPED = re.compile(r" (?:INTEGER|VARCHAR|TEXT|REAL|BLOB)(?:\(\d+\))?(?: NOT NULL)?|\s+STRICT\s*$")


def without_types(sql: str) -> str:
    """A declaration whose columns take anything. A column that is the row's number stays what it is."""
    alias = re.search(r"PRIMARY KEY \((position|id)\)", sql)
    lines = sql.split("\n")
    kept = f"\t{alias[1]} " if alias else "\0"
    loose = "\n".join(line if line.startswith(kept) else _TYPED.sub("", line) for line in lines)
    return loose.rstrip().removesuffix(",")


def declare(file: sqlite3.Connection, tables: list[tuple[str, str]]) -> None:
    file.execute("PRAGMA writable_schema = ON")
    for name, sql in tables:
        file.execute("UPDATE sqlite_master SET sql = ? WHERE type = 'table' AND name = ?", (sql, name))
    file.execute("PRAGMA writable_schema = RESET")


def cells(path: Path) -> Cells:
    """Everything in the file as plain SQL reads it, row by row, without an index; triggers and views with
    it. Values are told apart by type."""
    found: Cells = {}
    with closing(sqlite3.connect(path)) as file:
        file.text_factory = lambda content: ("text", content)
        tables = file.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'").fetchall()
        for (_, raw), (_, made) in tables:
            name = raw.decode()
            number = "row_number() OVER ()" if b"WITHOUT ROWID" in made else "rowid"
            rows = file.execute(f"SELECT {number}, * FROM {name} NOT INDEXED")
            columns = [_column[0] for _column in rows.description[1:]]
            for row, *values in rows:
                found |= {
                    (name, row, column): (type(value), value)
                    for column, value in zip(columns, values, strict=True)
                }
        for type_, name, sql in file.execute(
            "SELECT type, name, sql FROM sqlite_master WHERE type IN ('trigger', 'view')"
        ):
            found["sqlite_master", name, "sql"] = (type_, sql)
    return found
