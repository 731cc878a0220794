"""SQL asked of PostgreSQL: what would be done by running it is refused before it runs."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import make_url

from diagevo.errors import ConfigError, StoreError
from diagevo.memory.audit.query import query
from diagevo.memory.audit.query_postgres import with_parameter
from diagevo.memory.log.check import check
from diagevo.memory.log.database import Database
from diagevo.memory.log.migrate import upgrade
from tests.cli.program import invoke
from tests.contracts.databases import Store

ENDLESS = "SELECT count(*) FROM v_event a, v_event b, v_event c, v_event d, v_event e, v_event f, v_event g"
EFFECTS = [
    ("SELECT pg_reload_conf()", "permission denied for function pg_reload_conf"),
    ("SELECT pg_switch_wal()", "permission denied for function pg_switch_wal"),
    ("SELECT pg_read_file('/etc/hostname')", "permission denied for function pg_read_file"),
    ("SELECT lo_import('/etc/hostname')", "permission denied for function lo_import"),
    ("SELECT lo_export(1, '{never}')", "permission denied for function lo_export"),
    ("SELECT pg_terminate_backend(pid) FROM pg_stat_activity", "permission denied to terminate process"),
    ("SELECT usename FROM pg_shadow", "permission denied for view pg_shadow"),
    ("SELECT query_to_xml('SELECT pg_reload_conf()', true, true, '')", "permission denied for function"),
    ("SELECT set_config('role', 'none', false)", 'cannot set parameter "role"'),
    ("SELECT set_config('session_authorization', 'default', false)", 'cannot set parameter "session_auth'),
    ("SELECT set_config('transaction_read_only', 'off', false)", "must be set before any query"),
    (
        "SELECT set_config('role', 'none', true), query_to_xml('SELECT pg_reload_conf()', true, true, '')",
        'cannot set parameter "role"',
    ),
    ("SELECT position FROM log FOR UPDATE", "read-only transaction"),
    ("SELECT 1 INTO made", "only SELECT, VALUES, TABLE and WITH are run"),
]


@pytest.fixture
def ask(played_postgres: Store) -> Callable[..., list[tuple[Any, ...]]]:
    def asked(sql: str, run: str | None = "played") -> list[tuple[Any, ...]]:
        database = Database(played_postgres.url)
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
def test_what_is_no_single_reading_is_refused_and_not_run(
    ask: Callable[..., Any], sql: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = []
    execute = psycopg.Cursor.execute
    monkeypatch.setattr(psycopg.Cursor, "execute", lambda *a, **k: ran.append(a[1]) or execute(*a, **k))
    with pytest.raises(ConfigError, match="the database refuses it") as refused:
        ask(sql.format(file=tmp_path / "made"))
    assert refused.value.exit_code == 2
    assert not any("diagevo_open" in str(statement) for statement in ran)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize(("sql", "said"), EFFECTS)
def test_functions_with_effects_are_refused_to_a_superuser_too(
    played_postgres: Store, ask: Callable[..., Any], tmp_path: Path, sql: str, said: str
) -> None:
    with psycopg.connect(played_postgres.url) as connection:
        assert connection.execute(
            "SELECT rolsuper FROM pg_roles WHERE rolname = current_user"
        ).fetchone() == (True,)
    with pytest.raises(ConfigError, match="the database refuses it") as refused:
        ask(sql.replace("{never}", str(tmp_path / "never")))
    assert said in refused.value.message
    assert not (tmp_path / "never").exists()


def test_a_query_is_the_reading_roles_and_leaves_no_session_behind(
    played_postgres: Store, ask: Callable[..., Any]
) -> None:
    assert ask("SELECT current_user::text") == [("diagevo_reader",)]
    assert ask("SELECT count(*) FROM (SELECT pg_advisory_lock(7)) AS locked") == [(1,)]
    with psycopg.connect(played_postgres.url) as connection:
        assert connection.execute("SELECT pg_try_advisory_lock(7)").fetchone() == (True,)


@pytest.mark.parametrize(
    ("sql", "meant"),
    [
        ("run = :run", "run = $1"),
        ("':run'", "':run'"),
        ("'it''s :run' || :run", "'it''s :run' || $1"),
        (r"E'it\'s :run' || :run", r"E'it\'s :run' || $1"),
        (r"note'a\' || :run", r"note'a\' || $1"),
        ('":run" = :run', '":run" = $1'),
        ("$$ :run $$, $a$ $$ :run $a$, :run", "$$ :run $$, $a$ $$ :run $a$, $1"),
        ("a$b$c = :run", "a$b$c = $1"),
        ("1 -- :run\n, :run", "1 -- :run\n, $1"),
        ("/* a /* :run */ :run */ :run", "/* a /* :run */ :run */ $1"),
        ("x::run, :runs, x1:run", "x::run, :runs, x1$1"),
        ("/* :run", "/* :run"),
    ],
)
def test_run_is_a_parameter_only_outside_of_literals_names_casts_and_comments(sql: str, meant: str) -> None:
    assert with_parameter(sql) == meant


def test_a_literal_that_says_run_is_read_as_it_stands(ask: Callable[..., Any]) -> None:
    assert ask("""SELECT ':run', :run, $x$:run$x$, 7 % 4 AS ":run" /* :run */""") == [
        (":run", "played", ":run", 3)
    ]


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
        done = invoke("memory", "query", sql, "--db", played_postgres.url, "--format", way)
        assert done.exit_code == 0, done.stderr
        if way == "jsonl":
            assert list(json.loads(done.stdout).values()) == ["1 mon", None, [None, 1.0], None, 0.5]


def test_who_may_not_make_roles_is_told_so_and_mends_it_once_a_member(postgres_stores: Any) -> None:
    url = make_url(postgres_stores.empty())
    administrator = psycopg.connect(url.render_as_string(hide_password=False), autocommit=True)
    administrator.execute("CREATE ROLE plain LOGIN")
    administrator.execute(f"ALTER DATABASE {url.database} OWNER TO plain".encode())
    database = Database(url.set(username="plain").render_as_string(hide_password=False))

    def reader() -> tuple[bool, str, str]:
        [finding] = [finding for finding in check(database) if finding.check == "reader"]
        with query(database, "SELECT current_user::text") as answer:
            return finding.ok, finding.detail, next(answer.rows)[0]

    upgrade(database)
    ok, told, user = reader()
    assert (ok, user) == (True, "plain")
    assert told.startswith("a query's rights are those of plain; to make diagevo_reader: diagevo db upgrade")
    with pytest.raises(ConfigError, match="permission denied"), query(database, "SELECT pg_reload_conf()"):
        pass
    administrator.execute("GRANT diagevo_reader TO plain")
    administrator.close()
    upgrade(database)
    assert reader() == (True, "queries run as diagevo_reader, which can only read", "diagevo_reader")
    database.close()


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql"])
def test_ctrl_c_ends_a_query_that_would_never_end(
    dialect: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    store = request.getfixturevalue("played_sqlite" if dialect == "sqlite" else "played_postgres")
    code = f"""
