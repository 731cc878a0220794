"""What a failure is compared with: responses to its prompt, or, if none passed, to similar prompts.

A prompt's topic shows in its responses, and prompts on one topic fail alike. So labels are permuted, and
passes borrowed, only among prompts that ask with the same words; labels are not used.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import numpy as np

from diagevo.diagnosis.levels.clustering import merges
from diagevo.diagnosis.levels.contrast import MOST
from diagevo.diagnosis.levels.inputs import Prompt, Response

LINKED = 2_000
"""Maximum prompts linked with each other: the cost is quadratic."""
GROUP = 12
"""Maximum prompts of a group: enough that some pass and some fail, and few enough to share a topic."""
NEAREST = 5
"""Prompts whose passes stand in for those of a prompt without any."""
TELLING = 64
"""Words of a prompt to compare, rarest first."""


class Neighbours:
    """Groups of prompts, and the nearest ones that passed."""

    def __init__(self, prompts: Sequence[Prompt]) -> None:
        """`prompts`: in an order independent of who passed; LINKED of them are used."""
        self._prompts = prompts[:LINKED]
        self._counted = Counter(word for each in self._prompts for word in _words(each))
        self._places: dict[str, list[int]] = defaultdict(list)
        for place, prompt in enumerate(self._prompts):
            for word in self._telling(prompt):
                self._places[word].append(place)
        self._length = np.ones(len(self._prompts))
        self._passed = np.array([bool(each.passed) for each in self._prompts], bool)
        self._length = np.sqrt(
            [sum(self._weight(word) ** 2 for word in self._telling(each)) or 1.0 for each in self._prompts]
        )
        self.groups = self._grouped()
        """Of the prompts of each group, in order."""
        self._open = np.zeros(len(self._prompts), bool)
        for group in self.groups:
            self._open[group] = self._passed[group].any()

    def prompts(self, group: Sequence[int]) -> list[Prompt]:
        return [self._prompts[place] for place in group]

    def passed(self) -> Iterator[Prompt]:
        return (each for each in self._prompts if each.passed)

    def near(self, prompt: Prompt) -> list[Prompt]:
        """The nearest prompts that passed; none if no prompt of its group did."""
        if not self._passed.any():
            return []
        likeness = self._likeness(prompt)
        if not self._open[int(likeness.argmax())]:
            return []
        best = np.argsort(-np.where(self._passed, likeness, -1.0), kind="stable")[:NEAREST]
        return [self._prompts[place] for place in best if self._passed[place]]

    def _weight(self, word: str) -> float:
        return math.log(len(self._prompts) / self._counted[word])

    def _telling(self, prompt: Prompt) -> list[str]:
        """Words that some but not all of the prompts share, in a fixed order: summing in another order
        changes the last bit."""
        shared = (word for word in _words(prompt) if 1 < self._counted[word] < len(self._prompts))
        return sorted(shared, key=lambda word: (self._counted[word], word))[:TELLING]

    def _likeness(self, prompt: Prompt) -> np.ndarray:
        """(prompts,): cosines but for the prompt's own length."""
        found = np.zeros(len(self._prompts))
        for word in self._telling(prompt):
            found[self._places[word]] += self._weight(word) ** 2
        return found / self._length

    def _grouped(self) -> list[list[int]]:
        """By average linkage, nearest first, as long as a group has room."""
        if self._passed.all() or not self._passed.any():
            return [[place] for place in range(len(self._prompts))]
        rows = [self._likeness(each) / self._length[place] for place, each in enumerate(self._prompts)]
        root, size = list(range(len(rows))), [1] * len(rows)

        def top(each: int) -> int:
            while root[each] != each:
                each = root[each]
            return each

        for _, one, other in sorted(merges(1.0 - np.array(rows, np.float32))):
            one, other = top(one), top(other)
            if size[one] + size[other] <= GROUP:
                root[one] = other
                size[other] += size[one]
        found: dict[int, list[int]] = defaultdict(list)
        for place in range(len(rows)):
            found[top(place)].append(place)
        return list(found.values())


def exchangeable(prompt: Prompt, by_copies: bool) -> Iterator[tuple[list[Response], list[Response]]]:
    """Distinct responses that passed and that failed: a grader gives equal texts one reward.

    If it does not (`by_copies`), a text that both passed and failed is uninformative, and a frequent text is
    rarely always wrong, so only equally frequent texts are compared.
    """
    passed, failed = (
        Counter(each.text for each in side)
        for side in (prompt.passed, [each.response for each in prompt.failed])
    )
    texts = {each.text: each for each in [*prompt.passed, *(each.response for each in prompt.failed)]}
    for copies in sorted({*passed.values(), *failed.values()}) if by_copies else [None]:
        sides = tuple(
            [
                texts[text]
                for text, number in side.items()
                if copies is None or (number == copies and text not in other)
            ][:MOST]
            for side, other in ((passed, failed), (failed, passed))
        )
        if all(sides):
            yield sides[0], sides[1]


def _words(prompt: Prompt) -> set[str]:
    return {word for word in prompt.words if word[0].isalpha()}
