"""JSON Lines as a trainer writes them: perhaps still writing, so the last line may be cut."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from diagevo.errors import ConfigError

_A_ROW = "write a rollout a line, each an object in { }, or name the format that it is"
Wait = Callable[[], bool]
"""Waits for more of a file; False: nobody wants to wait any longer."""

LONGEST = 256 * 2**20
"""Bytes of a line. No rollout is longer; what is, is another file."""


class CutLine(Exception):
    """The file ends inside a line."""


def rows(file: Path, wait: Wait | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each line's object with its number. With `wait`, the end of the file is waited at.

    Raises ConfigError, with file and line, for what is no JSON object, and CutLine where the file ends inside
    a line and nobody waits.
    """
    number = 0
    with file.open("rb") as stream:
        while True:
            start = stream.tell()
            line = stream.readline(LONGEST + 1)
            if len(line) > LONGEST:
                raise ConfigError(
                    f"{file}, line {number + 1} is longer than {LONGEST // 2**20} MiB", hint=_A_ROW
                )
            if not line.endswith(b"\n") and (not line or not _is_object(line)):
                if wait is not None and wait():
                    stream.seek(start)
                    continue
                if line:
                    raise CutLine
                return
            number += 1
            if line.strip():
                yield number, _object(file, number, line)


def _decoded(line: bytes) -> Any:
    try:
        return msgspec.json.decode(line)
    except msgspec.DecodeError:
        return json.loads(line)  # Python's writer leaves NaN, which is no JSON


def _is_object(line: bytes) -> bool:
    """Whether this is a whole object: what a last line without its newline must be."""
    try:
        return isinstance(_decoded(line), dict)
    except (ValueError, RecursionError):
        return False


def _object(file: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = _decoded(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file}, line {number} is no JSON: {error}", hint=_A_ROW) from error
    if not isinstance(row, dict):
        raise ConfigError(f"{file}, line {number} is no JSON object, but a {type(row).__name__}", hint=_A_ROW)
    return row
