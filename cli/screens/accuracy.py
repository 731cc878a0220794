"""The closing tables of a run: its scores beside the untouched model's, and what free exploration wrote; and
what results rest on, wherever some are shown."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from diagevo.texts import visible

from ..render.console import say, text
from ..render.layout import folded, width
from ..render.rows import print_rows
from ..render.table import Column

if TYPE_CHECKING:
    from diagevo.evaluation.store import Evaluation
    from diagevo.memory.audit.history import History
    from diagevo.memory.log.database import Database

    from ..call import Call

_ROUNDS_SHOWN = 6


def print_accuracy(call: "Call", history: "History") -> None:
    """Two tables: the scores by round and category, the untouched model drawn colder among them; and, in a
    world that knows families, how many questions of free exploration were of each."""
    from diagevo.view.scores import families_in, free_questions, premise, score_names, score_rows

    scores = score_rows(history)
    if scores:
        columns = [
            Column("solver"),
            *(Column(name, _shown(name), "right") for name in score_names(scores)),
        ]
        text(call, "")
        print_rows(call, columns, scores)
    written = free_questions(history)
    if written:
        shown = list(written)[-_ROUNDS_SHOWN:]
        columns = [
            Column("family", "free questions of"),
            *(Column(str(n), f"round {n}", "right") for n in shown),
        ]
        text(call, "")
        rows = [
            {"family": name} | {str(number): written[number][name] for number in shown}
            for name in families_in(written)
        ]
        print_rows(call, columns, rows)
    if (said := premise(history)) is not None and (scores or written):
        room = width()
        text(call, said if room is None else folded(said, room))


def say_premises(call: "Call", worlds: Iterable[object]) -> None:
    """What results of these worlds rest on, once each, on stderr."""
    from diagevo.view.scores import premise_of

    for said in dict.fromkeys(map(premise_of, dict.fromkeys(worlds))):
        if said is not None:
            say(call, said)


def worlds_of(database: "Database", evaluations: Iterable["Evaluation"]) -> list[object]:
    """The worlds of evaluations: of their runs, or of the questions where a model was asked without a run."""
    from diagevo.memory.audit.history import History

    found = list(evaluations)
    runs = dict.fromkeys(e.run_id for e in found if e.run_id is not None)
    worlds = [History(database, run).world for run in runs]
    alone = any(e.run_id is None and e.conditions.get("source") == "arithmetic world" for e in found)
    return [*worlds, *(["arithmetic"] if alone else [])]


def _shown(name: str) -> str:
    metric, _, category = name.partition("/")
    return visible(f"{metric.replace('mean_at_k', 'mean@k')} {category}".strip(), one_line=True)
