"""Decides most pairs of answers at once: True, False, or None where a computer-algebra system must look.

The rules stand at the head of `equivalence`. Every function here is symmetric in its two answers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TypeVar

from diagevo.answers.extraction import has_word, prose_piece, stated
from diagevo.answers.forms import Answer, Assignment, Collection, Opaque, Rounded, Scalar, Within, Words
from diagevo.answers.notation import (
    MAX_ANSWER,
    MAX_NESTING,
    has_content,
    nesting,
    normalise,
    remembered,
    squeezed,
)
from diagevo.answers.quantities import Unit
from diagevo.answers.reading import TooMuch, readings
from diagevo.answers.terms import closed, equal_values, exact, infinite, parse, symbols, undefined, value_at

DECIMAL_TOLERANCE = Fraction(1, 2_000_000)
"""A decimal agrees with what rounds to it at the sixth place; below a thousandth the places move along."""

Verdict = bool | None
Item = TypeVar("Item")

_OF_DAY = re.compile(r"(?P<hour>\d{1,2})(?::(?P<minute>[0-5]\d))?")
_CLOCK = re.compile(r"\d{1,2}:[0-5]\d(?::[0-5]\d)?")
_HUGE = re.compile(
    r"(?<!\d)\d{400,}"  # a number of hundreds of digits
    r"|(?:\^|\*\*)[\s{(]*+\d{5,}"  # a power of ten thousand and more
    r"|(?<!\d)\d{4,}+\s*+(?:\)\s*+)?!"  # a factorial of a thousand and more
    r"|!\s*+(?:\)\s*+)?!"  # a factorial of a factorial
    r"|\d[\s})]*+(?:\^|\*\*)[\s{(]*+\d++[\s})]*+(?:\^|\*\*)[\s{(]*+\d"  # a power of powers
)
_READ_NAMES = """
frac sqrt binom pi infty pm mp cdot times sum prod int lim sin cos tan cot sec csc arcsin arccos arctan
sinh cosh tanh exp ln log min max le ge ne in cup cap setminus emptyset mathbb lfloor rfloor lceil
rceil begin end alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta kappa lambda mu nu xi rho
sigma tau phi varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega
"""
_READ = frozenset(_READ_NAMES.split())
"""Commands that math-verify reads as they are meant; it passes over others, so that 5 ⊕ 7 would be 7."""
_COMMANDS = re.compile(r"\\([A-Za-z]++)")
_FOREIGN = re.compile(
    r"""[A-Za-z]\d|[^\x00-\x7f]|[?"'&~#]| mod |\.\.|\b[A-Z]{2,}\b|[fghFGH]\^\{?-1\}?\s?\("""
)
_TWO_NUMBERS = re.compile(r"\d (?!\d{3}(?!\d))\d")
_ENVIRONMENTS = re.compile(
    r"\\(?:begin|end)\s*+\{\w++\}|&|\\mathbb\s*+\{?\s*+[A-Z]\s*+\}?|\\lim\s*+_\s*+\{[^{}]*+\}"
)
_PRODUCT = re.compile(r"(?:[A-Z]|\\mathbb\{[A-Z]\})(?:\s*+\\times\s*+(?:[A-Z]|\\mathbb\{[A-Z]\}))+")
_LETTERS = re.compile(
    r"[A-Z](?:\s?(?:,|and|or|,\s?(?:and|or))\s?[A-Z](?![A-Za-z]))++|[a-z](?: (?:and|or) [a-z](?![a-z]))++"
)
_LINK = re.compile(r"and|or")
_GROUPED = re.compile(r"(?:[()\s]|not|neg|\\|[A-Za-z](?![A-Za-z])|and|or)++")
_INTERVALS = {"union", "()", "(]", "[)", "[]"}
_LISTS = {"list", "braces"}
_TYPED = {"sequence", "range", "remainder", "set", "size"}
"""Kinds that agree with their own kind alone."""

MAX_COMPARISONS = 2_500
"""Items of one list times items of the other, above which math-verify compares them."""

MAX_WORK = 20 * MAX_COMPARISONS
"""Characters of terms that one decision compares, above which math-verify compares the answers."""


