"""The forms that an answer has once it is read, and the spelling of text answers.

Dates, versions, codes, grades and strings of capitals look like mathematics but are not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from diagevo.answers.notation import MATHEMATICS
from diagevo.answers.quantities import Unit, is_word


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number or term. `text` is the whole, `value` the part without unit and percent sign."""

    text: str
    value: str
    unit: Unit | None = None
    parts: int = 1
    """The number of parts of a whole: 100 in 5%, 1,000 in 5‰."""


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
    """A value, and its rounded decimal: `x = 1/3 ≈ 0.33`."""

    exact: Answer
    shown: Answer


@dataclass(frozen=True, slots=True)
class Opaque:
    """For math-verify: mathematics of another form, or prose in which the answer must be searched for."""

    text: str
    prose: bool = False


Answer = Scalar | Assignment | Collection | Words | Within | Rounded | Opaque

_MONTH_NAMES = """january february march april may june july august september october november december
"""
_MONTHS = _MONTH_NAMES.split()
_MONTH = "|".join(f"{month[:3]}(?:{month[3:]})?" if month[3:] else month for month in _MONTHS) + "|sept"
_YEAR = r"(?:\s*+,?\s*+(?P<year>\d{4}))?"
_DAY_FIRST = re.compile(rf"(?i)(?P<day>\d{{1,2}})\s++(?:of\s++)?(?P<month>{_MONTH})\.?{_YEAR}")
_MONTH_FIRST = re.compile(rf"(?i)(?P<month>{_MONTH})\.?\s++(?P<day>\d{{1,2}})(?!\d){_YEAR}")
_YEAR_FIRST = re.compile(r"(?P<year>\d{4})(?P<gap>[-/.])(?P<month>\d{1,2})(?P=gap)(?P<day>\d{1,2})")
_YEAR_LAST = re.compile(r"(?P<first>\d{1,2})(?P<gap>[-/.])(?P<second>\d{1,2})(?P=gap)(?P<year>\d{4})")
_VERSION = re.compile(r"(?:[vV]\.?\s?\d++(?:\.\d++)+|\d++(?:\.\d++){2,})")
_CODE = re.compile(
    r"\d++(?:-\d++){2,}"  # 555-12-34
    r"|[A-Z]{1,3}-?\d++[A-Z\d-]*+"  # A1, B-52
    r"|(?=[A-Za-z_{]*\d)(?:[A-Z][a-z]?(?:_?\{?\d++\}?)?){2,}"  # H_2O
    r"|[A-Z]{1,2}[+-]+"  # grades and blood groups
    r"|[A-Z]{2,}'*"
)
_NO_LETTERS = re.compile(r"(?<=\w)-(?=\w)|[^\w+-]++")
_TOKENS = re.compile(r"\\?[^\W\d_]++|\d++(?:\.\d++)?|[^\w\s]|_")
_HYPHEN = re.compile(r"(?<=[^\W\d_]{2})-(?=[^\W\d_]{2})")
_PAUSE = re.compile(r"(?<![.,;:?\"'`])[.,;:?\"'`]++(?=\s|\Z)|(?<!\S)[\"'`]++")
_LOOSE = re.compile(r"[_{}\s]")


def text_type(text: str) -> str | None:
    """The one spelling of a date, a version, a code or a string of capitals; None for any other text."""
    if len(text) > 80:
        return None
    dated = _YEAR_FIRST.fullmatch(text)
    if dated:
        return _date(dated["year"], int(dated["month"]), int(dated["day"]))
    dated = _YEAR_LAST.fullmatch(text)
    if dated:
        first, second = int(dated["first"]), int(dated["second"])
        if first == second or (first > 12) != (second > 12):
            return _date(dated["year"], min(first, second), max(first, second))
        return f"{first}/{second}/{dated['year']}"  # it is unknown which of them is the month
    dated = _MONTH_FIRST.fullmatch(text) or _DAY_FIRST.fullmatch(text)
    if dated:
        month = next(i for i, name in enumerate(_MONTHS, 1) if name.startswith(dated["month"][:3].lower()))
        return _date(dated["year"] or "", month, int(dated["day"]))
    if _VERSION.fullmatch(text):
        return "v" + text.lstrip("vV. ")
    return _LOOSE.sub("", text).casefold() if _CODE.fullmatch(text) else None


def in_small_letters(text: str) -> str:
    """The words of a text without mathematics, whatever their case and the marks between them."""
    words = _NO_LETTERS.sub(" ", text.casefold()).split()
    return " ".join(word for word in words if word not in ("+", "-"))


def as_spelled(text: str) -> str:
    """Words with mathematics between them: each sign counts, white space and pauses do not."""
    if not MATHEMATICS.search(text):
        return in_small_letters(text)
    tokens = _TOKENS.findall(_PAUSE.sub(" ", _HYPHEN.sub(" ", text)))
    return " ".join(token.casefold() if is_word(token) else token for token in tokens)


def _date(year: str, month: int, day: int) -> str:
    return f"{year}-{month:02}-{day:02}"
