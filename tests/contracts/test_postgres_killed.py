"""Commands whose session the server ends, at each moment in turn: the command goes on, or says so."""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from diagevo.memory.audit.verify import verify
from tests.cli.program import invoke
from tests.contracts.databases import PostgresServer, PostgresStores, Store
from tests.ingest.conftest import DATA
from tests.memory.audit.played import play

MOMENTS = 6
"""Of a command, spread over all its messages to the server."""
READING = [
    "runs list",
    "runs show",
    "runs diff 1..3",
    "runs export a -o {new}",
    "memory show",
    "memory why c1",
    "memory log",
    "memory replay",
    "memory schedule",
    "memory what-if --k 1",
    "memory verify --deep",
    "memory query 'TABLE v_event'",
    "db status",
    "view --export {new}",
]
WRITING = [
    "memory rename c1 words",
    "runs fork a@2 --name forked",
    "memory rebuild",
    "ingest verl {verl} --run c --steps-per-round 2",
    "diagnose --run b --local",
]


@contextmanager
def ended(url: str, monkeypatch: pytest.MonkeyPatch, at: int | None) -> Iterator[list[int]]:
    """The server ends a session at its message number `at`; the messages are counted."""
    wait, counted = psycopg.Connection.wait, [0]
    with psycopg.connect(url, autocommit=True) as superuser, monkeypatch.context() as patched:

        def waits(self: Any, *arguments: Any, **more: Any) -> Any:
            if self is not superuser:
                counted[0] += 1
                if counted[0] == at:
                    end = "SELECT pg_terminate_backend(%s, 10000)"
                    superuser.execute(end, [self.info.backend_pid])
            return wait(self, *arguments, **more)

        patched.setattr(psycopg.Connection, "wait", waits)
        yield counted


def _called(command: str, store: Store, new: Path) -> Any:
    words = [word.format(new=new, verl=DATA / "verl" / "rollouts") for word in shlex.split(command)]
    run = [] if "--run" in words or command in ("runs list", "db status") else ["--run", "a"]
    url = store.reading if "query" in words else store.url
    return invoke(*words, *run, "--db", url, env={"DIAGEVO_HOME": str(store.root)})


def _moments(messages: int) -> list[int]:
    return sorted({1 + round(n * (messages - 1) / (MOMENTS - 1)) for n in range(MOMENTS)})


@pytest.fixture(scope="module")
def played(postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = PostgresStores(postgres_server).new(tmp_path_factory.mktemp("played"))
    play(store.url, "a", root=store.root)
    assert _called("ingest verl {verl} --run b --steps-per-round 2", store, store.root).exit_code == 0
    return store


@pytest.mark.slow
@pytest.mark.parametrize("command", READING)
def test_a_command_that_reads_is_finished_or_says_that_the_database_is_lost(
    played: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    with ended(played.url, monkeypatch, None) as counted:
        whole = _called(command, played, tmp_path / "whole")
    assert whole.exit_code == 0, whole.output
    for at in _moments(counted[0]):
        with ended(played.url, monkeypatch, at):
            done = _called(command, played, tmp_path / f"{at}")
        assert done.exit_code in (0, 5), (at, counted, done.output)
        if done.exit_code:
            assert "error: the database postgres" in done.stderr, (at, done.stderr)
            assert "FAULT" not in done.output
        elif "{new}" not in command and command != "memory verify --deep":
            assert done.stdout == whole.stdout


@pytest.mark.slow
@pytest.mark.parametrize("command", WRITING)
def test_a_command_that_writes_is_done_when_it_is_started_again(
    played: Store,
    postgres_stores: PostgresStores,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
) -> None:
    def copied(name: str) -> Store:
        (tmp_path / name).mkdir()
        return postgres_stores.copy(played, tmp_path / name)

    store = copied("whole")
    with ended(store.url, monkeypatch, None) as counted:
        whole = _called(command, store, tmp_path / "whole")
    assert whole.exit_code == 0, whole.output
    for at in _moments(counted[0]):
        store = copied(str(at))
        with ended(store.url, monkeypatch, at):
            done = _called(command, store, tmp_path / "new")
        assert done.exit_code in (0, 5), (at, counted, done.output)
        if done.exit_code:
            assert "error: the database postgres" in done.stderr, (at, done.stderr)
            again = _called(command, store, tmp_path / "new")
            assert again.exit_code in (0, 2, 5), (at, again.output)
        with store.log() as log:
            for run in log.runs():
                assert verify(log, run, store.root / run).faults == []