def decide(a: str, b: str) -> Verdict:
    """Whether two answers agree; None where that needs math-verify."""
    spelling, other = _spelling(a), _spelling(b)
    if spelling == other:
        return has_content(a)
    joined, otherwise = _joined(spelling), _joined(other)
    if joined is not None and otherwise is not None and joined != otherwise:
        return False
    lefts, rights = readings(a), readings(b)
    comparison = _Comparison()
    try:
        verdict = _any([comparison.equal(left, right) for left in lefts for right in rights])
    except TooMuch:
        return None
    return verdict if verdict is not None or (_readable(a) and _readable(b)) else False


@remembered
def _readable(text: str) -> bool:
    """Whether math-verify reads the whole of an answer. Where it does not, it takes a number out of it."""
    first = readings(text)[0]
    if isinstance(first, Opaque) and first.prose:
        return _READ.issuperset(_COMMANDS.findall(normalise(prose_piece(first.text))))
    spelled = _ENVIRONMENTS.sub(" , ", normalise(str(stated(text))))
    known = _READ.issuperset(_COMMANDS.findall(spelled)) and not _TWO_NUMBERS.search(spelled)
    return known and not _FOREIGN.search(_COMMANDS.sub(" ", spelled))


@remembered
def _spelling(text: str) -> str:
    answer = stated(text)
    return answer.text if isinstance(answer, Opaque) else squeezed(normalise(answer))


@remembered
def _joined(spelling: str) -> str | None:
    r"""How capital letters are joined, where that is all there is: A and B is not A or B, and A \times B,
    which may be of sets or vectors, not B \times A."""
    if _PRODUCT.fullmatch(spelling):
        return spelling.replace(" ", "")
    linked = spelling.replace("AND", "and").replace("OR", "or")
    words = set(_LINK.findall(linked)) if _LETTERS.fullmatch(linked) else set()
    if len(words) == 1:
        return words.pop()
    both = "and" in linked and "or" in linked
    return linked.replace(" ", "") if both and _GROUPED.fullmatch(linked) else None


def expressions(a: str, b: str) -> tuple[str, str] | None:
    """What a worker process is given for a pair that `decide` left open; None where its size forbids it."""
    left, right = _expression(a), _expression(b)
    return None if left is None or right is None else (left, right)


def _expression(text: str) -> str | None:
    first = readings(text)[0]
    if isinstance(first, Opaque) and first.prose:
        answer = first.text
        if not has_content(answer):
            return None
    else:
        answer = f"${normalise(first.text if isinstance(first, Opaque) else str(stated(text)))}$"
        if len(answer) > MAX_ANSWER + 2:
            return None
    return None if _too_large(answer) else answer


def _too_large(text: str) -> bool:
    """Numbers that no grader should try to write out, and nesting that would exhaust a parser."""
    return nesting(text) > MAX_NESTING or _HUGE.search(text) is not None


def _is_words(name: str) -> bool:
    """Whether a name is words rather than a letter: `nullity A`, `\\max`."""
    return " " in name or has_word(name) or name in ("\\max", "\\min")


def _any(verdicts: Sequence[Verdict]) -> Verdict:
    return True if any(verdicts) else None if None in verdicts else False


def _all(verdicts: Sequence[Verdict]) -> Verdict:
    return False if False in verdicts else None if None in verdicts else True


def _solutions(items: Sequence[Answer]) -> list[dict[str, Answer]] | None:
    """Solutions in several unknowns out of a flat list `p=5, q=2, p=7, q=2`; None if an item has no name."""
    found: list[dict[str, Answer]] = []
    for item in items:
        if not isinstance(item, Assignment) or not item.name:
            return None
        if not found or item.name in found[-1]:
            found.append({})
        found[-1][item.name] = item.value
    return found


