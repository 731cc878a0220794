"""Paraphrases: sets of words of which most responses have one, and sentences that hardly any other response
has. A mistake is rarely worded the same way twice. One that leaves something out lacks every paraphrase of
it; one that adds something adds a different sentence each time.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np

from diagevo.diagnosis.levels.inputs import TOKEN, Prompt, Response
from diagevo.diagnosis.levels.structured_output import Document

LEARNED = 800
"""Responses from which paraphrases are learned."""
RARE, MOST, SHARED, MOSTLY = 0.015, 12, 0.1, 0.7
"""Minimum share of responses with a paraphrase; maximum size of a set; maximum share of a paraphrase's
responses that have another one too; minimum share of responses with one of them."""
UNUSUAL = 0.02
"""Maximum share of responses to other prompts that have a word pair of an unusual sentence."""
SHORT = 4
"""Minimum words of a sentence."""
_SENTENCE = re.compile(r"(?<=[.!?;:])\s+|(?<=[。！？；])")


def spread(prompts: Sequence[Prompt]) -> list[tuple[Prompt, Response]]:
    """LEARNED responses, first one of each prompt; labels are not used."""
    each = [prompt.responses for prompt in prompts]
    every = [
        (prompt, responses[place])
        for place in range(max(map(len, each), default=0))
        for prompt, responses in zip(prompts, each, strict=True)
        if place < len(responses)
    ]
    return every[:: -(-len(every) // LEARNED) or 1]


def alternatives(responses: Sequence[frozenset[str]]) -> list[tuple[str, ...]]:
    """Sets of words of which most responses have one, and hardly any two: paraphrases.

    Labels are not used, so that a set alone separates nothing.
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
    """Pairs of words in responses, which identify unusual sentences.

    Labels are not used, so that such a sentence alone separates nothing.
    """

    def __init__(
        self, spread: Sequence[tuple[Prompt, Response]], topics: Mapping[str, frozenset[str]]
    ) -> None:
        """`topics`: the masked words of each prompt, by its key."""
        self._all, self._own = Counter[tuple[str, str]](), Counter[tuple[str, str, str]]()
        for prompt, response in spread:
            pairs = {
                pair for _, _, words in _sentences(response, topics[prompt.key]) for pair in pairwise(words)
            }
            self._all.update(pairs)
            self._own.update((prompt.key, *pair) for pair in pairs)
        self._few = UNUSUAL * len(spread)
        self._some = self._few + max(self._own.values(), default=0)

    def new(
        self, prompt: Prompt, response: Response, topic: frozenset[str]
    ) -> Iterator[tuple[int, str, list[str]]]:
        """Line, text and words of each sentence whose word pairs hardly any response to another prompt
        has."""
        for line, text, words in _sentences(response, topic):
            pairs = list(pairwise(words))
            seldom = [pair for pair in pairs if self._all[pair] <= self._some]
            rare = sum(self._all[pair] - self._own[prompt.key, *pair] <= self._few for pair in seldom)
            if 2 * rare > len(pairs):
                yield line, text, words


def _sentences(response: Response, topic: frozenset[str]) -> Iterator[tuple[int, str, list[str]]]:
    for line, whole in response.prose if isinstance(response.document, Document) else response.own:
        for text in _SENTENCE.split(whole):
            if len(words := TOKEN.findall(text.lower())) >= SHORT:
                yield line, text, [masked(word, topic) for word in words]


def masked(word: str, topic: frozenset[str]) -> str:
    """Numbers and the words of the question, so that what is left shows the error and not the topic."""
    return "#" if word[0].isdigit() else "•" if word in topic and word[0].isalpha() else word
