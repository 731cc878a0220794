"""Run a program on a terminal of its own, as a person would."""

import os
import pty
import struct
import subprocess
import termios
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import redirect_stderr, redirect_stdout
from fcntl import ioctl
from pathlib import Path

import pytest

from tests.cli.program import clean_environment, command


def on_terminal(
    argv: list[str], *, cwd: Path, env: Mapping[str, str] | None = None, columns: int = 140, rows: int = 50
) -> tuple[str, int]:
    """What the terminal got, stdout and stderr together, and the exit code."""
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    environment = clean_environment()
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"):
        environment.pop(name, None)
    environment |= {"TERM": "xterm-256color", **(env or {})}
    process = subprocess.Popen(argv, stdin=slave, stdout=slave, stderr=slave, cwd=cwd, env=environment)
    os.close(slave)
    return _read(master), process.wait()


def shown(*arguments: str, env: Mapping[str, str], columns: int = 140) -> tuple[str, int]:
    """What a terminal gets from a command of ours in this process, and the exit code."""
    master, slave = pty.openpty()
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as reader:
        got = reader.submit(_read, master)
        for name in ("NO_COLOR", "FORCE_COLOR"):
            patch.delenv(name, raising=False)
        size = {"COLUMNS": str(columns), "LINES": "50"}
        for name, value in {"TERM": "xterm-256color", **size, **env}.items():
            patch.setenv(name, value)
        with (
            open(slave, "w", encoding="utf-8") as screen,
            redirect_stdout(screen),
            redirect_stderr(screen),
            pytest.raises(SystemExit) as left,
        ):
            command()(arguments)
        return got.result(), int(left.value.code or 0)


def _read(master: int) -> str:
    chunks = []
    try:
        while chunk := os.read(master, 65536):
            chunks.append(chunk)
    except OSError:  # Linux says EIO once the last writer has closed the terminal
        pass
    finally:
        os.close(master)
    return b"".join(chunks).decode()
