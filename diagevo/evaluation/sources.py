"""Questions that are no benchmark's: a labelled set of one's own, and the questions that self-play wrote."""

import random
from collections.abc import Callable, Sequence

from diagevo.errors import NotFoundError
from diagevo.evaluation.oracle import Oracle
from diagevo.evaluation.questions import Benchmark, Kind, Loaded, Question
from diagevo.memory.events import CandidateScored, StageCompleted
from diagevo.memory.history import History
from diagevo.progress import WARM_START

SELF_PLAY = "selfplay.r"
"""Beginning of the name of a round's questions as a benchmark: its number follows, and @RUN if another's."""


def ungrouped(question: str) -> None:
    """No question is of a group."""


def labelled(
    name: str,
    title: str,
    pairs: Sequence[tuple[str, str]],
    *,
    samples: int = 8,
    temperature: float = 1.0,
    source: str,
    kind: Kind = "answer",
    group: Callable[[str], str | None] = ungrouped,
) -> Loaded:
    """Pairs of question and reference answer as something to evaluate on; `group` says what results are
    grouped by."""
    entry = Benchmark(
        name=name,
        title=title,
        group="validation",
        parts=(),
        questions=len(pairs),
        samples=samples,
        temperature=temperature,
    )
    return Loaded(entry, tuple(Question(q, a, group(q), kind) for q, a in pairs), source)


def self_play_questions(
    history: History,
    round: int,
    *,
    of: str | None = None,
    size: int,
    samples: int,
    temperature: float,
    seed: int,
) -> Loaded:
    """At most `size` questions of a round with reference answers: the oracle's, else the world's truth.

    `of` names the run where the questions are another's than the solver's. A question that the oracle found
    to have no answer is among them, and no response is right. Raises NotFoundError where no question has a
    reference answer.
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
        f"{SELF_PLAY}{round}" + ("" if of is None else f"@{of}"),
        f"Questions of round {round}" + ("" if of is None else f" of run {of}"),
        chosen,
        samples=samples,
        temperature=temperature,
        source=f"{history.run_id} round {round}, {source}",
        kind="vote",
    )


def self_play_round(benchmark: str) -> tuple[int, str | None] | None:
    """The round that a self-play benchmark is of, and the run where it is another's; None for any other."""
    if not benchmark.startswith(SELF_PLAY):
        return None
    number, _, run = benchmark.removeprefix(SELF_PLAY).partition("@")
    return int(number), run or None


def checkpoint_of(history: History, role: str, round: int) -> str | None:
    """Folder of the policy after a round, relative to the run's; None where it is the starting model.

    After round 0 it is what a warm start left.
    """
    folders = [
        artifact.path
        for fact in history.events(StageCompleted)
        if (event := fact.event).stage == WARM_START or (event.stage == role and fact.round <= round)
        for artifact in event.artifacts[-1:]
    ]
    return folders[-1] if folders else None