class _Comparison:
    """Compares two answers, each pair of their parts once, within a bound that holds whatever is wrong."""

    def __init__(self) -> None:
        self.left = MAX_WORK
        self.known: dict[tuple[int, int], Verdict] = {}  # by identity: both answers outlive the comparison

    def equal(self, a: Answer, b: Answer) -> Verdict:
        """Whether two parts agree. Raises TooMuch where the bound is reached."""
        pair = (id(a), id(b))
        if pair not in self.known:
            terms = isinstance(a, Scalar) and isinstance(b, Scalar) and len(a.text) + len(b.text)
            self.left -= terms or 1
            if self.left < 0:
                raise TooMuch
            self.known[pair] = self._equal(a, b)
        return self.known[pair]

    def _equal(self, a: Answer, b: Answer) -> Verdict:
        if isinstance(a, Within) or isinstance(b, Within):
            return self._equal_within(a, b)
        if isinstance(a, Rounded) or isinstance(b, Rounded):
            return self._equal_rounded(a, b)
        if isinstance(a, Assignment) and isinstance(b, Assignment):
            if a.name == b.name or not (a.name and b.name):
                return self.equal(a.value, b.value)
            # No rank is a nullity, and x = 1 is not y = 1; whether x > 1 is 1 < y is math-verify's to say.
            return False if _is_words(a.name) or _is_words(b.name) else None
        if isinstance(a, Assignment) and not isinstance(b, Opaque):
            return self.equal(a.value, b)
        if isinstance(b, Assignment) and not isinstance(a, Opaque):
            return self.equal(a, b.value)
        if isinstance(a, Words) and isinstance(b, Words):
            return a.text == b.text
        if isinstance(a, Words):
            return self._equal_to_words(a, b)
        if isinstance(b, Words):
            return self._equal_to_words(b, a)
        if isinstance(a, Collection) and isinstance(b, Collection):
            return self._equal_groups(a, b)
        if isinstance(a, Scalar) and isinstance(b, Scalar):
            return _equal_scalars(a, b)
        if isinstance(a, Scalar) and isinstance(b, Collection):
            return self._equal_to_scalar(a, b)
        if isinstance(b, Scalar) and isinstance(a, Collection):
            return self._equal_to_scalar(b, a)
        return None

    def _equal_rounded(self, a: Answer, b: Answer) -> Verdict:
        """Exact values with each other; a lone decimal may be what a value is rounded to."""
        if isinstance(a, Rounded) and isinstance(b, Rounded):
            return self.equal(a.exact, b.exact)
        rounded, other = (a, b) if isinstance(a, Rounded) else (b, a)
        assert isinstance(rounded, Rounded)
        return _any([self.equal(rounded.exact, other), self.equal(rounded.shown, other)])

    def _equal_to_scalar(self, scalar: Scalar, group: Collection) -> Verdict:
        """A list of one value, however often it is listed, is that value."""
        if group.kind in _LISTS:
            return self._cover([scalar], group.items, self.equal)
        if group.kind in _TYPED:
            return False
        return None if parse(scalar.value) is None else False

    def _equal_to_words(self, words: Words, other: Answer) -> Verdict:
        if isinstance(other, Scalar) and len(words.text) == 1:
            return _equal_scalars(Scalar(words.text, words.text), other)
        if isinstance(other, Collection) and other.kind in _LISTS:
            return self._cover([words], other.items, self.equal)
        return None if isinstance(other, Opaque) and (other.prose or words.text == "no solution") else False

    def _equal_within(self, a: Answer, b: Answer) -> Verdict:
        """A domain is compared; integers may go without saying where they number the solutions."""
        if isinstance(a, Within) and isinstance(b, Within):
            return self.equal(a.answer, b.answer) if (a.name, a.domain) == (b.name, b.domain) else False
        within, plain = (a, b) if isinstance(a, Within) else (b, a)
        assert isinstance(within, Within)
        numbers = isinstance(within.answer, Assignment) and within.answer.name != within.name
        return self.equal(within.answer, plain) if numbers and within.domain == "Z" else False

    def _equal_solution(self, a: dict[str, Answer], b: dict[str, Answer]) -> Verdict:
        return _all([self.equal(a[name], b[name]) for name in a]) if a.keys() == b.keys() else False

    def _cover(self, a: Sequence[Item], b: Sequence[Item], equal: Callable[[Item, Item], Verdict]) -> Verdict:
        """Equality as sets: each item of either side agrees with one of the other."""
        if len(a) * len(b) > MAX_COMPARISONS:
            return None  # math-verify sorts
        table = [[equal(x, y) for y in b] for x in a]
        return _all([_any(row) for row in table] + [_any([row[j] for row in table]) for j in range(len(b))])

    def _equal_groups(self, a: Collection, b: Collection) -> Verdict:
        kinds = {a.kind, b.kind}
        if len(kinds) == 2 and kinds & _TYPED:
            return False
        if kinds == {"set"}:
            return self._cover(a.items, b.items, self.equal)
        if kinds <= _LISTS:
            left, right = _solutions(a.items), _solutions(b.items)
            if left and right and max(map(len, left + right)) > 1:
                return self._cover(left, right, self._equal_solution)
            return self._cover(a.items, b.items, self.equal)
        if "union" in kinds and kinds <= _INTERVALS:
            left, right = _merged(a), _merged(b)
            if left is not None and right is not None:
                return left == right
        if kinds == {"union"}:
            return self._cover(a.items, b.items, self.equal) or None  # [0,2] is [0,1] ∪ [1,2]
        if len(kinds) == 1:
            if len(a.items) != len(b.items):
                return False
            return _all([self.equal(x, y) for x, y in zip(a.items, b.items, strict=True)])
        if kinds == {"list", "()"}:  # 1, 3 may be written for (1, 3), but not 3, 1
            if len(a.items) == len(b.items) and _all(
                [self.equal(x, y) for x, y in zip(a.items, b.items, strict=True)]
            ):
                return True
            return None if self._cover(a.items, b.items, self.equal) is not False else False
        if kinds == {"braces", "()"}:
            return False  # neither a pair nor an interval is the set of its two
        if kinds <= {"()", "(]", "[)", "[]"} and len(a.items) == len(b.items) == 2:
            return False  # intervals with other ends
        if "union" in kinds and kinds & _LISTS:
            union, items = (a, b) if a.kind == "union" else (b, a)
            return False if _merged(union) and all(isinstance(item, Scalar) for item in items.items) else None
        if "matrix" in kinds:
            matrix, other = (a, b) if a.kind == "matrix" else (b, a)
            rows = [row.items for row in matrix.items if isinstance(row, Collection)]
            entries = [entry for row in rows for entry in row]
            vector = len(rows) == 1 or len(entries) == len(rows)
            return None if vector and len(entries) == len(other.items) else False
        return None


