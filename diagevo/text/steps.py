"""The steps of a response, and where two responses part."""

import re

END = "no further step"
"""In place of a step, where a response has none left."""
_STEP = re.compile(r"[\n;]+|(?<=[.!?])\s+")


def steps(text: str) -> list[str]:
    """Lines, sentences, and what semicolons part."""
    return [step for part in _STEP.split(text) if (step := part.strip())]


def parted(passed: str, failed: str) -> tuple[int, str, str]:
    """The place of the first step in which they differ, and that step of each."""
    right, wrong = steps(passed), steps(failed)
    shorter = min(len(right), len(wrong))
    at = next((place for place in range(shorter) if right[place] != wrong[place]), shorter)
    return at, right[at] if at < len(right) else END, wrong[at] if at < len(wrong) else END
