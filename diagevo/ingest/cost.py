"""What diagnosing will cost, before it starts."""

from dataclasses import dataclass

from diagevo.config.models import Config
from diagevo.ingest.rounds import Rounds
from diagevo.memory.events import FailureObserved
from diagevo.memory.memory import Memory

SAMPLED = 100
"""Failures whose texts are measured; the others are taken to be as long."""
CHARACTERS_A_TOKEN = 4
TEMPLATE = 700
"""Tokens of Prompt 1 without its texts."""
FURTHER = 2
"""Of each failure a further call on duplicates and one on its node, at most."""


@dataclass(frozen=True, slots=True)
class Cost:
    """As if every failure were a new cause and every reply could be read: a second try comes on top, and so
    do the pairs of nodes. Tokens are estimated from the texts."""

    rounds: int
    failures: int
    calls: int
    """Of a language model: extraction, then for new causes deduplication and a node. 0 for rules."""
    input_tokens: int
    """Of the extractions."""
    diagnostician: str
    model: str
    """Empty where no language model is asked."""


def cost(memory: Memory, config: Config) -> Cost:
    """Of all that waits in a run: the open round and those behind it."""
    cap = config.diagnosis.failures_per_question
    texts: list[tuple[str, str, str]] = []
    failures = rounds = settling = 0
    now = memory.state.open
    if now is not None:
        observed = memory.undiagnosed()
        rounds, failures, settling = 1, len(observed), len(memory.unsettled())
        texts += [_texts(memory, failure) for failure in observed[:SAMPLED]]
    waiting: set[int] = set()
    for number, group in Rounds(memory).waiting():
        waiting.add(number)
        failed = group.failed if cap is None else group.failed[:cap]
        failures += len(failed)
        if group.reference is not None and len(texts) < SAMPLED:
            texts += [(group.question, group.reference, each.trajectory) for each in failed]
    characters = _characters(memory, texts[:SAMPLED], config.diagnosis.trajectory_characters)
    role = config.roles.diagnostician
    asked = role.engine == "openai"
    each = TEMPLATE + characters // CHARACTERS_A_TOKEN
    return Cost(
        rounds + len(waiting),
        failures,
        failures * (1 + FURTHER) + settling * FURTHER if asked else 0,
        failures * each if asked else 0,
        role.engine,
        role.model if asked else "",
    )


def _texts(memory: Memory, failure: FailureObserved) -> tuple[str, str, str]:
    return memory.question(failure.question_id).question, failure.reference, failure.trajectory


def _characters(memory: Memory, texts: list[tuple[str, str, str]], longest: int) -> int:
    """Mean characters of a question with its pair."""
    if not texts:
        return 0
    found = memory.artifacts.get_many([digest for each in texts for digest in each])
    return sum(
        len(found[question]) + min(len(found[a]), longest) + min(len(found[b]), longest)
        for question, a, b in texts
    ) // len(texts)
