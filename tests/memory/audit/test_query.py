"""SQL over the views: it reads, and the database refuses everything else."""

import sqlite3
import time
from contextlib import closing
from types import SimpleNamespace

import pytest

from diagevo.errors import ConfigError, DamagedError
from diagevo.memory.audit.query import query, view_columns
from diagevo.memory.audit.query_limits import AGENT, PERSON, Limits
from diagevo.memory.audit.query_sqlite import FUNCTIONS
from diagevo.memory.history import History
from diagevo.memory.log.database import Database
from diagevo.memory.read.views import ABOUT
from tests.contracts.databases import Store

WRITES = [
    "DELETE FROM cause",
    "UPDATE run SET holder = 'me'",
    "INSERT INTO log VALUES (2, 2)",
    "DROP VIEW v_cause",
    "CREATE TABLE mine (x integer)",
    "SELECT 1; DELETE FROM cause",
    "WITH gone AS (DELETE FROM cause RETURNING 1) SELECT * FROM gone",
]

REFUSED = """
bm25 changes fts3_tokenizer fts5 fts5_get_locale fts5_insttoken fts5_locale fts5_source_id highlight
last_insert_rowid load_extension match matchinfo offsets optimize randomblob rtreecheck rtreedepth rtreenode
snippet sqlite_compileoption_get sqlite_compileoption_used sqlite_log sqlite_source_id sqlite_version subtype
total_changes zeroblob
"""
"""Functions of SQLite that tell addresses, files or how it was built, make long texts, or no sense here."""


def rows(history: History, sql: str) -> list[tuple]:
    with query(history.database, sql, run_id=history.run_id) as answer:
        return [tuple(row) for row in answer.rows]


def asked(store: Store, sql: str, limits: Limits = PERSON) -> list[tuple]:
    with closing(Database(store.url)) as database, query(database, sql, limits=limits) as answer:
        return list(answer.rows)


def test_a_query_reads_the_memory_as_of_every_round(history: History) -> None:
    assert rows(
        history, "SELECT round, failures, epsilon_committed FROM v_round WHERE run_id = :run ORDER BY round"
    ) == [
        (1, 4, "1/3"),
        (2, 5, "2/7"),
        (3, 5, "2/7"),
        (4, 3, "2/5"),
    ]
    history_of_c2 = "SELECT round, state, frequency FROM v_cause_history WHERE cause_id = 'c2' ORDER BY round"
    assert rows(history, history_of_c2) == [
        (1, "active", 1),
        (2, "active", 3),
        (3, "active", 3),
        (4, "mastered", 0),
    ]


def test_percent_signs_and_casts_mean_themselves(history: History) -> None:
    assert rows(history, "SELECT count(*) FROM v_cause WHERE description LIKE '%minus%'") == [(1,)]
    assert rows(history, "SELECT CAST('7' AS integer) % 4") == [(3,)]


@pytest.mark.parametrize("sql", WRITES)
def test_the_database_refuses_to_write(history: History, sql: str) -> None:
    before = rows(history, "SELECT count(*) FROM cause")
    with pytest.raises(ConfigError, match="the database refuses it") as refused:
        rows(history, sql)
    assert "no rows" not in str(refused.value), "the database said so, nobody else"
    assert rows(history, "SELECT count(*) FROM cause") == before
    assert history.state(history.end).round == 4


@pytest.mark.parametrize(
    "sql", ["ATTACH 'other.db' AS o", "VACUUM INTO 'copy.db'", "PRAGMA query_only = OFF"]
)
def test_sqlite_makes_no_other_file_and_stays_read_only(
    played_sqlite, sql: str, tmp_path, monkeypatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError):
        asked(played_sqlite, sql)
    assert list(tmp_path.iterdir()) == []


def test_the_documented_views_are_those_of_the_database(history: History) -> None:
    columns = view_columns(history.database)
    assert columns.keys() == ABOUT.keys()
    assert all("run_id" in names for names in columns.values())
    if history.database.dialect == "sqlite":
        found = rows(history, "SELECT name FROM sqlite_master WHERE type = 'view'")
        assert {name for (name,) in found} == ABOUT.keys()


def test_bad_sql_is_the_users_error(history: History) -> None:
    with pytest.raises(ConfigError) as caught:
        rows(history, "SELEC 1")
    assert caught.value.exit_code == 2


def test_a_statement_that_fails_at_a_later_row_is_the_users_error(history: History) -> None:
    # SQLite gives no error for a division by zero, and refuses a bad JSON path; PostgreSQL the division.
    sql = {
        "sqlite": "SELECT json_extract('{}', CASE position WHEN 30 THEN 'bad' ELSE '$' END) FROM v_event",
        "postgresql": "SELECT 1 / (30 - position) FROM v_event",
    }[history.database.dialect]
    with query(history.database, sql) as answer:
        assert next(answer.rows) is not None
        with pytest.raises(ConfigError, match="the database refuses it"):
            list(answer.rows)


