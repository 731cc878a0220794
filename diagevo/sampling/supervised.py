"""A process that diagevo starts, watches and ends: its own group, its output in a file, gone when we are."""

import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from diagevo.private import private, private_folder
from diagevo.sampling.watchdog import GRACE

_PORTS = range(20_000, 32_768)
_NO_CURRENT_FOLDER = {"PYTHONSAFEPATH": "1"}
"""Python then looks for no module in the current folder. Not -P: launchers start Pythons of their own."""


class SupervisedProcess:
    """`argv` under a watchdog (watchdog.py). Only its own process group is ever signalled."""

    def __init__(self, argv: Sequence[str], *, log: Path, env: Mapping[str, str] | None = None) -> None:
        """Start at once. `env` is added to this process's environment; output is appended to `log`."""
        self.log = log
        private_folder(log.parent)
        with open(log, "ab", opener=private) as output:
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                [sys.executable, "-m", "diagevo.sampling.watchdog", *argv],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **_NO_CURRENT_FOLDER, **(env or {})},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Process id of the watchdog, which is the id of the group."""
        return self._process.pid

    def status(self) -> int | None:
        """None while it runs, else its exit status; -n where signal n ended it."""
        status = self._process.poll()
        return 128 - status if status is not None and status > 128 else status

    def wait(self, timeout: float) -> int | None:
        """As `status`, after at most `timeout` seconds."""
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        return self.status()

    def stop(self) -> None:
        """End the group: SIGTERM, and SIGKILL for what is left after the grace. Nothing if it has ended."""
        if self._process.poll() is None:
            self._signal(signal.SIGTERM)
            self.wait(GRACE)
        # What outlived the command is in its group still; without members the group is gone.
        self._signal(signal.SIGKILL)
        self._process.wait()
        stdin: IO[bytes] | None = self._process.stdin
        if stdin is not None:
            stdin.close()

    def tail(self, lines: int = 15) -> str:
        """The last lines of the log, for an error message."""
        try:
            text = self.log.read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return "\n".join(text.splitlines()[-lines:])

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return


def free_port(host: str) -> int:
    """A port that nobody has, below those that systems give to outgoing connections: one of these might take
    it before it is listened on."""
    for _ in range(100):
        port = _PORTS.start + secrets.randbelow(len(_PORTS))
        with suppress(OSError), socket.create_server((host, port)):
            return port
    with socket.create_server((host, 0)) as listener:
        return listener.getsockname()[1]


def ending(status: int) -> str:
    """An exit status in words."""
    if status >= 0:
        return f"ended with exit status {status}"
    return f"was ended by signal {-status} ({signal.Signals(-status).name})"
