"""A run as polars frames, for notebooks; polars is loaded when one is asked for."""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from html import escape
from typing import TYPE_CHECKING, Any, Self

from sqlalchemy import text

from diagevo.errors import extra
from diagevo.memory.audit.failures import FailureStory, failure_story
from diagevo.memory.audit.nodes import NodeStory, why_node
from diagevo.memory.audit.questions import QuestionStory, question_story
from diagevo.memory.audit.references import resolve
from diagevo.memory.audit.replay import describe
from diagevo.memory.audit.round_figures import round_figures
from diagevo.memory.audit.why import why_cause
from diagevo.memory.history import History
from diagevo.memory.memory import Memory
from diagevo.progress import RoundFigures
from diagevo.text.numbers import count

if TYPE_CHECKING:
    import polars

    from diagevo.memory.audit.cause_story import CauseStory


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
        """A row a cause.

        Args:
            round: As of the commit of this round; None is now, what is not committed yet included.

        Returns:
            Its description, node, state, frequency f, and p as a float and an exact text.

        Raises:
            NotFoundError: The round is not committed.
        """
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
        """A row a cause and committed round that counts: how states and frequencies went."""
        columns = {
            "round": "int",
            "cause_id": "str",
            "node_id": "str",
            "state": "str",
            "frequency": "int",
            "probability": "float",
            "probability_exact": "str",
        }
        counted = {commit.round for commit in self._run.commits}
        query = (
            "SELECT round, cause_id, node_id, state, frequency, probability FROM v_cause_history"
            " WHERE run_id = :run ORDER BY round, length(cause_id), cause_id"
        )
        rows = (
            (round_, *told, *_both(None if p is None else Fraction(p)))
            for round_, *told, p in self._ask(query)
            if round_ in counted
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

        def cell(line: RoundFigures, name: str, kind: str) -> Any:
            value: Any = getattr(line, name.removesuffix("_exact"))
            if value is None:
                return None
            if name in ("promoted", "reactivated"):
                return len(value)
            return {"float": float, "str": str, "int": int}[kind](value)

        lines = round_figures(self._run)
        return _frame(columns, (tuple(cell(line, *one) for one in columns.items()) for line in lines))

    def candidates(self, *, round: int | None = None, texts: bool = False) -> "polars.DataFrame":
        """A row a scored question.

        Args:
            round: Only of this round.
            texts: Whether to add the questions themselves.

        Returns:
            Its aim, votes, p₁ and p₂, label, verdict, and the truth where it is known.
        """
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
            "label_true": "int",
            "votes": "str",
            "votes_are": "str",
            "question_digest": "str",
        } | ({"question": "str"} if texts else {})
        derived = {
            "p1": "CAST(first AS double precision) / nullif(responses, 0) AS p1",
            "p2": "CAST(second AS double precision) / nullif(responses, 0) AS p2",
            "question_digest": "question AS question_digest",
            "question": "(SELECT text FROM v_question q WHERE q.run_id = v_candidate.run_id"
            " AND q.position = v_candidate.position) AS question",
        }
        chosen = ", ".join(derived.get(name, name) for name in columns)
        only = "" if round is None else " AND round = :round"
        query = f"SELECT {chosen} FROM v_candidate WHERE run_id = :run{only} ORDER BY position"
        return _frame(columns, self._ask(query, round=round)).cast({"label_true": bool})

    def failures(self, *, cause: str | None = None) -> "polars.DataFrame":
        """The failures with their texts, in order of the log.

        Args:
            cause: Only those that are counted under this cause: `c42`, or an unambiguous piece of its
                description.

        Returns:
            A row a failure: ids, `question`, `trajectory` (the response that failed), `reference` (one that
            agreed or passed, or the known answer: `against`), `label`, `truth`, `cause_id` and `cause`;
            observations that were voided too.

        Raises:
            NotFoundError: No such cause.
            ConfigError: Several causes have the text.
        """
        columns = {
            "round": "int",
            "failure_id": "str",
            "question_id": "str",
            "question": "str",
            "trajectory": "str",
            "reference": "str",
            "label": "str",
            "truth": "str",
            "label_true": "int",
            "right_answer": "int",
            "against": "str",
            "via": "str",
            "cause_id": "str",
            "cause": "str",
        }
        frame = self._view("v_trajectory", columns)
        if cause is None:
            return frame
        named = resolve(self._run, cause, self._run.end, "cause").id
        return frame.filter(frame["cause_id"] == named)

    def groups(self) -> "polars.DataFrame":
        """A row a group of another trainer's rollouts: step, prompt, passes, pass rate and outcome."""
        columns = {
            "round": "int",
            "step": "int",
            "attempt": "int",
            "prompt": "str",
            "answer": "str",
            "rollouts": "int",
            "passes": "int",
            "pass_rate": "float",
            "outcome": "str",
            "source": "str",
            "void": "int",
        }
        return self._view("v_group", columns)

    def why(self, ref: str) -> "CauseStory | NodeStory | QuestionStory | FailureStory":
        """The chain of evidence of a cause, node, question or failure, with its texts.

        Args:
            ref: `c42`, `n7`, `r3.q318`, `r3.q318.a5`, or an unambiguous piece of a description.

        Returns:
            What `diagevo memory why REF --full` prints, as values.

        Raises:
            NotFoundError: It names nothing.
            ConfigError: It names several things.
        """
        run, found = self._run, resolve(self._run, ref, self._run.end)
        match found.kind:
            case "cause":
                return why_cause(run, found.id, run.end, evidence=None, full=True)
            case "node":
                return why_node(run, found.id, run.end, full=True)
            case "question":
                return question_story(run, found, run.end, full=True)
            case "failure":
                return failure_story(run, found, run.end, full=True)

    def _repr_html_(self) -> str:
        """The causes, most frequent first, for a notebook."""
        causes = self.causes().sort("frequency", descending=True)
        shown = causes.select("cause_id", "state", "frequency", "description")
        table = shown._repr_html_()  # pyright: ignore[reportPrivateUsage]  (the name that notebooks know)
        return f"<p>{escape(repr(self))}</p>{table}"

    def __repr__(self) -> str:
        state = self._run.state(self._run.end)
        return f"<run {self._run.run_id}: round {state.round}, {count(len(state.causes), 'cause')}>"

    def _view(self, view: str, columns: Mapping[str, str]) -> "polars.DataFrame":
        """Columns of a stable view, in order of the log."""
        chosen = ", ".join(columns)
        return _frame(
            columns, self._ask(f"SELECT {chosen} FROM {view} WHERE run_id = :run ORDER BY position")
        )

    def _ask(self, query: str, **values: Any) -> Sequence[tuple[Any, ...]]:
        with self._run.database.read() as connection:
            found = connection.execute(text(query), {"run": self._run.run_id} | values)
            return [tuple(row) for row in found]

    def events(
        self, *, types: Sequence[str] | None = None, rounds: tuple[int, int] | None = None
    ) -> "polars.DataFrame":
        """A row an event, its payload as JSON text.

        Args:
            types: Only of these types, e.g. "CausePromoted".
            rounds: Only of the rounds from the first to the second number.
        """
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
    with extra("polars", "a frame"):
        import polars
    types = {"int": polars.Int64, "float": polars.Float64, "str": polars.String}
    schema = {name: types[type_] for name, type_ in columns.items()}
    return polars.DataFrame(list(rows), schema=schema, orient="row")