def _merged(group: Collection) -> list[tuple[Fraction | float, bool, Fraction | float, bool]] | None:
    """A union of intervals as its disjoint parts, rising: each end and whether it belongs to the part. None
    where an end is no rational number, or a decimal, which may be rounded."""
    parts: list[tuple[Fraction | float, bool, Fraction | float, bool]] = []
    for item in group.items if group.kind == "union" else [group]:
        part = item.value if isinstance(item, Assignment) else item
        if not isinstance(part, Collection) or part.kind not in _INTERVALS or len(part.items) != 2:
            return None
        low, high = (_end(end) for end in part.items)
        if low is None or high is None or low > high:
            return None
        parts.append((low, part.kind[0] == "[", high, part.kind[1] == "]"))
    merged = parts[:0]
    for low, starts, high, ends in sorted(parts, key=lambda part: (part[0], not part[1])):
        if merged and (low < merged[-1][2] or (low == merged[-1][2] and (starts or merged[-1][3]))):
            first, first_starts, last, last_ends = merged[-1]
            end = max((last, last_ends), (high, ends))
            merged[-1] = (first, first_starts, *end)
        else:
            merged.append((low, starts, high, ends))
    return merged


def _end(answer: Answer) -> Fraction | float | None:
    if not isinstance(answer, Scalar) or answer.unit is not None or "." in answer.value:
        return None
    if infinite(answer.value):
        return infinite(answer.value) * math.inf
    term = parse(answer.value)
    return None if term is None else exact(term)


def _minute(scalar: Scalar) -> int | None:
    """The minute of the day of 3:00 PM, 3 PM and 15:00; None for what may be a ratio or either half's."""
    time = _OF_DAY.fullmatch(scalar.value.replace(" ", ""))
    half = scalar.unit.dimension[0][0] if scalar.unit and len(scalar.unit.dimension) == 1 else ""
    if time is None or (scalar.unit and half not in ("am", "pm")):
        return None
    hour, minute = int(time["hour"]), int(time["minute"] or 0)
    if half:
        return 60 * (hour % 12 + 12 * (half == "pm")) + minute if 1 <= hour <= 12 else None
    return 60 * hour + minute if time["minute"] and (12 < hour < 24 or not hour) else None


