"""A run as polars frames, for notebooks; polars is loaded when one is asked for."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from fractions import Fraction
from html import escape
from typing import TYPE_CHECKING, Any, Literal, Self

from sqlalchemy import text

from diagevo.errors import extra
from diagevo.memory.compare.replay import describe
from diagevo.memory.history import History
from diagevo.memory.memory import Memory
from diagevo.memory.read.round_figures import rounds
from diagevo.memory.stories.references import resolve
from diagevo.memory.stories.why import Story, story_of
from diagevo.progress import RoundFigures
from diagevo.text.numbers import count

if TYPE_CHECKING:
    import polars


class RunFrames:
    """A read-only run: each method returns a polars frame, which needs the extra `polars`. Made by
    `diagevo.read`.

    Fractions come twice: `x` as a float, and `x_exact` as text. Times are in UTC. Every frame has its columns
    even without rows. The run is read as of the first call; call `diagevo.read` again for later
    events.
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
        """One row per cause.

        Args:
            round: As of the commit of this round; None means now, including uncommitted changes.

        Returns:
            Its description, node, state, frequency f, and p as a float and an exact text.

        Raises:
            NotFoundError: The round is not committed.
        """
        memory = describe(self._run.state(self._run.as_of(round)))
        columns = (
            "cause_id description node_id node state frequency probability probability_exact created_round"
        )
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
        return frame_of(columns, rows)

    def history(self) -> "polars.DataFrame":
        """One row per cause and committed round that counts: states and frequencies over time, and p
        of the next round as the commit recorded it."""
        columns = "round cause_id node_id state frequency probability_committed probability_committed_exact"
        query = (
            "SELECT round, cause_id, node_id, state, frequency, probability_committed FROM v_cause_history"
            " WHERE run_id = :run ORDER BY round, length(cause_id), cause_id"
        )
        rows = (
            (round_, *values, *_both(None if p is None else Fraction(p)))
            for round_, *values, p in self._ask(query)
        )
        return frame_of(columns, rows)

    def rounds(self) -> "polars.DataFrame":
        """One row per committed round: F, z, ε of the next, counts."""
        columns = (
            "round failures z z_exact epsilon_next epsilon_next_exact active mastered nodes "
            "candidates kept observed promoted reactivated created position committed_at"
        )

        def cell(line: RoundFigures, name: str) -> Any:
            value: Any = getattr(line, name.removesuffix("_exact"))
            if value is None:
                return None
            if name in ("promoted", "reactivated"):
                return len(value)
            return {"Float64": float, "Int64": int}.get(_kind(name), str)(value)

        lines = rounds(self._run)
        return frame_of(columns, (tuple(cell(line, name) for name in columns.split()) for line in lines))

    def candidates(self, *, round: int | None = None, texts: bool = False) -> "polars.DataFrame":
        """One row per scored question.

        Args:
            round: Only of this round.
            texts: Whether to add the questions themselves.

        Returns:
            Its aim, votes, p₁ and p₂, label, verdict, the truth where it is known, and its trainer's id.
        """
        columns = (
            "round question_id mode cause_id stitched_cause_id responses first second p1 p2 label "
            "verdict truth label_true votes votes_are question_digest own_id"
        )
        columns += " question" if texts else ""
        derived = {
            "p1": "CAST(first AS double precision) / nullif(responses, 0) AS p1",
            "p2": "CAST(second AS double precision) / nullif(responses, 0) AS p2",
            "question_digest": "question AS question_digest",
            "question": "(SELECT text FROM v_question q WHERE q.run_id = v_candidate.run_id"
            " AND q.position = v_candidate.position) AS question",
            "own_id": "NULL AS own_id",
        }
        chosen = ", ".join(derived.get(name, name) for name in columns.split())
        only = "" if round is None else " AND round = :round"
        query = f"SELECT {chosen} FROM v_candidate WHERE run_id = :run{only} ORDER BY position"
        named = self._own_ids(columns, "question_id", self._ask(query, round=round))
        return frame_of(columns, named).cast({"label_true": bool})

    def failures(self, *, cause: str | None = None) -> "polars.DataFrame":
        """The failures with their texts, in order of the log.

        Args:
            cause: Only those counted under this cause: `c42`, or an unambiguous part of its
                description.

        Returns:
            One row per failure: its training step, ids, `question`, `trajectory` (the response that failed),
            `reference` (one that agreed or passed, or the known answer: `against`), `label`, `truth`,
            `cause_id`, `cause` and `own_id`, its trainer's; of rounds and attempts that count.

        Raises:
            NotFoundError: No such cause.
            ConfigError: Several causes have the text.
        """
        columns = (
            "round step failure_id question_id question trajectory reference label truth label_true "
            "right_answer against via cause_id cause own_id"
        )
        step = (
            "(SELECT f.step FROM v_failure f WHERE f.run_id = t.run_id AND f.position = t.position) AS step"
        )
        derived = {"step": step, "own_id": "NULL AS own_id"}
        chosen = ", ".join(derived.get(name, name) for name in columns.split())
        query = f"SELECT {chosen} FROM v_trajectory t WHERE run_id = :run ORDER BY position"
        frame = frame_of(columns, self._own_ids(columns, "failure_id", self._ask(query)))
        if cause is None:
            return frame
        named = resolve(self._run, cause, self._run.end, "cause").id
        return frame.filter(frame["cause_id"] == named)

    def groups(self) -> "polars.DataFrame":
        """One row per ingested group: step, prompt, passes, pass rate and outcome."""
        columns = "round step attempt prompt answer rollouts passes pass_rate outcome source"
        return self._view("v_group", columns)

    def steps(self) -> "polars.DataFrame":
        """One row per training step that counts: for this program's trainer by stage, with mean reward,
        loss, entropy, gradient norm and KL; for an ingested run with its passes."""
        own = "round stage attempt step completions reward loss entropy grad_norm kl"
        theirs = "round step rollouts passes pass_rate"
        columns = f"{own} passes pass_rate"
        trained = f"SELECT {', '.join(own.split())} FROM v_step_metric WHERE run_id = :run ORDER BY position"
        rows: list[tuple[Any, ...]] = [(*row, None, None) for row in self._ask(trained)]
        counted = f"SELECT {', '.join(theirs.split())} FROM v_step WHERE run_id = :run ORDER BY round, step"
        for round_, step, rollouts, *passed in self._ask(counted):
            rows.append((round_, None, None, step, rollouts, None, None, None, None, None, *passed))
        return frame_of(columns, rows)

    def why(self, ref: str) -> Story:
        """The chain of evidence of a cause, node, question or failure, with its texts.

        Args:
            ref: `c42`, `n7`, `r3.q318`, `r3.q318.a5`, your trainer's own id, or an unambiguous part of a
                description.

        Returns:
            What `diagevo memory why REF --full` prints, as values.

        Raises:
            NotFoundError: It matches
            nothing. ConfigError: It matches several things.
        """
        return story_of(self._run, ref, self._run.end, evidence=None, full=True)

    def _repr_html_(self) -> str:
        """The causes, most frequent first, for a notebook."""
        causes = self.causes().sort("frequency", descending=True)
        shown = causes.select("cause_id", "state", "frequency", "description")
        table = shown._repr_html_()  # pyright: ignore[reportPrivateUsage]  (the name that notebooks know)
        return f"<p>{escape(repr(self))}</p>{table}"

    def __repr__(self) -> str:
        state = self._run.state(self._run.end)
        return f"<run {self._run.run_id}: round {state.round}, {count(len(state.causes), 'cause')}>"

    def _view(self, view: str, columns: str) -> "polars.DataFrame":
        """Columns of a stable view, in order of the log."""
        chosen = ", ".join(columns.split())
        return frame_of(
            columns, self._ask(f"SELECT {chosen} FROM {view} WHERE run_id = :run ORDER BY position")
        )

    def _own_ids(self, columns: str, by: str, rows: Sequence[tuple[Any, ...]]) -> Sequence[tuple[Any, ...]]:
        """The rows with their column `own_id`, of the questions or failures that `by` names."""
        own = dict(self._ask("SELECT named, own_id FROM v_own_id WHERE run_id = :run"))
        names = columns.split()
        at, ours = names.index("own_id"), names.index(by)
        return [(*row[:at], own.get(row[ours]), *row[at + 1 :]) for row in rows]

    def _ask(self, query: str, **values: Any) -> Sequence[tuple[Any, ...]]:
        with self._run.database.read() as connection:
            found = connection.execute(text(query), {"run": self._run.run_id} | values)
            return [tuple(row) for row in found]

    def events(
        self, *, types: Sequence[str] | None = None, rounds: tuple[int, int] | None = None
    ) -> "polars.DataFrame":
        """One row per event, its payload as JSON text.

        Args:
            types: Only of these types, e.g. "CausePromoted".
            rounds: Only of the rounds from the first to the second number.
        """
        columns = "position sequence round type cause_id event_id causation_id recorded_at payload"
        found = self._run.log.read(self._run.run_id, types=types, rounds=rounds)
        return frame_of(columns, (tuple(getattr(r, name) for name in columns.split()) for r in found))


