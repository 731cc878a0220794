"""`diagevo ingest`: the rollouts of another trainer, from its files."""

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from diagevo.errors import ConfigError, HeldError, NotFoundError, StoreError
from diagevo.ingest.formats import Format, read
from diagevo.progress import StopFlag
from diagevo.text.numbers import count

from .. import options
from ..call import Call
from ..render import console as render
from ..render.result import Result
from ..render.rows import row_of
from .stopping import stopped_by_signals

if TYPE_CHECKING:
    from diagevo.config.models import Config, IngestConfig
    from diagevo.ingest.recording import IngestSummary, Recorder
    from diagevo.ingest.rollouts import RolloutStep
    from diagevo.memory.memory import Memory
    from diagevo.memory.state.model import MemoryState

POLL_SECONDS = 2.0
"""How often a followed training is looked at."""
HELD = 10_000
"""Rollouts that wait for one on the other side of --pass-at, before a run begins without it."""
ALL_FAILED = "diagnose --all-failed asks a language model"
ONCE = (
    "every question was answered once: nothing to compare. Let the model answer each several times "
    f"(samples, epochs, generations); where the answer is known, {ALL_FAILED}"
)
ALIKE = (
    "in every group all responses are the same text: nothing to compare. Are prompt and response the wrong"
    " way round (--map), or is the temperature 0?"
)


@options.command(
    "ingest",
    reads=options.CONFIGURATION,
    example="""diagevo ingest verl rollouts --run math
diagevo ingest trl output --run math --reward accuracy_reward -c diagevo.yaml
diagevo ingest jsonl rollouts.jsonl --run math --steps-per-round 4
diagevo ingest jsonl chats.parquet --run math --map prompt=question,response=choices.0.text,reward=ok
diagevo ingest lm-eval results/model --run evals --reward exact_match,strict-match
diagevo ingest verl rollouts --run math --follow""",
)
def ingest(
    call: Call,
    format: Annotated[
        Format, typer.Argument(metavar="FORMAT", help=f"One of {', '.join(get_args(Format))}.")
    ],
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The folder of rollout files, or one file.")],
    *,
    steps_per_round: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Training steps per round. [default: 12]")
    ] = None,
    reward: Annotated[
        str | None, typer.Option(metavar="FIELD", help="Field of the reward, or a sum of fields: a+0.1*b.")
    ] = None,
    map: Annotated[
        str | None,
        typer.Option(
            metavar="FIELD=PATH,…",
            help="For jsonl: where prompt, response, reward, group, answer, step stand (messages.0.content).",
        ),
    ] = None,
    pass_at: Annotated[
        float | None, typer.Option(metavar="REWARD", help="Lowest reward that is a pass. [default: 0.5]")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep reading while the training writes, until Ctrl-C.")
    ] = False,
    resumed: Annotated[
        bool,
        typer.Option(
            "--resumed", help="The training resumed from a checkpoint, so some steps have new rollouts."
        ),
    ] = False,
) -> Result[Any]:
    """Record another trainer's rollouts in the log.

    Reads rollouts of verl, TRL, NeMo-RL, prime-rl, slime and AReaL, evaluations of lm-eval and Inspect,
    and rows of your own (JSON, Parquet). The same files again change nothing. The first ingest of a run
    records its configuration, and with it who diagnoses and embeds. Then: diagevo diagnose.
    """
    from diagevo.ingest.recording import IngestSummary

    if call.run in (None, "latest"):
        raise ConfigError(
            "the run for the rollouts is missing", hint="name it: diagevo ingest FORMAT PATH --run ID"
        )
    asked = {"steps_per_round": steps_per_round, "reward": reward, "pass_at": pass_at}
    asked["map"] = None if map is None else _mapped(map, format, reward)
    asked = {name: value for name, value in asked.items() if value is not None}
    report, stop = IngestSummary(), StopFlag("continue with the same command")
    with (
        _Session(call, call.run, asked, stop if follow else None, resumed=resumed) as session,
        stopped_by_signals(stop, waits=follow),
    ):
        settings = session.settings()
        steps = read(
            format,
            path,
            reward=settings.reward,
            mapped=settings.map,
            wait=session.wait if follow else None,
            on_cut=report.cut.append,
            on_note=report.notes.append,
        )
        held: list[RolloutStep] = []  # a run begins with a pass beside a failure: a wrong reward leaves none
        least, most, pending, begins = math.inf, -math.inf, 0, False
        for step in steps:
            if not follow:
                stop.check(f"before step {step.number}")
            held.append(step)
            rewards = [rollout.reward for rollout in step.rollouts]
            least, most = min([least, *rewards]), max([most, *rewards])
            pending += len(rewards)
            begins = session.known or follow or least < settings.pass_at <= most
            if begins or pending > HELD:
                session.recorder.record(held, report)
                held.clear()
                pending = 0
            if follow:
                render.say(call, f"step {step.number}: {len(step.rollouts)} rollouts")
        if most == -math.inf and not follow:
            report.unscored += sum(step.unscored for step in held)
            raise _nothing(path, report)
        if not begins and most > -math.inf:
            told = _one_sided(
                held, settings.pass_at, least, most, recorded=report.rollouts, asked=pass_at is not None
            )
            session.recorder.record(held, report)
            report.notes.append(told)
        if report.steps:
            session.open_next(full=False)
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


