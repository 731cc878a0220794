"""SQL asked of PostgreSQL: one reading, within its time, by a role that may do nothing else."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from diagevo.errors import ConfigError, StoreError
from diagevo.memory.audit.query import query
from diagevo.memory.audit.query_limits import AGENT, Limits
from diagevo.memory.audit.query_postgres import NOT_A_READER, not_a_reader
from diagevo.memory.log.database import Database
from tests.cli.program import invoke
from tests.contracts.databases import Store

BIG = "SELECT 1 AS a, repeat('x', 2000000) AS b UNION ALL SELECT 2, 'y' ORDER BY a DESC"
ENDLESS = "SELECT count(*) FROM v_event a, v_event b, v_event c, v_event d, v_event e, v_event f, v_event g"
EFFECTS = [
    ("SELECT pg_reload_conf()", "permission denied for function pg_reload_conf"),
    ("SELECT pg_switch_wal()", "permission denied for function pg_switch_wal"),
    ("SELECT pg_read_file('/etc/hostname')", "permission denied for function pg_read_file"),
    ("SELECT lo_import('/etc/hostname')", "permission denied for function lo_import"),
    ("SELECT lo_export(1, '{never}')", "permission denied for function lo_export"),
    ("SELECT pg_terminate_backend(pid) FROM pg_stat_activity", "permission denied for function pg_terminate"),
    ("SELECT pg_cancel_backend(1)", "permission denied for function pg_cancel_backend"),
    ("SELECT pg_logical_emit_message(false, 'a', repeat('x', 1000))", "denied for function pg_logical_emit"),
    ("SELECT pg_logical_emit_message(true, 'a', '\\x00'::bytea)", "denied for function pg_logical_emit"),
    ("SELECT usename FROM pg_shadow", "permission denied for view pg_shadow"),
    ("SELECT query_to_xml('SELECT pg_reload_conf()', true, true, '')", "permission denied for function"),
    ("SELECT set_config('transaction_read_only', 'off', false)", "must be set before any query"),
    ("SELECT set_config('role', 'postgres', false)", 'permission denied to set role "postgres"'),
    ("SELECT position FROM log FOR UPDATE", "read-only transaction"),
    ("SELECT nextval('counted')", "permission denied for sequence"),
    ("SELECT 1 INTO made", "the database refuses it"),
]


@pytest.fixture
def ask(played_postgres: Store) -> Callable[..., list[tuple[Any, ...]]]:
    def asked(sql: str, run: str | None = "played") -> list[tuple[Any, ...]]:
        database = Database(played_postgres.reading)
        try:
            with query(database, sql, run_id=run) as answer:
                return list(answer.rows)
        finally:
            database.close()

    return asked


@pytest.mark.parametrize(
    "sql",
    [
        "COPY cause TO PROGRAM 'touch {file}'",
        "COPY cause TO '{file}'",
        "COPY (SELECT 1) TO PROGRAM 'touch {file}'",
        "LOCK TABLE event IN ACCESS EXCLUSIVE MODE",
        "DO $$ BEGIN EXECUTE 'COPY log TO PROGRAM ''touch {file}'''; END $$",
        "CALL nothing()",
        "EXPLAIN ANALYZE SELECT pg_reload_conf()",
        "EXPLAIN SELECT 1",
        "SHOW role",
        "SET ROLE none",
        "SET TRANSACTION READ WRITE",
        "SET default_transaction_read_only = off",
        "COMMIT",
        "RESET ROLE",
        "FETCH diagevo_rows",
        "EXECUTE planned",
        "LISTEN somebody",
        "VACUUM",
        "INSERT INTO log VALUES (2, 2) RETURNING position",
        "WITH gone AS (DELETE FROM cause RETURNING 1) SELECT * FROM gone",
        "DECLARE c CURSOR FOR SELECT 1",
        "SELECT 1; LOCK TABLE event",
        "SELECT",
        "",
        "-- nothing",
    ],
)
def test_what_is_no_single_reading_is_refused(
    ask: Callable[..., Any], sql: str, played_postgres: Store, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as refused:
        ask(sql.format(file=tmp_path / "made"))
    assert refused.value.exit_code == 2
    assert refused.value.message.startswith("the database refuses it: ")
    assert not (tmp_path / "made").exists()
    with psycopg.connect(played_postgres.url) as connection:
        assert connection.execute("SELECT count(*) > 3 FROM cause").fetchone() == (True,)


@pytest.mark.parametrize(("sql", "said"), EFFECTS)
def test_functions_with_effects_are_refused_to_the_role_of_the_docs(
    played_postgres: Store, ask: Callable[..., Any], tmp_path: Path, sql: str, said: str
) -> None:
    with psycopg.connect(played_postgres.url) as connection:
        connection.execute("CREATE SEQUENCE IF NOT EXISTS counted")
    try:
        with pytest.raises(ConfigError, match="the database refuses it") as refused:
            ask(sql.replace("{never}", str(tmp_path / "never")))
    finally:
        with psycopg.connect(played_postgres.url) as connection:
            connection.execute("DROP SEQUENCE counted")
    assert said in refused.value.message
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize("options", ["", "-c role=diagevo_reader"])
def test_nothing_is_run_for_a_superuser_whatever_role_it_has_taken(
    played_postgres: Store, options: str
) -> None:
    url = make_url(played_postgres.url).update_query_dict({"options": options})
    database = Database(url.render_as_string(hide_password=False))
    with (
        pytest.raises(ConfigError, match="is not run for postgres, a superuser") as refused,
        query(database, "SELECT 1"),
    ):
        pass
    assert refused.value.hint == "connect as a role that may only read: docs/howto/postgresql.md"
    database.close()


def test_a_query_leaves_no_session_behind(played_postgres: Store, ask: Callable[..., Any]) -> None:
    assert ask("SELECT count(*) FROM (SELECT pg_advisory_lock(7)) AS locked") == [(1,)]
    with psycopg.connect(played_postgres.url) as connection:
        assert connection.execute("SELECT pg_try_advisory_lock(7)").fetchone() == (True,)


@pytest.mark.parametrize(
    "sql",
    [
        ENDLESS,
        "SELECT pg_sleep(60)",
        "SELECT CASE g WHEN 1 THEN set_config('statement_timeout', '0', true) ELSE pg_sleep(60)::text END"
        " FROM generate_series(1, 2) g",
        "SELECT pg_sleep(0.05) FROM generate_series(1, 100000)",
    ],
)
def test_a_statement_ends_with_its_seconds(played_postgres: Store, sql: str) -> None:
    database = Database(played_postgres.reading)
    began = time.monotonic()
    with (
        pytest.raises(ConfigError, match="took more than 1 s and was ended"),
        query(database, sql, limits=Limits(seconds=1, length=100)) as answer,
    ):
        list(answer.rows)
    assert time.monotonic() - began < 50
    database.close()


def test_a_value_of_a_gigabyte_is_refused_in_its_time(played_postgres: Store) -> None:
    """The server writes the text of such a row for a minute, in which it hears no timeout."""
    database = Database(played_postgres.reading)
    agents = Limits(seconds=AGENT.seconds / 5, length=AGENT.length)
    began = time.monotonic()
    for sql, said in (
        ("SELECT repeat('x', 1000000000)", "took more than 2 s and was ended|a row of 1000000"),
        (
            "SELECT string_agg(x, '') FROM (SELECT repeat('x', 1000000) AS x FROM generate_series(1, 20)) y",
            "a row of 200000",
        ),
        ("SELECT array_agg(1::bigint) FROM generate_series(1, 200000)", None),
    ):
        if said is None:
            with query(database, sql, limits=agents) as answer:
                assert [len(row[0]) for row in answer.rows] == [200_000]
        else:
            with pytest.raises(ConfigError, match=said), query(database, sql, limits=agents) as answer:
                list(answer.rows)
    assert time.monotonic() - began < 20
    database.close()


def test_a_server_that_does_not_hear_its_timeout_is_not_waited_for(played_postgres: Store) -> None:
    database = Database(played_postgres.reading)
    stopped = []

    def stop() -> None:
        with psycopg.connect(played_postgres.url) as superuser:
            asked = "SELECT pid FROM pg_stat_activity WHERE usename = 'diagevo_reader' AND state = 'active'"
            while not stopped:
                stopped.extend(pid for (pid,) in superuser.execute(asked).fetchall())
                superuser.rollback()
        os.kill(stopped[0], signal.SIGSTOP)

    stopper = threading.Thread(target=stop)
    stopper.start()
    began = time.monotonic()
    with (
        pytest.raises(ConfigError, match="took more than 2 s and was ended"),
        query(database, "SELECT pg_sleep(60)", limits=Limits(seconds=2, length=100)) as answer,
    ):
        list(answer.rows)
    took = time.monotonic() - began
    stopper.join()
    os.kill(stopped[0], signal.SIGCONT)
    assert took < 10
    database.close()


@pytest.mark.parametrize(
    ("grant", "reason"),
    [
        ("ALTER ROLE {role} CREATEROLE", "may create roles"),
        ("ALTER ROLE {role} CREATEDB", "may create databases"),
        ("ALTER ROLE {role} REPLICATION", "may replicate"),
        ("ALTER ROLE {role} BYPASSRLS", "may bypass RLS"),
        ("GRANT pg_signal_backend TO {role}", "is a member of pg_signal_backend"),
        ("GRANT INSERT ON event TO {role}", "may write event"),
        ("GRANT UPDATE (state) ON cause TO {role}", "may write cause"),
        ("GRANT CREATE ON SCHEMA public TO {role}", "may create in schema public"),
        (
            "GRANT EXECUTE ON FUNCTION pg_terminate_backend TO {role}",
            "may call pg_terminate_backend(integer,bigint)",
        ),
        (
            "CREATE FUNCTION theirs() RETURNS int LANGUAGE sql SECURITY DEFINER AS 'SELECT 1'",
            "may call theirs()",
        ),
        ("CREATE FUNCTION volatile_one() RETURNS int LANGUAGE sql AS 'SELECT 1'", "may call volatile_one()"),
    ],
)
def test_what_makes_a_role_no_reader_is_named(
    postgres_stores: Any, tmp_path: Path, grant: str, reason: str
) -> None:
    store = postgres_stores.new(tmp_path)
    database = Database(store.reading)
    assert not_a_reader(database) == []
    connection = psycopg.connect(store.url)
    with connection:
        connection.execute(grant.format(role="diagevo_reader").encode())
        connection.execute("SET LOCAL SESSION AUTHORIZATION diagevo_reader")
        found = [name for (name,) in connection.execute(NOT_A_READER.encode()).fetchall() if name]
        connection.rollback()
    assert found == [reason]
    database.close()


def test_an_owner_and_a_superuser_are_no_readers(postgres_stores: Any, tmp_path: Path) -> None:
    store = postgres_stores.new(tmp_path)
    database = Database(store.url)
    reasons = not_a_reader(database)
    assert {"is a superuser", "owns the database", "may write event"} <= set(reasons)
    database.close()


def test_a_literal_that_says_run_is_refused_and_never_read_as_something_else(ask: Callable[..., Any]) -> None:
    assert ask("SELECT :run, 'it''s ' || :run, 7 % 4, '7'::int, 'x::run' /* :run */", "it's") == [
        ("it's", "it's it's", 3, 7, "x::run")
    ]
    with pytest.raises(ConfigError, match="syntax error"):
        ask("SELECT ':run'")


def test_what_json_has_not_is_postgres_own_text(ask: Callable[..., Any]) -> None:
    [row] = ask(
        "SELECT interval '1 month 2 days 3 hours', date 'infinity', timestamp '2026-11-22 04:05:06.5',"
        " 2.50::numeric, 12::numeric, 1e400::numeric, 12345678901234567890::numeric,"
        " decode('00ff', 'hex'), int4range(1, 4), '7d1ba3c4-0000-4000-8000-000000000001'::uuid,"
        " ARRAY[interval '1 day', NULL], ARRAY[[1, 2], [3, 4]], '[1, {\"a\": null}]'::json, true, NULL,"
        " ARRAY['\\x01'::bytea], inet '10.0.0.1', '12:30'::time"
    )
    assert row[:7] == (
        *("1 mon 2 days 03:00:00", "infinity", "2026-11-22 04:05:06.5", 2.5, 12, "1" + 400 * "0"),
        1.2345678901234567e19,
    )
    assert row[7:] == (
        *("00ff", "[1,4)", "7d1ba3c4-0000-4000-8000-000000000001", ["1 day", None], [[1, 2], [3, 4]]),
        *([1, {"a": None}], True, None, ["01"], "10.0.0.1", "12:30:00"),
    )


def test_every_type_prints_as_json(played_postgres: Store) -> None:
    sql = "SELECT interval '1 mon', 'NaN'::numeric, ARRAY['NaN'::float8, 1], 'Infinity'::float8, 0.5::numeric"
    for way in ("json", "jsonl", "csv", "md"):
        done = invoke("memory", "query", sql, "--db", played_postgres.reading, "--format", way)
        assert done.exit_code == 0, done.stderr
        if way == "jsonl":
            assert list(json.loads(done.stdout).values()) == ["1 mon", None, [None, 1.0], None, 0.5]


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_ctrl_c_ends_a_query_that_would_never_end(
    dialect: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    store = request.getfixturevalue("played_sqlite" if dialect == "sqlite" else "played_postgres")
    code = f"""
