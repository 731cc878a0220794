"""Pseudo-label accuracy: a round's questions with reference answers; and these questions as a benchmark.

The paper takes 200 questions a round, has a strong model propose each answer by majority over 16 samples, and
has humans verify every one ("Diagnostic Evaluation Protocols", Pseudo-label accuracy). Here the questions
are exported to a file, and imported with the answers, whoever proposed them. A world that computes the
truth needs neither: its answers are filled in when the questions are drawn.
"""

import csv
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import PrimaryKeyConstraint, insert, select, update
from sqlmodel import Field, SQLModel

from diagevo.answers.equivalence import AnswerChecker
from diagevo.errors import ConfigError, NotFoundError
from diagevo.evaluation.benchmarks import Loaded
from diagevo.evaluation.protocol import Estimate, estimate
from diagevo.evaluation.question_files import labelled
from diagevo.evaluation.store import ForeignText
from diagevo.memory.events import CandidateScored
from diagevo.memory.history import History
from diagevo.memory.log.database import Database
from diagevo.memory.log.tables import Str, table
from diagevo.text.escaping import csv_text


class OracleRow(SQLModel, table=True):
    """A self-play question with its reference answer."""

    __tablename__ = "oracle"  # pyright: ignore[reportAssignmentType]
    __table_args__ = (PrimaryKeyConstraint("run_id", "round", "question_id"),)
    run_id: Str
    round: int
    question_id: Str
    question: str = Field(sa_type=ForeignText)
    label: str = Field(sa_type=ForeignText)
    """The pseudo-label, which is hidden from the checker."""
    answer: str | None = Field(default=None, sa_type=ForeignText)
    """The reference answer after checking; null until checked. An empty one: the question has no answer."""
    source: str | None = Field(default=None, sa_type=ForeignText)
    """human, or the world that computes the truth."""
    note: str | None = Field(default=None, sa_type=ForeignText)


ORACLE = table(OracleRow)
SELF_PLAY = "selfplay"
_SELF_PLAY = re.compile(r"selfplay(?:\.r(\d{1,9}))?")
"""A round's questions as a benchmark: selfplay.r3."""
COLUMNS = ("run_id", "round", "question_id", "question", "answer", "note")
LONGEST_CELL = 2**30
"""Maximum characters of a cell. A question may be longer than the csv module's default of 131,072."""
NO_ANSWER = "none"
"""What the checker writes for a question without a unique answer."""


@dataclass(frozen=True, slots=True)
class OracleItem:
    run_id: str
    round: int
    question_id: str
    question: str
    label: str
    """Empty if no response answered: that label is wrong."""
    answer: str | None = None
    source: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class LabelAccuracy:
    """How many of the checked pseudo-labels are right. A question without an answer counts as wrong."""

    round: int
    sampled: int
    checked: int
    accuracy: Estimate | None
    source: str | None