import sqlite3, sys
from diagevo.memory.audit import query
begun = query.executed
def told(execute, failure):
    print("asked", flush=True)
    return begun(execute, failure)
query.executed = told
if {dialect!r} == "postgresql":
    from diagevo.memory.audit import query_postgres
    query_postgres.executed = told
from diagevo.cli.main import app
app(["memory", "query", {ENDLESS!r}, "--db", {store.url!r}])
"""
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "asked\n"
        if dialect == "postgresql":
            _wait_until_it_runs(store.url)
        running.send_signal(signal.SIGINT)
        try:
            _, said = running.communicate(timeout=60)
        finally:
            running.kill()
    assert running.returncode == 130, said
    assert "Traceback" not in said


def test_ctrl_c_inside_the_driver_is_no_bug_and_leaves_nothing_running(
    played_postgres: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """psycopg cannot go on with an answer if the signal came while it was reading it."""
    execute, wait = psycopg.Cursor.execute, psycopg.Connection.wait
    waiting: list[str] = []

    def executing(self: Any, statement: Any, *rest: Any, **named: Any) -> Any:
        if isinstance(statement, bytes) and b"diagevo_page" in statement:
            waiting.append("for its page")
        return execute(self, statement, *rest, **named)

    def interrupted(self: Any, reading: Any, *rest: Any, **named: Any) -> Any:
        if not waiting:
            return wait(self, reading, *rest, **named)
        waiting.clear()
        next(reading)
        _wait_until_it_runs(played_postgres.url)
        reading.close()
        raise KeyboardInterrupt

    monkeypatch.setattr(psycopg.Cursor, "execute", executing)
    monkeypatch.setattr(psycopg.Connection, "wait", interrupted)
    database = Database(played_postgres.url)
    with pytest.raises(KeyboardInterrupt), query(database, ENDLESS):
        pass
    database.close()
    _wait_until_it_runs(played_postgres.url, running=0)


def _wait_until_it_runs(url: str, running: int = 1) -> None:
    asked = (
        "SELECT count(*) FROM pg_stat_activity"
        " WHERE state = 'active' AND pid <> pg_backend_pid() AND query LIKE '%diagevo_page%'"
    )
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(100_000):
            if connection.execute(asked).fetchone() == (running,):
                return
    pytest.fail("it never began" if running else "it never ended")


def test_a_server_that_goes_in_the_middle_of_a_query_is_lost_and_refuses_nothing(
    played_postgres: Store,
) -> None:
    database = Database(played_postgres.url)

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
