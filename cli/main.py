"""The program: its commands, and the one place where an error becomes a message and an exit code."""

import errno
import gc
import io
import os
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Annotated, Any

import typer

from diagevo.errors import ConfigError, DiagEvoError, StoppedSafely
from diagevo.private import private
from diagevo.text.escaping import json_text, shortened, storable, visible
from diagevo.text.redaction import masked

from . import listing
from .call import CommandContext

USAGE = 2
BUG = 70
INTERRUPTED = 130
LONGEST = 10_000
"""Maximum characters of an error: it may quote an argument of any length."""
REFUSED = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENAMETOOLONG, errno.EROFS})
"""The errors of a full disk, or of a name that it does not take."""

gc.set_threshold(200_000)  # else garbage collection walks every import again: a tenth of a short command


class Program(listing.Group):
    """The root command with the error boundary around it."""

    def __init__(self, **given: Any) -> None:
        super().__init__(given.pop("commands", None) or listing.PROGRAM, **given)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run the program and leave with its exit code, whatever happens inside."""
        arguments = list(sys.argv[1:] if args is None else args)
        _open_streams()
        try:
            _refuse_bytes(arguments)
            code = super().main(
                arguments, prog_name or "diagevo", complete_var, False, windows_expand_args, **extra
            )
        except StoppedSafely as stopped:
            code = _stopped(arguments, stopped)
        except DiagEvoError as error:
            code = _report(arguments, error.kind, error.message, error.hint, error.exit_code)
        except typer.TyperException as error:
            context = getattr(error, "ctx", None)
            path = context.command_path if context is not None else "diagevo"
            text = error.format_message().replace("Value error, ", "")  # pydantic's words, within typer's
            after = isinstance(context and context.command, listing.Group) and "--" in text
            hint = f"see: {path} --help" + (" (options stand after the command's name)" if after else "")
            code = _report(arguments, "usage", text, hint, USAGE)
        except typer.Abort:
            code = INTERRUPTED
        except OSError as error:
            code = (_refused if error.errno in REFUSED else _report_bug)(arguments, error)
        except Exception as error:  # anything not handled above is a bug, and reported as one
            code = _report_bug(arguments, error)
        if code == INTERRUPTED:
            print("interrupted; everything recorded so far is kept", file=sys.stderr)
        gc.freeze()  # otherwise the exit walks everything that torch loaded once more, for seconds
        sys.exit(code if isinstance(code, int) else 0)


def _open_streams() -> None:
    """A closed stream takes nothing; if its encoding lacks a letter, the letter's number is written
    instead."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  (open to the end)
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _refused(arguments: list[str], error: OSError) -> int:
    """A full disk, or a name that is too long. What stdout still buffers is dropped, or Python would try to
    write it again at exit."""
    from .render.console import silence_stream

    with suppress(OSError):
        silence_stream(sys.stdout)
    long = error.errno == errno.ENAMETOOLONG
    named = f" {error.filename}" if error.filename else ""
    what = f"cannot {'open' if long else 'write'}{named}: {error.strerror}"
    hint = "use a path with names of up to 255 bytes" if long else "free some space, or name another place"
    return _report(arguments, "config", what, hint, USAGE)


def _refuse_bytes(arguments: list[str]) -> None:
    """Bytes that are not UTF-8 arrive as halves of surrogate pairs, which no database or output accepts."""
    given = {f"argument {n}": text for n, text in enumerate(arguments, 1)}
    given |= {name: text for name, text in os.environ.items() if name.startswith("DIAGEVO_")}
    for name, text in given.items():
        if storable(text) != text:
            raise ConfigError(f"{name} is not UTF-8: {text}", hint="write it in UTF-8")


def _wants_json(arguments: list[str]) -> bool:
    """Whether a program reads the error; the arguments themselves may be what is wrong."""
    return not {"--json", "--format=json", "--display=json"}.isdisjoint(arguments) or any(
        pair in (("--format", "json"), ("--display", "json")) for pair in pairwise(arguments)
    )


def _report(arguments: list[str], kind: str, message: str, hint: str | None, code: int) -> int:
    message = shortened(masked(message), LONGEST)
    hint = None if hint is None else shortened(masked(hint), LONGEST)
    with suppress(OSError):  # there is nowhere left to print it; the exit code tells
        if _wants_json(arguments):
            print(json_text({"error": {"kind": kind, "message": message, "hint": hint}}))
        else:
            shown = f"error: {visible(message)}" + ("" if hint is None else f"\nhint: {visible(hint)}")
            from .render.layout import folded, width

            print(folded(shown, width(sys.stderr)), file=sys.stderr)
    return code


def _stopped(arguments: list[str], stopped: StoppedSafely) -> int:
    """The user asked for a safe stop, so it is not called an error."""
    if _wants_json(arguments):
        return _report(arguments, stopped.kind, stopped.message, stopped.hint, stopped.exit_code)
    print(visible(masked(f"{stopped.message}\nhint: {stopped.hint}")), file=sys.stderr)
    return stopped.exit_code


def _report_bug(arguments: list[str], error: Exception) -> int:
    """Write the traceback to the home folder, if there is one, and say where. Never to a folder shared with
    other users: it may repeat what a model wrote."""
    text = masked(traceback.format_exc())
    if "-v" in arguments or "--verbose" in arguments:
        print(text, file=sys.stderr)
    path = CommandContext().home / f"diagevo-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.traceback"
    try:
        with open(path, "w", encoding="utf-8", errors="replace", opener=private) as file:
            file.write(text)
        hint = f"the traceback is in {path}"
    except OSError:
        hint = "run it again with -v for the traceback"
    what = f"internal error: {type(error).__name__}: {error}".splitlines()[0]
    return _report(arguments, "internal", what, hint, BUG)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"diagevo {version('diagevo')}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """Self-play that practises what the model keeps getting wrong, with a memory that you can query."""


app = typer.Typer(
    name="diagevo",
    cls=Program,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.callback()(_root)
