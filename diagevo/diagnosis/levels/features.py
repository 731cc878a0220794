"""What can set one response apart from another: its words, pairs and triples, its sums, its calls, its end.

Numbers and the words of the question are masked in pairs and triples, so that a feature tells the error and
not the topic. Features are hashes; `named` finds the words again.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from diagevo.diagnosis.levels.material import Prompt, Response
from diagevo.diagnosis.levels.sums import equations, given, numbers

LONGEST = 6_000
"""Tokens of a response that are looked at."""
_A, _B, _C = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9))
_LAST64 = 2**64 - 1
_ARGUMENT = re.compile(r'"(\w+)"\s*:|(?<![\w.])(\w+)\s*=')
OPERATIONS = {"+": "a sum", "-": "a subtraction", "*": "a product", "/": "a division", "^": "a power"}


class Vocabulary:
    """Words as numbers, and which of them every question has."""

    def __init__(self, prompts: Sequence[Prompt]) -> None:
        self._ids: dict[str, int] = {}
        counted = Counter(word for prompt in prompts for word in prompt.words)
        self._common = {word for word, number in counted.items() if number > max(2, len(prompts) // 5)}

    def id(self, word: str) -> int:
        return self._ids.setdefault(word, len(self._ids) + 1)

    def parts(self, prompt: Prompt, response: Response) -> tuple[list[str], list[str], list[str]]:
        """Words, the same with what is masked, and what else sets it apart."""
        words = list(response.words[:LONGEST])
        topic = prompt.words - self._common
        masked = [_masked(word, topic) for word in words]
        return words, masked, list(_further(prompt, response))

    def features(self, prompt: Prompt, response: Response) -> np.ndarray:
        """(n,) uint64: each once."""
        words, masked, further = self.parts(prompt, response)
        ids = self._ids
        topic = [word for word in words if not word[0].isdigit()]
        single = np.fromiter((self.id(w) for w in {*topic, *further}), np.uint64)
        row = np.fromiter((ids.get(w) or self.id(w) for w in masked), np.uint64, len(masked))
        return np.unique(np.concatenate([single * _A, *(_joined(row, n) for n in (2, 3))]))

    def named(self, prompt: Prompt, response: Response, wanted: set[int]) -> Iterator[tuple[int, str]]:
        """The words of these features, where the response has them."""
        words, masked, further = self.parts(prompt, response)
        for word in {*words, *further}:
            if (name := (self.id(word) * int(_A)) & _LAST64) in wanted:
                yield name, word
        row = np.fromiter((self.id(w) for w in masked), np.uint64, len(masked))
        for n in (2, 3):
            for place, name in enumerate(_joined(row, n).tolist()):
                if name in wanted:
                    yield name, " ".join(masked[place : place + n])


def _joined(row: np.ndarray, n: int) -> np.ndarray:
    """Hashes of the runs of n."""
    if len(row) < n:
        return row[:0]
    found = row[: len(row) - n + 1] * _B
    for place in range(1, n):
        found = (found ^ (found >> np.uint64(29))) * _C + row[place : len(row) - n + 1 + place] * _B
    return found ^ np.uint64(n)


def _masked(word: str, topic: frozenset[str]) -> str:
    return "#" if word[0].isdigit() else "•" if word in topic and word[0].isalpha() else word


def _further(prompt: Prompt, response: Response) -> Iterator[str]:
    """Features that are no words: `§` begins their names."""
    steps = response.steps
    counted: Counter[str] = Counter()
    for equation in equations(steps):
        counted.update(equation.signs)
    for sign, number in counted.items():
        yield f"§{OPERATIONS[sign]}"
        if number > 1:
            yield f"§{OPERATIONS[sign]} twice or more"
    calls = [name for name, _ in response.calls]
    for name, arguments in response.calls:
        keys = sorted({first or second for first, second in _ARGUMENT.findall(arguments)})
        yield f"§call of {name}"
        yield f"§call of {name}({', '.join(keys)})"
    for first, second in zip(["start", *calls], [*calls, "end"], strict=True):
        yield f"§{first} then {second}" if calls else "§no call of a tool"
    for name, number in Counter(calls).items():
        if number > 1:
            yield f"§{name} called twice or more"
    if steps:
        last = steps[-1][1]
        end = numbers(last)
        asked = given(prompt.question)
        if end:
            yield (
                "§a negative number at the end"
                if re.search(r"[-−]\s*[$€£]?\d[\d.,]*\W*$", last)
                else "§a number at the end"
            )
            yield "§a whole number at the end" if end[-1].denominator == 1 else "§a fraction at the end"
            if end[-1] in asked:
                yield "§a given number at the end"
        for number in _small(steps[:-1], asked):
            yield f"§the number {number}"
        own = {n for _, text in steps for n in numbers(text)}
        digits = set(numbers(prompt.question))
        if digits and len(digits) <= 12 and (unused := digits - own):
            yield "§a given number not used"
            if len(unused) > 1:
                yield "§several given numbers not used"
    yield f"§{len(steps)} lines" if len(steps) < 4 else "§4 lines or more"


def _small(steps: Sequence[tuple[int, str]], asked: set[Fraction]) -> set[str]:
    """Constants before the last line that the question does not give."""
    found = {number for _, text in steps for number in numbers(text) if number not in asked}
    return {str(n) for n in found if n <= 12 or n in (24, 30, 52, 60, 100, 365, 1000, 3600)}
