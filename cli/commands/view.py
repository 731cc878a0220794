"""`diagevo view`: a run in the browser, served or written as a folder."""

import secrets
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from diagevo.errors import ConfigError

from .. import options
from ..call import CommandContext
from ..opening import database
from ..render import console as render
from ..render.result import Result

PORT = 7517


@options.command(
    "view",
    example="""diagevo view
    diagevo view --run first --no-open
    diagevo view --host 0.0.0.0 --port 8080
    diagevo view --export pages --run first --pages 500
    diagevo view --export c1.html --run first --cause c1
    diagevo view --report first.html --run first
    diagevo view --report tuesday.html --run tuesday --against monday""",
)
def view(
    call: CommandContext,
    *,
    host: Annotated[str | None, typer.Option(help="The address to listen on. [default: 127.0.0.1]")] = None,
    port: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, max=65535, help=f"The port; 0 picks a free one. [default: {PORT}]"),
    ] = None,
    no_open: Annotated[bool, typer.Option("--no-open", help="Do not open a browser.")] = False,
    export: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="Instead of serving, write the pages into a new or empty folder that opens from disk "
            "or any file server; with --cause, that page as one file.",
        ),
    ] = None,
    pages: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="With --export: at most this many pages, in the order of links. [default: 5000]",
        ),
    ] = None,
    cause: Annotated[
        str | None,
        typer.Option(metavar="ID", help="With --export: the page of this cause alone, as one file."),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Instead of serving, write one page to send or print: what passed, the largest "
            "causes, each with a failure and a pass, and how they were counted.",
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="With --report: also what changed since this run."),
    ] = None,
) -> Result[Any] | None:
    """Serve the pages of the runs to a browser, read-only.

    The address that it prints contains an access token.
    """
    if report is not None and export is not None:
        raise ConfigError("--report writes one page, --export a folder or a cause", hint="leave one out")
    if (export is not None or report is not None) and (host is not None or port is not None or no_open):
        named = "--export" if report is None else "--report"
        raise ConfigError(f"--host, --port and --no-open have no effect with {named}", hint="leave them out")
    if export is None and (pages is not None or cause is not None):
        raise ConfigError("--pages and --cause select what is written", hint="add --export PATH")
    if cause is not None and pages is not None:
        raise ConfigError("--cause writes one page", hint="leave --pages out")
    if against is not None and report is None:
        raise ConfigError("--against applies to a report", hint="add --report FILE")
    if report is not None:
        return _report(call, report, against)
    if export is not None:
        return _export(call, export, pages) if cause is None else _alone(call, export, cause)
    return _serve(call, host or "127.0.0.1", PORT if port is None else port, no_open=no_open)


def _serve(call: CommandContext, host: str, port: int, *, no_open: bool) -> None:
    from diagevo.memory.history import resolve_run
    from diagevo.view.server import application, is_loopback, served

    with suppress(KeyboardInterrupt), database(call) as found:
        listening = _listen(host, port)
        token = secrets.token_urlsafe(24)
        shown = f"[{host}]" if ":" in host else host
        start = "" if call.run is None else f"{resolve_run(found, call.run)}/index.html"
        at = f"http://{shown}:{listening.getsockname()[1]}/{start}?token={token}"
        print(at, flush=True)
        if not is_loopback(host):
            render.say(
                call, "Other machines can reach it; anyone with this address can read every text of the runs."
            )
        render.say(call, "Ctrl-C stops it.")
        if not no_open and sys.stdout.isatty():
            import webbrowser

            webbrowser.open(at)
        app_ = application(found, host=host, token=token)
        served(app_, log_level="error").run(sockets=[listening])


def _listen(host: str, port: int) -> socket.socket:
    """A socket on that address, so that the port is known before it is printed. Raises ConfigError."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"--host {host} --port {port}: {why}", hint="name another one; --port 0 picks a free port"
        ) from error


def _export(call: CommandContext, to: Path, pages: int | None) -> Result[Any]:
    from diagevo.memory.history import resolve_run
    from diagevo.view.export import PAGES
    from diagevo.view.export import export as write

    with database(call) as found:
        runs = [] if call.run is None else [resolve_run(found, call.run)]
        with render.writing(to), render.Heartbeat(call, "writing the pages"):
            written, left_out = write(found, to, runs=runs, most=pages or PAGES)
    index = to / "index.html"
    text = f"{written} pages written; open {index}"
    if left_out:
        text += f"\nleft out: {left_out} pages linked from these (--pages)"
    return Result({"index": str(index), "pages": written, "left_out": left_out}, text=text)


def _alone(call: CommandContext, to: Path, cause: str) -> Result[Any]:
    from diagevo.memory.history import History, resolve_run
    from diagevo.memory.stories.references import resolve
    from diagevo.view.export import export_page

    if to.is_dir():
        raise ConfigError(f"{to} is a folder", hint=f"one page is one file: --export {to}/{cause}.html")
    with database(call) as found:
        run = resolve_run(found, call.run)
        history = History(found, run)
        named = resolve(history, cause, history.end, "cause").id
        with render.writing(to):
            export_page(found, to, run, f"causes/{named}")
    return Result({"page": str(to), "run": run, "cause": named}, text=f"{named} of {run}: {to}")


def _report(call: CommandContext, to: Path, against: str | None) -> Result[Any]:
    from diagevo.memory.history import resolve_run
    from diagevo.view.export import export_page

    if to.is_dir():
        raise ConfigError(f"{to} is a folder", hint=f"a report is one file: --report {to}/report.html")
    with database(call) as found:
        run = resolve_run(found, call.run)
        before = None if against is None else resolve_run(found, against)
        if before == run:
            raise ConfigError(f"{run} is the run of the report", hint="--against names another one")
        with render.writing(to):
            page = "report" if before is None else f"report/since/{before}"
            export_page(found, to, run, page, [] if before is None else [before])
    return Result({"report": str(to), "run": run, "against": before}, text=f"report of {run}: {to}")
