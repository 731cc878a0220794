"""Equation 2 over a data set: how often each prompt should come back in the next epoch."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from diagevo.errors import ConfigError
from diagevo.ingest.aims import Aim, LastFailures
from diagevo.ingest.formats import messages
from diagevo.ingest.lines import CutLine, rows
from diagevo.memory.events import CauseState
from diagevo.memory.log.artifacts import digest_of
from diagevo.memory.state.schedule import Schedule

FIELDS = ("prompt", "question", "input")
"""Where a line's prompt may stand, the first that is there."""


@dataclass(frozen=True, slots=True)
class PromptWeight:
    """A prompt's share of the next epoch. The weights of a file sum to 1."""

    line: int
    prompt: str
    weight: Fraction
    cause: str | None
    """The Active cause that it aims at."""
    stitched: str | None


_A_PROMPT = 'each line is a JSON object with "prompt"'


def prompts_of(file: Path) -> list[tuple[int, str]]:
    """The prompts of a JSONL file, by line. Raises ConfigError."""
    if not file.is_file():
        raise ConfigError(f"there is no file {file}", hint=_A_PROMPT)
    found: list[tuple[int, str]] = []
    try:
        for line, row in rows(file):
            name = next((name for name in FIELDS if name in row), None)
            if name is None:
                raise ConfigError(f"{file}, line {line} has none of {', '.join(FIELDS)}", hint=_A_PROMPT)
            found.append((line, messages(row[name]).strip()))
    except CutLine:
        raise ConfigError(f"{file} ends inside a line", hint="is it still being written?") from None
    if not found:
        raise ConfigError(f"{file} has no prompts", hint=_A_PROMPT)
    return found


def weights(
    schedule: Schedule, last: LastFailures, prompts: Sequence[tuple[int, str]]
) -> tuple[list[PromptWeight], Fraction]:
    """A weight a prompt, and the share of F whose causes no prompt of these aims at.

    The free share ε is spread evenly over all prompts, (1 − ε)·p(e) evenly over those that aim at e. What
    aims at a cause that no prompt reaches is spread as the free share is.
    """
    states: Mapping[str, CauseState] = {
        c.cause_id: "mastered" if c.mastered else "active" for c in schedule.causes
    }
    aims: list[Aim | None] = [last.aim(digest_of(text), states) for _, text in prompts]
    reached = Counter(aim.cause_id for aim in aims if aim is not None)
    p = schedule.probabilities
    aimed = 1 - schedule.epsilon
    unreached = sum((p[cause] for cause in p if cause not in reached), Fraction(0))
    even = (schedule.epsilon + aimed * unreached) / len(prompts)
    found = [
        PromptWeight(
            line,
            text,
            even if aim is None else even + aimed * p[aim.cause_id] / reached[aim.cause_id],
            None if aim is None else aim.cause_id,
            None if aim is None else aim.stitched_cause_id,
        )
        for (line, text), aim in zip(prompts, aims, strict=True)
    ]
    return found, unreached
