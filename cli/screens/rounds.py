"""The tables of a run's committed rounds: what the memory came to, the questions, what was learnt."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..render.result import Rows
from ..render.rows import row_of
from ..render.table import columns
from .board import invalid

if TYPE_CHECKING:
    from diagevo.progress import RoundFigures

FIGURES = columns("failures: F, z, epsilon_next: ε next, active: Active, mastered: Mastered")
"""Of a committed round."""
ROUNDS = (
    *columns("round"),
    *FIGURES,
    *columns("nodes, promoted, reactivated, created: new causes, position: #"),
)
QUESTIONS = columns(
    "round, candidates, kept, invalid, without_box: no box, undecided, observed: failures, "
    "against_false_labels: at a false label, right: of them right"
)
LEARNT = columns(
    "round, mean_at_k: mean@k, greedy, mean_at_k_best: at its best T, labels_true: labels true, "
    "solver_reward: solver's reward, challenger_reward: challenger's reward, time: time: 0"
)


def round_tables(
    rounds: "Sequence[RoundFigures]", before: Mapping[str, Any] | None = None, *, ingested: bool = False
) -> list[Rows]:
    """A row a round in each; `before`: what was measured before the first. Of `ingested` rounds, whose
    questions and rewards are another trainer's, only what the memory came to."""
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
