"""A run as polars frames, for notebooks; polars is loaded when one is asked for."""

import json
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Self

from diagevo.errors import MissingDependencyError
from diagevo.memory.audit.replay import describe
from diagevo.memory.audit.runs import round_lines
from diagevo.memory.events import CandidateScored
from diagevo.memory.history import History, expect
from diagevo.memory.memory import Memory

if TYPE_CHECKING:
    import polars


class RunFrames:
    """A run, for reading alone: each method gives a polars frame. Made by `diagevo.read`.

    Fractions come twice: `x` as a float, and `x_exact` as text. Every frame has its columns even where it has
    no rows. The run ends where it ended when it was first asked; read again for what was written since.
    """

    def __init__(self, source: History | Memory) -> None:
        """Of a run opened for reading, or of an open memory."""
        self._run = (
            source if isinstance(source, History) else History(source.database, source.run_id, source.root)
        )

    def close(self) -> None:
        """Close the connections to the database."""
        self._run.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def causes(self, *, round: int | None = None) -> "polars.DataFrame":
        """A row a cause: as of the commit of `round`, or now, what is not committed yet included."""
        memory = describe(self._run.state(self._run.as_of(round)))
        columns = {
            "cause_id": "str",
            "description": "str",
            "node_id": "str",
            "node": "str",
            "state": "str",
            "frequency": "int",
            "probability": "float",
            "probability_exact": "str",
            "created_round": "int",
        }
        rows = (
            (
                c.id,
                c.description,
                c.node,
                c.node_label,
                c.state,
                c.frequency,
                *_both(c.probability),
                c.created_round,
            )
            for c in memory.causes
        )
        return _frame(columns, rows)

    def history(self) -> "polars.DataFrame":
        """A row a cause and committed round: how states and frequencies went."""
        columns = {
            "round": "int",
            "cause_id": "str",
            "node_id": "str",
            "state": "str",
            "frequency": "int",
        } | {
            "probability": "float",
            "probability_exact": "str",
        }
        rows = (
            (commit.round, c.id, c.node, c.state, c.frequency, *_both(c.probability))
            for commit in self._run.commits
            for c in describe(self._run.state(commit.as_of)).causes
        )
        return _frame(columns, rows)

    def rounds(self) -> "polars.DataFrame":
        """A row a committed round: F, z, ε of the next, counts."""
        columns = {
            "round": "int",
            "failures": "int",
            "z": "float",
            "z_exact": "str",
            "epsilon_next": "float",
            "epsilon_next_exact": "str",
            "active": "int",
            "mastered": "int",
            "nodes": "int",
            "candidates": "int",
            "kept": "int",
            "observed": "int",
            "promoted": "int",
            "reactivated": "int",
            "created": "int",
            "position": "int",
            "committed_at": "str",
        }
        rows = (
            (
                r.round,
                r.failures,
                *_both(r.z),
                *_both(r.epsilon_next),
                r.active,
                r.mastered,
                r.nodes,
                r.candidates,
                r.kept,
                r.observed,
                r.promoted,
                r.reactivated,
                r.created,
                r.position,
                r.committed_at,
            )
            for r in round_lines(self._run)
        )
        return _frame(columns, rows)

    def candidates(self, *, round: int | None = None, texts: bool = False) -> "polars.DataFrame":
        """A row a scored question, of one round or all. `texts` adds the questions themselves."""
        columns = {
            "round": "int",
            "question_id": "str",
            "mode": "str",
            "cause_id": "str",
            "stitched_cause_id": "str",
            "responses": "int",
            "first": "int",
            "second": "int",
            "p1": "float",
            "p2": "float",
            "label": "str",
            "verdict": "str",
            "truth": "str",
            "label_true": "bool",
            "votes": "str",
            "votes_are": "str",
            "question_digest": "str",
        } | ({"question": "str"} if texts else {})

        def row(round_: int, e: CandidateScored) -> tuple[Any, ...]:
            return (
                round_,
                e.question_id,
                e.mode,
                e.cause_id,
                e.stitched_cause_id,
                e.responses,
                e.first,
                e.second,
                e.first / e.responses if e.responses else None,
                e.second / e.responses if e.responses else None,
                e.label,
                e.verdict,
                e.truth,
                e.label_true,
                json.dumps(e.votes, ensure_ascii=False),
                e.votes_are,
                e.question,
                *((self._run.text(e.question),) if texts else ()),
            )

        found = self._run.events(CandidateScored, round=round)
        return _frame(columns, (row(r.round, expect(r, CandidateScored)) for r in found))

    def events(
        self, *, types: Sequence[str] | None = None, rounds: tuple[int, int] | None = None
    ) -> "polars.DataFrame":
        """A row an event, its payload as JSON text; of some types, or rounds from..to."""
        columns = {
            "position": "int",
            "sequence": "int",
            "round": "int",
            "type": "str",
            "cause_id": "str",
            "event_id": "str",
            "causation_id": "str",
            "recorded_at": "str",
            "payload": "str",
        }
        found = self._run.log.read(self._run.run_id, types=types, rounds=rounds)
        return _frame(columns, (tuple(getattr(r, name) for name in columns) for r in found))


def _both(value: Fraction | None) -> tuple[float | None, str | None]:
    return (None, None) if value is None else (float(value), str(value))


def _frame(columns: Mapping[str, str], rows: Iterable[tuple[Any, ...]]) -> "polars.DataFrame":
    try:
        import polars
    except ImportError as error:
        raise MissingDependencyError("frames need polars", hint="run: pip install polars") from error
    types = {"int": polars.Int64, "float": polars.Float64, "str": polars.String, "bool": polars.Boolean}
    schema = {name: types[type_] for name, type_ in columns.items()}
    return polars.DataFrame(list(rows), schema=schema, orient="row")
