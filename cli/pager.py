"""What is longer than the screen goes to a pager, as git has it; nothing else does."""

import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from .call import Call

NONE = ([], ["cat"])
"""Pagers that are none."""
_CODE = re.compile(r"\x1b\[[0-9;]*m")


class _Held(io.StringIO):
    """What was printed, until its length is known. It passes for the terminal that it waits for."""

    def __init__(self, terminal: TextIO) -> None:
        super().__init__(newline="")
        self.terminal = terminal

    @property
    def encoding(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]  (StringIO's is fixed)
        return self.terminal.encoding

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.terminal.fileno()


@contextmanager
def paged(call: "Call") -> Iterator[None]:
    """Around a command that only reads: on a terminal what it prints is shown by `DIAGEVO_PAGER`, else
    `PAGER`, else less, where it is longer than the screen. Not with `--no-pager` or `-q`."""
    pager = _command(os.environ.get("DIAGEVO_PAGER", os.environ.get("PAGER", "less")))
    terminal = sys.stdout
    alone = call.quiet or not call.pager or os.environ.get("TERM") == "dumb" or pager in NONE
    if alone or not (terminal.isatty() and sys.stdin is not None and sys.stdin.isatty()):
        yield
        return
    sys.stdout = held = _Held(terminal)
    try:
        yield
    finally:
        sys.stdout = terminal
        text = held.getvalue()
        if not (_is_long(text) and _shown(pager, text, terminal)):
            terminal.write(text)


def _command(text: str) -> list[str]:
    """The words of a pager's command; none where its quotes do not close."""
    with suppress(ValueError):
        return shlex.split(text)
    return []


def _is_long(text: str) -> bool:
    from rich.cells import cell_len

    columns, lines = shutil.get_terminal_size()
    return sum(max(1, -(-cell_len(_CODE.sub("", line)) // columns)) for line in text.splitlines()) >= lines


def _shown(pager: list[str], text: str, terminal: TextIO) -> bool:
    """Whether the pager took it. Only less is known to obey colour codes, and only where it is told to."""
    environment = {"LESS": "FRX", **os.environ}
    if os.path.basename(pager[0]) != "less" or "r" not in environment["LESS"].lower():
        text = _CODE.sub("", text)
    try:
        process = subprocess.Popen(pager, stdin=subprocess.PIPE, env=environment)
    except OSError:
        return False
    assert process.stdin is not None
    with suppress(BrokenPipeError), process.stdin as into:
        into.write(text.encode(terminal.encoding, "backslashreplace"))
    while True:  # Ctrl-C is the pager's: it ends a search, and not the reading
        try:
            process.wait()
        except KeyboardInterrupt:
            continue
        return True
