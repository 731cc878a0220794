"""`diagevo runs`: which runs there are, how they compare, and new ones from a committed round."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import options, render
from .options import Call
from .render import Column

if TYPE_CHECKING:
    from diagevo.memory.runs import RunLine, RunStory

app = options.group("runs", "Which runs there are, how they compare, and new ones from a committed round.")

RUNS = (
    Column("run_id", "run"),
    Column("rounds", align="right"),
    Column("now"),
    Column("events", align="right"),
    Column("failures", "F", "right"),
    Column("z", align="right"),
    Column("epsilon_next", "ε next", "right"),
    Column("active", "Active", "right"),
    Column("mastered", "Mastered", "right"),
    Column("nodes", align="right"),
    Column("last", "last event"),
    Column("from"),
)
ROUNDS = (
    Column("round", align="right"),
    Column("failures", "F", "right"),
    Column("z", align="right"),
    Column("epsilon_next", "ε next", "right"),
    Column("active", "Active", "right"),
    Column("mastered", "Mastered", "right"),
    Column("nodes", align="right"),
    Column("candidates", align="right"),
    Column("kept", align="right"),
    Column("observed", "failures", "right"),
    Column("promoted", align="right"),
    Column("reactivated", align="right"),
    Column("created", "new causes", "right"),
    Column("position", "#", "right"),
)
Run = Annotated[str | None, typer.Argument(metavar="[RUN]", help="The run; the latest if none is named.")]


def _fields(line: Any) -> dict[str, Any]:
    """A flat dataclass as a row; fractions stay fractions."""
    return {name: getattr(line, name) for name in line.__dataclass_fields__}


def _line(line: "RunLine") -> dict[str, Any]:
    now = "–" if line.open_round is None else f"r{line.open_round} {line.stage or 'between stages'}"
    if line.writer is not None:
        now = f"{now}, written by {line.writer}" if line.open_round is not None else f"held by {line.writer}"
    origin = None if line.origin is None else f"{line.origin.run} #{line.origin.position}"
    given = None if line.origin is None else line.origin.model_dump()
    return _fields(line) | {
        "origin": given,
        "now": now,
        "last": line.last_event[:19].replace("T", " "),
        "from": origin,
    }


@options.command(
    app,
    "list",
    group="runs",
    rows=True,
    example="""diagevo runs list
    diagevo runs list --db postgresql://host/diagevo --json""",
)
def list_(call: Call) -> None:
    """Every run of the database, the latest first."""
    from diagevo.memory.database import Database
    from diagevo.memory.migrate import prepare
    from diagevo.memory.runs import list_runs

    database = Database(call.database)
    try:
        prepare(database, create=False)
        found = list_runs(database)
    finally:
        database.close()
    if not found:
        render.say(call, "no runs yet; start one: diagevo train")
    render.rows(call, RUNS, [_line(line) for line in found])


@options.command(
    app,
    "show",
    group="runs",
    data=lambda: __import__("diagevo.memory.runs", fromlist=["RunStory"]).RunStory,
    example="""diagevo runs show
    diagevo runs show a --json""",
)
def show(call: Call, run: Run = None) -> None:
    """One run: its models, origin and rounds."""
    from diagevo.memory.history import open_history
    from diagevo.memory.runs import run_story

    history = open_history(call.database, run or call.run)
    try:
        story = run_story(history)
        end = history.end
    finally:
        history.close()
    render.document(call, story, _story_text(story), run=history.run_id, as_of=(end.round, end.position))
    if not call.json and story.rounds:
        render.rows(call, ROUNDS, [_fields(line) for line in story.rounds])


def _story_text(story: "RunStory") -> str:
    line, configuration = story.line, story.configuration
    lines = [
        f"{line.run_id}  profile {line.profile or '–'}, diagevo {configuration.version}, {line.events} events"
    ]
    for role, model in sorted(configuration.models.items()):
        lines.append(f"  {role:<14} {model.name}" + (f" @ {model.revision}" if model.revision else ""))
    embedder = configuration.embedder
    lines.append(f"  {'embeddings':<14} {embedder.name} @ {embedder.revision}, {embedder.dimension} numbers")
    if line.origin is not None:
        lines.append(f"  {'forked from':<14} {line.origin.run} at #{line.origin.position}")
    if story.configurations > 1:
        lines.append(f"  {'configured':<14} {story.configurations} times; the last one holds")
    lines.append(f"  {'began':<14} {line.began[:19].replace('T', ' ')}")
    lines.append(f"  {'last event':<14} {line.last_event[:19].replace('T', ' ')} (#{line.position})")
    if line.open_round is not None:
        lines.append(f"  {'open':<14} round {line.open_round}, {line.stage or 'between stages'}")
    if line.writer is not None:
        lines.append(f"  {'writer':<14} {line.writer}")
    return "\n".join(lines) + "\n"