from diagevo.memory.audit.query_limits import StatementTimer
step = StatementTimer.step
def told(self, execute):
    print("asked", flush=True)
    return step(self, execute)
StatementTimer.step = told
from diagevo.cli.main import app
app(["memory", "query", {ENDLESS!r}, "--db", {store.reading!r}])
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "asked\n"
        try:
            if dialect == "postgresql":
                _wait_until_it_runs(store.url)
            running.send_signal(signal.SIGINT)
            _, said = running.communicate(timeout=60)
        finally:
            running.kill()
    assert running.returncode == 130, said
    assert "Traceback" not in said


def _wait_until_it_runs(url: str) -> None:
    asked = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE state = 'active' AND pid <> pg_backend_pid() AND query LIKE '%diagevo_rows%'"
    )
    with psycopg.connect(url, autocommit=True) as connection:
        while connection.execute(asked).fetchone() != (1,):
            time.sleep(0.01)


def test_a_server_that_goes_in_the_middle_of_a_query_is_lost_and_refuses_nothing(
    played_postgres: Store,
) -> None:
    database = Database(played_postgres.reading)

    def read() -> None:
        with query(database, "SELECT g FROM generate_series(1, 100000) AS g") as answer:
            assert next(answer.rows) == (1,)
            with psycopg.connect(played_postgres.url, autocommit=True) as other:
                other.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
            list(answer.rows)

    with pytest.raises(StoreError, match="was lost in the middle of the query: terminating conn") as lost:
        read()
    assert lost.value.exit_code == 5
    database.close()


def test_a_row_beyond_the_limit_is_refused_and_not_sent(played_postgres: Store) -> None:
    database = Database(played_postgres.reading)
    for tail in ("", ";", " -- a comment", " /* one */ ;"):
        with (
            query(database, BIG + tail, limits=Limits(seconds=9, length=2**20)) as answer,
            pytest.raises(ConfigError, match="a row of 2000004 bytes is longer than 1048576"),
        ):
            list(answer.rows)
    with query(database, BIG, limits=Limits(seconds=9, length=2**22)) as answer:
        assert [len(str(row[1])) for row in answer.rows] == [1, 2_000_000]
    database.close()
