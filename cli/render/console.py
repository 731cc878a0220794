"""Where everything is printed: JSON documents, finished text, messages, and the sink for rows.

Data goes to stdout, everything else to stderr. Text of models and users is never read as markup, and its
control characters are shown, not obeyed (`diagevo.text.escaping`). Without a terminal there is no ANSI and no
carriage return.
"""

import dataclasses
import os
import stat
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import datetime
from enum import Enum
from fractions import Fraction
from pathlib import Path
from threading import Event, Thread
from typing import IO, TYPE_CHECKING, Any, Literal, NoReturn, Protocol

from diagevo.errors import ConfigError
from diagevo.private import atomic_file, private
from diagevo.text.escaping import json_text, visible
from diagevo.text.redaction import masked

from ..call import CommandContext
from .layout import folded, width

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from rich.console import Console
    from rich.text import Text

SILENCE = 10.0
"""Seconds of silence after which a command reports that it is still running."""
TICK = 0.2
"""Seconds between two checks of the clock."""


def stdout(call: CommandContext) -> "Console":
    return _console(call, sys.stdout)


def stderr(call: CommandContext) -> "Console":
    return _console(call, sys.stderr)


def _console(call: CommandContext, stream: IO[str]) -> "Console":
    from rich.console import Console

    terminal = stream.isatty()
    colour = terminal and not call.no_color and not os.environ.get("NO_COLOR")
    return Console(
        file=stream,
        force_terminal=terminal,
        color_system="auto" if colour else None,
        markup=False,
        highlight=False,
        emoji=False,
        soft_wrap=not terminal,
    )


def say(call: CommandContext, text: str) -> None:
    """Prints a line for the user on stderr; nothing with `-q`. If the reader is gone or the disk is full,
    the work continues silently."""
    if call.quiet:
        return
    try:
        print(folded(visible(masked(text)), width(sys.stderr)), file=sys.stderr, flush=True)
    except OSError:
        silence_stream(sys.stderr)


@contextmanager
def repeating(seconds: float, speak: Callable[[], None]) -> Iterator[None]:
    """Calls `speak` repeatedly in a separate thread."""
    over = Event()

    def speaking() -> None:
        while not over.wait(seconds):
            speak()

    speaker = Thread(target=speaking, daemon=True)
    speaker.start()
    try:
        yield
    finally:
        over.set()
        speaker.join()


class Heartbeat(ExitStack):
    """While a block runs, reports what is under way, and for how long, after every SILENCE seconds
    without output."""

    def __init__(self, call: CommandContext, at: str) -> None:
        super().__init__()
        self.call, self.at = call, at
        self._began = self._spoke = time.monotonic()
        self.enter_context(repeating(TICK, self._beat))

    @property
    def silent(self) -> bool:
        return time.monotonic() - self._spoke >= SILENCE

    def say(self, text: str) -> None:
        self._spoke = time.monotonic()
        say(self.call, text)

    def _beat(self) -> None:
        if self.silent:
            self.say(f"{self.at}, {time.monotonic() - self._began:.0f} s so far")


def plain(value: Any) -> Any:
    """`value` as JSON accepts it. A Fraction becomes {"exact": "1/3", "value": 0.333…}."""
    match value:
        case None | bool() | int() | float() | str():
            return value.value if isinstance(value, Enum) else value
        case Fraction():
            return {"exact": str(value), "value": float(value)}
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case Enum():
            return plain(value.value)
        case Path():
            return str(value)
        case datetime():
            return value.isoformat()
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
        case _ if hasattr(value, "__struct_fields__"):  # msgspec's
            return {name: plain(getattr(value, name)) for name in value.__struct_fields__}
        case _ if hasattr(value, "model_dump"):
            return plain(value.model_dump())
        case Iterable():
            return [plain(item) for item in value]
    raise TypeError(f"no JSON form for {type(value).__name__}")


