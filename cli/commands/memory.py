"""`diagevo memory`: read the log, rebuild the memory, and explain it."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from diagevo.errors import ConfigError, NotFoundError
from diagevo.text.numbers import count, number

from .. import options
from ..call import CommandContext
from ..opening import At, OptionalRef, Ref, Round, opened
from ..render import console as render
from ..render.result import Result, Rows
from ..render.table import columns

if TYPE_CHECKING:
    from diagevo.memory.history import AsOf, History

SHOWN = 60
"""Characters of a prompt in a table."""
WEIGHTS = columns(
    "line, weight: weight: 6, cause, stitched, prompt",
    prompt=lambda prompt: prompt if len(prompt) <= SHOWN else f"{prompt[: SHOWN - 1]}…",
)


@options.command(
    "memory show",
    rows=True,
    example="""diagevo memory show
    diagevo memory show --round 3
    diagevo memory show --tree""",
)
def show(
    call: CommandContext,
    *,
    round: Round = None,
    at: At = None,
    tree: Annotated[bool, typer.Option("--tree", help="Show nodes with their causes.")] = False,
) -> Result[Any]:
    """Show causes by node: states, frequencies, probabilities.

    f counts a cause's failures since it was last Mastered, F those of all Active causes. p is its share of
    the prompts that aim at a cause, ε the share of those that explore freely: `memory replay` shows how the
    run's policy computes both. For one cause with its evidence: `memory why`."""
    from dataclasses import replace

    from diagevo.equations.states import CauseState, part_in_schedule
    from diagevo.memory.compare.replay import by_frequency, committed_otherwise, describe
    from diagevo.memory.stories.failures import contradicted_causes

    from ..render.layout import width
    from ..screens import memory as memory_text

    with opened(call) as history:
        as_of = history.as_of(round, at)
        memory = describe(history.state(as_of))
        _note_superseded(call, history, round)
        rates, against, failures, evaluation = None, 0, 0, history.evaluation
        contradicted = contradicted_causes(history) if as_of == history.end else {}
        then = None if evaluation else committed_otherwise(history, as_of, memory)
        if history.ingested is not None:
            from diagevo.memory.read.pass_rates import observed, pass_rates

            rates = pass_rates(history) if as_of == history.end else None
            if history.in_force().config.get("ingest", {}).get("all_failed"):
                failures, against = observed(history, as_of)
    memory = replace(memory, causes=by_frequency(memory.causes))
    title = memory_text.headline(history.run_id, memory)
    place: dict[str, Any] = {"run": history.run_id, "as_of": as_of, "notes": []}
    if not evaluation:
        place["notes"] += memory_text.by_configuration(memory, then)
    if against:
        of = f"{against:,} of {count(failures, 'failure')}"
        place["notes"].append(f"{of} compared with the known answer, because no response passed")
    if tree:
        return Result(memory, text=f"{title}\n\n{memory_text.tree(memory, width())}", **place)
    shown = [cause for cause in memory.causes if part_in_schedule(cause.state)]
    place["notes"] += [f"{cause}: {why}" for cause, why in contradicted.items()]
    for state in get_args(CauseState):
        of = {cause.id: cause.frequency for cause in memory.causes if cause.state == state}
        if of and part_in_schedule(state) is None:
            place["notes"].append(f"{memory_text.left_out(state, of)} --run {history.run_id}")
    if rates is None:
        return Result(memory, memory_text.CAUSES, rows=shown, title=title, **place)
    if rates.left is not None:
        place["notes"].append(
            f"{rates.incomparable or rates.left}; the prompts: diagevo runs show {place['run']}"
        )
    rows = memory_text.with_failures(memory, rates)
    table = memory_text.EVALUATED if evaluation else memory_text.COUNTED
    if evaluation:
        title = f"{history.run_id}: {memory_text.held(rates)}"
    text = None
    if len(rows) > memory_text.MOST:
        more = f"{len(rows) - memory_text.MOST} more: diagevo memory show --run {history.run_id} --format csv"
        text = [Rows(table, rows[: memory_text.MOST]), more]
    return Result(memory, table, text, rows=rows, title=title, **place)


def _note_superseded(call: CommandContext, history: "History", round: int | None) -> None:
    again = history.superseded().get(round or 0)
    if again is not None:
        render.say(call, f"round {round} is superseded by round {again}: it no longer counts")


