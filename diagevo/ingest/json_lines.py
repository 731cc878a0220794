"""JSON Lines from a trainer, which may still be writing, so the last line may be cut."""

import codecs
import gzip
import json
import re
import stat
import sys
from collections.abc import Callable, Iterator
from functools import cache
from io import BufferedIOBase, BytesIO
from pathlib import Path
from shlex import quote
from typing import Any, TypeVar

import msgspec

from diagevo.errors import ConfigError, extra

_A_ROW = "write one rollout per line, each an object in { }, or name the format"
Wait = Callable[[], bool]
"""Waits for more of a file; False: stop waiting."""
T = TypeVar("T")

LONGEST = 256 * 2**20
"""Maximum bytes of a line. No rollout is longer; a longer line means another kind of file."""


UNPACKED, TIMES = 64 * 2**20, 100
"""Bytes that any compressed file may unpack to, and the maximum ratio. Text compresses to a tenth or so."""


BLANK = 2**20
"""Bytes of empty lines that any file may have; a file with longer rows may have more."""


class CutLine(Exception):
    """The file ends inside a line."""


def regular(file: Path) -> None:
    """Raises ConfigError for anything but a regular file: a folder, a dead link, a pipe without a writer."""
    try:
        mode = file.stat().st_mode
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read: {error}", hint="remove it, or name the files") from error
    if not stat.S_ISREG(mode):
        raise ConfigError(f"{file} is not a regular file", hint="remove it, or name the files")