_MARKS = {
    r"#\d+\b": "dim",
    r"\b(?:[cn]\d+|r\d+\.q\d+(?:\.a\d+)?)\b": "cyan",
    r"\b(?:ACTIVE|Active)\b": "yellow",
    r"\b(?:MASTERED|Mastered)\b": "green",
    r"\b(?:REACTIVATED|reactivated)\b": "magenta",
    r"\b(?:FAULTS? FOUND|FAULT|RIGHT|DIFFERS)\b": "bold red",
}
"""What a terminal shows in colour: positions, names, states, faults."""


def marked(words: str) -> "Text":
    from rich.text import Text

    marked = Text(words)
    for pattern, style in _MARKS.items():
        marked.highlight_regex(pattern, style)
    return marked


class Point(Protocol):
    """Where in a run something was read: the round, and the exact position."""

    @property
    def round(self) -> int: ...

    @property
    def position(self) -> int: ...


def envelope(schema: str, data: Any, *, run: str | None = None, as_of: Point | None = None) -> dict[str, Any]:
    where = None if as_of is None else {"round": as_of.round, "position": as_of.position}
    return {"schema": schema, "run": run, "as_of": where, "data": plain(data)}


def dump(value: Any) -> str:
    return json_text(value, indent=2)


class Out(Protocol):
    """Where finished text goes."""

    def write(self, text: str, /) -> object: ...

    def flush(self) -> object: ...


class _Screen:
    """A terminal: control characters are shown, not obeyed."""

    def write(self, text: str, /) -> None:
        sys.stdout.write(visible(text))

    def flush(self) -> None:
        sys.stdout.flush()


@contextmanager
def sink(call: CommandContext) -> Iterator[Out]:
    """Stdout, or the file of `-o`. A reader that goes away (`| head`) has seen enough: exit code 0."""
    if call.output is not None:
        with opened(call.output, "w") as file:
            yield file
        return
    try:
        yield _Screen() if sys.stdout.isatty() else sys.stdout
        sys.stdout.flush()
    except BrokenPipeError:
        exit_quietly()


def exit_quietly() -> NoReturn:
    """Exit with success: the reader has enough (`| head`), which is not a finding.

    Buffered output is dropped.
    """
    silence_stream(sys.stdout)
    raise SystemExit(0)


def silence_stream(stream: IO[str]) -> None:
    """Drops what it still buffers, and whatever is written to it later, without an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def refuse_no_folder(path: Path) -> None:
    """Raises ConfigError if the folder of a new file does not exist."""
    if not path.parent.is_dir():
        raise ConfigError(
            f"cannot write {path}: there is no folder {path.parent}", hint="make the folder first"
        )


@contextmanager
def opened(path: Path, mode: Literal["w", "wb"]) -> Iterator[IO[Any]]:
    """The file of `-o`, which gets its name once all of it is written: an interrupted command leaves the
    old file as it was. A device or a pipe is written to directly."""
    refuse_no_folder(path)
    file = path.resolve()  # a link stays a link
    with ExitStack() as stack:
        with writing(path, hint="name another file with -o"):
            if file.is_relative_to("/proc") or (file.exists() and not file.is_file()):
                part = path
            else:
                part = stack.enter_context(atomic_file(file))
                if file.exists():
                    with open(file, "ab"):  # is it writable?
                        part.chmod(stat.S_IMODE(file.stat().st_mode))
            encoding = None if mode == "wb" else "utf-8"
            stream = stack.enter_context(open(part, mode, encoding=encoding, opener=private))
        yield stream


@contextmanager
def writing(path: Path, hint: str = "name another place") -> Iterator[None]:
    """Wraps writing to a path that the user named: if it cannot be written, that is a usage error."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}", hint=hint) from error


def row_of(value: "Mapping[str, Any] | DataclassInstance") -> dict[str, Any]:
    """A flat dataclass as a row; fractions stay fractions."""
    return (
        {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        if dataclasses.is_dataclass(value)
        else dict(value)
    )
