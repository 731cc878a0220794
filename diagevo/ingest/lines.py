"""JSON Lines as a trainer writes them: perhaps still writing, so the last line may be cut."""

import csv
import gzip
import json
import re
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from io import BufferedIOBase
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from diagevo.errors import ConfigError, extra

_A_ROW = "write one rollout per line, each an object in { }, or name the format"
Wait = Callable[[], bool]
"""Waits for more of a file; False: nobody wants to wait any longer."""
T = TypeVar("T")

LONGEST = 256 * 2**20
"""Bytes of a line. No rollout is longer; what is, is another file."""


UNPACKED, TIMES = 64 * 2**20, 100
"""Bytes that a compressed file may hold anyway, and how many times its size. Text packs to a tenth or so."""


BLANK = 2**20
"""Bytes of empty lines that a file may have anyway; it may have more where its rows are longer."""


class CutLine(Exception):
    """The file ends inside a line."""


def regular(file: Path) -> None:
    """Raises ConfigError for what is no file: a folder, a link to nothing, a pipe that nobody writes to."""
    try:
        mode = file.stat().st_mode
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read: {error}", hint="remove it, or name the files") from error
    if not stat.S_ISREG(mode):
        raise ConfigError(f"{file} is not a regular file", hint="remove it, or name the files")


def rows(file: Path, wait: Wait | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each line's object with its number. Raises as `typed` does."""
    yield from typed(file, dict[str, Any], wait)


def is_array(file: Path) -> bool:
    regular(file)
    with file.open("rb") as stream:
        return stream.read(64).lstrip().startswith(b"[")


def cells(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each row of a CSV file (or TSV, by its name) that begins with the names of its columns, with the line
    that it ends in. Raises ConfigError, with file and line."""
    regular(file)
    csv.field_size_limit(LONGEST)
    texts = (line.decode("utf-8-sig" if number == 1 else "utf-8") for number, _, line in _lines(file))
    delimiter = "\t" if ".tsv" in file.suffixes else ","
    found = csv.reader(texts, strict=True, delimiter=delimiter)
    try:
        names = next(found, [])
        twice = next((name for name, times in Counter(names).items() if times > 1), None)
        if twice is not None or not all(names):
            what = f"two columns {twice}" if twice else "a column without a name"
            raise ConfigError(f"{file} has {what}", hint="name each column once, in the first line")
        for row in found:
            if row and len(row) != len(names):
                raise ConfigError(
                    f"{file}, line {found.line_num} has {len(row)} cells for {len(names)} columns",
                    hint='put a cell that has a comma or a line break in quotes: "a, b"',
                )
            if row:
                yield found.line_num, dict(zip(names, row, strict=True))
    except csv.Error as error:
        hint = "put a cell that has a quote in quotes, and write the quote twice"
        raise ConfigError(f"{file}, line {found.line_num} is not CSV: {error}", hint=hint) from error


def array(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each object of a file that is one JSON array, with its place from 1. Raises ConfigError."""
    regular(file)
    if file.stat().st_size > LONGEST:
        hint = "write it as JSON Lines: jq -c '.[]' FILE > FILE.jsonl"
        raise ConfigError(f"{file} is an array of more than {LONGEST // 2**20} MiB", hint=hint)
    try:
        text = file.read_bytes()
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error}", hint="check that you may read it") from error
    _utf8(file, 1, text)
    try:
        found = _loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file} is not JSON: {error}", hint=_A_ROW) from error
    for number, row in enumerate(found, start=1):
        if not isinstance(row, dict):
            raise ConfigError(f"{file}, row {number} is not an object", hint=_A_ROW)
        yield number, row


def typed(file: Path, type_: type[T], wait: Wait | None = None) -> Iterator[tuple[int, T]]:
    """Each line as a value of this type, with its number. With `wait`, the end of the file is waited at.

    Raises ConfigError, with file and line, for what is no such value, and CutLine where the file ends inside
    a line and nobody waits.
    """
    decoder = msgspec.json.Decoder(type_)
    for number, _, line in raw(file, wait):
        yield number, decoded(file, number, line, decoder)


def raw(file: Path, wait: Wait | None = None) -> Iterator[tuple[int, int, bytes]]:
    """Each line that is not empty, with its number and where it begins. Raises as `typed` does."""
    regular(file)
    return (
        (number, start, line) for number, start, line in _lines(file, wait, _is_object) if not line.isspace()
    )


def _lines(
    file: Path, wait: Wait | None = None, whole: Callable[[bytes], bool] = lambda _: True
) -> Iterator[tuple[int, int, bytes]]:
    """Every line, the last one without its newline if it is `whole`."""
    try:
        yield from _bounded(file, wait, whole)
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error}", hint="check that you may read it") from error


