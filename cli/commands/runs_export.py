"""`diagevo runs export`: the figures of a run's rounds in a tracker."""

from typing import Annotated, Any, Literal

import typer

from diagevo.errors import NotFoundError

from .. import options
from ..call import Call
from ..opening import one, opened, where
from ..render.result import Result
from ..render.table import Column
from .runs import FIGURES, Run

Tracker = Literal["trackio", "wandb", "mlflow"]
ADDED = (
    Column("round", align="right"),
    *FIGURES,
    Column("labels_true", "labels true", "right"),
    Column("mean_at_k", "mean@k", "right"),
    Column("greedy", align="right"),
)


@options.command(
    "runs export",
    rows=True,
    example="""diagevo runs export --to trackio
    diagevo runs export a --to wandb --project math
    diagevo runs export --to mlflow --json""",
)
def export(
    call: Call,
    run: Run = None,
    *,
    to: Annotated[Tracker, typer.Option("--to", help="trackio, wandb or mlflow, by its own settings.")],
    project: Annotated[
        str, typer.Option("--project", metavar="NAME", help="The tracker's project or experiment.")
    ] = "diagevo",
) -> Result[Any]:
    """Put the figures of each committed round into a tracker, and print what was added.

    Again adds only the rounds that are new. A run is known by its name. Where they go is the tracker's own
    setting: TRACKIO_DIR, WANDB_MODE, MLFLOW_TRACKING_URI.
    """
    from diagevo.integrations.trackers import export as write
    from diagevo.integrations.trackers import figures

    with opened(call, one(call, run)) as history:
        rows, as_of, name = figures(history), where(history.end), history.run_id
    if not rows:
        raise NotFoundError(f"run {name} has no committed round yet", hint=f"see: diagevo runs show {name}")
    added = write(to, project, name, rows)
    notes = [] if added else [f"{to} has every round of {name} in project {project}"]
    return Result(added, ADDED, run=name, as_of=as_of, notes=notes)
