"""`diagevo runs`: which runs there are, how they compare, and new ones from a committed round."""

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec.structs import asdict

from diagevo.errors import ConfigError
from diagevo.text.escaping import visible
from diagevo.text.numbers import count, number

from .. import completion, options
from ..call import Call
from ..opening import database, one, opened, where
from ..render import console as render
from ..render.result import Result, Rows
from ..render.rows import row_of
from ..render.table import Column
from ..screens.accuracy import accuracy, premises
from ..screens.ingested import pass_rates

if TYPE_CHECKING:
    from collections.abc import Mapping

    from diagevo.memory.audit.runs import PhaseLine, RoundLine, RunLine, RunStory
    from diagevo.memory.events import RunConfigured

FIGURES = (
    Column("failures", "F", "right"),
    Column("z", align="right"),
    Column("epsilon_next", "ε next", "right"),
    Column("active", "Active", "right"),
    Column("mastered", "Mastered", "right"),
)
"""Of a committed round."""
RUNS = (
    Column("run_id", "run"),
    Column("rounds", align="right"),
    Column("now"),
    Column("events", align="right"),
    *FIGURES,
    Column("nodes", align="right"),
    Column("last", "last event"),
    Column("from"),
)
OUTCOMES = (
    Column("run_id", "run"),
    Column("last_round", "after round", "right"),
    Column("mean_at_k", "mean@k", "right"),
    Column("greedy", align="right"),
    Column("labels_true", "labels true", "right"),
    Column("reward", align="right"),
)
ROUNDS = (
    Column("round", align="right"),
    *FIGURES,
    Column("nodes", align="right"),
    Column("promoted", align="right"),
    Column("reactivated", align="right"),
    Column("created", "new causes", "right"),
    Column("position", "#", "right"),
)
QUESTIONS = (
    Column("round", align="right"),
    Column("candidates", align="right"),
    Column("kept", align="right"),
    Column("invalid"),
    Column("without_box", "no box", "right"),
    Column("undecided", align="right"),
    Column("observed", "failures", "right"),
    Column("against_false_labels", "at a false label", "right"),
    Column("right", "of them right", "right"),
)
LEARNT = (
    Column("round", align="right"),
    Column("mean_at_k", "mean@k", "right"),
    Column("greedy", align="right"),
    Column("labels_true", "labels true", "right"),
    Column("solver_reward", "solver's reward", "right"),
    Column("challenger_reward", "challenger's reward", "right"),
)
PHASES = (
    Column("round", align="right"),
    Column("stage", "phase"),
    Column("steps", align="right"),
    Column("first_kl", "KL at step 1", "right", digits=6),
    Column("sampling_gap", "log-prob gap", "right", digits=6),
    Column("reward_lowest", "reward from", "right"),
    Column("reward_highest", "to", "right"),
    Column("completions", align="right"),
    Column("cut_off", "cut off", "right"),
    Column("attention"),
    Column("found"),
)
_POINTS = "write a..b, a@3..b@3, a@2..a@5, or 2..5"
Run = Annotated[
    str | None,
    typer.Argument(metavar="[RUN]", help="The run; the latest if omitted.", autocompletion=completion.runs),
]


def _stage(line: "RunLine") -> str:
    if line.ingested is not None:
        return "waits for its diagnosis"
    return line.stage or "between stages"


def _line(line: "RunLine") -> dict[str, Any]:
    now = "–" if line.open_round is None else f"r{line.open_round} {_stage(line)}"
    if line.writer is not None:
        now = f"{now}, written by {line.writer}" if line.open_round is not None else f"held by {line.writer}"
    origin = None if line.origin is None else f"{line.origin.run} #{line.origin.position}"
    bundle = None if line.imported is None else f"bundle {line.imported[:12]}…"
    given = None if line.origin is None else asdict(line.origin)
    return row_of(line) | {
        "origin": given,
        "now": now,
        "last": line.last_event[:19].replace("T", " "),
        "from": ", ".join(filter(None, (bundle, origin))) or None,
    }


