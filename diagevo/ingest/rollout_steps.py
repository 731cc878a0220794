"""What every format comes down to: steps of rollouts, and the groups of one prompt; and the groups as the log
has them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from diagevo.memory.events import MODEL, GroupDraw, GroupIngested

if TYPE_CHECKING:
    from diagevo.memory.memory import Memory

LAST = 2**31 - 1
"""No round has a higher number."""


class IngestedRollout(msgspec.Struct, frozen=True, gc=False):
    """One response to a prompt, with its reward."""

    prompt: str
    response: str
    reward: float
    answer: str | None = None
    """The expected answer, where the file has one."""
    group: str | None = None
    """Name of its group within the step; None: the prompt."""
    feedback: str | None = None
    """What the file says of the response: a judge's rationale, a test log."""
    tags: tuple[str, ...] = ()
    """What the file classes the prompt as, each once."""
    model: str | None = None
    """Who wrote the response."""


@dataclass(frozen=True, slots=True)
class RolloutStep:
    """A training step as a file has it. `source` is the file's name."""

    number: int
    source: str
    rollouts: Sequence[IngestedRollout]
    unscored: int = 0
    """Rollouts without a reward: an environment that failed, a reward function that had nothing to say."""
    repeated: int = 0
    """Rows that are another row of the step in every field: samples, or one that was written twice."""


@dataclass(slots=True)
class RolloutGroup:
    """The rollouts of one prompt in one step, in order."""

    prompt: str
    answer: str | None
    responses: list[str] = field(default_factory=list[str])
    rewards: list[float] = field(default_factory=list[float])
    draw: GroupDraw | None = None
    name: str | None = None
    """As the file names it. Groups of one name have different prompts."""
    feedback: dict[int, str] = field(default_factory=dict[int, str])
    """By sample."""
    tags: tuple[str, ...] = ()


def models(rollouts: Iterable[IngestedRollout]) -> list[str]:
    """The models of a step, where they are several."""
    found = {rollout.model for rollout in rollouts}
    return sorted(model for model in found if model is not None) if len(found) > 1 else []


def grouped(rollouts: Sequence[IngestedRollout]) -> list[RolloutGroup]:
    """Groups in order of first appearance: a trainer may have shuffled its batch. What failed one prompt says
    nothing of another, so a name that stands by several prompts is as many groups; and one model's passes
    are no reference for another's failures, so models that share a step have groups of their own, and a
    tag."""
    found: dict[tuple[str | None, str, str | None], RolloutGroup] = {}
    several = models(rollouts)
    for rollout in rollouts:
        prompt = rollout.prompt.strip()  # a template may leave its own spaces around it
        key = rollout.group, prompt, rollout.model
        group = found.get(key)
        if group is None:
            tags = (*rollout.tags, f"{MODEL}{rollout.model}") if several and rollout.model else rollout.tags
            group = RolloutGroup(prompt, rollout.answer, name=rollout.group, tags=tuple(dict.fromkeys(tags)))
            found[key] = group
        if rollout.feedback is not None:
            group.feedback[len(group.responses)] = rollout.feedback
        group.responses.append(rollout.response)
        group.rewards.append(rollout.reward)
    return list(found.values())


def ingested(memory: "Memory", first: int, last: int) -> Iterator[tuple[int, GroupIngested]]:
    """The groups of these batches, in order, with their batches: void ones too."""
    for fact in memory.log.chosen(memory.run_id, [GroupIngested], (first, last)):
        yield fact.round, fact.event
