"""`diagevo runs diff`: two rounds of a run, or two runs, side by side."""

from dataclasses import replace
from typing import Annotated, Any

import typer

from diagevo.errors import ConfigError

from .. import options
from ..call import Call
from ..opening import one, opened, point_named
from ..render import console as render
from ..render.result import Result, Rows
from ..screens.rounds import premises

_POINTS = "write a..b, a@3..b@3, a@2..a@5, or 2..5"


@options.command(
    "runs diff",
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
        ),
    ],
    *,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit 1 if there is a difference.")] = False,
) -> Result[Any]:
    """Compare two rounds of a run, or two runs.

    Of two rounds: what changed. Of two runs: after which round they differ, and which causes they share. For
    another trainer's rollouts also which prompts passed less often in the second, and for which cause."""
    left, dots, right = points.partition("..")
    if not dots or not left or not right:
        raise ConfigError(f"{points} does not name two rounds", hint=_POINTS)
    if left.isdecimal() != right.isdecimal():
        number, other = (left, right) if left.isdecimal() else (right, left)
        raise ConfigError(f"{points}: {number} is a round, {other} is not", hint=_POINTS)
    (a, at_a), (b, at_b) = point_named(left), point_named(right)
    if left.isdecimal():
        found = _compare_rounds(call, call.run, int(left), int(right))
    elif a == b and at_a is not None and at_b is not None:
        found = _compare_rounds(call, one(call, a), at_a, at_b)
    else:
        one(call, left, right)
        found = _compare_runs(call, (a or "", at_a), (b or "", at_b))
    return replace(found, exit_code=1) if exit_code and not found.data["same"] else found


def _compare_rounds(call: Call, run: str | None, a: int, b: int) -> Result[dict[str, Any]]:
    """What changed between two commits of a run. Round 0 is before the first event."""
    from diagevo.memory.audit.compare import configuration, diff_memory, learnt
    from diagevo.memory.history import AsOf
    from diagevo.memory.read.rollouts import prompts_in_both

    from ..screens import compare as compare_text
    from ..screens.ingested import in_both

    with opened(call, run) as history:
        first, last = (AsOf(0, 0, 0) if n == 0 else history.as_of(n) for n in (a, b))
        found = diff_memory(history, first, last)
        outcomes = [line for line in learnt(history, history, (first.round, last.round)) if line.round >= a]
        changed = list(configuration(history, history, first, last)) if first.round else []
        prompts = prompts_in_both(history, history, first, last) if first.round else None
    data = render.plain(found) | {"same": found.same, "configuration": render.plain(changed)}
    data |= {"learnt": render.plain(outcomes), "prompts": render.plain(prompts)}
    parts: list[str | Rows] = [compare_text.memory_diff(history.run_id, found, changed)]
    if found.causes:
        parts.append(Rows(compare_text.CHANGES, found.causes))
    if outcomes:
        parts.append(Rows(compare_text.learnt_columns(outcomes, of_one=True), outcomes))
    parts += in_both(prompts, (f"round {a}", f"round {b}"))
    notes = premises([history.world] if outcomes else [])
    return Result(data, text=parts, run=history.run_id, as_of=last, notes=notes)


def _compare_runs(
    call: Call, left: tuple[str, int | None], right: tuple[str, int | None]
) -> Result[dict[str, Any]]:
    from diagevo.memory.audit.compare import diff_runs, learnt
    from diagevo.memory.read.rollouts import prompts_in_both

    from ..screens import compare as compare_text
    from ..screens.ingested import in_both

    with opened(call, left[0]) as a, opened(call, right[0]) as b:
        at_a, at_b = a.as_of(left[1]), b.as_of(right[1])
        found = diff_runs(a, b, at_a, at_b)
        outcomes = learnt(a, b, found.rounds)
        worlds = [history.world for history in (a, b)]
        prompts = prompts_in_both(a, b, at_a, at_b)
    data = render.plain(found) | {"same": found.same, "learnt": render.plain(outcomes)}
    data |= {"prompts": render.plain(prompts)}
    tables = (
        Rows(compare_text.learnt_columns(outcomes), outcomes),
        Rows(compare_text.MATCHED, compare_text.matched_rows(found)),
        Rows(compare_text.ALONE, compare_text.alone_rows(found)),
    )
    parts = [compare_text.runs_diff(found), *(table for table in tables if table.values)]
    parts += in_both(prompts, found.runs)
    return Result(data, text=parts, notes=premises(worlds if outcomes else []))
