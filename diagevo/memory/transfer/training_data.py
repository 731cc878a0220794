"""Failed questions as training data: supervised, preferences or prompts, with provenance."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

from diagevo.errors import ConfigError, NotFoundError, StoreError, extra
from diagevo.memory.events import (
    CandidateScored,
    CauseCreated,
    CauseMatched,
    FailureDiagnosed,
    FailureObserved,
    GroupIngested,
    IdGiven,
)
from diagevo.memory.history import History
from diagevo.memory.log.artifacts import Artifacts
from diagevo.memory.read.placed_groups import placed_groups
from diagevo.memory.state.assignments import causes_of, moves
from diagevo.private import atomic_file, private_folder
from diagevo.text.escaping import json_text
from diagevo.text.turns import joined, turns

Kind = Literal["sft", "dpo", "prompts"]
PAGE = 500
"""Failures whose texts are read in one batch."""
_MARKS = re.compile(r"<\|\w+\|>|<start_of_turn>|\[INST\]")
_Failure = tuple[FailureObserved, CandidateScored]


FALSE_LABEL = "held against a false label"
ONE_ROW = "on a question that has its row"
NONE_PASSED = "on prompts that no response passed"
WAITING = "in a round that waits for its diagnosis"
DISMISSED = "of a dismissed cause"
RIGHT = "that give the true answer"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Failures without a row."""

    failures: int
    why: str
    next: str
    """How to get one, or why none should exist."""


class TrainingData:
    """The failures of a run as TRL's trainers take them, in log order, without superseded rounds and
    abandoned steps.

    Where the true answer is known, rows that would teach a false one are left out: an agreeing response of a
    false label, a failed response that was right. So are failures of a dismissed cause. A question that no
    response passed is only in "prompts".
    """

    def __init__(self, history: History, kind: Kind, cause: str | None = None) -> None:
        """Choose the failures.

        Args:
            history: The run.
            kind: "sft": the question and the response that passed, one row a question (`messages`).
                "dpo": the failed one as `rejected`, one row a failure, and as `chosen` a response that
                passed: the one that the diagnosis held it against as the nearest, else that of "sft".
                "prompts": the question with its answer (the truth where it is known, else the label), one row
                a question.
            cause: Only failures that were assigned to this cause.
        """
        self.history = history
        self.kind: Kind = kind
        failures, self._causes, self._nearest = _failures(history)
        self._passed: dict[str, set[str]] = {}
        """Of another trainer's prompts, what passed."""
        if kind == "dpo" and self._nearest:
            for fact in history.events(GroupIngested):
                self._passed.setdefault(fact.event.question, set()).update(fact.event.passed)
        wanted = [p for p in failures if cause is None or self._causes.get(p[0].failure_id) == cause]
        waiting, none_passed = (0, 0) if cause is not None else _beside(history, len(failures))
        self.failures = len(wanted) + waiting + none_passed
        """All failures, of the cause if one is named."""
        self._wanted: list[_Failure] = []
        left = Counter({WAITING: waiting, NONE_PASSED: none_passed})
        questions: set[str] = set()
        dismissed = {one.cause_id for one in history.state(history.end).left_out()}
        for failed, scored in wanted:
            why = _why_not(kind, failed, scored)
            if self._causes.get(failed.failure_id) in dismissed:
                why = DISMISSED
            if why is None and kind != "dpo" and scored.question_id in questions:
                why = ONE_ROW
            if why is None:
                questions.add(scored.question_id)
                self._wanted.append((failed, scored))
            else:
                left[why] += 1
        steps = _next_steps(history.run_id)
        self.left = [LeftOut(number, why, steps[why]) for why, number in (+left).items()]
        """Failures without a row, by reason."""

    def rows(self) -> Iterator[dict[str, Any]]:
        """Prompts are chat messages; they are texts where the trainer logged them through a chat template."""
        history, kind, causes = self.history, self.kind, self._causes
        templated: bool | None = None
        descriptions = {c.cause_id: c.description for c in history.state(history.end).causes.values()}
        remaining, artifacts = iter(self._wanted), Artifacts(history.database)
        own = {fact.event.named: fact.event.own_id for fact in history.events(IdGiven)}
        while page := list(islice(remaining, PAGE)):
            chosen = [self._chosen(failed, scored) for failed, scored in page]
            digests = [
                (scored.question, failed.trajectory, passed)
                for (failed, scored), passed in zip(page, chosen, strict=True)
            ]
            texts = artifacts.get_many(list(chain.from_iterable(digests)))
            for (failed, scored), passed in zip(page, chosen, strict=True):
                question = texts[scored.question]
                if templated is None:
                    templated = _MARKS.search(question) is not None
                cause_id = causes.get(failed.failure_id)
                ids = {"question_id": scored.question_id, "failure_id": failed.failure_id}
                theirs = {f"own_{name}": own.get(ours) for name, ours in ids.items()} if own else {}
                pair = texts[passed], texts[failed.trajectory]
                yield {
                    **_row(kind, scored, question, pair, templated=templated),
                    "cause_id": cause_id,
                    "cause": descriptions.get(cause_id or ""),
                    **ids,
                    **theirs,
                    "run": history.run_id,
                }

    def _chosen(self, failed: FailureObserved, scored: CandidateScored) -> str:
        """The response to pair with a failure. It must have passed on the same prompt."""
        nearest = self._nearest.get(failed.failure_id)
        if nearest is not None and nearest in self._passed.get(scored.question, ()):
            return nearest
        return failed.reference


