"""The tables of a run: its committed rounds, and its scores next to the base model's."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from diagevo.text.escaping import visible
from diagevo.text.numbers import count

from ..render.console import row_of
from ..render.result import Rows
from ..render.table import Column, columns
from .board import invalid

if TYPE_CHECKING:
    from diagevo.evaluation.store import Evaluation
    from diagevo.memory.history import History
    from diagevo.memory.log.database import Database
    from diagevo.progress import RoundFigures

FIGURES = columns("failures: F, z, epsilon_next: ε next, active: Active, mastered: Mastered")
"""Columns of a committed round."""
ROUNDS = (
    *columns("round"),
    *FIGURES,
    *columns("nodes, promoted, reactivated, created: new causes, position: #"),
)
QUESTIONS = columns(
    "round, candidates, kept, invalid, without_box: no box, undecided, observed: failures, "
    "against_false_labels: against false labels, right"
)
_ROUNDS_SHOWN = 6
LEARNT = columns(
    "round, mean_at_k: mean@k, greedy, mean_at_k_best: at its best T, labels_true: labels true, "
    "solver_reward: solver's reward, challenger_reward: challenger's reward, time: time: 0"
)


def round_tables(
    rounds: "Sequence[RoundFigures]", before: Mapping[str, Any] | None = None, *, ingested: bool = False
) -> list[Rows]:
    """A row per round in each; `before`: measurements before the first. For `ingested` rounds, whose
    questions and rewards are another trainer's, only the state of the memory."""
    rows = [_row(each) for each in rounds]
    if ingested:
        return [Rows(ROUNDS, rows)]
    first = [] if before is None else [{"round": 0} | dict(before)]
    return [Rows(ROUNDS, rows), Rows(QUESTIONS, rows), Rows(LEARNT, [*first, *rows])]


def _row(of: "RoundFigures") -> dict[str, Any]:
    again, unread = of.superseded_by, sum(of.invalid.values())
    return row_of(of) | {
        "round": of.round if again is None else f"{of.round}, superseded by {again}",
        "invalid": f"{unread} ({invalid(of.invalid)})" if unread else "0",
        "promoted": len(of.promoted),
        "reactivated": len(of.reactivated),
        "time": sum(of.seconds.values()) or None,
    }


def accuracy(history: "History") -> list[str | Rows]:
    """Two tables: the scores by round and category, including lower temperatures; and, in a
    world that knows families, how many free questions each family had."""
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
        if hidden := len(written) - len(shown):
            parts.append(f"{count(hidden, 'round')} before: diagevo view --run {history.run_id}")
    return [*parts, *premises([history.world])] if parts else []


def premises(worlds: Iterable[object]) -> list[str]:
    """The premises of results in these worlds, once each."""
    from diagevo.view.scores import premise

    found = dict.fromkeys(map(premise, worlds))
    return [text for text in found if text is not None]


def worlds_of(database: "Database", evaluations: Iterable["Evaluation"]) -> list[object]:
    """The worlds of evaluations: those of their runs, or of the questions if a model was evaluated without a
    run."""
    from diagevo.memory.history import History

    found = list(evaluations)
    runs = dict.fromkeys(e.run_id for e in found if e.run_id is not None)
    worlds = [History(database, run).world for run in runs]
    alone = any(e.run_id is None and e.conditions.get("source") == "arithmetic world" for e in found)
    return [*worlds, *(["arithmetic"] if alone else [])]
