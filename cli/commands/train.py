"""`diagevo train`: play rounds, stop at a safe point, resume where a run stopped."""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diagevo.errors import ConfigError, MissingDependencyError, NotFoundError
from diagevo.progress import STAGES, WARM_START, StopFlag
from diagevo.text.numbers import count

from .. import options
from ..call import CommandContext
from ..opening import database, opened, stored_config, there_is_none
from ..render import console as render
from ..render.result import Result, emit
from ..screens.board import clock
from ..screens.display import Kind, display_for
from ..screens.rounds import accuracy, round_tables
from .stopping import stopped_by_signals

if TYPE_CHECKING:
    from diagevo.config.models import Config
    from diagevo.config.sources import KeyPath, Layer
    from diagevo.loop.run import Until


@options.command(
    "train",
    reads=options.CONFIGURATION,
    example="""diagevo train --rounds 3
    diagevo train --profile qwen3-8b --run first --plan
    diagevo train --run first --resume --display plain""",
)
def train(
    call: CommandContext,
    *,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print what a run would do, without running it.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Resume a run (default: the latest).")] = False,
    rounds: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Total number of rounds; may extend a run.")
    ] = None,
    until: Annotated[
        str | None, typer.Option(metavar="ROUND[:STAGE]", help="Stop safely after this round or stage.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of all random draws.")] = None,
    max_hours: Annotated[
        float | None, typer.Option(min=0.0, help="Stop safely after this many hours.")
    ] = None,
    display: Annotated[
        Kind | None, typer.Option(help="Default: live on a terminal, plain elsewhere.")
    ] = None,
) -> Result[Any] | None:
    """Play rounds, or resume a run.

    A round is: challenger, candidates, votes, solver, diagnosis, commit. The first Ctrl-C (or SIGTERM) stops
    with exit code 75, the second at once. Work in progress gets 20 seconds to finish; a stop costs at most
    one batch of answers or one training step. --resume continues from there; with it, --set may change
    memory, hardware and time limits (hardware.*, micro_batch, save_steps, bounds, timeouts), never the
    method.
    """
    if resume and (call.config or call.profile or seed is not None):
        raise ConfigError(
            "a resumed run uses the configuration in its log: no --config, --profile or --seed",
            hint="memory, hardware and time limits may change, with --set; anything else: diagevo runs fork",
        )
    until_ = None if until is None else _until(until)
    for name, given in (("--until", until), ("--max-hours", max_hours), ("--display", display)):
        if plan and given is not None:
            raise ConfigError(f"--plan runs nothing, and {name} applies to a run", hint="leave one out")
    settings = call.settings
    if seed is not None:
        settings = (*settings, f"seed={seed}")
    if rounds is not None and not resume:
        settings = (*settings, f"round.rounds={rounds}")
    config = None if resume else replace(call, settings=settings).load_config()
    if plan:
        return _plan(call, config, rounds)
    run_id = _latest(call) if resume and call.run in (None, "latest") else call.run
    run_id = run_id or _free_name(call, config.profile if config is not None else "run")

    _need_the_training_stack()
    from diagevo.config.sources import Layer
    from diagevo.memory.log.database import Database
    from diagevo.memory.places import check_name, check_place, runs_folder
    from diagevo.progress import PROGRESS

    check_name(run_id)
    database_ = Database(call.database)
    root = runs_folder(database_)
    check_place(database_, root / run_id)
    words, given = _resumed(call, run_id) if resume else ({}, Layer())
    view = display_for(display, call, run_id)
    stop = StopFlag()
    if config is not None:
        _keep_config(root / run_id, config)
    try:
        with stopped_by_signals(stop), view.showing():
            view.message(f"run {run_id}: loading PyTorch and the models")
            view.file = root / run_id / PROGRESS
            from diagevo.loop import run

            last = run.train(
                config,
                database=call.database,
                run_id=run_id,
                root=root,
                resume=resume,
                provided=words,
                given=given,
                observer=view,
                stop=stop,
                rounds=rounds,
                until=until_,
                max_seconds=None if max_hours is None else max_hours * 3600,
            )
    finally:
        if display in (None, "live", "plain") and not call.json and view.history:
            with opened(call, run_id) as history:
                emit(call, Result([], text=[*round_tables(view.history), *accuracy(history)]))
    if resume and not view.history:
        more = f"diagevo train --run {run_id} --resume --rounds {last + 1}"
        render.say(call, f"run {run_id} has {count(last, 'round')} already; to continue: {more}")
        return None
    took = clock(view.whole())
    shown = f"diagevo memory show --run {run_id}"
    render.say(call, f"run {run_id} is at round {last}, after {took} in all; see: {shown}")
    return None


