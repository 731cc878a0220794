"""The rewards of DARC's questioner: the distance of a question from its level's target, and the test for
copies.

Pure functions, after the official release."""

import re
from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

TARGETS = (Fraction(4, 5), Fraction(1, 2), Fraction(1, 5))
"""The target share of right answers for the levels easy, moderate and hard."""
UNSOLVED, REFUSED = Fraction(-1, 10), Fraction(-1)
"""The rewards of a question that no response answers correctly, and of a completion without a usable one."""
MARGIN, WEIGHT = Fraction(1, 5), Fraction(1, 2)
"""The margin by which an easier question should lead a harder one, and the cost per unit of shortfall."""
N_GRAM, COPIED, READ = 6, Fraction(4, 5), 50_000
"""Characters of an n-gram, the share of known ones above which a question is a copy, and how many characters
of a document are compared."""


class Measured(NamedTuple):
    """A question of a step: its document, its level from 1, and the share of answers that are right; None
    if there is no usable question."""

    document: str
    level: int
    accuracy: Fraction | None


def level_reward(level: int, accuracy: Fraction | None) -> Fraction:
    """1 - |accuracy - target of the level|.

    Args:
        level: 1 easy, 2 moderate, 3 hard.
        accuracy: share of answers that are right, in [0, 1]; None for a completion that is refused.

    Returns:
        At most 1; -1/10 if no answer is right, -1 for a refused completion.
    """
    if accuracy is None:
        return REFUSED
    return 1 - abs(accuracy - TARGETS[level - 1]) if accuracy else UNSOLVED


def ranked_rewards(step: Sequence[Measured]) -> list[Fraction]:
    """The rewards of a step: the level's reward, minus a penalty for neighbours in the wrong order.

    A document's usable questions are ordered by level, those of one level as they were drawn. If neighbours
    have two levels, each loses half of the amount by which the easier one's lead falls short of 1/5.

    Args:
        step: (B,) all completions of the step.

    Returns:
        (B,) rewards in [-1, 1]. The penalty stops at 0.
    """
    rewards = [level_reward(one.level, one.accuracy) for one in step]
    of_document: dict[str, list[int]] = {}
    for place, reward in enumerate(rewards):
        if reward >= 0:
            of_document.setdefault(step[place].document, []).append(place)
    for places in of_document.values():
        for easier, harder in pairwise(sorted(places, key=lambda place: step[place].level)):
            low, high = step[easier].accuracy, step[harder].accuracy
            if step[easier].level == step[harder].level or low is None or high is None:
                continue
            cost = WEIGHT * max(Fraction(0), high + MARGIN - low)
            rewards[easier] = max(Fraction(0), rewards[easier] - cost)
            rewards[harder] = max(Fraction(0), rewards[harder] - cost)
    return rewards


def copied_share(document: str, question: str) -> Fraction:
    """How much of a question is in its document: the share of its six-character sequences, ignoring case,
    punctuation and spaces; 1 if the document contains it whole; for a shorter one, the share of its words.

    Args:
        document: its first 50,000 characters are compared.
        question: any text.

    Returns:
        A share in [0, 1]; 0 if one of the two has neither letters nor digits.
    """
    asked, text = _plain(question), _plain(document[:READ])
    if not asked or not text:
        return Fraction(0)
    if asked in text:
        return Fraction(1)
    pieces, known = _grams(asked), set(_grams(text))
    if not pieces:
        pieces, known = asked.split(), set(text.split())
    return Fraction(sum(piece in known for piece in pieces), len(pieces))


def _plain(text: str) -> str:
    return " ".join(re.sub(r"\W+", " ", text.lower()).split())


def _grams(plain: str) -> list[str]:
    letters = plain.replace(" ", "")
    return [letters[start : start + N_GRAM] for start in range(len(letters) - N_GRAM + 1)]
