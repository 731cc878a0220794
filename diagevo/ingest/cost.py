"""Estimates the cost of a diagnosis before it starts."""

from dataclasses import dataclass

from diagevo.config.models import Config
from diagevo.ingest.rollout_steps import LAST
from diagevo.ingest.rounds import Rounds, answered
from diagevo.memory.memory import Memory

SAMPLED = 100
"""Number of failures whose texts are measured; the others are assumed to be as long."""
CHARACTERS_A_TOKEN = 4
TEMPLATE = 700
"""Tokens of Prompt 1 without its texts."""
FURTHER = 2
"""For each failure, at most one more call on duplicates and one on its node."""


@dataclass(frozen=True, slots=True)
class Cost:
    """Assumes that every failure is a new cause and every reply is readable: retries and pairs of nodes
    come on top. Tokens are estimated from the texts."""

    rounds: int
    failures: int
    calls: int
    """Of a language model: extraction, then for new causes deduplication and a node. 0 for rules."""
    input_tokens: int
    """Of the extractions."""
    against_answers: int
    """Failures compared with the known answer, because no response passed."""
    diagnostician: str
    model: str
    """Empty if no language model is asked."""


def cost(
    memory: Memory,
    config: Config,
    *,
    all_failed: bool,
    again: int | None = None,
    quick: bool = False,
) -> Cost:
    """The cost of everything waiting in a run: the open round and those after it; or of everything from
    round `again` on. A language model is not asked about failures that are not reasoning mistakes; `quick`
    skips that check."""
    cap = config.diagnosis.failures_per_question
    texts: list[tuple[str, ...]] = []
    failures = rounds = settling = against_answers = 0
    found, role = Rounds(memory), config.roles.diagnostician
    by_model = role.engine == "openai"
    sifted = by_model and not quick
    now = memory.state.open
    if now is not None and again is None:
        plain = found.plain(memory.state.batch(now.number)) if sifted else set[str]()
        observed = [each for each in memory.undiagnosed() if each.trajectory not in plain]
        rounds, failures, settling = 1, len(observed), len(memory.unsettled())
        against_answers = sum(failure.against == "answer" for failure in observed)
        texts += [
            (memory.question(failure.question_id).question, failure.trajectory, failure.reference)
            for failure in observed[:SAMPLED]
        ]
    standing = list(found.waiting() if again is None else found.groups(memory.state.batch(again), LAST))
    waiting = {number for number, _ in standing}
    plain = set[str]().union(*(found.plain(batch) for batch in waiting if sifted))
    local = role.engine == "local"
    groups = [group for _, group in standing if group.reference is not None]
    failed_all = (
        group for group in found.all_failed(since=again) if all_failed and (local or answered(group))
    )
    for group in [*groups, *failed_all]:
        failed = group.failed if cap is None else group.failed[:cap]
        failed = [each for each in failed if each.trajectory not in plain]
        failures += len(failed)
        reference = () if group.reference is None else (group.reference,)
        against_answers += len(failed) if answered(group) else 0
        if len(texts) < SAMPLED:
            texts += [(group.question, each.trajectory, *reference) for each in failed]
    characters = _characters(memory, texts[:SAMPLED], config.diagnosis.trajectory_characters)
    each = TEMPLATE + characters // CHARACTERS_A_TOKEN
    return Cost(
        rounds=rounds + len(waiting),
        failures=failures,
        calls=failures * (1 + FURTHER) + settling * FURTHER if by_model else 0,
        input_tokens=failures * each if by_model else 0,
        against_answers=against_answers,
        diagnostician=role.engine,
        model=role.model if by_model else "",
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