def _resumed(call: CommandContext, run_id: str) -> "tuple[dict[KeyPath, Any], Layer]":
    """The user's own values, for an imported run; and what `--set` changes in any run."""
    from diagevo.config.resume_overrides import REACHING, refuse_fixed
    from diagevo.config.sources import from_settings
    from diagevo.memory.history import resolve_run
    from diagevo.memory.log.log import Log

    given = from_settings(call.settings)
    with database(call) as found:
        resolve_run(found, run_id)
        imported = Log(found).imported(run_id) is not None
    if imported:
        for path in given.values.keys() & set(REACHING):
            del given.values[path]
    refuse_fixed(given, run_id)
    return call.own_words() if imported else {}, given


def _need_the_training_stack() -> None:
    """Check before anything is written. Raises MissingDependencyError."""
    absent = [
        name for name in ("torch", "transformers", "trl", "accelerate", "datasets") if find_spec(name) is None
    ]
    if absent:
        raise MissingDependencyError(
            f"training needs {', '.join(absent)}, not installed here",
            hint="run: pip install torch==2.13.0, then pip install 'diagevo[train]'",
        )


def _plan(call: CommandContext, config: "Config | None", rounds: int | None) -> Result[Any]:
    """The plan of a new run, or of the rest of a resumed one."""
    from ..screens.plan import plan

    if config is not None:
        return plan(config, call.run, _measured(call, config))
    run_id = _latest(call) if call.run in (None, "latest") else call.run
    if run_id is None or run_id not in _run_names(call):
        raise NotFoundError(f"there is no run {run_id}", hint="see: diagevo runs list")
    with opened(call, run_id) as history:
        stored, played, ingested = stored_config(history), len(history.commits), history.ingested
    if ingested is not None:
        raise ConfigError(f"run {run_id} was ingested: it has no stages to plan", hint="leave --resume out")
    if call.settings:
        from diagevo.config.resume_overrides import adjusted
        from diagevo.config.sources import from_settings

        _, stored = adjusted(stored.model_dump(mode="json"), from_settings(call.settings), run_id)
    whole = max(played, stored.round.rounds if rounds is None else rounds)
    stored = stored.model_copy(update={"round": stored.round.model_copy(update={"rounds": whole})})
    return plan(stored, run_id, _measured(call, stored), played)


def _measured(call: CommandContext, config: "Config") -> dict[str, float]:
    """Measurements of the latest run with these settings."""
    from diagevo.planning.run_plan import measured_seconds

    return measured_seconds((opened(call, run_id) for run_id in _run_names(call)), config)


def _until(text: str) -> "Until":
    from diagevo.loop.run import Until

    number, _, stage = text.partition(":")
    if not number.isdecimal() or int(number) < 1 or (stage and stage not in (WARM_START, *STAGES)):
        raise ConfigError(
            f"--until {text}: not a round or a stage",
            hint=f"ROUND or ROUND:STAGE; stages: {', '.join(STAGES)}",
        )
    return Until(int(number), stage or None)


def _run_names(call: CommandContext) -> list[str]:
    """The runs of the database, most recently written first; none if there is no database."""
    from diagevo.memory.history import run_names

    if there_is_none(call):
        return []
    with database(call, create=True) as found:
        return run_names(found)


def _latest(call: CommandContext) -> str:
    names = _run_names(call)
    if not names:
        raise NotFoundError("there is no run to resume", hint="start one: diagevo train")
    return names[0]


def _free_name(call: CommandContext, profile: str) -> str:
    """The first unused name of embedded-1, embedded-2, …"""
    taken = set(_run_names(call))
    return next(name for number in range(1, len(taken) + 2) if (name := f"{profile}-{number}") not in taken)


def _keep_config(folder: Path, config: "Config") -> None:
    """Write the resolved configuration beside the run's weights, for people; the log has its own copy."""
    from diagevo.config.writing import to_yaml
    from diagevo.private import private, private_folder

    try:
        private_folder(folder)
        if not (folder / "config.yaml").exists():
            with open(folder / "config.yaml", "w", encoding="utf-8", opener=private) as file:
                file.write(to_yaml(config))
    except OSError as error:
        raise ConfigError(
            f"cannot write to the run's folder {folder}: {error.strerror}",
            hint="choose another place: DIAGEVO_HOME=/path or --db sqlite:////path/diagevo.db",
        ) from error
