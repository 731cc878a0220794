"""Equation 2 over a data set: how often each prompt should come back in the next epoch."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from diagevo.ingest.aims import Aim, LastFailures
from diagevo.ingest.dataset import PromptDataset
from diagevo.memory.events import CauseState
from diagevo.memory.state.schedule import Schedule


@dataclass(frozen=True, slots=True)
class PromptWeight:
    """A prompt's share of the next epoch. The weights of a file sum to 1."""

    line: int
    prompt: str
    weight: Fraction
    cause: str | None
    """The Active cause that it aims at."""
    stitched: str | None


def weights(
    schedule: Schedule, last: LastFailures, dataset: PromptDataset
) -> tuple[list[PromptWeight], Fraction]:
    """A weight for each row of a matched data set, and the share of F whose causes none of them aims at.

    The free share ε is spread evenly over all prompts, (1 − ε)·p(e) evenly over those that aim at e. What
    aims at a cause that no prompt reaches is spread as the free share is.
    """
    states: Mapping[str, CauseState] = {
        c.cause_id: "mastered" if c.mastered else "active" for c in schedule.causes
    }
    aims: list[Aim | None] = [
        None if digest is None else last.aim(digest, states) for digest in dataset.digests
    ]
    reached = Counter(aim.cause_id for aim in aims if aim is not None)
    p = schedule.probabilities
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
