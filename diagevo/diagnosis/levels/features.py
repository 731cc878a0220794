"""What can distinguish one response from another: its words, pairs and triples, its arithmetic, its calls,
its end. Numbers and the words of the question are masked in pairs and triples, so that a feature shows the
error and not the topic. Features are hashes; `named` finds the words again.
"""

import re
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from hashlib import blake2b

import numpy as np

from diagevo.diagnosis.levels import field_changes, paraphrases
from diagevo.diagnosis.levels.arithmetic_checks import given, numbers
from diagevo.diagnosis.levels.field_changes import written_like
from diagevo.diagnosis.levels.inputs import TOKEN, Prompt, Response

LONGEST = 6_000
"""Maximum tokens of a response."""
_A, _B, _C = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9))
_LAST64 = 2**64 - 1
_TEXT = re.compile(r'"(\w+)"\s*:\s*"([^"]{1,40})"')
_ARGUMENT = re.compile(r'"(\w+)"\s*:|(?<![\w.])(\w+)\s*=')
CONSTANTS = (2, 3, 4, 7, 10, 12, 24, 30, 52, 60, 100, 365, 1000)
"""Numbers implied by units and shares."""
ONE = "§one of "
NEW = "§an unusual sentence with "
"""Prefix of paraphrase sets, and of a word from an unusual sentence."""
THOUGHT = "§in its reasoning: "
"""Prefix of features of a response's reasoning."""
FEEDBACK = "§its feedback says "
"""Prefix of words from feedback by a judge, a test log or a database."""
SAID = 300
"""Maximum tokens of feedback."""
GENERAL = 0.8
"""Share of failures with feedback from which a phrase is too common."""
COUNTS = frozenset(
    [f"§{number} {each}" for number in range(6) for each in ("calls", "lines")]
    + ["§6 calls or more", "§4 lines or more"]
    + ["§no new number", "§one new number", "§two new numbers", "§new numbers, three or more"]
)
"""Count features: any added or omitted step changes them."""
FACTORS = (2, 3, 4, 7, 10, 12, 24, 60, 100, 1000, 3600)
"""Factors by which a result is off if a unit or a share was not converted."""
NOWHERE = "a number from nowhere"
UNUSED = "§a given number not used", "§several given numbers not used"
NEAR = 1e-8
"""A difference larger than rounding."""
MANY = 14
"""Maximum numbers of a question, and new ones of a response, that are tracked."""


