"""`diagevo runs fork`: a new run from a committed round."""

import shlex
from typing import Annotated, Any

import typer

from diagevo.errors import ConfigError
from diagevo.text.numbers import count

from .. import options
from ..call import CommandContext
from ..opening import one, opened, point_named
from ..render import console as render
from ..render.result import Result


@options.command(
    "runs fork",
    reads=["-c", "--set"],
    example="""diagevo runs fork a@3 --name b
    diagevo runs fork 3 --set memory.theta_up=0.8""",
)
def fork(
    call: CommandContext,
    point: Annotated[
        str,
        typer.Argument(
            metavar="RUN@ROUND",
            help="A committed round of a run; a number alone means a round of --run, or of the latest run.",
        ),
    ],
    *,
    name: Annotated[
        str | None, typer.Option(metavar="RUN", help="The new run. [default: RUN-rN, numbered]")
    ] = None,
) -> Result[Any]:
    """Start a new run from a committed round of another one.

    `--set` changes settings of the new run."""
    from diagevo.memory.history import point_of
    from diagevo.memory.log.log import Log
    from diagevo.memory.transfer.fork import fork as make

    run, round = point_named(point)
    if run == "" or round is None or round < 1:
        raise ConfigError(
            f"{point} does not name a committed round", hint="write a@3, or 3 for the latest run"
        )
    with opened(call, one(call, run)) as history:
        stored = history.configuration(point_of(history.commit(round))).config
        ingested = history.ingested is not None
        config = _reconfigured(call.config_in_log(history, stored), call.settings, history.run_id)
        taken = Log(history.database).runs()
        free = _free_name(f"{history.run_id}-r{round}", taken) if name is None else name
        with render.Heartbeat(call, "copying the run"):
            made = make(history, round, free, config, prompts=_prompts(config) if call.settings else None)
    events = count(made.written.events, "event")
    text = f"{free}: {events}, forked from {made.origin.run} after round {round}\n"
    if made.changed:
        text += f"  changed: {', '.join(made.changed)}\n"
    if made.files:
        text += f"  files: {len(made.files)} of the run's stages\n"
    on = ["diagnose", "--run", free] if ingested else ["train", "--run", free, "--resume"]
    again = shlex.join(["diagevo", *on, *call.database_again])
    text += f"continue with: {again}\n"
    text += f"commands without --run read {free} from now on; its parent: --run {made.origin.run}\n"
    lost = [f"missing, and therefore not in the fork: {', '.join(made.missing)}"] if made.missing else []
    return Result(made, text=text, run=free, as_of=made.written, notes=lost)


def _prompts(config: dict[str, Any]) -> dict[str, str] | None:
    """Digests of the templates that a configuration names; none for a trainer with its own templates."""
    from diagevo.config.models import Config
    from diagevo.loop.roles import prompt_digests

    return prompt_digests(Config.model_validate(config)) if "roles" in config else None


def _free_name(wanted: str, taken: list[str]) -> str:
    number = 1
    name = wanted
    while name in taken:
        number += 1
        name = f"{wanted}-{number}"
    return name


def _reconfigured(stored: dict[str, Any], settings: tuple[str, ...], run: str) -> dict[str, Any]:
    """The stored configuration with the values of `--set`, checked as a whole."""
    from diagevo.config.loading import apply_overrides, put_method
    from diagevo.config.sources import from_settings

    if not settings:
        return stored
    given = from_settings(settings)
    put_method([given], stored.get("world"))
    merged = given.nested(stored)
    if "roles" not in stored:  # configured by another trainer: only what it gave
        return merged
    return _like(merged, apply_overrides(stored, given, run).model_dump(mode="json"))


def _like(given: dict[str, Any], checked: dict[str, Any]) -> dict[str, Any]:
    """The checked values of the given keys: a key added after the run is not a change."""
    return {
        key: _like(value, checked[key])
        if isinstance(value, dict) and isinstance(checked[key], dict)
        else checked[key]
        for key, value in given.items()
    }