def _why_not(kind: Kind, failed: FailureObserved, scored: CandidateScored) -> str | None:
    """Why a failure has no row; None if it has one."""
    if kind != "prompts" and failed.against != "response":
        return NONE_PASSED
    if kind != "prompts" and scored.label_true is False:
        return FALSE_LABEL
    if kind == "dpo" and failed.right is True:
        return RIGHT
    return None


def _next_steps(run: str) -> dict[str, str]:
    """How to get a row, by the reason why a failure has none."""
    return {
        WAITING: f"diagevo diagnose --run {run} --local, or with a model",
        NONE_PASSED: "ask the model for more responses, or take their questions: --as prompts",
        FALSE_LABEL: "none: the response that agreed would teach a false answer",
        DISMISSED: f"diagevo memory dismiss CAUSE --undo --run {run}",
        ONE_ROW: "none: --as dpo has a row for each failure",
        RIGHT: "none: the failed response is right",
    }


def _beside(history: History, observed: int) -> tuple[int, int]:
    """Failed ingested rollouts that were not observed: those waiting for their round, and those without
    any pass in their group."""
    if history.ingested is None:
        return 0, 0
    counted = set(history.state(history.end).counted())
    groups = placed_groups(history).values()
    waiting = sum(one.rollouts - one.passes for one in groups if one.round not in counted)
    return waiting, sum(one.rollouts - one.passes for one in groups) - waiting - observed


def write_training_data(rows: Sequence[dict[str, Any]], file: Path) -> None:
    """Write .jsonl, .parquet, or a folder (no suffix) that `datasets.load_dataset` reads.

    Raises:
        ConfigError: Another suffix, or something is there already.
        StoreError: It cannot be written.
    """
    if file.suffix not in ("", ".jsonl", ".parquet"):
        raise ConfigError(
            f"{file} is not .jsonl, .parquet or a folder", hint="name it so: -o hard.jsonl, or -o hard"
        )
    if file.exists():
        raise ConfigError(f"{file} exists already", hint="name a new one, or remove it")
    try:
        if file.suffix == ".jsonl":  # half a file would train as if it were complete
            with atomic_file(file) as part, part.open("w", encoding="utf-8") as out:
                out.writelines(f"{json_text(row)}\n" for row in rows)
            return
        with extra("polars", f"writing {file}"):
            import polars as pl

        if file.suffix == "":
            private_folder(file)
            file /= "train.parquet"
        with atomic_file(file) as part:
            pl.DataFrame(rows, infer_schema_length=None).write_parquet(part)
    except OSError as error:
        raise StoreError(
            f"{file} cannot be written: {error}", hint="check free space and permissions"
        ) from error


def _failures(history: History) -> tuple[list[_Failure], dict[str, str], dict[str, str]]:
    """The failures that count, with their questions; the cause of each that has one; and the response that
    passed which its diagnosis shows it beside."""
    state = history.state(history.end)
    counted = set(state.counted())
    questions: dict[str, CandidateScored] = {}
    failures: dict[str, _Failure] = {}
    causes: dict[str, str] = {}
    nearest: dict[str, str] = {}
    types = CandidateScored, FailureObserved, FailureDiagnosed, CauseCreated, CauseMatched
    for fact in history.events(*types):
        if fact.round not in counted:
            continue
        match fact.event:
            case CandidateScored() as scored:
                questions[scored.question_id] = scored
            case FailureObserved() as failed:
                if not history.abandoned.void(fact.round, failed):
                    failures[failed.failure_id] = failed, questions[failed.question_id]
            case FailureDiagnosed(pair=pair, failure_id=failure_id):
                if pair is not None:
                    nearest[failure_id] = pair.passed
            case (
                CauseCreated(failure_id=failure_id, cause_id=cause_id)
                | CauseMatched(failure_id=failure_id, cause_id=cause_id)
            ):
                causes[failure_id] = cause_id
    for failure_id, cause_id in causes_of(moves(history.log, history.run_id)).items():
        causes.pop(failure_id, None)
        if cause_id is not None:
            causes[failure_id] = cause_id
    if not failures:
        raise NotFoundError(
            f"run {history.run_id} has no failure with a response that passed", hint="see: diagevo runs show"
        )
    return list(failures.values()), causes, nearest


def _row(
    kind: Kind, scored: CandidateScored, question: str, pair: tuple[str, str], *, templated: bool
) -> dict[str, Any]:
    """The part that a trainer reads. `pair`: the response that passed, and the one that failed."""
    passed, failed = pair
    prompt = question if templated else _messages("user", question)
    if kind == "prompts":
        return {"prompt": prompt, "answer": scored.label if scored.truth is None else scored.truth}
    if templated:
        return {"prompt": prompt} | (
            {"completion": passed} if kind == "sft" else {"chosen": passed, "rejected": failed}
        )
    chosen = _messages("assistant", passed)
    if kind == "sft":
        return {"messages": [*prompt, *chosen]}
    return {"prompt": prompt, "chosen": chosen, "rejected": _messages("assistant", failed)}


_ROLES = {"human": "user", "gpt": "assistant", "model": "assistant", "function": "tool"} | {
    role: role for role in ("system", "user", "assistant", "tool")
}
"""The names of roles in chat templates."""


def _messages(role: str, text: str) -> list[dict[str, str]]:
    """The messages that a text was made of; one of this role where it is a text of its own, or has a speaker
    that chat templates do not know."""
    found = turns(text)
    if joined(found) != text or any(turn.role not in _ROLES for turn in found):
        return [{"role": role, "content": text}]
    return [
        {"role": _ROLES[turn.role], **({"name": turn.name} if turn.name else {}), "content": turn.text}
        for turn in found
    ]
