"""What is said in many ways: words of which most responses have one, and sentences such as no pass has.

A mistake is seldom worded twice alike. One that leaves something out lacks every way to say it; one that
adds something adds another sentence each time.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

from diagevo.diagnosis.levels.material import TOKEN, Prompt, Response

LEARNED = 800
"""Responses from which ways are learned."""
RARE, MOST, SHARED, MOSTLY = 0.015, 12, 0.1, 0.7
"""Share of the responses that a way has at least; ways of a set; share of a way's responses that may have
another one too; share of all responses that has one of them."""
SHORT = 4
"""Words below which a sentence says too little."""
_SENTENCE = re.compile(r"(?<=[.!?;:])\s+|(?<=[。！？；])")


def spread(prompts: Sequence[Prompt], *, passed: bool = False) -> list[tuple[Prompt, Response]]:
    """LEARNED responses, first one of each prompt; `passed`: of those that passed, else of all alike."""
    each = [
        [*prompt.passed, *([] if passed else (failure.response for failure in prompt.failed))]
        for prompt in prompts
    ]
    every = [
        (prompt, responses[place])
        for place in range(max(map(len, each), default=0))
        for prompt, responses in zip(prompts, each, strict=True)
        if place < len(responses)
    ]
    return every[:: -(-len(every) // LEARNED) or 1]


def alternatives(responses: Sequence[frozenset[str]]) -> list[tuple[str, ...]]:
    """Sets of words of which most responses have one, and hardly any two: ways to say the same.

    Who passed is not asked, so that a set alone sets nothing apart.
    """
    number = len(responses)
    counted = Counter(word for each in responses for word in each)
    words = sorted(word for word, n in counted.items() if max(RARE * number, 4) <= n <= 0.6 * number)
    if not words:
        return []
    column = {word: place for place, word in enumerate(words)}
    has = np.zeros((number, len(words)), np.float32)
    for row, each in enumerate(responses):
        has[row, [column[word] for word in each if word in column]] = 1
    often = has.sum(axis=0)
    found: list[tuple[str, ...]] = []
    used: set[int] = set()
    for seed in np.argsort(-often, kind="stable").tolist():
        if seed in used:
            continue
        chosen, covered = [seed], has[:, seed].copy()
        while len(chosen) < MOST:
            both = covered @ has
            gain = np.where(both <= SHARED * often, often - both, 0)
            best = int(gain.argmax())
            if gain[best] < RARE * number:
                break
            chosen.append(best)
            covered = np.maximum(covered, has[:, best])
        new = sum(often[each] for each in chosen if each not in used)
        if len(chosen) > 1 and covered.mean() >= MOSTLY and new >= 0.5 * often[chosen].sum():
            used.update(chosen)
            found.append(tuple(words[each] for each in sorted(chosen, key=lambda each: (-often[each], each))))
    return found


class Sentences:
    """Pairs of words in passing responses, by which a sentence is told that says what none of them says."""

    def __init__(
        self, passed: Sequence[tuple[Prompt, Response]], topics: Mapping[str, frozenset[str]]
    ) -> None:
        """`topics`: of each prompt, by its key, the words that are masked."""
        self._of: dict[tuple[str, str], str | None] = {}
        for prompt, response in passed:
            for _, _, words in _sentences(response, topics[prompt.key]):
                for pair in pairwise(words):
                    if self._of.setdefault(pair, prompt.key) != prompt.key:
                        self._of[pair] = None

    def new(
        self, prompt: Prompt, response: Response, topic: frozenset[str]
    ) -> Iterator[tuple[int, str, list[str]]]:
        """Line, text and words of each sentence most of which no passing response to another prompt has."""
        for line, text, words in _sentences(response, topic):
            pairs = list(pairwise(words))
            if 2 * sum(self._of.get(pair, prompt.key) == prompt.key for pair in pairs) > len(pairs):
                yield line, text, words


def _sentences(response: Response, topic: frozenset[str]) -> Iterator[tuple[int, str, list[str]]]:
    for line, whole in response.own:
        for text in _SENTENCE.split(whole):
            if len(words := TOKEN.findall(text.lower())) >= SHORT:
                yield line, text, [masked(word, topic) for word in words]


def masked(word: str, topic: frozenset[str]) -> str:
    """Numbers and the words of the question, so that what is left tells the error and not the topic."""
    return "#" if word[0].isdigit() else "•" if word in topic and word[0].isalpha() else word
