"""`diagevo ingest`: the rollouts of another trainer, from its files."""

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args

import typer

from diagevo.errors import ConfigError
from diagevo.ingest.formats import Format
from diagevo.progress import StopFlag
from diagevo.text.lines import listed
from diagevo.text.numbers import count

from .. import options
from ..call import CommandContext
from ..render import console as render
from ..render.console import row_of
from ..render.result import Result
from .stopping import stopped_by_signals

if TYPE_CHECKING:
    from diagevo.ingest.recording import IngestSummary
    from diagevo.ingest.steering import Steering
    from diagevo.memory.memory import Memory

ALL_FAILED = "diagnose --all-failed asks a language model"
ONCE = (
    "every question was answered once: nothing to compare. diagnose --local compares with passes of "
    "other questions; or let the model answer each several times (samples, epochs, generations); where the "
    f"answer is known, {ALL_FAILED}"
)
ALIKE = (
    "in every group all responses are the same text: nothing to compare. Are prompt and response swapped"
    " (--map), or is the temperature 0?"
)


@options.command(
    "ingest",
    reads=options.CONFIGURATION,
    example="""diagevo ingest verl rollouts --run math
diagevo ingest trl output --run math --reward accuracy_reward -c diagevo.yaml
diagevo ingest jsonl rollouts.jsonl --run math --steps-per-round 4
diagevo ingest jsonl chats.parquet --run math --map prompt=question,response=choices.0.text,reward=ok
diagevo ingest jsonl judged.csv --run chats --map reward=verdict,feedback=rationale,tags=topic
diagevo ingest results.json --run evals
diagevo ingest lm-eval results/model --run evals --reward exact_match,strict-match
diagevo ingest verl rollouts --run math --follow
diagevo ingest verl rollouts --run math --follow --steer next.json --dataset train.parquet""",
)
def ingest(
    call: CommandContext,
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="FORMAT",
            help=f"What wrote the files: {', '.join(get_args(Format))}, which is your own rows."
            " [default: detected]",
        ),
    ] = None,
    path: Annotated[
        Path | None, typer.Argument(metavar="PATH", help="The folder of rollout files, or one file.")
    ] = None,
    *,
    steps_per_round: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Training steps per round. [default: 12]")
    ] = None,
    reward: Annotated[
        str | None, typer.Option(metavar="FIELD", help="Field of the reward, or a sum of fields: a+0.1*b.")
    ] = None,
    map: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FIELD=PATH,…",
            help="For jsonl: the path of each field: prompt, response, reward, group, answer, step, feedback,"
            " tags (messages.0.content; messages.:-1 for all but the last; messages.user for those of a role;"
            " samples.*.text makes a rollout of each; tags=topic+level).",
        ),
    ] = None,
    pass_at: Annotated[
        float | None,
        typer.Option(metavar="REWARD", help="Lowest reward that counts as a pass. [default: 0.5]"),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep reading while the training writes, until Ctrl-C.")
    ] = False,
    steer: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="With --follow: diagnose each round once it is complete, and keep the draws of the next one"
            " in FILE (JSON) for the trainer.",
        ),
    ] = None,
    dataset: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="With --steer: the training's data set; each draw names a row of it, from 0."
        ),
    ] = None,
    resumed: Annotated[
        bool,
        typer.Option(
            "--resumed", help="The training resumed from a checkpoint, so some steps have new rollouts."
        ),
    ] = False,
) -> Result[Any]:
    """Record another trainer's rollouts in the log.

    Reads rollouts of verl, TRL, NeMo-RL, prime-rl, slime and AReaL, evaluations of lm-eval, Inspect, OpenAI,
    promptfoo, DeepEval, LangSmith, Langfuse, Phoenix and Weave, and rows of your own (JSON, CSV, Parquet).
    Without FORMAT it detects the format and says why. Ingesting the same files again changes
    nothing. The first ingest of a run records its configuration, including the diagnostician and the
    embedder. Next: diagevo diagnose.
    """
    from diagevo.ingest.recording import IngestSummary
    from diagevo.ingest.session import IngestSession

    if call.run in (None, "latest"):
        raise ConfigError(
            "the run for the rollouts is missing", hint="name it: diagevo ingest FORMAT PATH --run ID"
        )
    if steer is not None and not follow:
        raise ConfigError(
            "--steer needs a training that is still running", hint="add --follow, or leave it out"
        )
    if dataset is not None and steer is None:
        raise ConfigError("--dataset is only used by --steer", hint="add --steer FILE")
    if what is None:
        raise ConfigError("the path of the rollouts is missing", hint="name it: diagevo ingest PATH --run ID")
    why = None
    if path is None:
        from diagevo.ingest.formats.recognised import recognised

        path = Path(what)
        format, why = ("jsonl", None) if map else recognised(path)
    else:
        format = _named(what)
    chosen = {"steps_per_round": steps_per_round, "reward": reward, "pass_at": pass_at}
    chosen["map"] = _mapped(",".join(map), format, reward) if map else None
    chosen = {name: value for name, value in chosen.items() if value is not None}
    report, stop = IngestSummary(), StopFlag("continue with the same command")
    if why is not None:
        report.notes.append(f"taken for {format}: {why}")
    steering = None if steer is None else _steering(call, steer, dataset, chosen.get("map"), stop)
    session = IngestSession(
        call.database,
        call.run,
        chosen,
        call.load_config,
        stop=stop,
        follow=follow,
        resumed=resumed,
        say=lambda text: render.say(call, text),
        steering=steering,
    )
    with session, stopped_by_signals(stop, waits=follow):
        settings = session.take_files(format, path, report)
        if report.rollouts == report.groups.total():
            report.notes.append(ONCE)
        elif report.rollouts > report.groups.total() and not report.differing:
            report.notes.append(ALIKE)
        if 1 < report.new_steps == len(session.recorder.batches) <= settings.steps_per_round:
            report.notes.append(
                f"{report.new_steps} steps are one round of {settings.steps_per_round}: runs show has their"
                " trend; for one by round, ingest into another run with --steps-per-round 1"
            )
        groups = {name: report.groups[name] for name in ("contrast", "all_failed", "all_passed")}
        opened, waiting = session.standing()
        found = row_of(report) | {"groups": groups, "rounds_waiting": waiting, "open_round": opened}
        as_of, served = session.state, session.served
    notes = [
        f"{name} ends inside a line: its step is left for the next call (--follow waits)"
        for name in report.cut
    ]
    if report.left:
        notes.append(
            f"{count(len(report.left), 'step')} from {report.left[0]} on skipped: unchanged "
            "since the training was resumed, which has not reached them yet"
        )
    notes += [f"note: {note}" for note in report.notes]
    text = _text(call.run, report, opened, waiting, served=served)
    return Result(found, text=text, run=call.run, as_of=as_of, notes=notes)


