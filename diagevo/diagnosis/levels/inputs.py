"""The input of the levels: prompts with passes and failures, and the policy's own words in each."""

import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from hashlib import blake2b
from typing import Any, TypeVar

from diagevo.diagnosis.levels import field_changes
from diagevo.diagnosis.levels.arithmetic_checks import Equation, equations, numbers
from diagevo.diagnosis.levels.structured_output import Document, Unreadable, read
from diagevo.text.thoughts import MARKS, answered, thoughts
from diagevo.text.turns import Turn, alone, turns

T = TypeVar("T")
_NUMBERED = re.compile(
    r"^\s*(?:[-*•>#]+\s+|\(?\d{1,3}[.)]\s+|\**(?:step|schritt|étape|paso)\s*\d+\s*[:.)-]\**)\s*",
    re.IGNORECASE,
)
SENTENCE = re.compile(r"(?<=[.!?。])\s+(?=[^a-z\s])|(?<=;)(?=\S)")
_FENCE = re.compile(r"^\s*(?:```|~~~)[\w+-]*\s*$")
_CALL = re.compile(r"^\[tool call\] ([^\s(]+)\((.*)\)\s*$", re.MULTILINE)
_FAILED = re.compile(
    r"\b(?:error|failed|failure|exception|invalid|denied|timed? ?out)\b|\"ok\"\s*:\s*false", re.IGNORECASE
)
BESIDE = 64
"""Maximum passes of a prompt that each of its failures is compared with: using all would be quadratic."""
_SPACELESS = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uac00-\ud7af"
TOKEN = re.compile(
    rf"[{_SPACELESS}]|(?:(?![{_SPACELESS}])[^\W\d])(?:(?![{_SPACELESS}])\w)*|\d+(?:[.,]\d+)*|//|\*\*|[<>=!]=|->|[^\w\s]"
)
"""A word, a name, a number, a sign; in scripts without spaces, a character."""


@dataclass(frozen=True)
class Response:
    """One response. Its lines are numbered from 0 in the stored text."""

    text: str
    feedback: str = ""
    """Its feedback: a judge's rationale, a test log."""

    @cached_property
    def turns(self) -> tuple[Turn, ...]:
        return tuple(turns(self.text))

    @cached_property
    def own(self) -> tuple[tuple[int, str], ...]:
        """Lines that the policy wrote, without its reasoning."""
        return tuple((line, text) for line, text, own, _ in self._lines if own and text.strip())

    @property
    def own_text(self) -> str:
        return "\n".join(text for _, text in self.own)

    @cached_property
    def others(self) -> tuple[tuple[int, str, str], ...]:
        """Lines of tools and environments, with the speaker; users' text is never a mistake."""
        return tuple(
            (line, text, role)
            for line, text, own, role in self._lines
            if not own and role not in ("user", "human", "system", "developer")
        )

    @cached_property
    def thoughts(self) -> tuple[tuple[int, str], ...]:
        """Lines of the policy's reasoning, without their marks."""
        found: list[tuple[int, str]] = []
        for start, turn in self._placed:
            for thought in thoughts(turn.text) if turn.own else ():
                first = start + turn.text.count("\n", 0, thought.start())
                lines = MARKS.sub("", thought.group()).split("\n")
                found += [(first + at, text) for at, text in enumerate(lines) if text.strip()]
        return tuple(found)

    @cached_property
    def thought(self) -> "Response | None":
        """The policy's reasoning as a separate text, with its own line numbers."""
        return Response(alone("\n".join(text for _, text in self.thoughts))) if self.thoughts else None

    @property
    def _placed(self) -> Iterator[tuple[int, Turn]]:
        """Each turn with the line where it begins."""
        start = 0
        for turn in self.turns:
            yield start, turn
            start += turn.text.count("\n") + 2

    @property
    def _lines(self) -> Iterator[tuple[int, str, bool, str]]:
        for start, turn in self._placed:
            for line, part in enumerate((answered(turn.text) if turn.own else turn.text).split("\n")):
                yield start + line, part, turn.own, turn.role

    @cached_property
    def steps(self) -> tuple[tuple[int, str], ...]:
        """Own lines without numbering, bullets and fences."""
        return _steps(self.own)

    @cached_property
    def equations(self) -> tuple[Equation, ...]:
        return tuple(equations(self.steps))

    @cached_property
    def document(self) -> Document | Unreadable | None:
        """The structured output in its own lines outside calls."""
        return read([text for _, text in self.spoken])

    @cached_property
    def fields(self) -> Any:
        """Its structured output and the arguments of its calls, by field; None if it has neither."""
        found = self.document
        return field_changes.fields(found if isinstance(found, Document) else None, self.calls)

    @cached_property
    def prose(self) -> tuple[tuple[int, str], ...]:
        """Its steps, with structured output reduced to its sentences."""
        if not isinstance(found := self.document, Document):
            return self.steps
        spoken = self.spoken
        outside = [line for place, line in enumerate(spoken) if place not in found.lines]
        called = [(line, text) for line, text in self.own if _CALL.match(text)]
        at = spoken[found.lines.start][0]
        within = [(at, text) for text in field_changes.texts(found.value)]
        return _steps(sorted([*outside, *called, *within], key=lambda each: each[0]))

    @property
    def spoken(self) -> list[tuple[int, str]]:
        """Own lines outside calls."""
        return [(line, text) for line, text in self.own if not _CALL.match(text)]

    @cached_property
    def end(self) -> Fraction | None:
        """The last number of its last step."""
        found = numbers(self.steps[-1][1]) if self.steps else []
        return found[-1] if found else None

    @cached_property
    def calls(self) -> tuple[tuple[str, str], ...]:
        """Names and arguments of the tools that it called, in order."""
        return tuple(
            (found[1], found[2]) for found in _CALL.finditer("\n".join(text for _, text in self.own))
        )

    @cached_property
    def events(self) -> tuple[str, ...]:
        """The events in order: says, calls, is answered, fails, is asked."""
        return tuple(kind for kind, _ in self.placed_events)

    @cached_property
    def placed_events(self) -> tuple[tuple[str, int], ...]:
        """`events`, each with the line where it begins."""
        return tuple(self._events())

    def _events(self) -> Iterator[tuple[str, int]]:
        for start, turn in self._placed:
            if turn.own:
                lines = list(enumerate(answered(turn.text).split("\n"), start))
                said = next((at for at, text in lines if text.strip() and not _CALL.match(text)), None)
                if said is not None:
                    yield "words", said
                yield from (("a call", at) for at, text in lines if _CALL.match(text))
            elif turn.role in ("user", "human"):
                yield "the user", start
            else:
                yield "a failed call" if _FAILED.search(turn.text) else "a result of a call", start

    @cached_property
    def words(self) -> tuple[str, ...]:
        return _words(self.steps)

    @cached_property
    def prose_words(self) -> tuple[str, ...]:
        return self.words if self.prose is self.steps else _words(self.prose)

    @cached_property
    def counts(self) -> Mapping[str, int]:
        """How often it has each of its words."""
        return Counter(self.words)