@options.command(
    "memory replay",
    rows=True,
    example="""diagevo memory replay --round 3
    diagevo memory replay --round 3 --step
    diagevo memory replay --round 3 --step --format csv -o steps.csv""",
)
def replay(
    call: CommandContext,
    *,
    round: Round = None,
    at: At = None,
    step: Annotated[
        bool, typer.Option("--step", help="Show each event of the round that changed the memory.")
    ] = False,
) -> Result[Any]:
    """Rebuild the memory from events alone.

    Shows the arithmetic of F, F₁ and z, and how the run's policy computes ε and p. With --format, each row is
    a cause; with --step, an event. `memory verify` checks the result against what was committed.
    """
    from diagevo.memory.compare.replay import by_frequency, committed_otherwise, describe, steps

    from ..screens import memory as memory_text

    with opened(call) as history:
        as_of = history.as_of(round, at)
        _note_superseded(call, history, round)
        if step:
            stepped = round or as_of.round
            if at is not None and (inside := history.state(as_of).open) is not None:
                stepped = inside.number
            listed = [render.plain(each) for each in steps(history, stepped, as_of)]
            title = f"run {history.run_id}, round {stepped}"
            return Result(listed, memory_text.STEPS, title=title, run=history.run_id, as_of=as_of)
        memory = describe(history.state(as_of, snapshots=False))
        then = committed_otherwise(history, as_of, memory)
    rows, shown = by_frequency(memory.causes), memory_text.replayed(memory)
    text = memory_text.replay_text(history.run_id, memory, as_of.position)
    return Result(
        memory,
        shown,
        [text, *([Rows(shown, rows)] if rows else [])],
        rows=rows,
        run=history.run_id,
        as_of=as_of,
        notes=memory_text.by_configuration(memory, then),
    )


@options.command(
    "memory log",
    rows=True,
    example="""diagevo memory log c42
    diagevo memory log --round 3 --type CausePromoted --type CauseReactivated
    diagevo memory log --follow
    diagevo memory log --format jsonl -o events.jsonl""",
)
def log(
    call: CommandContext,
    ref: OptionalRef = None,
    *,
    type: Annotated[
        list[str] | None, typer.Option(metavar="TYPE", help="Only these events; may be repeated.")
    ] = None,
    round: Annotated[int | None, typer.Option(metavar="N", min=0, help="Only events of round N.")] = None,
    at: At = None,
    last: Annotated[
        int | None, typer.Option("--last", "-n", metavar="N", min=1, help="Only the last N events.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Keep printing events as they are written.")
    ] = False,
) -> Result[Any] | None:
    """Print the events, oldest first.

    All events of the run, or those of a round, cause, node, question or failure."""
    from diagevo.memory.events import EVENT_TYPES
    from diagevo.memory.stories.references import EventFilter, trail

    from ..screens.log import COLUMNS, row, write_lines

    for name in type or ():
        if name not in EVENT_TYPES:
            raise ConfigError(f"there is no event {name}", hint=f"one of: {', '.join(EVENT_TYPES)}")
    if follow and at is not None:
        raise ConfigError(
            "--follow waits for new events, but --at ends at an old one", hint="leave one of them out"
        )
    history = call.stack.enter_context(opened(call))
    here = history.log.read(history.run_id, rounds=(round or 0, round or 0), limit=1)
    if round is not None and not follow and next(here, None) is None:
        raise NotFoundError(
            f"run {history.run_id} has no event of round {round}", hint="its rounds: diagevo runs show"
        )
    wanted, as_of = EventFilter(ref, tuple(type or ()), round, last), history.as_of(at=at)
    if call.format == "table":
        render.say(call, f"run {history.run_id}")
    if follow or call.format == "table":
        return write_lines(call, history, wanted, as_of, follow=follow)
    return Result(map(row, trail(history, wanted, as_of)), COLUMNS, run=history.run_id, as_of=as_of)


