"""`diagevo runs export, import`: a run as a bundle, or its figures in a tracker; a bundle as a run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from diagevo.errors import ConfigError, NotFoundError
from diagevo.text.numbers import count

from .. import options
from ..call import CommandContext
from ..opening import At, Round, Run, database, one, opened
from ..render import console as render
from ..render.result import Result
from ..render.table import columns
from ..screens.rounds import FIGURES

if TYPE_CHECKING:
    from diagevo.memory.history import AsOf, History

Tracker = Literal["trackio", "wandb", "mlflow"]
Kind = Literal["sft", "dpo", "prompts"]
ROUNDS = (
    *columns("round"),
    *FIGURES,
    *columns("pass_rate: pass rate, labels_true: labels true"),
    *columns("mean_at_k: mean@k, greedy, mean_at_k_best: at its best T"),
)


@options.command(
    "runs export",
    example="""diagevo runs export a -o a.bundle
    diagevo runs export a --round 3 -o a.bundle
    diagevo runs export a --as dpo --cause c3 -o c3.jsonl
    diagevo runs export a --to wandb --project math""",
)
def export(
    call: CommandContext,
    run: Run = None,
    *,
    file: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="A new file: a bundle, or data.")
    ] = None,
    round: Round = None,
    at: At = None,
    as_: Annotated[
        Kind | None,
        typer.Option("--as", help="Data to train on instead: sft, dpo, or the prompts with their answers."),
    ] = None,
    cause: Annotated[
        str | None, typer.Option(metavar="REF", help="--as: only failures of this cause.")
    ] = None,
    to: Annotated[Tracker | None, typer.Option(help="trackio, wandb or mlflow, by its own settings.")] = None,
    project: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="--to: the tracker's project or experiment. [default: diagevo]"),
    ] = None,
) -> Result[Any]:
    """Write a run to a bundle, to training data, or to a tracker.

    A bundle is one file: the events with the chain's head, and the texts and vectors that they name,
    verified as `runs import` does. With --as: failures beside passes, with causes and ids, as .jsonl,
    .parquet, or a folder for `datasets.load_dataset`. A tracker gets the rounds, which are printed, the
    training steps as RUN-steps, and the configuration. Each export is a new run there: export a run when it
    is done. The tracker's own settings say where: TRACKIO_DIR, WANDB_MODE, MLFLOW_TRACKING_URI.
    """
    if (file is None) == (to is None) or ((to or as_) is not None and (round, at) != (None, None)):
        raise ConfigError(
            "give one of them: a file (of a bundle with --round or --at, if wanted), or a tracker",
            hint="diagevo runs export RUN -o FILE, or diagevo runs export RUN --to trackio",
        )
    if cause is not None and as_ is None:
        raise ConfigError("--cause selects training data", hint="add --as sft, dpo or prompts")
    if to is None and project is not None:
        raise ConfigError("--project applies to a tracker", hint="add --to trackio, wandb or mlflow")
    if to is not None and as_ is not None:
        raise ConfigError("--as writes a file, --to a tracker", hint="leave one out")
    if file is not None:
        render.refuse_no_folder(file)
    with opened(call, one(call, run)) as history:
        if to is not None:
            return _track(history, to, project or "diagevo")
        assert file is not None
        if as_ is not None:
            return _data(history, as_, cause, file)
        return _bundle(call, history, history.as_of(round, at), file)


def _bundle(call: CommandContext, history: "History", as_of: "AsOf", file: Path) -> Result[Any]:
    from diagevo.memory.transfer.bundle import export_bundle

    with render.Heartbeat(call, "writing the bundle and checking it"):
        made = export_bundle(history, as_of, file)
    text = f"{file}: {count(made.events, 'event')} of {made.run_id} up to #{as_of.position}, verified\n"
    text += f"  {made.texts} texts, {made.vectors} vectors\n"
    text += f"  chain head {made.head}\n"
    return Result(made, text=text, run=made.run_id, as_of=as_of)


def _data(history: "History", kind: Kind, cause: str | None, file: Path) -> Result[Any]:
    from diagevo.memory.stories.references import resolve
    from diagevo.memory.transfer.training_data import TrainingData, write_training_data

    cause_id = None if cause is None else resolve(history, cause, history.end, "cause").id
    chosen = TrainingData(history, kind, cause_id)
    rows = list(chosen.rows())
    if not rows:
        why = "; left out: " if chosen.left else ""
        why += "; ".join(f"{one.failures:,} {one.why} ({one.next})" for one in chosen.left)
        raise NotFoundError(
            f"run {history.run_id} has nothing of {cause_id or 'any cause'} to write as {kind}{why}",
            hint=f"its failures: diagevo memory why {cause_id or 'c1'} --run {history.run_id}",
        )
    write_training_data(rows, file)
    made = {"file": str(file), "as": kind, "rows": len(rows), "cause_id": cause_id}
    made |= {"failures": chosen.failures, "left_out": render.plain(chosen.left)}
    text = f"{file}: {count(len(rows), 'row')} of {history.run_id}" + (f", {cause_id}" if cause_id else "")
    if chosen.left:
        text += f"\nleft out of {count(chosen.failures, 'failure')}:"
        text += "".join(f"\n{one.failures:>9,}  {one.why}; {one.next}" for one in chosen.left)
    return Result(made, text=f"{text}\n", run=history.run_id, as_of=history.end)


def _track(history: "History", to: "Tracker", project: str) -> Result[Any]:
    from diagevo.integrations.trackers import configuration, figures, steps
    from diagevo.integrations.trackers import export as write

    rows, as_of, name = figures(history), history.end, history.run_id
    if not rows:
        raise NotFoundError(f"run {name} has no committed round yet", hint=f"see: diagevo runs show {name}")
    write(to, project, name, rows, configuration(history))
    if trained := steps(history):
        write(to, project, f"{name}-steps", trained, configuration(history))
    notes = [f"steps of training: {len(trained)} in {name}-steps"] if trained else []
    return Result(rows, ROUNDS, run=name, as_of=as_of, notes=notes)


@options.command(
    "runs import",
    without=("--run",),
    example="""diagevo runs import a.bundle
    diagevo runs import a.bundle --name copy
    diagevo runs import a.bundle --check""",
)
def import_(
    call: CommandContext,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A bundle.")],
    *,
    name: Annotated[
        str | None, typer.Option(metavar="RUN", help="The new run. [default: as in the bundle]")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Only verify the bundle.")] = False,
) -> Result[Any]:
    """Read a bundle into a new run.

    It is verified first: all of it is imported, or nothing."""
    from diagevo.memory.transfer.bundle import check_bundle, import_bundle

    if check:
        with render.Heartbeat(call, "checking the bundle"):
            written = check_bundle(file)
        text = f"{file}: {count(written.events, 'event')} of {written.run_id}, as they were written\n"
        return Result(written, text=text + f"  chain head {written.hash}\n", run=written.run_id)
    with database(call, create=True) as into, render.Heartbeat(call, "reading the bundle"):
        written = import_bundle(file, into, name)
    events, rounds = count(written.events, "event"), count(written.round, "round")
    text = f"{written.run_id}: {events}, {rounds}\n  chain head {written.hash}\n"
    return Result(written, text=text, run=written.run_id, as_of=written)