def _steps(lines: Iterable[tuple[int, str]]) -> tuple[tuple[int, str], ...]:
    found = tuple(
        (line, text)
        for line, raw in lines
        if not _FENCE.match(raw) and (text := _NUMBERED.sub("", raw).strip())
    )
    if len(found) == 1 and not _CALL.match(found[0][1]):  # its sentences: a single line has no other steps
        return tuple((found[0][0], part) for part in SENTENCE.split(found[0][1]))
    return found


def _words(steps: Iterable[tuple[int, str]]) -> tuple[str, ...]:
    text = "\n".join(text for _, text in steps if not _CALL.match(text))
    return tuple(map(sys.intern, TOKEN.findall(text.lower())))


def shuffled(items: Iterable[T], of: Callable[[T], Response]) -> list[T]:
    """Ordered by digests of their texts: the same for every order of rows and in every process. Equal
    texts are spread out at random."""
    copies = Counter[str]()
    ranked: list[tuple[bytes, int, T]] = []
    for item in items:
        text = of(item).text
        copies[text] += 1
        digest = blake2b(
            text.encode(errors="replace"), digest_size=8, salt=copies[text].to_bytes(4, "little")
        )
        ranked.append((digest.digest(), len(ranked), item))
    return [item for _, _, item in sorted(ranked, key=lambda each: each[:2])]


@dataclass(frozen=True)
class Failure:
    """A failed response. `key` is the caller's name for it."""

    key: str
    response: Response


@dataclass(frozen=True)
class Prompt:
    """One prompt with the responses to it."""

    key: str
    question: str
    answer: str | None
    passed: Sequence[Response]
    failed: Sequence[Failure]

    @cached_property
    def words(self) -> frozenset[str]:
        return frozenset(TOKEN.findall(self.question.lower()))

    @cached_property
    def beside(self) -> list[Response]:
        """The passes that a failure is compared with, BESIDE at most: the same for every order of rows."""
        return shuffled(self.passed, lambda each: each)[:BESIDE]

    @cached_property
    def alone(self) -> "Prompt":
        """Without its responses, so that nothing is compared with what most of them have."""
        return Prompt(self.key, self.question, self.answer, (), ())

    @property
    def responses(self) -> list[Response]:
        """All, in an order independent of their content and reward."""
        return shuffled([*self.passed, *(each.response for each in self.failed)], lambda each: each)

    @cached_property
    def expected(self) -> Any:
        """Its expected structured output: the reference, or what most responses have in each field."""
        return field_changes.expected(self.answer, (each.fields for each in self.responses))

    @cached_property
    def reference(self) -> Response | None:
        """The known answer, if it is structured output."""
        return None if (found := field_changes.reference(self.answer)) is None else Response(found)

    @cached_property
    def ends(self) -> tuple[Fraction | None, frozenset[Fraction]]:
        """The number that most responses end with, passed or failed, and those before it in them."""
        responses = [*self.passed, *(failure.response for failure in self.failed)]
        counted = Counter(each.end for each in responses if each.end is not None)
        (most, times), *others = counted.most_common(2) or [(None, 0)]
        if times < 2 or any(number == times for _, number in others):
            return None, frozenset()
        before = {
            number
            for each in responses
            if each.end == most
            for _, text in each.steps
            for number in numbers(text)
        }
        return most, frozenset(before - {most})


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence for a cause in one failure: the line, numbered from 0, and the words."""

    line: int | None
    text: str


@dataclass(frozen=True, slots=True)
class LocalCause:
    """A cause. `key` stays the same when its words change."""

    key: str
    level: int
    description: str
    skill: str
