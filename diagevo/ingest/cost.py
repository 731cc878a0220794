"""What diagnosing will cost, before it starts."""

from dataclasses import dataclass

from diagevo.config.models import Config
from diagevo.ingest.rounds import LAST, Rounds, answered
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
    against_answers: int
    """Failures that are held against the known answer, because no response passed."""
    diagnostician: str
    model: str
    """Empty where no language model is asked."""


def cost(memory: Memory, config: Config, *, all_failed: bool, again: int | None = None) -> Cost:
    """Of all that waits in a run: the open round and those behind it; or of all from round `again` on."""
    cap = config.diagnosis.failures_per_question
    texts: list[tuple[str, ...]] = []
    failures = rounds = settling = against_answers = 0
    now = memory.state.open
    if now is not None and again is None:
        observed = memory.undiagnosed()
        rounds, failures, settling = 1, len(observed), len(memory.unsettled())
        against_answers = sum(failure.against == "answer" for failure in observed)
        texts += [
            (memory.question(failure.question_id).question, failure.trajectory, failure.reference)
            for failure in observed[:SAMPLED]
        ]
    found = Rounds(memory)
    standing = list(found.waiting() if again is None else found.groups(memory.state.batch(again), LAST))
    waiting = {number for number, _ in standing}
    role = config.roles.diagnostician
    local = role.engine == "local"
    groups = [group for _, group in standing if group.reference is not None]
    failed_all = (
        group for group in found.all_failed(since=again) if all_failed and (local or answered(group))
    )
    for group in [*groups, *failed_all]:
        failed = group.failed if cap is None else group.failed[:cap]
        failures += len(failed)
        reference = () if group.reference is None else (group.reference,)
        against_answers += len(failed) if answered(group) else 0
        if len(texts) < SAMPLED:
            texts += [(group.question, each.trajectory, *reference) for each in failed]
    characters = _characters(memory, texts[:SAMPLED], config.diagnosis.trajectory_characters)
    asked = role.engine == "openai"
    each = TEMPLATE + characters // CHARACTERS_A_TOKEN
    return Cost(
        rounds=rounds + len(waiting),
        failures=failures,
        calls=failures * (1 + FURTHER) + settling * FURTHER if asked else 0,
        input_tokens=failures * each if asked else 0,
        against_answers=against_answers,
        diagnostician=role.engine,
        model=role.model if asked else "",
    )


def _characters(memory: Memory, texts: list[tuple[str, ...]], longest: int) -> int:
    """Mean characters of a question with its pair."""
    if not texts:
        return 0
    found = memory.artifacts.get_many([digest for each in texts for digest in each])
    return sum(
        len(found[question]) + sum(min(len(found[each]), longest) for each in others)
        for question, *others in texts
    ) // len(texts)
