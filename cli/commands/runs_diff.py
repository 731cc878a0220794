"""`diagevo runs diff`: two rounds of a run, or two runs, side by side."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diagevo.errors import ConfigError
from diagevo.text.lines import Line, listed
from diagevo.text.numbers import count, number

from .. import options
from ..call import CommandContext
from ..opening import one, opened, point_named
from ..render import console as render
from ..render.layout import lay
from ..render.result import Result, Rows
from ..render.table import Column, columns
from ..screens.beside import beside, beside_rows
from ..screens.ingested import in_both, matched
from ..screens.rounds import premises

if TYPE_CHECKING:
    from diagevo.memory.compare.memory_diff import (
        CauseInRun,
        Difference,
        MemoryDiff,
        RoundComparison,
        RunsDiff,
    )
    from diagevo.memory.compare.prompts_in_both import PromptsInBoth
    from diagevo.memory.history import AsOf, History

_POINTS = "write a..b, a@3..b@3, a@2..a@5, or 2..5"


@options.command(
    "runs diff",
    example="""diagevo runs diff a..b
    diagevo runs diff a@3..b@3 --exit-code
    diagevo runs diff a@2..a@5
    diagevo runs diff 2..5 --run a
    diagevo runs diff model=small..model=large --run evals
    diagevo runs diff monday..tuesday..friday""",
)
def diff(
    call: CommandContext,
    points: Annotated[
        str,
        typer.Argument(
            metavar="A..B",
            help="Two runs, each optionally with @ROUND; two rounds of a run; or two round numbers of --run."
            " For ingested rollouts also model=NAME or step=N, of --run or as RUN:step=N, and more than two.",
        ),
    ],
    *,
    exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit 1 if there is a difference.")] = False,
) -> Result[Any]:
    """Compare two rounds of a run, or two runs.

    For two rounds: what changed. For two runs: the round after which they differ, and the causes they share.
    For ingested rollouts also the prompts that passed less often in the second, with their causes. More than
    two: a table of what passed by tag, and of the prompts on which each failed by a cause."""
    if "=" in points or points.count("..") > 1:
        found = _compare_slices(call, points)
        return replace(found, exit_code=1) if exit_code and not found.data["same"] else found
    left, dots, right = points.partition("..")
    if not dots or not left or not right:
        raise ConfigError(f"{points} does not name two rounds", hint=_POINTS)
    if left.isdecimal() != right.isdecimal():
        round_, other = (left, right) if left.isdecimal() else (right, left)
        raise ConfigError(f"{points}: {round_} is a round, {other} is not", hint=_POINTS)
    (a, at_a), (b, at_b) = point_named(left), point_named(right)
    if left.isdecimal():
        found = _compare_rounds(call, call.run, int(left), int(right))
    elif a == b and at_a is not None and at_b is not None:
        found = _compare_rounds(call, one(call, a), at_a, at_b)
    else:
        one(call, left, right)
        found = _compare_runs(call, (a or "", at_a), (b or "", at_b))
    return replace(found, exit_code=1) if exit_code and not found.data["same"] else found


def _compare_rounds(call: CommandContext, run: str | None, a: int, b: int) -> Result[dict[str, Any]]:
    """What changed between two commits of a run. Round 0 is before the first event."""
    from diagevo.memory.compare.memory_diff import configuration, diff_memory, learnt
    from diagevo.memory.history import AsOf

    with opened(call, run) as history:
        first, last = (AsOf(0, 0, 0) if n == 0 else history.as_of(n) for n in (a, b))
        found = diff_memory(history, first, last)
        outcomes = [line for line in learnt(history, history, (first.round, last.round)) if line.round >= a]
        changed = list(configuration(history, history, first, last)) if first.round else []
        prompts = _in_both((history, first), (history, last)) if first.round else None
    data = render.plain(found) | {"same": found.same, "configuration": render.plain(changed)}
    data |= {"learnt": render.plain(outcomes), "prompts": render.plain(prompts)}
    parts: list[str | Rows] = [_memory_diff(history.run_id, found, changed)]
    if found.causes:
        parts.append(Rows(CHANGES, found.causes))
    if outcomes:
        parts.append(Rows(_learnt_columns(outcomes, of_one=True), outcomes))
    points = f"{history.run_id}@{a}..{history.run_id}@{b}"
    parts += in_both(prompts, (f"round {a}", f"round {b}"), points)
    notes = premises([history.world] if outcomes else [])
    return Result(data, text=parts, run=history.run_id, as_of=last, notes=notes)


def _compare_runs(
    call: CommandContext, left: tuple[str, int | None], right: tuple[str, int | None]
) -> Result[dict[str, Any]]:
    from diagevo.memory.compare.matched_causes import matched_causes
    from diagevo.memory.compare.memory_diff import diff_runs, learnt
    from diagevo.memory.read.pass_rates import pass_rates

    with opened(call, left[0]) as a, opened(call, right[0]) as b:
        at_a, at_b = a.as_of(left[1]), b.as_of(right[1])
        found = diff_runs(a, b, at_a, at_b)
        outcomes = learnt(a, b, found.rounds)
        worlds = [history.world for history in (a, b)]
        prompts = _in_both((a, at_a), (b, at_b))
        rates = (pass_rates(a), pass_rates(b)) if a.evaluation and b.evaluation else (None, None)
        alike = None
        if rates[0] is not None and rates[1] is not None:
            alike = matched_causes(a, b, rates[0].causes, rates[1].causes)
    data = render.plain(found) | {"same": found.same, "learnt": render.plain(outcomes)}
    data |= {"prompts": render.plain(prompts), "matched": render.plain(alike)}
    tables = (
        Rows(_learnt_columns(outcomes), outcomes),
        Rows(MATCHED, _matched_rows(found)),
        Rows(ALONE, _alone_rows(found)),
    )
    points = "..".join(name if at is None else f"{name}@{at}" for name, at in (left, right))
    told = in_both(prompts, found.runs, points)
    if alike is not None:  # an evaluation has no curriculum, so no timing
        return Result(data, text=[*told, *matched(alike, found.runs)])
    parts = [_runs_diff(found), *(table for table in tables if table.values), *told]
    return Result(data, text=parts, notes=premises(worlds if outcomes else []))


def _in_both(*points: "tuple[History, AsOf]") -> "PromptsInBoth | None":
    """Results of two points on the same prompts; None if one has no ingested rollouts."""
    if any(history.ingested is None for history, _ in points):
        return None
    from diagevo.memory.compare.prompts_in_both import prompts_in_both
    from diagevo.memory.compare.run_slices import SlicedRun

    a, b = (SlicedRun(history).whole(at) for history, at in points)
    return prompts_in_both(a, b)


def _compare_slices(call: CommandContext, points: str) -> Result[dict[str, Any]]:
    """Models, steps or runs side by side: two prompt by prompt, more as a table."""
    from diagevo.memory.compare.matched_causes import matched_causes
    from diagevo.memory.compare.prompts_in_both import prompts_in_both
    from diagevo.memory.compare.run_slices import SlicedRun, names, slice_named
    from diagevo.view.against import kinds_of
    from diagevo.view.slice_table import COLUMNS, slice_table

    wanted = [slice_named(each) for each in points.split("..")]
    if not 1 < len(wanted) <= COLUMNS:
        raise ConfigError(f"{len(wanted)} are named", hint=f"name 2 to {COLUMNS}: a..b..c")
    runs: dict[str | None, SlicedRun] = {}
    with ExitStack() as stack:
        for each in wanted:
            if each.run not in runs:
                history = stack.enter_context(opened(call, each.run))
                if history.ingested is None:
                    raise ConfigError(
                        f"run {history.run_id} has no responses of an evaluation or of another trainer",
                        hint="two runs that were played: diagevo runs diff A..B",
                    )
                runs[each.run] = SlicedRun(history)
        slices = [
            runs[each.run].at(
                each.address, None if each.round is None else runs[each.run].history.as_of(each.round)
            )
            for each in wanted
        ]
        called, table = names(slices), slice_table(slices)
        a, b = slices[0], slices[-1]
        prompts = prompts_in_both(a, b)
        alike = matched_causes(a.history, b.history, a.cause_rates(), b.cause_rates())
    data: dict[str, Any] = {"of": called, "same": not (prompts.less or prompts.more)}
    data |= {"table": list(beside_rows(table, called))}
    parts: list[str | Rows] = [*beside(table, called)]
    if len(slices) == 2:
        data |= {"prompts": render.plain(prompts), "matched": render.plain(alike)}
        both = called[0], called[1]
        told = in_both(prompts, both, points, call.run if wanted[0].run is None else None)
        parts = [*told, *matched(alike, both, kinds_of(a, b)), *parts]
    return Result(data, text=parts)


MATCHED = columns("a, b, timing, f: f a | b, description")
LEARNT = columns(
    "round, mean_at_k: mean@k, greedy, mean_at_k_best: at its best T, labels_true: labels true, "
    "solver_reward: reward, pass_rate: pass rate, kept, failures: F"
)
MEASURED = ("mean_at_k", "greedy", "mean_at_k_best", "labels_true", "solver_reward", "pass_rate")
ALONE = columns("run, cause, state, f, description")


def _arrow(before: Any, after: Any) -> str:
    if before is None:
        return f"{after}"
    return f"{before} → {after}" if before != after else f"{after}"


CHANGES = columns(
    "cause_id: cause, what, state, frequency: f, probability: p, node, description",
    probability=lambda pair: _arrow(*map(number, pair)),
    **dict.fromkeys(("state", "frequency", "node"), lambda pair: _arrow(*pair)),
)


def _second(pair: Sequence[Any]) -> Any:
    return pair[1]


def _beside(pair: Sequence[Any]) -> str:
    return " | ".join(
        number(value) if isinstance(value, float) else "–" if value is None else str(value) for value in pair
    )


def _memory_diff(run: str, found: "MemoryDiff", configuration: "Sequence[Difference]") -> str:
    """The changed configuration, the figures of both points, and the nodes."""
    a, b = found.rounds
    lines = [
        *(Line("config", f"{d.key}: {_arrow(d.a, d.b)}") for d in configuration),
        Line("F", _arrow(*found.failures)),
        Line("z", _arrow(*(number(z) for z in found.z))),
        Line("ε next", _arrow(*(number(e) for e in found.epsilon_next))),
        Line("Active", _arrow(*found.active)),
        Line("Mastered", _arrow(*found.mastered)),
        Line("nodes", _arrow(*found.nodes)),
        *(
            Line(node.what, f"{node.node_id} “{node.label}” {node.detail}".rstrip())
            for node in found.node_changes
        ),
    ]
    head = f"{run}: after round {a} (#{found.positions[0]}) → after round {b} (#{found.positions[1]})\n"
    changed = count(len(found.causes), "cause") if found.causes else "no cause"
    return head + lay(lines, None) + f"{changed} changed\n"


def _runs_diff(found: "RunsDiff") -> str:
    """The configuration, where the memories diverge, and how many causes are shared."""
    a, b = _points(found)
    lines = [Line("config", f"{d.key}: {d.a} | {d.b}") for d in found.configuration]
    lines.append(_divergence(found))
    until = "" if found.rounds[0] == found.rounds[1] else f" up to round {found.common_round}"
    lines.append(
        Line(
            "causes",
            f"{len(found.shared)} identical, {len(found.timing)} shared with different timing{until}, "
            f"{len(found.only_a)} only in {a}, {len(found.only_b)} only in {b}",
        )
    )
    run_a, run_b = found.runs
    head = f"{run_a} after round {found.rounds[0]} | {run_b} after round {found.rounds[1]}\n"
    return head + lay(lines, None)


def _points(found: "RunsDiff") -> tuple[str, str]:
    """The names of the two, with their rounds if both belong to one run."""
    a, b = found.runs
    return (a, b) if a != b else (f"{a}@{found.rounds[0]}", f"{b}@{found.rounds[1]}")


def _divergence(diff: "RunsDiff") -> Line:
    (a, b), number = _points(diff), diff.divergence
    if number is not None:
        return Line("memory", f"first differs after round {number}")
    ends = {"a": f", where {b} ends", "b": f", where {a} ends"}
    return Line("memory", f"the same up to round {diff.common_round}{ends.get(diff.further or '', '')}")


def _matched_rows(found: "RunsDiff") -> list[dict[str, Any]]:
    """A row for each shared cause with different timing. Identical ones are only counted above, and are
    rows of --json."""
    until = found.common_round
    return [
        {
            "a": pair.a.id,
            "b": pair.b.id,
            "timing": f"{_life(pair.a, until)} | {_life(pair.b, until)}",
            "f": f"{pair.a.frequency} | {pair.b.frequency}",
            "description": pair.a.description,
        }
        for pair in found.timing
    ]


def _learnt_columns(found: "Sequence[RoundComparison]", *, of_one: bool = False) -> list[Column]:
    """The measurements of both runs side by side; if both sides are one run, those of the second. With
    ingested runs, columns that neither run measured are left out."""
    measured = {name for name in MEASURED if any(getattr(line, name) != (None, None) for line in found)}
    shown = [
        replace(column, show=None if column.key == "round" else _second if of_one else _beside)
        for column in LEARNT
    ]
    if "pass_rate" not in measured:
        return [column for column in shown if column.key != "pass_rate"]
    return [column for column in shown if column.key in measured or column.key not in MEASURED]


def _life(cause: "CauseInRun", until: int) -> str:
    """created r1, promoted r3, reactivated r4: as far as both runs go."""
    created, promoted, reactivated = cause.timing(until)
    turns = [f"created r{created}"]
    if promoted:
        turns.append(f"promoted {listed([f'r{r}' for r in promoted])}")
    if reactivated:
        turns.append(f"reactivated {listed([f'r{r}' for r in reactivated])}")
    return ", ".join(turns)


def _alone_rows(found: "RunsDiff") -> list[dict[str, Any]]:
    """A row for each cause that only one of the runs has."""
    return [
        {"run": run, "cause": c.id, "state": c.state, "f": c.frequency, "description": c.description}
        for run, causes in zip(_points(found), (found.only_a, found.only_b), strict=True)
        for c in causes
    ]
