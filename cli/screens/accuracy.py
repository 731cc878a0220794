"""The closing tables of a run: its scores beside the base model's, and what free exploration wrote; and
what results rest on, wherever some are shown."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from diagevo.text.escaping import visible

from ..render.result import Rows
from ..render.table import Column, columns

if TYPE_CHECKING:
    from diagevo.evaluation.store import Evaluation
    from diagevo.memory.history import History
    from diagevo.memory.log.database import Database

_ROUNDS_SHOWN = 6


def accuracy(history: "History") -> list[str | Rows]:
    """Two tables: the scores by round and category, those at lower temperatures among them; and,
    in a world that knows families, how many questions of free exploration were of each."""
    from diagevo.view.scores import families_in, free_questions, score_names, score_rows

    parts: list[str | Rows] = []
    if scores := score_rows(history):
        names = (
            Column(name, visible(heading, one_line=True)) for name, heading in score_names(scores).items()
        )
        parts.append(Rows((*columns("solver"), *names), scores))
    if written := free_questions(history):
        shown = list(written)[-_ROUNDS_SHOWN:]
        rounds = (Column(str(n), f"round {n}") for n in shown)
        rows = [
            {"family": name} | {str(number): written[number][name] for number in shown}
            for name in families_in(written)
        ]
        parts.append(Rows((*columns("family: free questions of"), *rounds), rows))
    return [*parts, *premises([history.world])] if parts else []


def premises(worlds: Iterable[object]) -> list[str]:
    """What results of these worlds rest on, once each."""
    from diagevo.view.scores import premise

    told = dict.fromkeys(map(premise, worlds))
    return [said for said in told if said is not None]


def worlds_of(database: "Database", evaluations: Iterable["Evaluation"]) -> list[object]:
    """The worlds of evaluations: of their runs, or of the questions where a model was asked without a run."""
    from diagevo.memory.history import History

    found = list(evaluations)
    runs = dict.fromkeys(e.run_id for e in found if e.run_id is not None)
    worlds = [History(database, run).world for run in runs]
    alone = any(e.run_id is None and e.conditions.get("source") == "arithmetic world" for e in found)
    return [*worlds, *(["arithmetic"] if alone else [])]