def _mapped(text: str, format: str, reward: str | None) -> dict[str, str]:
    """`prompt=messages.0.content,reward=score` as fields and paths."""
    from diagevo.ingest.formats.plain import FIELDS

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


def _one_sided(
    steps: "Sequence[RolloutStep]",
    pass_at: float,
    least: float,
    most: float,
    *,
    recorded: int,
    asked: bool,
) -> str:
    """What is said where all rollouts passed or all failed. Raises ConfigError where --pass-at is more likely
    wrong than the model right, or wrong, every time."""
    seen = f"seen {least:g} to {most:g}" if least < most else f"every one is {most:g}"
    number = count(recorded + sum(len(step.rollouts) for step in steps), "rollout")
    what = f"all of {number} {'passed' if least >= pass_at else 'failed'}: "
    what += f"a reward of {pass_at:g} or more passes, {seen}"
    answered = any(rollout.answer is not None for step in steps for rollout in step.rollouts)
    if recorded or least == most or (asked and most < pass_at and answered):
        return f"{what} (--pass-at)"
    raise ConfigError(what, hint=f"say what passes: --pass-at {most:g}; nothing was recorded")


def _nothing(path: Path, report: "IngestSummary") -> ConfigError:
    """No rollout was read: why, as far as the files tell."""
    why = [f"{name} ends inside a line: wait for its writer, or --follow" for name in report.cut]
    why += report.notes
    if report.unscored:
        why.append(
            f"{count(report.unscored, 'rollout')} without a reward: name its field with --reward FIELD"
        )
    what = "no rollout" if not report.unscored else "no rollout with a reward"
    if report.cut:
        what = "no step that is whole"
    return ConfigError(
        f"{what} was found in {path}", hint="; ".join(why) or "name the folder or file that holds them"
    )


def _text(run: str, report: "IngestSummary", opened: int | None, waiting: int, *, served: bool) -> str:
    who = "" if served else " --model M --base-url URL (or --local)"
    groups = report.groups
    lines = [
        f"{run}: {count(report.steps, 'step')} ({report.new_steps:,} new),"
        f" {count(report.rollouts, 'rollout')} in {count(groups.total(), 'group')}",
        f"  {groups['contrast']:>9,}  with passes and failures: kept, {count(report.failures, 'failure')}",
        f"  {groups['all_failed']:>9,}  all failed: no reference, so nothing to compare; not diagnosed"
        + (f" ({report.answered:,} with a known answer: {ALL_FAILED})" if report.answered else ""),
        f"  {groups['all_passed']:>9,}  all passed",
    ]
    if report.unscored:
        lines.append(f"  {report.unscored:>9,}  rollouts without a reward, in no group")
    if report.split:
        lines.append(f"  {report.split:>9,}  group names shared by several prompts: a group for each prompt")
    if opened is not None and groups["contrast"]:
        behind = f", {waiting} more behind it" if waiting else ""
        lines.append(f"round {opened} waits for its diagnosis{behind}: diagevo diagnose --run {run}{who}")
    return "\n".join(lines) + "\n"