@options.command(
    "runs list",
    rows=True,
    pages=True,
    without=("--run",),
    example="""diagevo runs list
    diagevo runs list --db postgresql://host/diagevo --json""",
)
def list_(call: Call) -> Result[Any]:
    """Every run of the database, the latest first."""
    from diagevo.memory.audit.runs import list_runs

    with database(call) as asked:
        found = list_runs(asked)
    if not found:
        render.say(call, "no runs yet; start one: diagevo train")
    rows = [_line(line) for line in found]
    tables = [Rows(RUNS, rows), Rows(OUTCOMES, rows)]  # both in one would not fit a terminal
    return Result(
        rows, RUNS, tables if rows else None, notes=premises(line.world for line in found if line.rounds)
    )


@options.command(
    "runs show",
    pages=True,
    example="""diagevo runs show
    diagevo runs show a --json""",
)
def show(call: Call, run: Run = None) -> Result[Any]:
    """One run: its models, origin and rounds."""
    from diagevo.memory.audit.runs import run_story

    with opened(call, one(call, run)) as history:
        story = run_story(history)
        end = history.end
        parts: list[str | Rows] = [_story_text(story)]
        line = story.line
        if story.rounds or story.superseded:
            lines = sorted((*story.rounds, *story.superseded), key=lambda each: each.round)
            rounds = [
                row_of(each) | {"invalid": _invalid(each.invalid), "round": _round(each)} for each in lines
            ]
            before = {"round": 0} | story.before
            own = ((QUESTIONS, rounds), (LEARNT, [before, *rounds])) if line.ingested is None else ()
            parts += [Rows(columns, values) for columns, values in ((ROUNDS, rounds), *own)]
        parts += [*pass_rates(story), *accuracy(history)]
        if story.phases:
            parts.append(Rows(PHASES, [_phase(line) for line in story.phases]))
        return Result(story, text=parts, run=history.run_id, as_of=(end.round, end.position))


def _round(line: "RoundLine") -> int | str:
    again = line.superseded_by
    return line.round if again is None else f"{line.round}, superseded by {again}"


def _phase(line: "PhaseLine") -> dict[str, Any]:
    found = ", ".join(name.replace("_", " ") for name in line.measured.findings)
    return {**asdict(line.measured), "round": line.round, "found": found or None}


def _invalid(reasons: "Mapping[str, int]") -> str:
    """How many candidates were invalid, and why: "92 (66 held out, 26 outside world)"."""
    from ..screens.display import invalid

    total = sum(reasons.values())
    return f"{total} ({invalid(reasons)})" if total else "0"


def _shared(story: "RunStory") -> str:
    if story.shared is None:
        return ""
    return (
        f", its first {count(story.shared, 'event')}" if story.shared else ", whose history here is another"
    )


def _settings(line: "RunLine", configuration: "RunConfigured") -> str:
    """What another trainer's rollouts are read and diagnosed with: no profile trained them."""
    from diagevo.memory.state.stored_config import configured

    read = configured(configuration.config)
    pass_at = configuration.config.get("ingest", {}).get("pass_at", 0.5)
    told = f"a reward of {pass_at:g} passes, θ_dup = {number(read.theta_dup, 2)}"
    return f"{told}: profile {line.profile}" if line.profile else told


def _story_text(story: "RunStory") -> str:
    line, configuration = story.line, story.configuration
    played = f"profile {line.profile or '–'}, " if line.ingested is None else ""
    lines = [f"{line.run_id}  {played}diagevo {configuration.version}, {count(line.events, 'event')}"]
    if line.ingested is not None:
        source = visible(line.ingested, one_line=True)
        lines.append(f"  {'rollouts':<14} of another trainer, the last from {source}")
        lines.append(f"  {'settings':<14} {_settings(line, configuration)}")
    for role, model in sorted(configuration.models.items()):
        named = model.name + (f" @ {model.revision}" if model.revision else "")
        lines.append(f"  {role:<14} {visible(named, one_line=True)}")
    embedder = configuration.embedder
    lines.append(f"  {'embeddings':<14} {embedder.name} @ {embedder.revision}, {embedder.dimension} numbers")
    if line.origin is not None:
        lines.append(f"  {'forked from':<14} {line.origin.run} at #{line.origin.position}{_shared(story)}")
    if line.imported is not None:
        lines.append(f"  {'imported':<14} from the bundle that ends in {line.imported}")
    if story.configurations > 1:
        lines.append(f"  {'configured':<14} {story.configurations} times; the last one applies")
    lines.append(f"  {'began':<14} {line.began[:19].replace('T', ' ')}")
    lines.append(f"  {'last event':<14} {line.last_event[:19].replace('T', ' ')} (#{line.position})")
    if line.open_round is not None:
        lines.append(f"  {'open':<14} round {line.open_round}, {_stage(line)}")
    if line.writer is not None:
        lines.append(f"  {'writer':<14} {line.writer}")
    return "\n".join(lines) + "\n"


