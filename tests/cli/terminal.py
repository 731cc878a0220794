"""Run a program on a terminal of its own, as a person would."""

import os
import pty
import struct
import subprocess
import termios
from collections.abc import Mapping
from fcntl import ioctl
from pathlib import Path

from tests.cli.program import clean_environment


def on_terminal(
    argv: list[str], *, cwd: Path, env: Mapping[str, str] | None = None, columns: int = 140, rows: int = 50
) -> tuple[str, int]:
    """What the terminal got, stdout and stderr together, and the exit code."""
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    environment = clean_environment()
    for name in ("NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "PAGER", "LESS"):
        environment.pop(name, None)
    environment |= {"TERM": "xterm-256color", "PAGER": "cat", **(env or {})}
    process = subprocess.Popen(argv, stdin=slave, stdout=slave, stderr=slave, cwd=cwd, env=environment)
    os.close(slave)
    chunks = []
    try:
        while chunk := os.read(master, 65536):
            chunks.append(chunk)
    except OSError:  # Linux says EIO once the last writer has closed the terminal
        pass
    finally:
        os.close(master)
    return b"".join(chunks).decode(), process.wait()