@options.command(
    "memory why",
    example="""diagevo memory why c42
    diagevo memory why c42 --all --full --round 3
    diagevo memory why r4.q318.a5""",
)
def why(
    call: CommandContext,
    ref: Ref,
    *,
    full: Annotated[bool, typer.Option("--full", help="With trajectories, prompts and replies.")] = False,
    all: Annotated[bool, typer.Option("--all", help="Every event, failure and vote, however long.")] = False,
    round: Round = None,
    at: At = None,
) -> Result[Any]:
    """Explain a cause, node, question or failure by its evidence.

    The evidence goes back to trajectories and replies."""
    from diagevo.memory.stories.why import story_of

    from ..screens.why import screen

    with opened(call) as history:
        as_of = history.as_of(round, at)
        story = story_of(history, ref, as_of, evidence=None if all else 3, full=full)
        text = screen(history, story, as_of, everything=all, full=full)
    return Result(story, text=text, run=history.run_id, as_of=as_of)


@options.command(
    "memory schedule",
    rows=True,
    example="""diagevo memory schedule
    diagevo memory schedule --round 3 --format csv -o p.csv
    diagevo memory schedule --dataset train.parquet -o next.parquet""",
)
def schedule(
    call: CommandContext,
    *,
    round: Round = None,
    dataset: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A weight for each prompt of the training's data set: .parquet, .jsonl, .json or a folder.",
        ),
    ] = None,
) -> Result[Any] | None:
    """Show what the next round draws: ε and p(e).

    The next round is the one after the last commit, or after `--round N`. `memory replay` shows the
    arithmetic. With --dataset, prints a sampling weight for each prompt of an ingested run: Equation 2 over
    the recurring prompts, each aimed at the causes of its last failures. `-o next.parquet` or `-o
    next.jsonl` then writes the next epoch: as many rows as the data set, each repeated in proportion to its
    weight.
    """
    from diagevo.memory.compare.replay import committed_otherwise, describe, next_schedule

    from ..screens import memory as memory_text

    with opened(call) as history:
        as_of = history.settled if round is None else history.as_of(round)
        if dataset is not None:
            return _weigh(call, history, as_of, dataset)
        memory = describe(history.state(as_of))
        then = committed_otherwise(history, as_of, memory)
    found = next_schedule(memory)
    return Result(
        found,
        memory_text.SCHEDULE,
        rows=found.causes,
        title=memory_text.scheduled(history.run_id, memory),
        run=history.run_id,
        as_of=as_of,
        notes=memory_text.by_configuration(memory, then),
    )


def _weigh(call: CommandContext, history: "History", as_of: "AsOf", file: Path) -> Result[Any] | None:
    """The weights of a data set's prompts for the round after `as_of`; with `-o` the next epoch of it."""
    from diagevo.ingest.dataset import read_dataset
    from diagevo.ingest.weights import weigh as weighed

    state = history.state(as_of)
    ingested: dict[str, Any] = (state.config or {}).get("ingest") or {}
    dataset = read_dataset(file, (ingested.get("map") or {}).get("prompt"))
    schedule = state.schedule()
    found = weighed(history.log, state, schedule, dataset)
    rows = "" if len(found.rows) == found.prompts else f" in {count(len(found.rows), 'row')}"
    notes = [
        f"{found.matched:,} of {count(found.prompts, 'prompt')}{rows} were rolled out,"
        f" {found.aimed:,} aim at a cause; the rows' weights sum to 1"
    ]
    if found.unreached:
        share = number(found.unreached)
        notes.append(f"{share} of F belongs to causes without a prompt here; this share is spread evenly")
    if found.never:
        notes.append(
            f"{found.never:,} of them never passed and so aim at no cause: they get the even share;"
            f" if their answers are known: diagevo diagnose --run {history.run_id} --again --all-failed"
        )
    if call.output is not None and call.format in ("parquet", "jsonl"):
        seed = f"{state.settings.seed}.{schedule.round}"
        places = dataset.next_epoch([each.weight for each in found.rows], seed)
        columns = {
            "diagevo_weight": [float(each.weight) for each in found.rows],
            "diagevo_cause": [each.cause for each in found.rows],
        }
        dataset.write(call.output, places, columns)
        different = len(set(places))
        notes.append(f"{call.output}: {len(places):,} rows, {different:,} of them different")
        render.say(call, "\n".join(notes))
        return None
    return Result(
        [asdict(each) for each in found.rows], WEIGHTS, run=history.run_id, as_of=as_of, notes=notes
    )
