"""SQL over the views: it reads, and the database refuses everything else."""

import pytest

from diagevo.errors import ConfigError, DamagedError
from diagevo.memory.audit.history import History
from diagevo.memory.audit.query import VIEWS, query, view_columns
from diagevo.memory.log.database import Database
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


def rows(history: History, sql: str) -> list[tuple]:
    with query(history.database, sql, run_id=history.run_id) as answer:
        return [tuple(row) for row in answer.rows]


def test_a_query_reads_the_memory_as_of_every_round(history: History) -> None:
    assert rows(
        history, "SELECT round, failures, epsilon_next FROM v_round WHERE run_id = :run ORDER BY round"
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
    from diagevo.memory.log.database import Database

    monkeypatch.chdir(tmp_path)
    database = Database(played_sqlite.url)
    with pytest.raises(ConfigError), query(database, sql):
        pass
    assert list(tmp_path.iterdir()) == []
    database.close()


@pytest.mark.parametrize(
    "sql", ["SET TRANSACTION READ WRITE", "COMMIT", "SET default_transaction_read_only = off"]
)
def test_postgres_cannot_be_talked_into_writing(played_postgres, sql: str) -> None:
    from diagevo.memory.log.database import Database

    database = Database(played_postgres.url)
    try:
        with query(database, sql) as answer:
            list(answer.rows)
    except ConfigError:
        pass
    with pytest.raises(ConfigError), query(database, "DELETE FROM cause"):
        pass
    database.close()


def test_the_documented_views_are_those_of_the_database(history: History) -> None:
    columns = view_columns(history.database)
    assert columns.keys() == VIEWS.keys()
    assert all("run_id" in names for names in columns.values())
    if history.database.dialect == "sqlite":
        found = rows(history, "SELECT name FROM sqlite_master WHERE type = 'view'")
        assert {name for (name,) in found} == VIEWS.keys()


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


def test_a_damaged_page_under_a_query_is_the_files_fault_and_not_the_statements(mine: Store) -> None:
    database = Database(mine.url)
    assert database.file is not None
    with database.read() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        size = connection.exec_driver_sql("PRAGMA page_size").scalar_one()
        page = connection.exec_driver_sql(
            "SELECT rootpage FROM sqlite_master WHERE name = 'event'"
        ).scalar_one()
    database.close()
    with database.file.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    with (  # some builds of SQLite find it when the statement begins, some at the first row
        pytest.raises(DamagedError, match="malformed"),
        query(database, "SELECT * FROM event") as answer,
    ):
        list(answer.rows)