class _Session:
    """The run that takes the rollouts: opened with the first step, closed while a followed training is waited
    for, so that others may write in between."""

    def __init__(
        self, call: Call, run: str, asked: dict[str, Any], stop: StopFlag | None, *, resumed: bool
    ) -> None:
        """`stop`: of a training that is followed, for which another writer is waited."""
        self.call = call
        self.run = run
        self.asked = asked
        self.stop = stop
        self.resumed = resumed
        self.known = False
        """Whether the run was ingested before, once its settings were asked for."""
        self._memory: Memory | None = None
        self._recorder: Recorder | None = None

    def __enter__(self) -> "_Session":
        return self

    def __exit__(self, *_: object) -> None:
        self._leave()

    def settings(self) -> "IngestConfig":
        """Those that the run was ingested with before, else those asked for now."""
        from diagevo.memory.history import open_history

        try:
            history = open_history(self.call.database, self.run)
        except (NotFoundError, StoreError):  # opening it for writing says what is wrong, if anything is
            return _config(self.call, self.run, self.asked).ingest
        self.known = True
        try:
            return _ingest_settings(history.configuration().config)
        finally:
            history.close()

    @property
    def memory(self) -> "Memory":
        told = False
        while self._memory is None:
            try:
                self._memory = _opened(self.call, self.run, self.asked)
            except HeldError as held:
                if self.stop is None or self.stop:
                    raise
                if not told:
                    render.say(self.call, f"waiting: {held.message}")
                told = True
                time.sleep(POLL_SECONDS)
        return self._memory

    @property
    def recorder(self) -> "Recorder":
        from diagevo.ingest.recording import Recorder

        if self._recorder is None:
            self._recorder = Recorder(
                self.memory, _ingest_settings(self.memory.state.config), resumed=self.resumed
            )
        return self._recorder

    def wait(self) -> bool:
        """Let others write, and look again; False once nobody wants to wait."""
        if self._memory is not None:
            self.open_next(full=True)
            self._leave()
        if not self.stop:
            time.sleep(POLL_SECONDS)
        return not self.stop

    def open_next(self, *, full: bool) -> None:
        """Open the round that comes next, if none is open; with `full` only one that has all its steps."""
        from diagevo.ingest.rounds import Rounds

        enough = self.recorder.settings.steps_per_round if full else 1
        state = self.memory.state
        if self.recorder.filled[state.batch(state.round + 1)] >= enough:
            Rounds(self.memory).open_next()

    @property
    def served(self) -> bool:
        """Whether the run's configuration names a language model that diagnoses."""
        stored = (self.state.config if self.state is not None else None) or {}
        return stored.get("roles", {}).get("diagnostician", {}).get("engine") == "openai"

    @property
    def state(self) -> "MemoryState | None":
        """None where nothing was read."""
        return None if self._memory is None else self._memory.state

    def standing(self) -> tuple[int | None, int]:
        """The open round, and how many wait behind it."""
        if (state := self.state) is None:
            return None, 0
        opened = None if state.open is None else state.open.number
        return opened, max(0, max(self.recorder.filled, default=0) - state.batch(state.last_opened + 1) + 1)

    def _leave(self) -> None:
        if self._memory is not None:
            self._memory.close()
        self._memory = self._recorder = None


def _ingest_settings(config: "Mapping[str, Any] | None") -> "IngestConfig":
    from diagevo.config.models import IngestConfig

    return IngestConfig.model_validate((config or {}).get("ingest", {}))


def _opened(call: Call, run: str, asked: dict[str, Any]) -> "Memory":
    """The run, configured. Raises ConfigError where it was ingested with other settings, or was not."""
    from diagevo.diagnosis.embedder import embedder_for
    from diagevo.ingest.recording import configure
    from diagevo.memory.opening import open_memory

    memory = open_memory(call.database, run)
    try:
        memory.claim()
        if memory.state.config is None:
            config = _config(call, run, asked)
            configure(memory, config, embedder_for(config.roles.embedder))
        elif memory.played_by_train:
            raise ConfigError(
                f"run {run} is played by diagevo train: its rounds are its own",
                hint="ingest into another run: --run NAME",
            )
        stored = _ingest_settings(memory.state.config)
        for name, value in asked.items():
            if getattr(stored, name) != value:
                was, wanted = (_as_option(each) for each in (getattr(stored, name), value))
                raise ConfigError(
                    f"run {run} was ingested with {name} = {was}, not {wanted}",
                    hint="leave the option out, or ingest into another run: --run NAME",
                )
    except BaseException:
        memory.close()
        raise
    return memory


def _as_option(value: Any) -> str:
    """As it is said on the command line."""
    if isinstance(value, dict):
        return ",".join(f"{field}={path}" for field, path in value.items())
    return "nothing" if value is None else str(value)


def _config(call: Call, run: str, asked: dict[str, Any]) -> "Config":
    from diagevo.config.loading import over
    from diagevo.config.sources import Layer, Source

    given = Layer()
    for name, value in asked.items():
        given.put(("ingest", name), value, Source("flag", f"--{name.replace('_', '-')}"))
    return over(call.load_config().model_dump(), given, run)
