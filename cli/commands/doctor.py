"""`diagevo doctor`: what is missing here, and the fix."""

from typing import Annotated, Any, Literal

import typer

from diagevo.errors import ConfigError
from diagevo.text.redaction import redacted

from .. import options
from ..call import CommandContext
from ..render import console as render
from ..render.result import Result
from ..render.table import columns

COLUMNS = columns("state:, name: what, found, fix")


@options.command(
    "doctor",
    reads=options.CONFIGURATION,
    rows=True,
    without=("--run",),
    example="""diagevo doctor
    diagevo doctor --for train --profile qwen3-8b --rehearse""",
)
def doctor(
    call: CommandContext,
    *,
    purpose: Annotated[
        Literal["audit", "train", "eval"],
        typer.Option("--for", help="What you want to do: audit, train or eval."),
    ] = "audit",
    rehearse: Annotated[
        bool,
        typer.Option(
            "--rehearse",
            help="With --for train: also run its first minutes, with tiny models in place of the real ones.",
        ),
    ] = False,
) -> Result[Any]:
    """Show what is missing and how to fix it.

    Checks versions, database, disk, GPUs, models, endpoints and thresholds. Exits with 4 if something
    required is missing.
    """
    from diagevo.doctor import run_checks

    if rehearse and purpose != "train":
        raise ConfigError("--rehearse runs the first minutes of a training run", hint="add: --for train")
    checks = run_checks(purpose, database=call.database, home=call.home, configured=call.load_config)
    if rehearse and not any(check.name == "configuration" for check in checks):
        from diagevo.rehearsal import rehearse as played

        checks += played(call.load_config(), call.home)
    code = 4 if any(check.state == "missing" for check in checks) else 0
    return Result([redacted(render.plain(check)) for check in checks], COLUMNS, exit_code=code)