class Oracle:
    """The reference answers of one run."""

    def __init__(self, database: Database, run_id: str) -> None:
        self.database = database
        self.run_id = run_id

    def items(self, round: int | None = None) -> list[OracleItem]:
        query = select(ORACLE).where(ORACLE.c.run_id == self.run_id)
        if round is not None:
            query = query.where(ORACLE.c.round == round)
        with self.database.read() as connection:
            rows = connection.execute(query.order_by(ORACLE.c.round, ORACLE.c.question_id)).all()
        return [OracleItem(*row) for row in rows]

    def sample(self, history: History, round: int, size: int, seed: int) -> list[OracleItem]:
        """Draw `size` of the round's valid questions; one without a pseudo-label counts as labelled wrongly.
        Drawn once, then read."""
        drawn = self.items(round)
        if drawn:
            return drawn
        scored = (fact.event for fact in history.events(CandidateScored, round=round))
        valid = [event for event in scored if event.verdict != "invalid"]
        if not valid:
            raise NotFoundError(
                f"round {round} of run {self.run_id} has no valid question",
                hint=f"see what happened to them: diagevo memory log --type CandidateScored --round {round}",
            )
        chosen = random.Random(f"{seed}.oracle.{round}").sample(valid, min(size, len(valid)))
        rows = [
            {
                "run_id": self.run_id,
                "round": round,
                "question_id": event.question_id,
                "question": history.text(event.question) or "",
                "label": event.label or "",
                "answer": event.truth,
                "source": None if event.truth is None else "world",
            }
            for event in chosen
        ]
        with self.database.write() as connection:
            connection.execute(insert(ORACLE), rows)
        return self.items(round)

    def export(self, file: Path, rounds: Sequence[int]) -> int:
        """Write the unchecked questions as CSV for a human. The pseudo-label is left out, so as not to bias
        the checker.

        `answer` is empty: the checker writes the right answer, or `none` for a question without one.
        Raises FileExistsError if the file exists: a checker may have filled it in.
        """
        waiting = [item for item in self.items() if item.answer is None and item.round in rounds]
        with file.open("x", encoding="utf-8", newline="") as target:
            writer = csv.DictWriter(target, COLUMNS)
            writer.writeheader()
            for item in waiting:
                writer.writerow({name: csv_text(str(getattr(item, name) or "")) for name in COLUMNS})
        return len(waiting)

    def import_(self, file: Path) -> tuple[int, int]:
        """Read a checked CSV; returns how many answers were read and how many rows are still empty. Raises
        ConfigError with the line of a row from another run or an unknown question. All rows are imported or
        none.
        """
        known = {(item.round, item.question_id): item for item in self.items()}
        taken: list[tuple[OracleItem, dict[str, str | None]]] = []
        empty = 0
        for number, row in self._rows(file):
            item = known.get((int(row["round"]), row["question_id"])) if row["round"].isdecimal() else None
            if item is None or row["run_id"] != self.run_id:
                raise ConfigError(
                    f"{file}, line {number}: no such question in run {self.run_id}",
                    hint="import a file into the run that it was exported from: --run NAME",
                )
            answer = row["answer"].strip()
            if not answer:
                empty += 1
                continue
            if answer.casefold() == NO_ANSWER:
                answer = ""
            taken.append((item, {"answer": answer, "source": "human", "note": row["note"] or None}))
        with self.database.write() as connection:
            for item, values in taken:
                connection.execute(self._of(item).values(values))
        return len(taken), empty

    def _rows(self, file: Path) -> Iterator[tuple[int, dict[str, str]]]:
        try:
            csv.field_size_limit(LONGEST_CELL)
            with file.open(encoding="utf-8-sig", newline="") as source:
                reader = csv.DictReader(source)
                missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
                if missing:
                    raise ConfigError(f"{file} lacks the column {missing[0]}", hint="export it again")
                for row in reader:
                    yield reader.line_num, {name: row[name] or "" for name in COLUMNS}
        except OSError as error:
            raise ConfigError(
                f"{file} cannot be read: {error.strerror}",
                hint="name a file that diagevo eval labels --check wrote",
            ) from error
        except (UnicodeDecodeError, csv.Error) as error:
            raise ConfigError(
                f"{file} is not a CSV file in UTF-8: {error}",
                hint="export it again, and save it as CSV (UTF-8)",
            ) from error

    def _of(self, item: OracleItem):
        return update(ORACLE).where(
            ORACLE.c.run_id == item.run_id,
            ORACLE.c.round == item.round,
            ORACLE.c.question_id == item.question_id,
        )

    def accuracy(self, checker: AnswerChecker) -> list[LabelAccuracy]:
        """The accuracy of the construction pseudo-labels, by round."""
        rounds: dict[int, list[OracleItem]] = {}
        for item in self.items():
            rounds.setdefault(item.round, []).append(item)
        return [_accuracy(round_, items, checker) for round_, items in sorted(rounds.items())]


def _accuracy(round_: int, items: Sequence[OracleItem], checker: AnswerChecker) -> LabelAccuracy:
    checked = [item for item in items if item.answer is not None]
    if not checked:
        return LabelAccuracy(round_, len(items), 0, None, None)
    answered = [item for item in checked if item.answer]
    right = sum(checker.agree_many([(item.label, item.answer or "") for item in answered]))
    scores = [1.0] * right + [0.0] * (len(checked) - right)
    sources = ", ".join(sorted({item.source or "–" for item in checked}))
    return LabelAccuracy(round_, len(items), len(checked), estimate(scores), sources)


def self_play_questions(history: History, round: int, *, size: int = 200, seed: int = 0) -> Loaded:
    """At most `size` questions of a round with reference answers: the oracle's, else the world's truth.

    Questions that the oracle found to have no answer are included, and no response to them is right.
    Raises NotFoundError if no question has a reference answer.
    """
    items = Oracle(history.database, history.run_id).items(round)
    pairs = [(item.question, item.answer) for item in items if item.answer is not None]
    source = "oracle"
    if not pairs:
        source = "truth of the world"
        scored = (fact.event for fact in history.events(CandidateScored, round=round))
        known = [event for event in scored if event.truth is not None and event.verdict != "invalid"]
        pairs = [(history.text(event.question) or "", event.truth or "") for event in known]
    if not pairs:
        raise NotFoundError(
            f"round {round} of run {history.run_id} has no questions with reference answers",
            hint=f"draw and check some: diagevo eval labels --run {history.run_id} --round {round}",
        )
    chosen = random.Random(f"{seed}.selfplay.{round}").sample(pairs, min(size, len(pairs)))
    return labelled(
        f"{SELF_PLAY}.r{round}",
        f"Questions of round {round}",
        chosen,
        samples=12,
        temperature=1.0,
        source=f"{history.run_id} round {round}, {source}",
        kind="vote",
    )


def self_play_named(benchmark: str) -> int | None:
    """The round of a self-play benchmark; None: all. Raises NotFoundError."""
    named = _SELF_PLAY.fullmatch(benchmark)
    if named is None:
        raise NotFoundError(f"no benchmark {benchmark!r}", hint="for example selfplay or selfplay.r3")
    return None if named[1] is None else int(named[1])


def self_play_round(benchmark: str) -> int | None:
    """The round of a measured self-play benchmark; None for others."""
    named = _SELF_PLAY.fullmatch(benchmark)
    return None if named is None or named[1] is None else int(named[1])
