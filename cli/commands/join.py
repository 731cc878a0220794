"""`diagevo join`: what the other machines of a run on several run."""

from typing import Annotated

import typer

from diagevo.errors import ConfigError

from .. import options
from ..opening import database
from ..options import Call
from ..render import console as render


def register(app: typer.Typer) -> None:
    options.command(
        app,
        "join",
        example="""diagevo join --run big --machine 1
        diagevo join --run big --machine 2 --db postgresql://host/diagevo""",
    )(join)


def join(
    call: Call,
    *,
    machine: Annotated[
        int,
        typer.Option(
            "--machine",
            metavar="K",
            min=1,
            envvar="SLURM_NODEID",
            help="Which machine; 0 runs `train`.",
        ),
    ] = 1,
) -> None:
    """Train beside the machine that plays a run: this machine's ranks in each of its phases.

    For hardware.machines above 1. Waits for the run to be played, and ends when nobody plays it any more.
    The run's folder must be on a disk that all machines see, and the log in PostgreSQL.
    """
    from diagevo.memory.log.lease import Watch
    from diagevo.memory.opening import runs_folder
    from diagevo.training.machines import join

    if call.run in (None, "latest"):
        raise ConfigError("--run is missing: which run to join?", hint="name it: diagevo join --run ID")
    run_id = call.run
    with database(call) as found:
        join(
            runs_folder(found) / run_id,
            machine,
            is_played=Watch(found, run_id).look,
            say=lambda text: render.say(call, text),
        )
    render.say(call, f"run {run_id} has ended")
