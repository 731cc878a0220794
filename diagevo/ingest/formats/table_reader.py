"""Tables: Parquet files, the Arrow files of a data set, and files saved by torch, a row at a time."""

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from diagevo.errors import ConfigError, extra
from diagevo.ingest.formats.rows import ANOTHER
from diagevo.ingest.json_lines import CutLine, regular

KINDS = {".parquet": "Parquet", ".arrow": "Arrow", ".pt": "torch's file"}


class Columns(msgspec.Struct):
    """The reader's first line about a file."""

    columns: list[str]
    numbers: list[str]


class TableReader:
    """Reads files in a separate process: see `table_rows`."""

    def __init__(self) -> None:
        self._program: subprocess.Popen[bytes] | None = None
        self._reading = False

    def __enter__(self) -> "TableReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def read(self, file: Path, columns: Sequence[str]) -> tuple[Columns, Iterator[bytes]]:
        """The file's columns, and each row's JSON: the requested columns, and all numbers. Raises CutLine if
        the file is incomplete, ConfigError, and MissingDependencyError.
        """
        _whole(file)
        with extra("polars", f"reading {file}"):
            if file.suffix != ".pt" and find_spec("polars") is None:  # the other process imports it
                raise ImportError(name="polars")
        if self._reading:
            self.end()  # its remaining output is about a file that nobody reads any more
        self._reading = True
        lines = self._lines(file, columns)
        return msgspec.json.decode(next(lines), type=Columns), lines

    def _lines(self, file: Path, columns: Sequence[str]) -> Iterator[bytes]:
        """The process's output for the file, up to its end.

        Raises ConfigError if it reports an error or dies.
        """
        program = self._started()
        assert program.stdin is not None
        assert program.stdout is not None
        try:
            program.stdin.write(json.dumps([str(file.absolute()), columns]).encode() + b"\n")
            program.stdin.flush()
        except BrokenPipeError:
            pass  # it has exited, and the next read is empty
        while (line := program.stdout.readline()).endswith(b"\n"):
            if line == b"null\n":
                self._reading = False
                return
            if line.startswith(b"["):
                self._reading = False
                [problem] = msgspec.json.decode(line)
                kind = KINDS[file.suffix]
                raise ConfigError(f"{file} cannot be read as {kind}: {problem}", hint=ANOTHER)
            yield line
        self.end()
        raise ConfigError(
            f"{file} cannot be read: the process that read it ran out of memory or crashed",
            hint="move the file away: it is damaged, or was made to cause this",
        )

    def _started(self) -> subprocess.Popen[bytes]:
        if self._program is None:
            self._program = subprocess.Popen(
                [sys.executable, "-P", "-m", "diagevo.ingest.formats.table_rows"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=os.environ | {"POLARS_MAX_THREADS": "1"},
                start_new_session=True,  # Ctrl-C ends a followed training, not a file in the middle
            )
        return self._program

    def end(self) -> None:
        self._reading = False
        if self._program is not None:
            self._program.kill()
            self._program.communicate()
            self._program = None


def decoded(file: Path, row: int, text: bytes, decoder: msgspec.json.Decoder[Any]) -> Any:
    """A row's value. Raises ConfigError, with file and row."""
    try:
        try:
            return decoder.decode(text)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            return msgspec.convert(json.loads(text), decoder.type)  # NaN is not JSON
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file}, row {row}: {error}", hint=ANOTHER) from error


def _whole(file: Path) -> None:
    """Raises CutLine if a file has no end yet, and ConfigError if it is not of this kind."""
    regular(file)
    if file.suffix == ".arrow":
        return  # its length is stored nowhere
    if file.suffix == ".pt":
        with file.open("rb") as stream:
            if not b"PK\3\4".startswith(stream.read(4)):
                raise ConfigError(f"{file} is not a file in the format that torch saves today", hint=ANOTHER)
        if not zipfile.is_zipfile(file):
            raise CutLine
        return
    with file.open("rb") as stream:
        begins = stream.read(4)
        size = stream.seek(0, 2)
        stream.seek(max(0, size - 4))
        if not b"PAR1".startswith(begins):
            raise ConfigError(f"{file} is not a Parquet file", hint=ANOTHER)
        if size < 12 or stream.read(4) != b"PAR1":
            raise CutLine