def _equal_scalars(a: Scalar, b: Scalar) -> Verdict:
    u, v = a.unit, b.unit
    if u is not None or v is not None:
        one, other = _minute(a), _minute(b)
        if one is not None and other is not None:
            return one == other
    if u is not None and v is not None:
        if u.scale and v.scale:
            if u.dimension == v.dimension:
                return _equal_values(a, b) if u == v else _equal_terms(_based(a, u), _based(b, v))
            return _equal_terms(a.text, b.text) or False  # 5 cm is not 5 s, but 5ms may be 5sm
        names, others = set(u.dimension), set(v.dimension)
        return _equal_values(a, b, shares=True) if names <= others or others <= names else False
    if u is None and v is None:
        return _equal_values(a, b)
    with_unit, without, unit = (a, b, u) if u is not None else (b, a, v)
    if unit is not None and unit.scale and without.parts != with_unit.parts:
        return False  # 5 kg is not 5%
    if unit is not None and unit.ambiguous and not closed(without.value):
        return _equal_terms(with_unit.text, without.text)
    return _equal_values(a, b, shares=unit is not None and not unit.scale)


def _based(scalar: Scalar, unit: Unit) -> str:
    """A value in the base units of its dimension."""
    value = f"({scalar.value})+{unit.zero}" if unit.zero else scalar.value
    return value if unit.scale == "1" else f"({value})*{unit.scale}"


def _equal_values(a: Scalar, b: Scalar, *, shares: bool = False) -> Verdict:
    """Values without their units. 28% is 28 and is 0.28: which of the two a plain number is, nobody knows.
    `shares`: the plain one counts something, so 50% is 1/2 of the total, but 5% no 5 apples."""
    if a.parts == b.parts:
        return _equal_terms(a.value, b.value)
    small, large = (a, b) if a.parts > b.parts else (b, a)
    share = _equal_terms(f"({small.value})*{large.parts}/{small.parts}", large.value)
    return (
        _any([_equal_terms(small.value, large.value), share])
        if (large.parts, small.parts) == (1, 100) and not shares
        else share
    )


def _equal_terms(a: str, b: str) -> Verdict:
    if squeezed(a) == squeezed(b):
        return True
    if infinite(a) or infinite(b):
        return infinite(a) == infinite(b) if closed(a) and closed(b) else None
    left, right = parse(a), parse(b)
    if left is None or right is None:
        return _equal_ratio(a, b)
    if symbols(left) or symbols(right):
        return equal_values(left, right)
    decimal = "." in a or "." in b
    x, y = exact(left), exact(right)
    if (x is None) != (y is None) and undefined(left) != undefined(right):
        return False  # 3/0 is no number
    if x is not None and y is not None:
        return abs(x - y) <= _tolerance(abs(x), abs(y)) if decimal else x == y
    if not decimal:
        return equal_values(left, right)
    u, v = value_at(left, {}), value_at(right, {})
    if u is None or v is None:
        return None
    return abs(u - v) <= float(_tolerance(Fraction(abs(u)), Fraction(abs(v))))


def _tolerance(x: Fraction, y: Fraction) -> Fraction:
    return DECIMAL_TOLERANCE * min(Fraction(1), 1000 * max(x, y))


def _equal_ratio(a: str, b: str) -> Verdict:
    """Ratios 2:4 and 1:2 agree; clock times (two digits behind the colon) agree only if they are the same."""
    if ":" not in a or ":" not in b:
        return None
    sides: list[list[Fraction]] = []
    for text in (a, b):
        terms = [parse(part.strip()) for part in text.split(":")]
        values = [exact(term) for term in terms if term is not None]
        known = [value for value in values if value is not None]
        if len(known) != len(terms):
            return None
        sides.append(known)
    left, right = sides
    if left == right or len(left) != len(right):
        return left == right
    if all(_CLOCK.fullmatch(text.replace(" ", "")) for text in (a, b)) or not all(left) or not all(right):
        return False
    return all(x * right[0] == y * left[0] for x, y in zip(left, right, strict=True))