@options.command(
    "runs diff",
    pages=True,
    example="""diagevo runs diff a..b
    diagevo runs diff a@3..b@3 --exit-code
    diagevo runs diff a@2..a@5
    diagevo runs diff 2..5 --run a""",
)
def diff(
    call: Call,
    points: Annotated[
        str,
        typer.Argument(
            metavar="A..B",
            help="Two runs, each with @ROUND if wanted; two rounds of a run; or rounds alone, of --run.",
            autocompletion=completion.points,
        ),
    ],
    *,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit 1 if there is a difference.")] = False,
) -> Result[Any]:
    """What changed between two rounds of a run, or where two runs first differ and what causes they share."""
    left, dots, right = points.partition("..")
    if not dots or not left or not right:
        raise ConfigError(f"{points} does not name two rounds", hint=_POINTS)
    if left.isdecimal() != right.isdecimal():
        number, other = (left, right) if left.isdecimal() else (right, left)
        raise ConfigError(f"{points}: {number} is a round, {other} is not", hint=_POINTS)
    (a, at_a), (b, at_b) = _point(left), _point(right)
    if left.isdecimal():
        found = _compare_rounds(call, call.run, int(left), int(right))
    elif a == b and at_a is not None and at_b is not None:
        found = _compare_rounds(call, one(call, a), at_a, at_b)
    else:
        one(call, left, right)
        found = _compare_runs(call, (a, at_a), (b, at_b))
    return replace(found, exit_code=1) if exit_code and not found.data["same"] else found


def _compare_rounds(call: Call, run: str | None, a: int, b: int) -> Result[dict[str, Any]]:
    """What changed between two commits of a run. Round 0 is before the first event."""
    from diagevo.memory.audit.compare import diff_memory
    from diagevo.memory.audit.compare_runs import configuration, learnt
    from diagevo.memory.history import AsOf

    from ..screens import compare as compare_text

    with opened(call, run) as history:
        first, last = (AsOf(0, 0, 0) if n == 0 else history.as_of(n) for n in (a, b))
        found = diff_memory(history, first, last)
        outcomes = [line for line in learnt(history, history, (first.round, last.round)) if line.round >= a]
        changed = list(configuration(history, history, first, last)) if first.round else []
    data = render.plain(found) | {"same": found.same, "configuration": render.plain(changed)}
    data |= {"learnt": render.plain(outcomes)}
    parts: list[str | Rows] = [compare_text.memory_diff(history.run_id, found, changed)]
    if found.causes:
        parts.append(Rows(compare_text.CHANGES, compare_text.change_rows(found)))
    if outcomes:
        parts.append(Rows(compare_text.learnt_columns(outcomes), compare_text.learnt_of_one(outcomes)))
    notes = premises([history.world] if outcomes else [])
    return Result(data, text=parts, run=history.run_id, as_of=where(last), notes=notes)