def _named(word: str) -> Format:
    formats = get_args(Format)
    if word not in formats:
        close = get_close_matches(word, formats, 1)
        raise ConfigError(
            f"there is no format {word}",
            hint=f"did you mean {close[0]}?" if close else f"one of {', '.join(formats)}",
        )
    return cast("Format", word)


def _steering(
    call: CommandContext,
    file: Path,
    dataset: Path | None,
    mapped: Mapping[str, str] | None,
    stop: StopFlag,
) -> "Steering":
    """Steering with the diagnostician and the embedder of the run's configuration."""
    from diagevo.config.loading import of_run
    from diagevo.diagnosis.embedder import embedder_for
    from diagevo.ingest.dataset import read_dataset
    from diagevo.ingest.diagnosing import diagnostician_for
    from diagevo.ingest.rounds import Rounds
    from diagevo.ingest.steering import Steering

    def diagnose(memory: "Memory") -> None:
        config = of_run(memory.config, memory.run_id).config
        Rounds(memory).diagnose_open(
            diagnostician_for(memory, config),
            embedder_for(config.roles.embedder),
            config.diagnosis,
            config.memory,
            should_stop=lambda: bool(stop),
        )

    def check(config: Mapping[str, Any]) -> None:
        engine = str(config.get("roles", {}).get("diagnostician", {}).get("engine"))
        if engine not in ("local", "openai"):
            role = "--set roles.diagnostician"
            raise ConfigError(
                f"--steer diagnoses each round, and run {call.run} names {engine}, which cannot",
                hint=f"for a new run: {role}.engine=local, or {role}.engine=openai {role}.model=M"
                f" {role}.base_url=URL; for one with rollouts: diagevo diagnose --run {call.run} --local",
            )

    rows = None if dataset is None else read_dataset(dataset, (mapped or {}).get("prompt"))
    return Steering(file, rows, diagnose, check, lambda text: render.say(call, text))


def _mapped(text: str, format: str, reward: str | None) -> dict[str, str]:
    """Parses `prompt=messages.0.content,reward=score` into fields and paths."""
    from diagevo.ingest.formats.own_rows import FIELDS

    hint = "for example: --map prompt=messages.0.content,response=messages.1.content,reward=score"
    if format != "jsonl":
        raise ConfigError(f"--map is for jsonl: {format} has its own fields", hint="leave it out")
    found: dict[str, str] = {}
    for part in text.split(","):
        field, _, path = (word.strip() for word in part.partition("="))
        if field not in FIELDS or not path or field in found:
            raise ConfigError(
                f"--map {part}: expected FIELD=PATH, each of {', '.join(FIELDS)} once", hint=hint
            )
        found[field] = path
    if reward is not None and "reward" in found:
        raise ConfigError("--reward and --map reward= both name the reward", hint="leave one out")
    return found


def _text(run: str, report: "IngestSummary", opened: int | None, waiting: int, *, served: bool) -> str:
    who = "" if served else " --local (or --model M --base-url URL)"
    groups = report.groups
    lines = [
        f"{run}: {count(report.steps, 'step')} ({report.new_steps:,} new),"
        f" {count(report.rollouts, 'rollout')} in {count(groups.total(), 'group')}",
        f"  {groups['contrast']:>9,}  with passes and failures, {count(report.failures, 'failure')}",
        f"  {groups['all_failed']:>9,}  all failed: no pass to compare with; diagnose --local needs none"
        + (f" ({report.answered:,} with a known answer: {ALL_FAILED})" if report.answered else ""),
        f"  {groups['all_passed']:>9,}  all passed",
    ]
    if report.unscored:
        lines.append(f"  {report.unscored:>9,}  rollouts without a reward, in no group")
    if report.repeated:
        lines.append(
            f"  {report.repeated:>9,}  identical to an earlier row, and counted all the same: retries?"
        )
    if report.models:
        names = listed(report.models)
        lines.append(
            f"  {len(report.models):>9,}  models named in a step, a tag and groups for each: {names}"
        )
    if report.split:
        lines.append(f"  {report.split:>9,}  group names shared by several prompts: a group for each prompt")
    if opened is not None and (groups["contrast"] or groups["all_failed"]):
        who = who if groups["contrast"] or served else " --local"
        behind = f", {waiting} more behind it" if waiting else ""
        lines.append(f"round {opened} waits for its diagnosis{behind}: diagevo diagnose --run {run}{who}")
    return "\n".join(lines) + "\n"
