"""Programs that train, forked from a process that has imported what they import (preloaded.py).

A start costs next to nothing in place of eight seconds of CPU. Each has a process, memory and signals of its
own, as if it were started afresh. What is forked so may fork in its turn, from the same process.
"""

import fcntl
import importlib
import io
import multiprocessing
import multiprocessing.forkserver
import os
import signal
import sys
import traceback
from collections.abc import Mapping, Sequence
from contextlib import chdir, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any, Self

ROOT = Path(__file__).parents[1]
SERVER = "FORK_SERVER"
"""Names the file that has its address."""
_forks = multiprocessing.get_context("forkserver")
_forks.set_forkserver_preload(["tests.preloaded"])
_server: Any = multiprocessing.forkserver._forkserver


def server_address() -> str:
    """Of the server that forks for this process, which the first worker of pytest-xdist that asks starts for
    all: it lives as long as the last of them."""
    if not _server._forkserver_address:
        with open(os.environ[SERVER], "a+", encoding="utf-8") as known:
            fcntl.flock(known, fcntl.LOCK_EX)
            known.seek(0)
            if address := known.read():
                use_server(address)
            else:
                with chdir(ROOT):  # what the server imports first is looked for in its folder alone
                    _server.ensure_running()
                known.write(_server._forkserver_address)
    return _server._forkserver_address


def use_server(address: str) -> None:
    """Have another process's server fork for this one, which has started none."""
    _server._forkserver_address = address
    _server.ensure_running = lambda: None
    if _server._forkserver_alive_fd is None:  # It is handed over with each request.
        _server._forkserver_alive_fd = os.open(os.devnull, os.O_RDONLY)


class Forked:
    """`main`, as "module:function", with these arguments and its output in pipes. Used like Popen.

    Somebody has to read both pipes: what finds one full waits. With `into`, an open file, all output goes
    there and nobody has to.
    """

    def __init__(
        self, main: str, arguments: Sequence[str], *, env: Mapping[str, str], into: IO[Any] | None = None
    ) -> None:
        stdout, writes_stdout = _forks.Pipe(duplex=False)
        stderr, writes_stderr = _forks.Pipe(duplex=False)
        if into is not None:
            for end in (writes_stdout, writes_stderr):
                os.dup2(into.fileno(), end.fileno())
        address = server_address()
        self._process = _forks.Process(
            target=_run, args=(main, list(arguments), dict(env), address, writes_stdout, writes_stderr)
        )
        self._process.start()
        self._ended: int | None = None
        writes_stdout.close()
        writes_stderr.close()
        ends = (stdout, stderr)
        self.stdout, self.stderr = (os.fdopen(os.dup(end.fileno()), encoding="utf-8") for end in ends)
        stdout.close()
        stderr.close()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        return self._process.exitcode if self._ended is None else self._ended

    def wait(self, timeout: float | None) -> int:
        if self._ended is None:
            self._process.join(timeout)
        code = self.poll()
        assert code is not None, f"the program runs still after {timeout} s"
        return code

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):  # It has ended since, and the server has reaped it.
            if self.poll() is None:
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stdout.close()
        self.stderr.close()
        if self._ended is None:
            self._process.join()
            self._ended = self._process.exitcode
            self._process.close()


def _run(
    main: str,
    arguments: list[str],
    env: dict[str, str],
    address: str,
    stdout: Connection,
    stderr: Connection,
) -> None:
    assert "tests.preloaded" in sys.modules, "the server has imported nothing: each program would"
    use_server(address)
    for number, end in ((1, stdout), (2, stderr)):
        os.dup2(end.fileno(), number)
        end.close()
    sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", closefd=False), encoding="utf-8")
    sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", closefd=False), encoding="utf-8", line_buffering=True)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["program", *arguments]
    module, _, function = main.partition(":")
    try:
        sys.exit(getattr(importlib.import_module(module), function)())
    except Exception:
        # The interpreter's end would wait for collectives that never come, and end others under a writer.
        traceback.print_exc()
        sys.stdout.flush()
        os._exit(1)