def _compare_runs(
    call: Call, left: tuple[str, int | None], right: tuple[str, int | None]
) -> Result[dict[str, Any]]:
    """How two runs differ."""
    from diagevo.memory.audit.compare_runs import diff_runs, learnt

    from ..screens import compare as compare_text

    with opened(call, left[0]) as a, opened(call, right[0]) as b:
        at_a, at_b = a.as_of(left[1]), b.as_of(right[1])
        threshold = a.in_force(at_a.position).theta_dup  # what the run itself takes for the same cause
        found = diff_runs(a, b, at_a, at_b, threshold=threshold)
        outcomes = learnt(a, b, found.rounds)
        worlds = [history.world for history in (a, b)]
    data = render.plain(found) | {"same": found.same, "learnt": render.plain(outcomes)}
    tables = (
        Rows(compare_text.learnt_columns(outcomes), compare_text.learnt_rows(outcomes)),
        Rows(compare_text.MATCHED, compare_text.matched_rows(found)),
        Rows(compare_text.ALONE, compare_text.alone_rows(found)),
    )
    parts = [compare_text.runs_diff(found), *(table for table in tables if table.values)]
    return Result(data, text=parts, notes=premises(worlds if outcomes else []))


def _point(text: str) -> tuple[str, int | None]:
    """A run, and the round behind its @."""
    name, at, round_ = text.rpartition("@")
    if at and round_.isdecimal():
        return name, int(round_)
    return text, None


@options.command(
    "runs fork",
    reads=["-c", "--set"],
    example="""diagevo runs fork --round 3 --set memory.theta_up=0.8
    diagevo runs fork a --round 3 --name b""",
)
def fork(
    call: Call,
    run: Run = None,
    *,
    round: Annotated[
        int, typer.Option("--round", metavar="N", min=1, help="The committed round to fork from.")
    ],
    name: Annotated[
        str | None, typer.Option("--name", metavar="RUN", help="The new run. [default: RUN-rN, numbered]")
    ] = None,
) -> Result[Any]:
    """Start a new run from a committed round of another one, with other settings if `--set` gives some."""
    from diagevo.memory.log.log import Log
    from diagevo.memory.transfer.fork import fork as make

    with opened(call, one(call, run)) as history:
        stored = history.configuration(history.commit(round).as_of).config
        config = _reconfigured(call.config_in_log(history, stored), call.settings)
        taken = Log(history.database).runs()
        free = _free_name(f"{history.run_id}-r{round}", taken) if name is None else name
        made = make(history, round, free, config, prompts=_prompts(config) if call.settings else None)
    events = count(made.written.events, "event")
    text = f"{free}: {events}, forked from {made.origin.run} after round {round}\n"
    if made.changed:
        text += f"  changed: {', '.join(made.changed)}\n"
    if made.files:
        text += f"  files: {len(made.files)} of the run's stages\n"
    again = shlex.join(["diagevo", "train", "--run", free, "--resume", *call.database_again])
    text += f"continue with: {again}\n"
    lost = [f"missing, and therefore not in the fork: {', '.join(made.missing)}"] if made.missing else []
    as_of = (made.written.round, made.written.position)
    return Result(made, text=text, run=free, as_of=as_of, notes=lost)


def _prompts(config: dict[str, Any]) -> dict[str, str] | None:
    """Digests of the templates that a configuration names; none of a trainer with templates of its own."""
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


def _reconfigured(stored: dict[str, Any], settings: tuple[str, ...]) -> dict[str, Any]:
    """The stored configuration with the values of `--set`, checked as a whole."""
    from pydantic import ValidationError

    from diagevo.config.loading import put_method
    from diagevo.config.models import Config
    from diagevo.config.sources import from_settings

    if not settings:
        return stored
    given = from_settings(settings)
    put_method([given], stored.get("world"))
    merged = given.nested(stored)
    try:
        return _like(merged, Config.model_validate(merged).model_dump(mode="json"))
    except ValidationError as error:
        if "roles" not in stored:  # configured by a trainer of its own: only what it gave
            return merged
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{where}: {first['msg']}", hint="see: diagevo config show") from error


def _like(given: dict[str, Any], checked: dict[str, Any]) -> dict[str, Any]:
    """The checked values of the keys that were given: a key that is new since the run is no change."""
    return {
        key: _like(value, checked[key])
        if isinstance(value, dict) and isinstance(checked[key], dict)
        else checked[key]
        for key, value in given.items()
    }
