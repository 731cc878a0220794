"""SQL for agents: over which connections it is offered, and that it ends."""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from tests.cli.program import STARTED, clean_environment
from tests.contracts.databases import Store

pytest.importorskip("mcp", reason="diagevo[mcp] is not installed: the tools are not asked")

pytestmark = pytest.mark.slow
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
WITHOUT_STEPS = "SELECT instr(printf('%.*c', 1040000, 'a'), printf('%.*c', 520000, 'a') || 'b')"
"""One call that takes half a minute, and in which SQLite looks at no clock."""


class Session:
    """A client's end of `diagevo mcp`."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process

    def send(self, method: str, **more: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", "method": method, **more}) + "\n")
        self.process.stdin.flush()

    def asked(self, method: str, number: int, **params: Any) -> Any:
        self.send(method, id=number, params=params)
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())["result"]


@contextmanager
def session(url: str) -> Iterator[Session]:
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    command = [*STARTED, "mcp", "--run", "played", "--db", url]
    with subprocess.Popen(command, text=True, env=clean_environment(), **pipes) as process:
        try:
            opened = Session(process)
            opened.asked("initialize", 1, **HELLO)
            opened.send("notifications/initialized")
            yield opened
        finally:
            process.kill()


def _tools(opened: Session) -> set[str]:
    return {tool["name"] for tool in opened.asked("tools/list", 2)["tools"]}


def test_on_postgresql_sql_is_offered_over_a_role_that_reads_alone(played_postgres: Store) -> None:
    with session(played_postgres.reading) as opened:
        assert "query" in _tools(opened)
        sql = {"sql": "SELECT count(*) FROM v_round"}
        told = opened.asked("tools/call", 3, name="query", arguments=sql)
        assert told["structuredContent"]["data"]["untrusted"] == {"rows": [[4]]}
        for sql in (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity",
            "SELECT pg_logical_emit_message(false, 'a', repeat('x', 1000000))",
        ):
            told = opened.asked("tools/call", 4, name="query", arguments={"sql": sql})
            assert told["isError"]
            assert "permission denied for function" in told["content"][0]["text"]
    with session(played_postgres.url) as opened:
        assert _tools(opened) == {"why", "replay", "schedule", "what_if", "diff", "verify"}
        told = opened.asked("tools/call", 3, name="query", arguments={"sql": "SELECT 1"})
        assert told["isError"]
        assert opened.process.stdin is not None
        opened.process.stdin.close()
        assert opened.process.stderr is not None
        said = opened.process.stderr.read()
    assert "the tool query is not offered: this role is a superuser; " in said
    assert "docs/howto/postgresql.md" in said


def test_a_role_that_everybodys_functions_are_left_to_is_offered_none(
    postgres_stores: Any, played_postgres: Store, tmp_path: Any
) -> None:
    copy = postgres_stores.copy(played_postgres, tmp_path)
    with psycopg.connect(copy.url) as connection:
        connection.execute("GRANT EXECUTE ON FUNCTION pg_terminate_backend TO PUBLIC")
    with session(copy.reading) as opened:
        assert "query" not in _tools(opened)


def test_half_a_surrogate_pair_is_answered_with_an_error(played_sqlite: Store) -> None:
    with session(played_sqlite.url) as opened:
        for number, asked in enumerate(
            [
                {"name": "why", "arguments": {"ref": "\ud800"}},
                {"name": "query", "arguments": {"sql": "SELECT '\udfff'"}},
                {"name": "what_if", "arguments": {"drop": ["a", "b\ud83d"]}},
                {"name": "schedule", "arguments": {"\udead": 1}},
            ],
            start=3,
        ):
            opened.send("tools/call", id=number, params=asked)
            assert opened.process.stdout is not None
            told = json.loads(opened.process.stdout.readline())
            assert (told["id"], told["error"]["code"]) == (number, -32602)
            assert "half a surrogate pair" in told["error"]["message"]
        told = opened.asked("tools/call", 9, name="query", arguments={"sql": "SELECT '\U0001f600'"})
        assert told["structuredContent"]["data"]["untrusted"] == {"rows": [["\U0001f600"]]}


def test_the_server_ends_with_its_client_while_a_statement_runs(played_sqlite: Store) -> None:
    with session(played_sqlite.url) as opened:
        opened.asked("tools/list", 2)
        opened.send("tools/call", id=3, params={"name": "query", "arguments": {"sql": WITHOUT_STEPS}})
        time.sleep(1)
        assert opened.process.poll() is None
        assert opened.process.stdin is not None
        opened.process.stdin.close()
        assert opened.process.wait(25) == 0
