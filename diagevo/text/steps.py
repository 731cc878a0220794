"""The steps of a response, and where two responses diverge."""

import re
from collections.abc import Collection

from diagevo.text.thoughts import answered

END = "no further step"
"""Stands for a missing step."""
HEAD = 80
"""Minimum characters of a common beginning worth leaving out."""
AHEAD = 3
"""Maximum extra steps of one response before they meet again."""
_STEP = re.compile(r"[\n;]+|(?<=[.!?])\s+")
_SUM = re.compile(r"\d+(?:[.,]\d+)*|[+*/×÷-](?=\s*\$?[\d(])")


def steps(text: str) -> list[str]:
    """Lines, sentences, and parts separated by semicolons."""
    return [step for part in _STEP.split(text) if (step := part.strip())]


def common_head(texts: Collection[str]) -> int:
    """Length of the common beginning of all texts, to the end of a line: such as examples before each
    question. 0 if shorter than `HEAD`, or if there are too few texts to tell."""
    if len(texts) < 3:
        return 0
    first, last = min(texts), max(texts)
    same = next((i for i, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), 0)
    end = first.rfind("\n", 0, same) + 1
    return end if end >= HEAD else 0


def parted(passed: str, failed: str) -> tuple[int, str, str]:
    """The place of the first step in which they differ, and that step of each.

    Where they end in different numbers, a step that has the same numbers in other words is no difference,
    nor is one that adds no number before they meet again: the wrong end hangs on neither. What was thought
    before the answer is looked at only where the answers are the same.
    """
    right, wrong = steps(answered(passed)), steps(answered(failed))
    if right == wrong:
        right, wrong = steps(passed), steps(failed)
    sums = [[_SUM.findall(step) for step in each] for each in (right, wrong)]
    i = j = 0
    if right and wrong and sums[0][-1] != sums[1][-1]:
        i, j = _met(right, wrong, *sums)
    else:
        while i < min(len(right), len(wrong)) and right[i] == wrong[i]:
            i = j = i + 1
    return i, right[i] if i < len(right) else END, wrong[j] if j < len(wrong) else END


def _met(
    right: list[str], wrong: list[str], right_sums: list[list[str]], wrong_sums: list[list[str]]
) -> tuple[int, int]:
    """The indices up to which they agree."""
    known = [{number for found in sums for number in found} for sums in (right_sums, wrong_sums)]
    i = j = 0

    def same(more: int, less: int) -> bool:
        """Whether these steps, further on, are the same, or have the same two numbers or more."""
        a, b = i + more, j + less
        if a >= len(right) or b >= len(wrong):
            return False
        numbers = right_sums[a] == wrong_sums[b] and len(right_sums[a]) > 1
        return numbers or (right[a] == wrong[b] and (more == less or bool(right_sums[a])))

    further = [(0, 0), *((n, 0) for n in range(1, AHEAD)), *((0, n) for n in range(1, AHEAD))]
    while True:
        met = next(((more, less) for more, less in further if same(more, less)), None)
        if met is None:
            return i, j
        sums = right_sums[i : i + met[0]] + wrong_sums[j : j + met[1]]
        if not all(known[0].issuperset(found) and known[1].issuperset(found) for found in sums):
            return i, j
        i, j = i + met[0] + 1, j + met[1] + 1
