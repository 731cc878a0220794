"""`diagevo runs`: list runs, compare them, and start new ones from a committed round."""

from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from diagevo.text.escaping import visible
from diagevo.text.numbers import count, number

from .. import options
from ..call import CommandContext
from ..opening import Run, database, one, opened
from ..render import console as render
from ..render.console import row_of
from ..render.result import Result, Rows
from ..render.table import columns
from ..screens.rounds import FIGURES, accuracy, premises, round_tables

if TYPE_CHECKING:
    from diagevo.memory.events import RunConfigured
    from diagevo.memory.history import History
    from diagevo.memory.read.runs import PhaseLine, RunLine, RunStory

RUNS = (*columns("run_id: run, rounds, now, events"), *FIGURES, *columns("last: last event, from"))
EVALUATIONS = columns("run_id: run, now, pass_rate: pass rate, events, last: last event, from")
"""For runs without a curriculum."""
OUTCOMES = columns(
    "run_id: run, last_round: after round, pass_rate: pass rate, mean_at_k: mean@k, greedy, "
    "labels_true: labels true, reward"
)
PHASES = columns(
    "round, stage: phase, steps, first_kl: KL at step 1: 6, sampling_gap: log-prob gap: 6, "
    "reward_lowest: reward from, reward_highest: to, completions, cut_off: cut off, attention, "
    "found"
)


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
        "last": line.last_event[:16].replace("T", " "),
        "from": ", ".join(filter(None, (bundle, origin))) or None,
    }


@options.command(
    "runs list",
    rows=True,
    without=("--run",),
    example="""diagevo runs list
    diagevo runs list --db postgresql://host/diagevo --json""",
)
def list_(call: CommandContext) -> Result[Any]:
    """List the runs of the database, latest first."""
    from diagevo.memory.read.runs import list_runs

    with database(call) as opened_:
        found = list_runs(opened_)
    if not found:
        render.say(call, "no runs yet; start one: diagevo train")
    rows = [_line(line) for line in found]
    evaluations = [row for row in rows if row["evaluation"]]
    others = [row for row in rows if not row["evaluation"]]
    # RUNS and OUTCOMES in one table would not fit a terminal.
    tables = [Rows(RUNS, others), Rows(OUTCOMES, others), Rows(EVALUATIONS, evaluations)]
    return Result(
        rows,
        RUNS if others else EVALUATIONS,
        [table for table in tables if table.values] or None,
        notes=premises(line.world for line in found if line.rounds),
    )


@options.command(
    "runs show",
    example="""diagevo runs show
    diagevo runs show a --json""",
)
def show(call: CommandContext, run: Run = None) -> Result[Any]:
    """Show a run: its models, origin and rounds."""
    from diagevo.memory.read.runs import run_story

    from ..screens.ingested import next_lines, pass_rates

    with opened(call, one(call, run)) as history:
        story = run_story(history)
        end = history.end
        parts: list[str | Rows] = [_story_text(story)]
        line = story.line
        parts += pass_rates(story)
        if (story.rounds or story.superseded) and not history.evaluation:
            lines = sorted((*story.rounds, *story.superseded), key=lambda each: each.round)
            parts += round_tables(lines, story.before, ingested=line.ingested is not None)
        parts += accuracy(history)
        if story.phases:
            parts.append(Rows(PHASES, [_phase(line) for line in story.phases]))
        parts += next_lines(story)
        notes = _changed_since(history) if story.rounds and not history.evaluation else []
        return Result(story, text=parts, run=history.run_id, as_of=end, notes=notes)


def _changed_since(history: "History") -> list[str]:
    """Where settings or a dismissal made the memory another than the last row says, which is as committed."""
    from diagevo.memory.compare.replay import committed_otherwise, describe

    now = describe(history.state(history.end))
    if committed_otherwise(history, history.end, now) is None:
        return []
    return [
        f"settings or a dismissal changed the memory since round {now.round}, whose row is as it was"
        f" committed: now F = {now.failures}, and {now.active} Active: diagevo memory show"
    ]


def _phase(line: "PhaseLine") -> dict[str, Any]:
    found = ", ".join(name.replace("_", " ") for name in line.measured.findings)
    return {**asdict(line.measured), "round": line.round, "found": found or None}


def _shared(story: "RunStory") -> str:
    if story.shared is None:
        return ""
    return f", its first {count(story.shared, 'event')}" if story.shared else ", whose history here differs"


def _settings(line: "RunLine", configuration: "RunConfigured") -> str:
    """The settings with which another trainer's rollouts are read and diagnosed: no profile trained them."""
    from diagevo.memory.state.stored_config import configured

    read = configured(configuration.config)
    pass_at = configuration.config.get("ingest", {}).get("pass_at", 0.5)
    text = f"a reward of {pass_at:g} passes"
    if line.evaluation:
        return text
    text += f", θ_dup = {number(read.theta_dup, 2)}"
    return f"{text}: profile {line.profile}" if line.profile else text


def _story_text(story: "RunStory") -> str:
    line, configuration = story.line, story.configuration
    played = f"profile {line.profile or '–'}, " if line.ingested is None else ""
    lines = [f"{line.run_id}  {played}diagevo {configuration.version}, {count(line.events, 'event')}"]
    if line.ingested is not None:
        from ..screens.ingested import evaluated

        source = visible(line.ingested, one_line=True)
        if (passed := evaluated(story)) is not None:
            lines.append(f"  {'passed':<14} {passed}")
            lines.append(f"  {'file':<14} {source}")
        else:
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
        lines.append(f"  {'configured':<14} {story.configurations} times; the latest applies")
    lines.append(f"  {'began':<14} {line.began[:19].replace('T', ' ')}")
    lines.append(f"  {'last event':<14} {line.last_event[:19].replace('T', ' ')} (#{line.position})")
    if line.open_round is not None:
        waits = "" if line.evaluation else f"round {line.open_round}, "
        lines.append(f"  {'open':<14} {waits}{_stage(line)}")
    if line.writer is not None:
        lines.append(f"  {'writer':<14} {line.writer}")
    return "\n".join(lines) + "\n"