class Vocabulary:
    """Words as integers, and which of them every question has."""

    def __init__(self, prompts: Sequence[Prompt]) -> None:
        self._ids: dict[str, int] = {}
        counted = Counter(word for prompt in prompts for word in prompt.words)
        self._common = {word for word, number in counted.items() if number > max(2, len(prompts) // 5)}
        spread = paraphrases.spread(prompts)
        said = [
            set(_feedback(each.response.feedback, prompt.words))
            for prompt in prompts
            for each in prompt.failed
            if each.response.feedback
        ]
        counted = Counter(name for each in said for name in each)
        self.told = {name for name, number in counted.items() if number <= GENERAL * len(said)}
        """Phrases of feedback on some failures. A phrase on nearly all does not distinguish mistakes, and
        one only on passes is not a mistake."""
        self._sentences = paraphrases.Sentences(
            spread, {prompt.key: self._topic(prompt) for prompt, _ in spread}
        )
        self._ways = paraphrases.alternatives([self._said(*each) for each in spread])

    def _topic(self, prompt: Prompt) -> frozenset[str]:
        return prompt.words - self._common

    def _said(self, prompt: Prompt, response: Response) -> frozenset[str]:
        topic = self._topic(prompt)
        return frozenset(
            word for word in response.prose_words[:LONGEST] if word[0].isalpha() and word not in topic
        )

    def new(self, prompt: Prompt, response: Response) -> list[tuple[int, str, list[str]]]:
        """Line, text and words of its sentences that hardly any other response has."""
        return list(self._sentences.new(prompt, response, self._topic(prompt)))

    def id(self, word: str) -> int:
        """The same in every process, whatever the order of words."""
        if word not in self._ids:
            digest = blake2b(word.encode(errors="replace"), digest_size=8).digest()
            self._ids[word] = int.from_bytes(digest, "little")
        return self._ids[word]

    def name(self, word: str) -> int:
        """The feature of this word alone."""
        return (self.id(word) * int(_A)) & _LAST64

    def counts(self) -> frozenset[int]:
        """The features of COUNTS."""
        return frozenset(self.name(part + each) for part in ("", THOUGHT) for each in COUNTS)

    def parts(
        self, prompt: Prompt, response: Response, part: str = ""
    ) -> tuple[list[str], list[str], list[str]]:
        """Words, the same masked, and other distinguishing features. `part`: THOUGHT for reasoning."""
        words = list(response.prose_words[:LONGEST])
        topic = self._topic(prompt)
        masked = [paraphrases.masked(word, topic) for word in words]
        further = list(_further(prompt, response))
        if part:
            if any(not each.holds for each in response.equations):
                further.append("§a step that does not hold")
            return words, masked, further
        there = self._said(prompt, response)
        said = (ONE + ", ".join(each) for each in self._ways if not there.isdisjoint(each))
        new = {word for _, _, found in self.new(prompt, response) for word in found if word[0].isalpha()}
        return words, masked, [*further, *said, *(NEW + word for word in sorted(new))]

    def properties(self, prompt: Prompt, response: Response, part: str = "") -> list[str]:
        """Distinguishing features that are not words or runs of words."""
        return self.parts(prompt, response, part)[2]

    def features(self, prompt: Prompt, response: Response) -> np.ndarray:
        """(n,) uint64: unique; features of the reasoning differ from those of the answer."""
        found: list[np.ndarray] = []
        for part, text in _in_parts(response):
            words, masked, further = self.parts(prompt, text, part)
            single = {*(word for word in words if not word[0].isdigit()), *further}
            names = (part + word for word in single)
            found.append(np.fromiter(map(self.id, names), np.uint64, len(single)) * _A)
            found += [_joined(self._row(masked), n) ^ self._mark(part) for n in (2, 3)]
        return np.unique(np.concatenate(found))

    def of_feedback(self, prompt: Prompt, response: Response) -> np.ndarray:
        """(n,) uint64: the features of its feedback."""
        found = self.told.intersection(_feedback(response.feedback, prompt.words))
        return np.sort(np.fromiter(map(self.name, found), np.uint64, len(found)))

    def named(self, prompt: Prompt, response: Response, wanted: set[int]) -> Iterator[tuple[int, str]]:
        """The words of these features, if the response has them."""
        for part, text in _in_parts(response):
            words, masked, further = self.parts(prompt, text, part)
            said = () if part else _feedback(response.feedback, prompt.words)
            for word in {*words, *further, *said}:
                if (name := self.name(part + word)) in wanted:
                    yield name, part + word
            for n in (2, 3):
                for place, name in enumerate((_joined(self._row(masked), n) ^ self._mark(part)).tolist()):
                    if name in wanted:
                        yield name, part + " ".join(masked[place : place + n])

    def _row(self, words: Sequence[str]) -> np.ndarray:
        ids = self._ids
        return np.fromiter((ids.get(w) or self.id(w) for w in words), np.uint64, len(words))

    def _mark(self, part: str) -> np.uint64:
        return np.uint64(self.id(part) if part else 0)


def part_of(name: str) -> tuple[str, str]:
    """THOUGHT or nothing, and the feature without it."""
    return (THOUGHT, name.removeprefix(THOUGHT)) if name.startswith(THOUGHT) else ("", name)


def _in_parts(response: Response) -> list[tuple[str, Response]]:
    """The answer, and the reasoning."""
    return [("", response), *([] if response.thought is None else [(THOUGHT, response.thought)])]


def _feedback(text: str, topic: Container[str]) -> Iterator[str]:
    """Runs of words in a response's feedback, without names and numbers."""
    words = feedback_words(text, topic)
    for n in (1, 2, 3):
        for place in range(len(words) - n + 1):
            run = words[place : place + n]
            if all(word[0].isalpha() for word in run):
                yield FEEDBACK + " ".join(run)


def feedback_words(text: str, topic: Container[str]) -> list[str]:
    """A response's feedback, with the prompt's names and numbers masked."""
    found = TOKEN.findall(text.lower())[:SAID]
    return ["#" if word[0].isdigit() else "•" if word in topic else word for word in found]


def _joined(row: np.ndarray, n: int) -> np.ndarray:
    """Hashes of the runs of n."""
    if len(row) < n:
        return row[:0]
    found = row[: len(row) - n + 1] * _B
    for place in range(1, n):
        found = (found ^ (found >> np.uint64(29))) * _C + row[place : len(row) - n + 1 + place] * _B
    return found ^ np.uint64(n)


def _further(prompt: Prompt, response: Response) -> Iterator[str]:
    """Features that are not words: their names begin with `§`."""
    steps = response.prose
    if response.fields is not None or response.document is not None:
        yield from field_changes.features(response.fields, prompt.expected, prompt.question)
    yield from (name for name, _ in made(prompt, response))
    yield from _compared(prompt, response)
    yield from _played(response)
    if steps:
        last = steps[-1][1]
        if end := numbers(last):
            negative = re.search(r"[-−]\s*[$€£]?\d[\d.,]*\W*$", last)
            yield "§a negative number at the end" if negative else "§a number at the end"
            yield (
                "§a whole number at the end"
                if end[-1].denominator == 1
                else "§a number that is not whole at the end"
            )
            if end[-1] in given(prompt.question):
                yield "§a given number at the end"
    yield f"§{len(steps)} lines" if len(steps) < 4 else "§4 lines or more"
    for word in {
        written_like(word) for word in response.prose_words[:LONGEST] if word[0].isdigit() and len(word) > 3
    }:
        if not word.isalnum():
            yield f"§a number written like {word}"


NO_NUMBER = (-1, 0.0)


def made(prompt: Prompt, response: Response) -> Iterator[tuple[str, tuple[int, float]]]:
    """How its numbers are computed from earlier ones, however worded: `a product of given numbers`, with the
    line and the number.

    A constant counts only if used in a written computation: any number is some other one minus 52.
    """
    digits = {float(number) for number in numbers(prompt.question)}
    if not digits or len(digits) > MANY:
        return
    own = [(line, float(number)) for line, text in response.prose for number in numbers(text)]
    unused = digits - {number for _, number in own}
    if unused:
        yield UNUSED[0], NO_NUMBER
        if len(unused) > 1:
            yield UNUSED[1], NO_NUMBER
    written = {float(number) for each in response.equations if each.signs for number in each.numbers}
    constants = written.intersection(CONSTANTS)
    known = dict.fromkeys(constants, "a constant") | dict.fromkeys(digits, "a given number")
    new = 0
    for line, number in own:
        if number in known:
            if known[number] == "a constant":  # which may be a result all the same
                found = _from(number, {each: kind for each, kind in known.items() if each != number})
                if any("given" in name or "result" in name for name in found):
                    yield from ((f"§{name}", (line, number)) for name in found)
                    known[number] = "a result"
            continue
        new += 1
        if new > MANY:
            return
        for name in _from(number, known):
            yield f"§{name}", (line, number)
        known[number] = "a result"
    for number in constants - digits:
        yield f"§the number {number:g}", NO_NUMBER
    several = ("no new number", "one new number", "two new numbers", "new numbers, three or more")
    yield f"§{several[min(new, 3)]}", NO_NUMBER


def _compared(prompt: Prompt, response: Response) -> Iterator[str]:
    """How its last number relates to the one that most responses end with."""
    most, before = prompt.ends
    own = response.end
    if most is None or own is None or own == most:
        return
    if own in before:
        yield "§ends with a result on the way"
    given_numbers = set(numbers(prompt.question))
    for kind, known in (("a given number", given_numbers), ("a result on the way", before - given_numbers)):
        if own - most in known:
            yield f"§ends too large by {kind}"
        if most - own in known:
            yield f"§ends too small by {kind}"
        if most and own and own / most in known:
            yield f"§ends too large by the factor of {kind}"
        if most and own and most / own in known:
            yield f"§ends too small by the factor of {kind}"
    if abs(own - most) == 1:
        yield "§ends one off"
    for factor in FACTORS:
        if own == most * factor:
            yield f"§ends {factor} times too large"
        if own * factor == most:
            yield f"§ends {factor} times too small"


def _from(number: float, known: Mapping[float, str]) -> set[str]:
    """The operations that yield a number, by their operands."""
    found: set[str] = set()
    least, most = min(known) - NEAR, max(known) + NEAR
    for one, kind in known.items():
        if one in (0, 1):
            continue
        for name, other in (
            ("a product", number / one),
            ("a sum", number - one),
            ("a subtraction", one - number),
            ("a division", one / number if number else 0.0),
        ):
            if not least < other < most or other == 0:
                continue
            second = known.get(other if other.is_integer() else round(other, 9))
            if second is None or (other == 1 and name in ("a product", "a division")):
                continue
            if name == "a sum" and kind == second == "a constant":
                continue
            found.add(name)
            found.add(f"{name} of {' and '.join(sorted((kind, second)))}")
            if "a constant" in (kind, second):
                found.add(f"{name} with {one if kind == 'a constant' else other:g}")
    return found or {NOWHERE}


def _played(response: Response) -> Iterator[str]:
    """The tools that it called, and the order of its turns, calls and results."""
    calls = response.calls
    for name, arguments in calls:
        keys = sorted({first or second for first, second in _ARGUMENT.findall(arguments)})
        yield f"§call of {name}"
        yield f"§call of {name}({', '.join(keys)})"
        for key, text in _TEXT.findall(arguments):
            yield f"§an argument {key} written like {written_like(text)}"
    if not calls and len(response.turns) == 1:
        return
    names = [name for name, _ in calls]
    for first, second in zip(["start", *names], [*names, "end"], strict=True):
        if names:
            yield f"§{first} then {second}"
    for name, number in Counter(names).items():
        if number > 1:
            yield f"§{name} called twice or more"
    events = response.events
    if len(events) > 1:
        yield f"§{len(names)} calls" if len(names) < 6 else "§6 calls or more"
        for n in (2, 3):
            for place in range(len(events) - n + 1):
                yield "§" + " → ".join(events[place : place + n])
        yield f"§{events[-1]} at the end"
