"""Pseudo-label accuracy: a round's questions with answers that a model proposed and a human checked.

The paper takes 200 questions a round, has a strong model propose each answer by majority over 16 samples, and
has humans verify every one ("Diagnostic Evaluation Protocols", Pseudo-label accuracy). A world that computes
the truth needs neither: its answers are filled in when the questions are drawn.
"""

import csv
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import insert, select, update

from diagevo.answers.equivalence import AnswerChecker, extract_boxed
from diagevo.errors import ConfigError, NotFoundError
from diagevo.evaluation.asking import as_answered
from diagevo.evaluation.protocol import Estimate, estimate
from diagevo.evaluation.tables import OracleRow
from diagevo.memory.events import CandidateScored
from diagevo.memory.history import History
from diagevo.memory.log.database import Database
from diagevo.memory.log.tables import table
from diagevo.sampling.sampler import Sampler, SamplingParams
from diagevo.selfplay.questions import PromptTemplates
from diagevo.text.escaping import csv_text

ORACLE = table(OracleRow)
COLUMNS = ("run_id", "round", "question_id", "question", "proposed", "votes", "answer", "note")
CONFIRMED = "ok"
"""What the checker writes for an answer that was proposed rightly."""
LONGEST_CELL = 2**30
"""Characters. A question may be longer than the 131,072 that the csv module reads."""
NO_ANSWER = "none"
"""What the checker writes for a question without one answer."""


@dataclass(frozen=True, slots=True)
class OracleItem:
    run_id: str
    round: int
    question_id: str
    question: str
    label: str
    """Empty where no response answered: that label is wrong."""
    proposed: str | None = None
    votes: str | None = None
    proposer: str | None = None
    answer: str | None = None
    source: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class LabelAccuracy:
    """How many of the checked pseudo-labels are right. A question without an answer counts as wrong."""

    round: int
    sampled: int
    proposed: int
    """Of those that are not checked: how many have a proposed answer."""
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

    def propose(
        self,
        sampler: Sampler,
        name: str,
        templates: PromptTemplates,
        checker: AnswerChecker,
        *,
        params: SamplingParams,
        samples: int = 16,
        at_once: int = 16,
        seed: int = 0,
        on_progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> int:
        """Propose an answer for every drawn question that has none, by majority. Returns how many."""
        waiting = [item for item in self.items() if item.proposed is None and item.answer is None]
        asks = {item: (templates.solver(item.question), seed + i) for i, item in enumerate(waiting)}
        done = 0
        for groups in as_answered(sampler, asks, n=samples, params=params, at_once=at_once):
            votes = checker.group([[extract_boxed(c.text) for c in group] for group in groups.values()])
            with self.database.write() as connection:
                for item, vote in zip(groups, votes, strict=True):
                    values = {
                        "proposed": vote.label or "",
                        "votes": f"{vote.first}/{samples}",
                        "proposer": name,
                    }
                    connection.execute(self._of(item).values(values))
            done += len(groups)
            on_progress(done, len(waiting))
        return done

    def export(self, file: Path, rounds: Sequence[int]) -> int:
        """Write the unchecked questions as CSV for a human. The pseudo-label is left out: it must not sway.

        `answer` is empty: the checker writes `ok`, the right answer, or `none` for a question without one.
        Raises FileExistsError where the file is there: a checker may have filled it in.
        """
        waiting = [item for item in self.items() if item.answer is None and item.round in rounds]
        with file.open("x", encoding="utf-8", newline="") as target:
            writer = csv.DictWriter(target, COLUMNS)
            writer.writeheader()
            for item in waiting:
                writer.writerow({name: csv_text(str(getattr(item, name) or "")) for name in COLUMNS})
        return len(waiting)

    def import_(self, file: Path) -> tuple[int, int]:
        """Read a checked CSV; how many answers were taken and how many rows are still empty.

        Raises ConfigError with the line where a row is of another run, unknown, or confirms no proposal. All
        rows are taken or none.
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
            said = row["answer"].strip()
            if not said:
                empty += 1
                continue
            if said.casefold() == CONFIRMED:
                if not item.proposed:
                    raise ConfigError(
                        f"{file}, line {number}: there is no proposal to confirm",
                        hint="write the answer itself, or leave the field empty",
                    )
                said = item.proposed
            answer = "" if said.casefold() == NO_ANSWER else said
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
    proposed = sum(item.answer is None and item.proposed is not None for item in items)
    if not checked:
        return LabelAccuracy(round_, len(items), proposed, 0, None, None)
    answered = [item for item in checked if item.answer]
    right = sum(checker.agree_many([(item.label, item.answer or "") for item in answered]))
    scores = [1.0] * right + [0.0] * (len(checked) - right)
    sources = ", ".join(sorted({item.source or "–" for item in checked}))
    return LabelAccuracy(round_, len(items), proposed, len(checked), estimate(scores), sources)
