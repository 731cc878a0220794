"""What a solver learned, beside what the untouched model has anyway, and what free exploration wrote."""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from diagevo.evaluation.protocol import colder
from diagevo.texts import visible

from ..render.console import text
from ..render.rows import print_rows
from ..render.table import Column

if TYPE_CHECKING:
    from diagevo.memory.audit.history import History

    from ..options import Call

_MEAN, _GREEDY = "mean_at_k", "greedy"
_ROUNDS_SHOWN = 6


def print_accuracy(call: "Call", history: "History") -> None:
    """Two tables: the scores by round and category, the untouched model drawn colder among them; and, in a
    world that knows families, how many questions of free exploration were of each."""
    from diagevo.memory.audit.timeline.measured import measured

    scores = {
        number: found.validation
        for number, found in measured(history, failures=False).items()
        if _MEAN in found.validation
    }
    if scores:
        categories = [
            name.partition("/")[2] for name in next(iter(scores.values())) if name.startswith("greedy/")
        ]
        columns = [
            Column("solver"),
            *(
                Column(metric + kind, shown + visible(kind.replace("/", " "), one_line=True), "right")
                for metric, shown in ((_MEAN, "mean@k"), (_GREEDY, "greedy"))
                for kind in ("", *(f"/{name}" for name in categories))
            ),
        ]
        text(call, "")
        print_rows(call, columns, [row for number, found in scores.items() for row in _rows(number, found)])
    written = _written(history)
    if written:
        shown = list(written)[-_ROUNDS_SHOWN:]
        from diagevo.arithmetic.families import PREMISE

        names = [name for name, _ in sum(written.values(), Counter[str]()).most_common()]
        columns = [
            Column("family", "free questions of"),
            *(Column(str(n), f"round {n}", "right") for n in shown),
        ]
        text(call, "")
        rows = [{"family": name} | {str(number): written[number][name] for number in shown} for name in names]
        print_rows(call, columns, rows)
        text(call, PREMISE)


def _rows(number: int, found: Mapping[str, float]) -> list[dict[str, Any]]:
    """A round's scores; of the untouched model also what it has when it is drawn colder."""
    rows: list[dict[str, Any]] = [
        {"solver": f"after round {number}" if number else "untouched"} | dict(found)
    ]
    for metric, heat in colder(found).items():
        of_it = {name: value for name, value in found.items() if name.partition("/")[0] == metric}
        rows.append(
            {"solver": f"untouched, {heat}"}
            | {name.replace(metric, _MEAN): value for name, value in of_it.items()}
        )
    return rows


def _written(history: "History") -> dict[int, Counter[str]]:
    """Valid questions of free exploration by round and family; none where no world knows families."""
    from diagevo.memory.audit.history import expect
    from diagevo.memory.events import CandidateScored

    if history.configuration().config.get("world") != "arithmetic":
        return {}
    from diagevo.arithmetic.families import family

    written: dict[int, Counter[str]] = {}
    for recorded in history.events(CandidateScored):
        scored = expect(recorded, CandidateScored)
        if scored.mode == "free" and scored.verdict != "invalid":
            name = family(history.text(scored.question) or "")
            if name is not None:
                written.setdefault(recorded.round, Counter())[name] += 1
    return written