def test_rows_are_read_as_they_are_asked_for(history: History) -> None:
    """A billion rows: the first comes, and the statement is given up."""
    endless = (
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000000) SELECT i FROM n"
    )
    if history.database.dialect == "postgresql":  # it makes a recursion whole before it gives the first row
        endless = "SELECT a.position FROM v_event a, v_event b, v_event c, v_event d"
    with query(history.database, endless) as answer:
        assert [next(answer.rows)[0] for _ in range(3)] == (
            [1, 2, 3] if "RECURSIVE" in endless else [1, 1, 1]
        )


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT fts3_tokenizer('simple')",
        "SELECT load_extension('other')",
        "SELECT randomblob(1000000000)",
        "SELECT zeroblob(1000000000)",
        "SELECT sqlite_compileoption_get(1)",
        "SELECT sqlite_source_id()",
        "SELECT FTS3_Tokenizer('simple')",
        "SELECT * FROM (SELECT 1) WHERE hex(fts3_tokenizer('simple')) = ''",
    ],
)
def test_sqlite_calls_no_function_but_those_that_compute(played_sqlite: Store, sql: str) -> None:
    with pytest.raises(ConfigError, match="is not a function that a query may call"):
        asked(played_sqlite, sql)


def test_every_function_of_this_sqlite_is_known_to_compute_or_is_refused() -> None:
    """A newer SQLite may bring others: whoever meets one here decides."""
    present = {
        name for (name,) in sqlite3.connect(":memory:").execute("SELECT name FROM pragma_function_list")
    }
    assert {name for name in present if not name.startswith("jsonb")} - FUNCTIONS <= set(REFUSED.split())


def test_a_query_counts_folds_and_reads_json(played_sqlite: Store) -> None:
    sql = (
        "SELECT count(*), max(round), json_extract('{\"a\": [7]}', '$.a[0]'), '{\"a\": 1}' ->> 'a',"
        " sum(sum(round)) OVER (), upper('a') LIKE 'A', date('2026-11-23', '+1 day') FROM v_round"
    )
    assert asked(played_sqlite, sql) == [(4, 4, 7, 1, 10, 1, "2026-11-24")]


@pytest.mark.parametrize(
    "sql",
    [
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n",
        "SELECT count(*) FROM v_event a, v_event b, v_event c, v_event d, v_event e, v_event f",
        "SELECT max(hex(a.payload || b.payload)) FROM v_event a, v_event b, v_event c, v_event d, v_event e",
    ],
)
def test_sqlite_ends_a_statement_with_its_seconds(played_sqlite: Store, sql: str) -> None:
    began = time.process_time()
    with pytest.raises(ConfigError, match=r"took more than 0\.2 s and was ended"):
        asked(played_sqlite, sql, Limits(seconds=0.2, length=AGENT.length))
    assert time.process_time() - began < 5


def test_time_in_which_rows_wait_for_their_reader_is_not_the_statements(
    played_sqlite: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    clock = SimpleNamespace(monotonic=lambda: now)
    monkeypatch.setattr("diagevo.memory.audit.query_limits.time", clock)
    database = Database(played_sqlite.url)
    with query(
        database,
        "SELECT position FROM v_event ORDER BY position LIMIT 3",
        limits=Limits(seconds=1, length=1_000_000),
    ) as answer:
        assert next(answer.rows) == (1,)
        now += 1.1
        assert list(answer.rows) == [(2,), (3,)]
    database.close()


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT replace(printf('%.*c', 1000000, 'x'), 'x', 'xx')", "too big"),
        ("SELECT '" + "x" * 100_000 + "'", "too large"),
        ("SELECT 'a' LIKE '" + "%" * 1_001 + "'", "pattern too complex"),
        ("WITH RECURSIVE n(t) AS (SELECT 'x' UNION ALL SELECT t || t FROM n) SELECT t FROM n", "too big"),
    ],
)
def test_sqlite_makes_nothing_endlessly_long(played_sqlite: Store, sql: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        asked(played_sqlite, sql, AGENT)


def test_a_damaged_page_under_a_query_is_the_files_fault_and_not_the_statements(
    mine: Store, database: Database
) -> None:
    with database.read() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        size = connection.exec_driver_sql("PRAGMA page_size").scalar_one()
        page = connection.exec_driver_sql(
            "SELECT rootpage FROM sqlite_master WHERE name = 'event'"
        ).scalar_one()
    database.close()
    with (mine.root / "log.db").open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    with pytest.raises(DamagedError, match="malformed"):  # at the statement, or at the first row
        asked(mine, "SELECT * FROM event")
