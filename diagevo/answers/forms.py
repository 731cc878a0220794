"""The forms that an answer has once it is read."""

from __future__ import annotations

from dataclasses import dataclass

from diagevo.answers.units import Unit


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number or term. `text` is the whole of it, `value` what is left without unit and percent sign."""

    text: str
    value: str
    unit: Unit | None = None
    parts: int = 1
    """Of how many parts a whole has: 100 in 5%, 1,000 in 5‰."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """`x = 5`, `f(x) = …`, and `1 < x < 2` as x and its interval. `x ∈ …` is a set without a name.

    A name may be words: `rank A = 3`, "the minimum is 6"; then it has a space, or a word of `has_word`.
    """

    name: str
    value: Answer


@dataclass(frozen=True, slots=True)
class Collection:
    """`kind`: "list" (bare, unordered), "braces" (the same in braces), "set" (within a list or brackets),
    "union", "matrix", "row", brackets "()" to "[]", "sequence" (a list with dots), "range" (5-7) or
    "remainder" (3 R 2)."""

    kind: str
    items: tuple[Answer, ...]


@dataclass(frozen=True, slots=True)
class Words:
    """A text answer, a choice, a date, a version, a code: equal if spelled alike, whatever its case (a single
    letter keeps its own)."""

    text: str


@dataclass(frozen=True, slots=True)
class Within:
    """An answer with the domain of a name: `x = 2kπ, k ∈ ℤ`."""

    answer: Answer
    name: str
    domain: str


@dataclass(frozen=True, slots=True)
class Rounded:
    """A value, and a decimal that it is rounded to: `x = 1/3 ≈ 0.33`."""

    exact: Answer
    shown: Answer


@dataclass(frozen=True, slots=True)
class Opaque:
    """For math-verify: mathematics of another form, or prose in which the answer must be searched for."""

    text: str
    prose: bool = False


Answer = Scalar | Assignment | Collection | Words | Within | Rounded | Opaque
