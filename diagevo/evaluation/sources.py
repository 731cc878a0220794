"""Questions that are no benchmark's: a labelled set of one's own, and the questions that self-play wrote."""

import random
from collections.abc import Sequence

from diagevo.errors import NotFoundError
from diagevo.evaluation.oracle import Oracle
from diagevo.evaluation.questions import Benchmark, Loaded, Question
from diagevo.memory.database import Database
from diagevo.memory.events import CandidateScored, StageCompleted
from diagevo.memory.history import History, expect

SELF_PLAY = "selfplay.r"
"""Beginning of the name of a round's own questions as a benchmark; the round's number follows."""


def labelled(
    name: str,
    title: str,
    pairs: Sequence[tuple[str, str]],
    *,
    samples: int = 8,
    temperature: float = 1.0,
    source: str,
) -> Loaded:
    """Pairs of question and reference answer as something to evaluate on."""
    entry = Benchmark(name, title, "validation", (), len(pairs), samples, temperature)
    return Loaded(entry, tuple(Question(q, a, None, "answer") for q, a in pairs), source)


def self_play_questions(
    database: Database,
    history: History,
    round: int,
    *,
    size: int,
    samples: int,
    temperature: float,
    seed: int,
) -> Loaded:
    """Questions of a round with reference answers: the oracle's where it was asked, else the world's truth.

    Raises NotFoundError where neither is there.
    """
    pairs = [
        (item.question, item.answer) for item in Oracle(database, history.run_id).items(round) if item.answer
    ]
    source = "oracle"
    if not pairs:
        source = "truth of the world"
        scored = (expect(r, CandidateScored) for r in history.events(CandidateScored, round=round))
        known = [event for event in scored if event.truth is not None and event.verdict != "invalid"]
        chosen = random.Random(f"{seed}.selfplay.{round}").sample(known, min(size, len(known)))
        pairs = [(history.text(event.question) or "", event.truth or "") for event in chosen]
    if not pairs:
        raise NotFoundError(
            f"round {round} of run {history.run_id} has no questions with reference answers",
            hint=f"draw and check some: diagevo eval oracle sample --round {round}",
        )
    return labelled(
        f"{SELF_PLAY}{round}",
        f"Questions of round {round}",
        pairs,
        samples=samples,
        temperature=temperature,
        source=f"{history.run_id} round {round}, {source}",
    )


def checkpoint_of(history: History, role: str, round: int) -> str | None:
    """Folder of the policy after a round, relative to the run's; None where it is the starting model."""
    found = (r for r in history.events(StageCompleted) if r.round <= round)
    folders = [
        artifact.path
        for recorded in found
        if (event := expect(recorded, StageCompleted)).stage == role
        for artifact in event.artifacts
    ]
    return folders[-1] if folders else None