def rows(file: Path, wait: Wait | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each line's object with its number. Raises as `typed` does."""
    yield from typed(file, dict[str, Any], wait)


def is_whole(file: Path) -> bool:
    """Whether the file is an array, or objects spanning several lines, rather than one object per line."""
    regular(file)
    lines = (line.removeprefix(codecs.BOM_UTF8) for _, _, line in lines_of(file))
    begins = next((line for line in lines if line.strip()), b"")
    if begins.lstrip()[:1] == b"{" and begins.endswith(b"\n"):
        return not _is_object(begins) and _goes_on(begins)
    return begins.lstrip()[:1] == b"["


def _goes_on(begins: bytes) -> bool:
    """Whether a line is an incomplete but valid beginning of JSON."""
    try:
        json.loads(begins)
    except json.JSONDecodeError as error:
        return error.pos >= len(begins.decode().rstrip())
    except (ValueError, RecursionError):
        pass
    return False


def whole(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each object of a file that is an array, or a sequence of objects, numbered from 1. Raises
    ConfigError."""
    size, parts = 0, list[bytes]()
    for _, _, line in lines_of(file):
        size += len(line)
        parts.append(line)
        if size > LONGEST:
            lines = quote(str(file.with_suffix(".lines.jsonl")))
            each = 'if type == "array" then .[] else . end'
            hint = f"write it as JSON Lines: jq -c '{each}' {quote(str(file))} > {lines}"
            raise ConfigError(f"{file} is JSON of more than {LONGEST // 2**20} MiB", hint=hint)
    try:
        found = _values(b"".join(parts).decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file} is not JSON: {error}", hint=_A_ROW) from error
    for number, row in enumerate(found, start=1):
        if not isinstance(row, dict):
            raise ConfigError(f"{file}, row {number} is not an object", hint=_A_ROW)
        yield number, row


_FILLED = re.compile(r"\S")


def _values(text: str) -> list[Any]:
    """The values of an array, or of a sequence."""
    decoder = json.JSONDecoder(object_pairs_hook=_once)
    found: list[Any] = []
    at = 0
    while begins := _FILLED.search(text, at):
        value, at = decoder.raw_decode(text, begins.start())
        found.append(_storable(value))
    return found[0] if len(found) == 1 and isinstance(found[0], list) else found


def typed(file: Path, type_: type[T], wait: Wait | None = None) -> Iterator[tuple[int, T]]:
    """Each line as a value of this type, with its number. With `wait`, waits at the end of the file.

    Raises ConfigError, with file and line, for an invalid value, and CutLine if the file ends inside a line
    and nothing waits.
    """
    decoder = msgspec.json.Decoder(type_)
    for number, _, line in raw(file, wait):
        yield number, decoded(file, number, line, decoder)


def raw(file: Path, wait: Wait | None = None) -> Iterator[tuple[int, int, bytes]]:
    """Each line that is not empty, with its number and where it begins. Raises as `typed` does."""
    regular(file)
    return (
        (number, start, line)
        for number, start, line in lines_of(file, wait, _is_object)
        if not line.isspace()
    )


def lines_of(
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
    stream, grows = _opened(file)
    with stream:
        while True:
            try:
                line = stream.readline(LONGEST + 1)
            except EOFError as error:
                raise CutLine from error
            except Exception as error:  # zlib and Zstandard errors have no common base class
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
                if wait is not None and grows and wait():
                    stream.seek(start)
                    continue
                if b"}\r{" in line:
                    hint = f"write a line feed after each: tr '\\r' '\\n' < {quote(str(file))} > lines.jsonl"
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
                if number == 1 and len(line) > 3 and not any(line[1::2]):
                    what = f"{file} is UTF-16 without the mark that says so"
                    raise ConfigError(what, hint=_as_utf8(file, "UTF-16LE"))
                _utf8(file, number, line)
            yield number, start, line
            start += len(line)


def _utf8(file: Path, number: int, text: bytes) -> None:
    """Raises ConfigError, with file and line, for bytes that are not text."""
    if text.isascii():
        return
    try:
        text.decode()
    except UnicodeDecodeError as error:
        line = number + text.count(b"\n", 0, error.start)
        byte = error.start - text.rfind(b"\n", 0, error.start)
        raise ConfigError(
            f"{file}, line {line} is not UTF-8: byte {byte} of it is {text[error.start]:#04x}",
            hint=_as_utf8(file, _encoding(text)),
        ) from error


def _as_utf8(file: Path, encoding: str) -> str:
    """How to convert a file in this encoding, or an unknown one, to UTF-8."""
    known = {"CP1252": " (CP1252 is what Excel writes in Western Europe)", _UNKNOWN: _EXAMPLES}.get(
        encoding, ""
    )
    unpack = {".gz": "gzip -dc", ".zst": "zstd -dc"}.get(file.suffix, "cat")
    new = file.with_name(f"utf8-{file.name.removesuffix('.gz').removesuffix('.zst')}")
    return (
        f"save it as UTF-8{known}: {unpack} {quote(str(file))} | iconv -f {encoding} -t UTF-8"
        f" > {quote(str(new))}"
    )


def _encoding(text: bytes) -> str:
    marked = next((name.upper() for mark, name in _MARKS.items() if text.startswith(mark)), None)
    western = not text.translate(None, _IN_CP1252) and not _WORD_BEYOND.search(text)
    return marked or ("CP1252" if western else _UNKNOWN)


_UNKNOWN = "ENCODING"
_EXAMPLES = (
    " (ENCODING: CP1251 for Cyrillic, CP1253 for Greek, GB18030 for Chinese, SHIFT_JIS for Japanese, …)"
)
_WORD_BEYOND = re.compile(rb"[\x80-\xff]{4}")
"""In a Western language, non-ASCII letters are isolated; in Cyrillic or Chinese they form words."""
_IN_CP1252 = bytes(set(range(256)) - {0x81, 0x8D, 0x8F, 0x90, 0x9D})
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",  # before UTF-16, because it begins with the same mark
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
"""Marks of encodings other than UTF-8: Excel's “Unicode text”
and PowerShell's `>`."""


_NO_TEXT = {
    b"PK\3\4": ("a workbook or another ZIP archive", "save the sheet as CSV, or unzip {file}"),
    b"\xd0\xcf\x11\xe0": ("a workbook of an old Excel", "save the sheet as CSV"),
    b"\x1f\x8b": ("packed by gzip", "mv {file} {file}.gz"),
    b"\x28\xb5\x2f\xfd": ("packed by Zstandard", "mv {file} {file}.zst"),
    b"BZh": ("packed by bzip2", "bunzip2 -k {file}"),
    b"\xfd7zXZ": ("packed by xz", "unxz -k {file}"),
    b"PAR1": ("Parquet", "mv {file} {file}.parquet"),
    b"ARROW1": ("Arrow, or Feather", "mv {file} {file}.arrow"),
    b"\x80\4\x95": ("a pickle", "write it as JSON lines: frame.to_json(NAME, orient='records', lines=True)"),
    b"\x80\5\x95": ("a pickle", "write it as JSON lines: frame.to_json(NAME, orient='records', lines=True)"),
    b"SQLite format 3\0": ("a database", "sqlite3 -header -csv {file} 'SELECT * FROM TABLE' > rows.csv"),
}
"""Magic bytes of files that are not text, what each is, and how to make it readable."""


def _opened(file: Path) -> tuple[BufferedIOBase, bool]:
    """The file's bytes in UTF-8, and whether more may follow. Raises ConfigError, and
    MissingDependencyError if nothing here can unpack it."""
    if file.suffix == ".gz":
        return gzip.open(file, "rb"), False
    if file.suffix != ".zst":
        stream = file.open("rb")
        begins = stream.read(16)
        if known := next((known for mark, known in _NO_TEXT.items() if begins.startswith(mark)), None):
            stream.close()
            raise ConfigError(f"{file} is {known[0]}", hint=known[1].format(file=quote(str(file))))
        encoding = next((name for mark, name in _MARKS.items() if begins.startswith(mark)), None)
        stream.seek(0)
        if encoding is None:
            return stream, True
        with stream:
            text = stream.read(LONGEST + 1)
        if len(text) > LONGEST:
            what = f"{file} is {encoding.upper()} of more than {LONGEST // 2**20} MiB"
            raise ConfigError(what, hint=_as_utf8(file, encoding.upper()))
        try:
            return BytesIO(text.decode(encoding).encode()), False
        except ValueError as error:
            what = f"{file} begins as {encoding.upper()}, and is not: {error}"
            raise ConfigError(what, hint="let its writer end, or save it as UTF-8") from error
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        with extra("zst", f"reading {file}"):
            from backports import zstd
    return zstd.open(file, "rb"), False


def decoded(file: Path, number: int, line: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """A line's value. Raises ConfigError, with file and line, also if an object has a duplicate key."""
    place = f"{file}, line {number}"
    try:
        value = decoder.decode(line)
        if not _may_repeat(line, value):
            return value
    except msgspec.ValidationError as error:
        if "out of range" not in str(error):  # 1e999, which is infinite
            raise ConfigError(f"{place}: {error}", hint=_fields(line, decoder.type, error)) from error
    except (msgspec.DecodeError, RecursionError):
        pass  # Python's writer emits NaN, which is not JSON
    try:
        found = loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ConfigError(f"{place} is not JSON: {error}", hint=_A_ROW) from error
    except ValueError as error:
        raise ConfigError(f"{place}: {error}", hint="write each key once, and text as UTF-8") from error
    try:
        return msgspec.convert(found, decoder.type)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{place}: {error}", hint=_fields(line, decoder.type, error)) from error


_UNUSUAL = re.compile(rb'\\u00[2-7]|\\\\":|"[ \t]+:')
"""An escaped ASCII letter, a backslash at the end of a name, a space before a colon."""


def _may_repeat(line: bytes, value: Any) -> bool:
    """Whether an object of the line may have a duplicate key, of which a decoder silently takes the last."""
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


def loads(line: bytes) -> Any:
    """The value. Raises ValueError for a duplicate key in an object, and for half a surrogate pair."""
    return _storable(json.loads(line, object_pairs_hook=_once))


def _storable(value: Any) -> Any:
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


def _fields(line: bytes, type_: Any, error: Exception) -> str:
    """The row's fields, and what to name if the reward is missing or not a number."""
    try:
        row = loads(line)
    except (ValueError, RecursionError):
        return _A_ROW
    if not isinstance(row, dict):
        return _A_ROW
    known = ", ".join(sorted(row))[:200] or "none"
    named = zip(
        getattr(type_, "__struct_fields__", ()), getattr(type_, "__struct_encode_fields__", ()), strict=True
    )
    rewards = [name for field, name in named if field.startswith(("reward", "part"))]
    if any(f"`{name}`" in str(error) or f"$.{name}" in str(error) for name in rewards):
        return f"its fields: {known}; name the reward with --reward FIELD, or the format that wrote it"
    return (
        f"its fields: {known}; name the format that wrote it, or read it as rows of your own:"
        " diagevo ingest jsonl PATH --map prompt=FIELD,response=FIELD,reward=FIELD"
    )


def _is_object(line: bytes) -> bool:
    """Whether this is a complete object, as a last line without its newline must be."""
    try:
        return isinstance(msgspec.json.decode(line), dict)
    except (ValueError, RecursionError):
        pass
    try:
        return isinstance(loads(line), dict)
    except (ValueError, RecursionError):
        return False
