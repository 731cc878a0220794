"""One writer a run: who holds its lock, how it ends with its process, and what a lost one costs."""

import errno
import fcntl
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from diagevo.errors import HeldError, StaleWriterError, StoreError
from diagevo.memory.log.writer_lock import NAME, acquire, writer
from tests.contracts.databases import PostgresStores, SQLiteStores, Store
from tests.memory.play import candidate

HOLD = """
import os, pathlib, subprocess, sys, diagevo
memory = diagevo.open(sys.argv[1], run="a", root=pathlib.Path(sys.argv[2]))
memory.open_round(1)
"""
WAIT = """
print("held", flush=True)
sys.stdin.read()
"""


@contextmanager
def _program(store: Store, code: str = HOLD + WAIT, *prefix: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds run `a`, from the moment that this yields."""
    process = subprocess.Popen(
        [*prefix, sys.executable, "-c", code, store.url, str(store.root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "held\n":
            raise AssertionError(process.communicate()[1])
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _kill(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()


def _score(store: Store) -> None:
    with store.open() as memory:
        memory.score([candidate("r1.q0")])


def _writer(store: Store, run: str = "a") -> str | None:
    with store.log() as log:
        return writer(log.database, run, store.root / run)


def test_a_second_writer_is_refused_and_told_who_holds_the_run_until_that_one_is_killed(store: Store) -> None:
    with _program(store) as holder, store.open() as memory:
        name = f"diagevo {holder.pid} on {os.uname().nodename}"[:63]
        assert memory.state.open is not None, "reading needs no lock"
        assert _writer(store) == name
        with pytest.raises(HeldError) as refused:
            memory.score([candidate("r1.q0")])
        assert re.fullmatch(f"run a is being written by {name}, since 20[-: 0-9]+ UTC", refused.value.message)
        assert (refused.value.exit_code, refused.value.hint) == (5, "stop it first, or name another run")
        with store.open("b") as other:
            other.open_round(1)
        _kill(holder)
        memory.score([candidate("r1.q0")])
        assert _writer(store) == f"diagevo {os.getpid()} on {os.uname().nodename}"[:63]
    assert _writer(store) is None
    assert _writer(store, "none") is None


def test_two_memories_of_one_process_exclude_each_other_in_any_thread(store: Store) -> None:
    told: list[BaseException | None] = []

    def write() -> None:
        try:
            _score(store)
        except HeldError as refused:
            told.append(refused)

    def run_in_a_thread() -> None:
        thread = threading.Thread(target=write)
        thread.start()
        thread.join()

    with store.open() as first:
        first.open_round(1)
        run_in_a_thread()
        [refused] = told
        assert isinstance(refused, HeldError)
        assert f"diagevo {os.getpid()} on " in refused.message
        assert (refused.hint or "").startswith("close the other Memory first")
    run_in_a_thread()
    assert len(told) == 1, "it was given back"
    with store.log() as log:
        assert log.count("a", "CandidateScored") == 1


FORKED = """
if os.fork() == 0:
    try:
        memory.score([])
    except diagevo.errors.HeldError as refused:
        assert f"diagevo {os.getppid()} on " in refused.message
        print("held", flush=True)
    sys.stdin.read()
    os._exit(0)
sys.stdin.read()
"""
EXECUTED = """
subprocess.Popen(["sh", "-c", "echo held; cat"], close_fds=False)
sys.stdin.read()
"""


@pytest.mark.slow
@pytest.mark.parametrize("child", [FORKED, EXECUTED], ids=["forked", "executed"])
def test_a_child_that_outlives_the_writer_holds_nothing(store: Store, child: str) -> None:
    code = f"{HOLD}\nimport diagevo.errors\n{child}"
    with _program(store, code) as holder:
        with pytest.raises(HeldError):
            _score(store)
        _kill(holder)
        os.killpg(holder.pid, 0)  # the child lives
        _score(store)


@pytest.mark.slow
def test_a_child_that_ends_first_takes_nothing_from_the_writer(store: Store) -> None:
    """Its connection to the server is the writer's, and Python closes what it has at its end."""
    code = f"""{HOLD}
if os.fork() == 0:
    memory._run._held.release()
    del memory
    sys.exit()
os.wait()
{WAIT.replace("read()", "readline()")}
from tests.memory.play import candidate
memory.score([candidate("r1.q0")])
print("scored", flush=True)
sys.stdin.read()
"""
    with _program(store, code) as holder:
        with pytest.raises(HeldError):
            _score(store)
        assert holder.stdin is not None
        assert holder.stdout is not None
        holder.stdin.write("go\n")
        holder.stdin.flush()
        assert holder.stdout.readline() == "scored\n"
        with pytest.raises(HeldError):
            _score(store)


@pytest.mark.slow
def test_a_writer_in_a_container_keeps_its_run_until_it_dies(store: Store) -> None:
    """Its process id is 1 there, and that of another process here; its host name nobody here has."""
    alone = ["unshare", "--pid", "--fork", "--uts", "--kill-child"]
    if os.geteuid() != 0:
        alone += ["--user", "--map-root-user"]
    if (tried := subprocess.run([*alone, "true"], capture_output=True, text=True, check=False)).returncode:
        pytest.skip(f"no namespace of one's own here: {tried.stderr.strip()}")
    code = f"import socket; socket.sethostname('elsewhere')\n{HOLD + WAIT}"
    with _program(store, code, *alone) as holder:
        assert _writer(store) == "diagevo 1 on elsewhere"
        with pytest.raises(HeldError, match="being written by diagevo 1 on elsewhere, since 20"):
            _score(store)
        _kill(holder)
        _score(store)


def test_readers_that_look_all_the_time_refuse_no_writer(in_sqlite: Store) -> None:
    over, looks = threading.Event(), list[str | None]()
    folder = in_sqlite.root / "a"

    def look() -> None:
        while not over.is_set():
            looks.append(writer(log.database, "a", folder))

    with in_sqlite.log() as log:
        threads = [threading.Thread(target=look) for _ in range(3)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(200):
                acquire(log.database, "a", folder).release()
            enough = len(looks) + len(threads) + 1  # one of them began after this
            while len(looks) < enough:
                time.sleep(0.001)
        finally:
            over.set()
            for thread in threads:
                thread.join()
        lock = acquire(log.database, "a", folder)
        name = writer(log.database, "a", folder)
        lock.release()
    assert name == f"diagevo {os.getpid()} on {os.uname().nodename}"[:63]
    unnamed = "a process without a name"  # the moment between the lock and the name in its file
    assert None in looks
    assert set(looks) <= {None, unnamed, name}, "which of them the readers meet is chance"


@pytest.fixture
def in_sqlite(sqlite_stores: SQLiteStores, tmp_path: Path) -> Store:
    return sqlite_stores.new(tmp_path)


@pytest.fixture
def on_postgres(postgres_stores: PostgresStores, tmp_path: Path) -> Store:
    return postgres_stores.new(tmp_path)


def _end_the_session_with_the_lock(store: Store) -> None:
    with store.log() as log, log.database.write() as connection:
        ended = text(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_locks JOIN pg_stat_activity USING (pid)"
            " WHERE locktype = 'advisory' AND datname = current_database()"
        )
        assert connection.execute(ended).scalars().all() == [True]


class TestAWriterWhoseConnectionBroke:
    def test_takes_the_lock_again_where_nobody_came(self, on_postgres: Store) -> None:
        with on_postgres.open() as memory:
            memory.open_round(1)
            _end_the_session_with_the_lock(on_postgres)
            assert _writer(on_postgres) is None
            memory.score([candidate("r1.q0")])
            with pytest.raises(HeldError):
                _score(on_postgres)

    def test_stops_where_somebody_else_has_the_run(self, on_postgres: Store) -> None:
        with on_postgres.open() as memory, on_postgres.open() as heir:
            memory.open_round(1)
            _end_the_session_with_the_lock(on_postgres)
            heir.claim()
            for _ in range(2):
                with pytest.raises(HeldError, match="run a is being written by"):
                    memory.score([candidate("r1.q0")])
            heir.score([candidate("r1.q1")])

    def test_stops_for_good_where_somebody_wrote_and_went(self, on_postgres: Store) -> None:
        with on_postgres.open() as memory:
            memory.open_round(1)
            _end_the_session_with_the_lock(on_postgres)
            with on_postgres.open() as heir:
                heir.score([candidate("r1.q1")])
                with pytest.raises(HeldError):
                    memory.score([candidate("r1.q0")])
            for _ in range(2):
                with pytest.raises(StaleWriterError, match="at sequence 3, this writer expected 2") as stale:
                    memory.score([candidate("r1.q0")])
                assert (stale.value.hint or "").endswith("open the run again")


def _without_locks(number: int) -> Any:
    def flock(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return flock


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_named_and_nothing_is_written(
    in_sqlite: Store, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(fcntl, "flock", _without_locks(number))
    with in_sqlite.open() as memory:
        with pytest.raises(
            StoreError, match=f"{in_sqlite.root / 'a'} is on a file system without locks"
        ) as e:
            memory.open_round(1)
        assert os.strerror(number) in e.value.message
        assert "PostgreSQL" in (e.value.hint or "")
        assert memory.log.last_position() == 0
    assert _writer(in_sqlite) is None


def test_a_lock_that_cannot_be_made_is_named(in_sqlite: Store) -> None:
    (in_sqlite.root / "a" / NAME).mkdir(parents=True)
    with in_sqlite.open() as memory, pytest.raises(StoreError, match=f"a/{NAME} cannot be locked: Is a dir"):
        memory.open_round(1)


def test_what_the_file_says_of_its_holder_is_shown_and_not_believed(in_sqlite: Store) -> None:
    file = in_sqlite.root / "a" / NAME
    file.parent.mkdir()
    file.write_bytes(b"diagevo 1 on \x1b[31mnowhere\n" + b"\xff" * 1000)
    assert _writer(in_sqlite) is None
    with in_sqlite.open() as memory:
        memory.open_round(1)
        file.write_bytes(b"diagevo 1 on \x1b[31mnowhere\n" + b"\xff" * 1000)
        assert _writer(in_sqlite) == "diagevo 1 on ␛[31mnowhere"
        with pytest.raises(HeldError, match="being written by diagevo 1 on ␛"):
            _score(in_sqlite)
