"""Equation 2 over a data set: how often each prompt should come back in the next epoch."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from diagevo.equations.states import Part
from diagevo.errors import ConfigError
from diagevo.ingest.dataset import PromptDataset
from diagevo.ingest.rounds import Aim, LastFailures, prompts_that_passed
from diagevo.memory.log.artifacts import Artifacts
from diagevo.memory.log.log import Log
from diagevo.memory.state.model import MemoryState
from diagevo.memory.state.projected_schedule import Schedule
from diagevo.text.escaping import one_line
from diagevo.text.numbers import count

SHOWN = 60
"""Maximum characters of a prompt in a message."""


@dataclass(frozen=True, slots=True)
class PromptWeight:
    """A prompt's share of the next epoch. The weights of a file sum to 1."""

    line: int
    prompt: str
    weight: Fraction
    cause: str | None
    """The Active cause that it aims at."""
    stitched: str | None


@dataclass(frozen=True, slots=True)
class Weighed:
    """A data set, weighed. The weights sum to 1. Counts are of prompts; one may be in many rows."""

    rows: list[PromptWeight]
    prompts: int
    matched: int
    """Prompts that were rolled out."""
    aimed: int
    """Prompts that aim at a cause."""
    unreached: Fraction
    """The share of F whose causes no prompt aims at."""
    never: int
    """Prompts without any pass, which aim at no cause."""


def weigh(log: Log, state: MemoryState, schedule: Schedule, dataset: PromptDataset) -> Weighed:
    """Match a data set with the logged prompts, and weigh it by the state's schedule.

    Raises:
        ConfigError: No prompt was rolled out.
    """
    passed = prompts_that_passed(log, state.run_id)
    logged = Artifacts(log.database).get_many(list(passed))
    if not dataset.match(logged):
        example = next(iter(logged.values()), None)
        raise ConfigError(
            f"no prompt of {dataset.name} ({count(len(dataset.prompts), 'row')}) was rolled out in run"
            f" {state.run_id}"
            + ("" if example is None else f", whose first prompt is: {one_line(example)[:SHOWN]}…"),
            hint="name the data set that the training read, with prompt, question, problem or messages a row",
        )
    last = LastFailures()
    last.read(log, state.run_id, state.counted(range(1, schedule.round)))
    found, unreached = weights(schedule, last, dataset)
    known = {
        digest: one.cause for digest, one in zip(dataset.digests, found, strict=True) if digest is not None
    }
    others = {
        each.text for digest, each in zip(dataset.digests, dataset.prompts, strict=True) if digest is None
    }
    return Weighed(
        rows=found,
        prompts=len(known) + len(others),
        matched=len(known),
        aimed=sum(cause is not None for cause in known.values()),
        unreached=unreached,
        never=sum(cause is None and not passed[digest] for digest, cause in known.items()),
    )


def weights(
    schedule: Schedule, last: LastFailures, dataset: PromptDataset
) -> tuple[list[PromptWeight], Fraction]:
    """A weight for each row of a matched data set, and the share of F whose causes none of them aims at.

    The free share ε is spread evenly over all prompts, (1 − ε)·p(e) evenly over those that aim at e. The
    share of causes that no prompt reaches is spread like the free share.
    """
    parts: Mapping[str, Part] = {c.cause_id: "partner" if c.mastered else "target" for c in schedule.causes}
    aims: list[Aim | None] = [
        None if digest is None else last.aim(digest, parts) for digest in dataset.digests
    ]
    reached = Counter(aim.cause_id for aim in aims if aim is not None)
    p = {cause: share.p for cause, share in schedule.shares.items()}
    aimed = 1 - schedule.epsilon
    unreached = sum((p[cause] for cause in p if cause not in reached), Fraction(0))
    even = (schedule.epsilon + aimed * unreached) / len(dataset.prompts)
    found = [
        PromptWeight(
            prompt.line,
            prompt.user,
            even if aim is None else even + aimed * p[aim.cause_id] / reached[aim.cause_id],
            None if aim is None else aim.cause_id,
            None if aim is None else aim.stitched_cause_id,
        )
        for prompt, aim in zip(dataset.prompts, aims, strict=True)
    ]
    return found, unreached