def _bounded(
    file: Path, wait: Wait | None, whole: Callable[[bytes], bool]
) -> Iterator[tuple[int, int, bytes]]:
    number = start = blank = 0
    packed = file.suffix in (".gz", ".zst")
    most = max(UNPACKED, TIMES * file.stat().st_size)
    with _opened(file) as stream:
        while True:
            try:
                line = stream.readline(LONGEST + 1)
            except EOFError as error:
                raise CutLine from error
            except Exception as error:  # zlib and Zstandard have errors of their own, without a common base
                if packed and not isinstance(error, OSError | MemoryError):
                    raise OSError(error) from error
                raise
            if len(line) > LONGEST:
                raise ConfigError(
                    f"{file}, line {number + 1} is longer than {LONGEST // 2**20} MiB", hint=_A_ROW
                )
            if packed and start + len(line) > most:
                raise ConfigError(
                    f"{file}, line {number + 1}: unpacked it is more than {TIMES} times as large",
                    hint="unpack it and name the file that comes out, if you trust it",
                )
            if not line.endswith(b"\n") and (not line or not whole(line)):
                if wait is not None and not packed and wait():
                    stream.seek(start)
                    continue
                if b"}\r{" in line:
                    hint = f"write a line feed after each: tr '\\r' '\\n' < {file.name} > lines.jsonl"
                    raise ConfigError(f"{file}, line {number + 1}: carriage returns end its lines", hint=hint)
                if line:
                    raise CutLine
                return
            number += 1
            if line.isspace():
                blank += len(line)
                if blank > BLANK and 2 * blank > start:
                    raise ConfigError(f"{file}, line {number}: most of it is empty lines", hint=_A_ROW)
            else:
                _utf8(file, number, line)
            yield number, start, line
            start += len(line)


def _utf8(file: Path, number: int, text: bytes) -> None:
    """Raises ConfigError, with file and line, for bytes that are no text."""
    if text.isascii():
        return
    try:
        text.decode()
    except UnicodeDecodeError as error:
        line = number + text.count(b"\n", 0, error.start)
        byte = error.start - text.rfind(b"\n", 0, error.start)
        raise ConfigError(
            f"{file}, line {line} is not UTF-8: byte {byte} of it is {text[error.start]:#04x}",
            hint="write it as UTF-8, for example: iconv --from-code LATIN1 --to-code UTF-8 FILE",
        ) from error


def _opened(file: Path) -> BufferedIOBase:
    """Raises MissingDependencyError where nothing here unpacks it."""
    if file.suffix == ".gz":
        return gzip.open(file, "rb")
    if file.suffix != ".zst":
        return file.open("rb")
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        with extra("zst", f"reading {file}"):
            from backports import zstd
    return zstd.open(file, "rb")


def decoded(file: Path, number: int, line: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """A line's value. Raises ConfigError, with file and line; also where an object has a key twice."""
    place = f"{file}, line {number}"
    try:
        value = decoder.decode(line)
        if not _may_repeat(line, value):
            return value
    except msgspec.ValidationError as error:
        if "out of range" not in str(error):  # 1e999, which is an infinite number
            raise ConfigError(f"{place}: {error}", hint=_fields(line)) from error
    except (msgspec.DecodeError, RecursionError):
        pass  # Python's writer leaves NaN, which is no JSON
    try:
        found = _loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ConfigError(f"{place} is not JSON: {error}", hint=_A_ROW) from error
    except ValueError as error:
        raise ConfigError(f"{place}: {error}", hint="write each key once, and text as UTF-8") from error
    try:
        return msgspec.convert(found, decoder.type)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{place}: {error}", hint=_fields(line)) from error


_UNUSUAL = re.compile(rb'\\u00[2-7]|\\\\":|"[ \t]+:')
"""A letter of ASCII written by its number, a backslash at the end of a name, a space before a colon."""


def _may_repeat(line: bytes, value: Any) -> bool:
    """Whether an object of the line may have a key twice, of which a decoder takes the last in silence."""
    if (b"\\u00" in line or b" :" in line or b"\t:" in line or b'\\\\":' in line) and _UNUSUAL.search(line):
        return True
    if isinstance(value, dict):
        return line.count(b'":') - line.count(b'\\":') > _keys(value)
    for name in _quoted(type(value)):  # noqa: SIM110  (asked of every line)
        if line.count(name) > 1:
            return True
    return False


@cache
def _quoted(type_: type[Any]) -> list[bytes]:
    return [f'"{name}"'.encode() for name in type_.__struct_encode_fields__]


def _keys(value: Any) -> int:
    if isinstance(value, dict):
        return len(value) + sum(_keys(each) for each in value.values() if isinstance(each, dict | list))
    return sum(_keys(each) for each in value if isinstance(each, dict | list))


def _loads(line: bytes) -> Any:
    """The value. Raises ValueError for a key that stands twice in an object, and half a surrogate pair."""
    value = json.loads(line, object_pairs_hook=_once)
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"half a surrogate pair, \\u{ord(error.object[error.start]):x}, is no text"
        ) from None
    return value


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        name = next(name for i, (name, _) in enumerate(pairs) if name in dict(pairs[:i]))
        raise ValueError(f"it has {name} twice")
    return found


def _fields(line: bytes) -> str:
    try:
        row = _loads(line)
    except (ValueError, RecursionError):
        return _A_ROW
    if not isinstance(row, dict):
        return _A_ROW
    known = ", ".join(sorted(row))[:200] or "none"
    return f"its fields: {known}; name the reward with --reward FIELD, or the format that wrote it"


def _is_object(line: bytes) -> bool:
    """Whether this is a whole object: what a last line without its newline must be."""
    try:
        return isinstance(msgspec.json.decode(line), dict)
    except (ValueError, RecursionError):
        pass
    try:
        return isinstance(_loads(line), dict)
    except (ValueError, RecursionError):
        return False