def _both(value: Fraction | None) -> tuple[float | None, str | None]:
    return (None, None) if value is None else (float(value), str(value))


_WHOLE = (
    "round step attempt position sequence created_round frequency failures active mastered nodes candidates"
    " kept observed promoted reactivated created responses first second label_true right_answer rollouts"
    " passes completions"
)
_FRACTIONAL = (
    "probability probability_committed z epsilon_next p1 p2 pass_rate reward loss entropy grad_norm kl"
)
_TIMES = "committed_at recorded_at"
"""The types of non-text columns in any frame: a frame without rows has its types too."""


def frame_of(
    columns: str, rows: Iterable[tuple[Any, ...]], **kinds: Literal["String", "Float64", "Int64"]
) -> "polars.DataFrame":
    """Rows as a frame. `kinds`: types of columns that differ here from their usual type."""
    with extra("polars", "a frame"):
        import polars
    held = {name: kinds.get(name) or _kind(name) for name in columns.split()}
    times = [place for place, kind in enumerate(held.values()) if kind == "Datetime"]
    values = [list(row) for row in rows]
    for row in values:
        for place in times:
            row[place] = None if row[place] is None else datetime.fromisoformat(row[place])
    types = {"Datetime": polars.Datetime("us", "UTC")}
    schema = {name: types.get(kind) or getattr(polars, kind) for name, kind in held.items()}
    return polars.DataFrame(values, schema=schema, orient="row")


def _kind(column: str) -> str:
    """What polars calls its type."""
    if column in _WHOLE.split():
        return "Int64"
    if column in _TIMES.split():
        return "Datetime"
    return "Float64" if column in _FRACTIONAL.split() else "String"
