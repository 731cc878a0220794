"""The common form of all formats: steps of rollouts, and groups of one prompt; and the groups in the log."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from diagevo.memory.events import MODEL, GroupDraw, GroupIngested

if TYPE_CHECKING:
    from diagevo.memory.memory import Memory

LAST = 2**31 - 1
"""The highest number of a round."""


class IngestedRollout(msgspec.Struct, frozen=True, gc=False):
    """One response to a prompt, with its reward."""

    prompt: str
    response: str
    reward: float
    answer: str | None = None
    """The expected answer, if the file has one."""
    group: str | None = None
    """Name of its group within the step; None: the prompt."""
    feedback: str | None = None
    """The file's feedback on the response: a judge's rationale, a test log."""
    tags: tuple[str, ...] = ()
    """The file's tags of the prompt, without duplicates."""
    model: str | None = None
    """The model that wrote the response."""


@dataclass(frozen=True, slots=True)
class RolloutStep:
    """A training step from a file. `source` is the file's name."""

    number: int
    source: str
    rollouts: Sequence[IngestedRollout]
    unscored: int = 0
    """Rollouts without a reward: an environment that failed, a reward function that returned none."""
    repeated: int = 0
    """Rows identical to another row of the step: samples, or one that was written twice."""


@dataclass(slots=True)
class RolloutGroup:
    """The rollouts of one prompt in one step, in order."""

    prompt: str
    answer: str | None
    responses: list[str] = field(default_factory=list[str])
    rewards: list[float] = field(default_factory=list[float])
    draw: GroupDraw | None = None
    name: str | None = None
    """Its name in the file. Groups of one name have different prompts."""
    feedback: dict[int, str] = field(default_factory=dict[int, str])
    """By sample."""
    tags: tuple[str, ...] = ()


def models(rollouts: Iterable[IngestedRollout]) -> list[str]:
    """The models of a step, if there are several."""
    found = {rollout.model for rollout in rollouts}
    return sorted(model for model in found if model is not None) if len(found) > 1 else []


def grouped(rollouts: Sequence[IngestedRollout]) -> list[RolloutGroup]:
    """Groups in order of first appearance: a trainer may have shuffled its batch. Failures on one prompt say
    nothing about another, so a name shared by several prompts becomes several groups; and one model's
    passes are not a reference for another's failures, so models that share a step have their own groups, and
    a tag."""
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
    """The groups of these batches, in order, with their batches, including void ones."""
    for fact in memory.log.chosen(memory.run_id, [GroupIngested], (first, last)):
        yield fact.round, fact.event
