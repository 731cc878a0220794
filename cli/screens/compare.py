"""The screens of `runs diff`."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from diagevo.text.lines import Line, listed
from diagevo.text.numbers import count, number

from ..render.layout import lay
from ..render.table import Column, columns

if TYPE_CHECKING:
    from diagevo.memory.audit.compare import Difference, InRun, Learnt, MemoryDiff, RunsDiff

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


def memory_diff(run: str, found: "MemoryDiff", configuration: "Sequence[Difference]") -> str:
    """What was configured anew, the figures of both points, and the nodes."""
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


def runs_diff(found: "RunsDiff") -> str:
    """Configuration, where the memories part, and how many causes are shared."""
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
    """The names of the two, with their rounds where both are of one run."""
    a, b = found.runs
    return (a, b) if a != b else (f"{a}@{found.rounds[0]}", f"{b}@{found.rounds[1]}")


def _divergence(diff: "RunsDiff") -> Line:
    (a, b), number = _points(diff), diff.divergence
    if number is not None:
        return Line("memory", f"first differs after round {number}")
    ends = {"a": f"; {a} continues where {b} ends", "b": f"; {b} continues where {a} ends"}
    return Line("memory", f"the same, as far as both go{ends.get(diff.further or '', '')}")


def matched_rows(found: "RunsDiff") -> list[dict[str, Any]]:
    """A row a shared cause of other timing. Those that are simply the same are a number above, and rows of
    --json."""
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


def learnt_columns(found: "Sequence[Learnt]", *, of_one: bool = False) -> list[Column]:
    """What was measured of both runs beside each other; of one run that stands on both sides, what the second
    has. Where rollouts of another trainer are among the runs, without what neither run measured."""
    measured = {name for name in MEASURED if any(getattr(line, name) != (None, None) for line in found)}
    shown = [
        replace(column, show=None if column.key == "round" else _second if of_one else _beside)
        for column in LEARNT
    ]
    if "pass_rate" not in measured:
        return [column for column in shown if column.key != "pass_rate"]
    return [column for column in shown if column.key in measured or column.key not in MEASURED]


def _life(cause: "InRun", until: int) -> str:
    """created r1, promoted r3, reactivated r4: as far as both runs go."""
    created, promoted, reactivated = cause.timing(until)
    turns = [f"created r{created}"]
    if promoted:
        turns.append(f"promoted {listed([f'r{r}' for r in promoted])}")
    if reactivated:
        turns.append(f"reactivated {listed([f'r{r}' for r in reactivated])}")
    return ", ".join(turns)


def alone_rows(found: "RunsDiff") -> list[dict[str, Any]]:
    """A row a cause that only one of the runs has."""
    return [
        {"run": run, "cause": c.id, "state": c.state, "f": c.frequency, "description": c.description}
        for run, causes in zip(_points(found), (found.only_a, found.only_b), strict=True)
        for c in causes
    ]
