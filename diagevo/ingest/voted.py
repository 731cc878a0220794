"""A custom trainer's question with its votes: counted, labelled and judged as DiagEvo does."""

from collections.abc import Sequence

from diagevo.answers.equivalence import AnswerChecker
from diagevo.answers.extraction import extract_boxed
from diagevo.equations.filter import verdict
from diagevo.errors import ConfigError, OutOfOrderError
from diagevo.memory.events import CandidateScored
from diagevo.memory.memory import Memory
from diagevo.memory.state.projected_schedule import Draw
from diagevo.memory.state.stored_config import filter_of


def voted(
    memory: Memory,
    draw: Draw,
    question: str,
    responses: Sequence[str],
    *,
    answers: Sequence[str | None] | None = None,
    question_id: str | None = None,
) -> CandidateScored:
    """The candidate of the open round that `Memory.score` takes; its texts are stored.

    Args:
        memory: The run's memory, with an open
        round. draw: The draw that the question was written for.
        question: Its text.
        responses: The solver's, in order.
        answers: Each response's answer, or None (default: its last box).
        question_id: Your own id (default: numbered by its place in the draw).

    Returns:
        The candidate, with the votes, the label that most answers agree with, Equation 3's verdict by the
        run's configuration, and the first response that agrees as the reference.

    Raises:
        ConfigError: There is no response, or not one answer for each.
        OutOfOrderError: No round is open.
    """
    if (opened := memory.state.open) is None:
        comes = memory.state.round + 1
        raise OutOfOrderError("no round is open", hint=f"open_round({comes}) comes next")
    given = [extract_boxed(text) for text in responses] if answers is None else list(answers)
    if not responses or len(given) != len(responses):
        raise ConfigError(
            f"{len(given)} answers of {len(responses)} responses",
            hint="give each response its answer, or None; one response or more",
        )
    with AnswerChecker(workers=1) as checker:
        [votes] = checker.group([given])
        undecided = checker.undecided([votes])
    put, agreeing = memory.artifacts.put, votes.agreeing
    return CandidateScored(
        question_id=f"r{opened.number}.q{draw.index}" if question_id is None else question_id,
        question=put(question),
        mode=draw.mode,
        cause_id=draw.cause_id,
        stitched_cause_id=draw.stitched_cause_id,
        responses=votes.responses,
        votes=list(votes.votes),
        first=votes.first,
        second=votes.second,
        label=votes.label,
        verdict=verdict(votes.first, votes.second, votes.responses, bool(agreeing), filter_of(memory.config)),
        reference=put(responses[agreeing[0]]) if agreeing else None,
        undecided=undecided,
    )
