"""Decides most pairs of answers at once: True, False, or None where a computer-algebra system must look.

An answer is read as a scalar with a unit, an assignment, a list or set, a tuple or interval, a union, or words.
The rules are written down in `docs/equivalence.md`. Every function here is symmetric in its two answers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

from diagevo.selfplay.answers import boxed_answer
from diagevo.selfplay.notation import enclosed, normalise, strip_wrappers
from diagevo.selfplay.terms import exact, parse, same_value, symbols, value_at
from diagevo.selfplay.units import is_word, split_unit

MAX_ANSWER = 1_000
"""Longest answer, in characters, that is read as mathematics; longer ones agree only if they are spelled alike."""

MAX_PROSE = 4_000
"""How much of the end of a text without a box is searched for its answer."""

DECIMAL_TOLERANCE = Fraction(1, 2_000_000)
"""A decimal agrees with a value that rounds to it at the sixth place; below a thousandth the places move along."""

Verdict = bool | None


@dataclass(frozen=True, slots=True)
class Scalar:
    text: str
    value: str
    unit: str
    ambiguous: bool
    percent: bool


@dataclass(frozen=True, slots=True)
class Assignment:
    name: str
    value: Answer


@dataclass(frozen=True, slots=True)
class Group:
    """`kind`: "list" (unordered: sets and bare lists), "union", or a pair of brackets, "()" to "[]" (ordered)."""

    kind: str
    items: tuple[Answer, ...]


@dataclass(frozen=True, slots=True)
class Words:
    text: str


@dataclass(frozen=True, slots=True)
class Opaque:
    """Mathematics of another form (matrices, inequalities, equations), or prose: for math-verify."""

    text: str


Answer = Scalar | Assignment | Group | Words | Opaque

_WORDS = re.compile(r"(?<![A-Za-z\\])[A-Za-z][A-Za-z'-]*")
_MATHS = re.compile(r"(?<!\\)\$|\\\(|\\\[")
_RELATION = re.compile(
    r"\\(?:le|ge|ne|approx|equiv|sim|mapsto|to|rightarrow|Rightarrow|iff|subset|notin|forall|exists)(?![A-Za-z])|[<>]|:="
)
_NAMED = r"(?:\\?[A-Za-z]+(?:_(?:\{[^{}]*\}|\w))?'*)"
_NAME = re.compile(
    rf"\s*(?:{_NAMED}(?:\s*\([^()]*\))?|\\frac\{{{_NAMED}\}}\{{{_NAMED}\}}|{_NAMED}\s*[/:]\s*{_NAMED}|\|{_NAMED}\||\({_NAMED}(?:\s*,\s*{_NAMED})+\))\s*"
)
_MEMBER = re.compile(rf"\s*{_NAMED}\s*\\in(?![A-Za-z])\s*(?P<set>.*)", re.DOTALL)
_THOUSANDS = re.compile(
    r"(?P<sign>[-+]?\s*)(?P<whole>\d{1,3}(?:,\d{3})+|\d{1,3}(?: \d{3})+)(?P<rest>(?:\.\d+)?(?!\d)[^,;]*)"
)
_DECIMAL_COMMA = re.compile(r"[-+]?\d+,\d+(?=\D|\Z)[^,;]*")
_SEPARATOR = re.compile(r",?\s*(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])\s*,?", re.IGNORECASE)
_CHOICE = re.compile(r"[(\[]\s*([A-Z])\s*[)\]]|([A-Z])[.)]")
_PREFIX = re.compile(
    r"(?i:(?:the\s+)?(?:final\s+)?answer\s*(?:is|:)\s*:?|about|approximately|roughly|approx\.?|around|\\approx)\s*"
)
_NOTHING = frozenset(
    {
        "none",
        "no solution",
        "no solutions",
        "no real solution",
        "no real solutions",
        "empty set",
        "the empty set",
    }
)


def _top_level(text: str, separators: str) -> list[str]:
    """Split at separators outside all brackets. Brackets of intervals need not match in kind."""
    parts: list[str] = []
    depth, start, i = 0, 0, 0
    while i < len(text):
        char = text[i]
        if char == "\\" and i + 1 < len(text) and text[i + 1] in "{}":
            depth += 1 if text[i + 1] == "{" else -1
            i += 1
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
        elif depth == 0 and char in separators:
            parts.append(text[start:i])
            start = i + 1
        i += 1
    return [*parts, text[start:]]


def _bracketed(text: str) -> tuple[str, str, str] | None:
    """Opening, inside and closing of a text that one pair of brackets encloses; half-open intervals included."""
    if text.startswith("\\{") and text.endswith("\\}"):
        opening, inside, closing = "\\{", text[2:-2], "\\}"
    elif text and text[0] in "([" and text[-1] in ")]":
        opening, inside, closing = text[0], text[1:-1], text[-1]
    else:
        return None
    depth = 0
    for i, char in enumerate(inside):
        if char in "([" or inside.startswith("\\{", i):
            depth += 1
        elif char in ")]" or inside.startswith("\\}", i):
            depth -= 1
            if depth < 0:
                return None
    return opening, inside, closing


@lru_cache(maxsize=65_536)
def readings(text: str) -> tuple[Answer, ...]:
    """What an answer may mean, the likeliest first: `1,22` is a decimal with a comma, or a list of two."""
    text = normalise(text)
    if len(text) > MAX_ANSWER:
        return (Opaque(text),)
    first = _read(text)
    if _DECIMAL_COMMA.fullmatch(text) and not _THOUSANDS.fullmatch(text):
        return first, _read(text.replace(",", ".", 1))
    return (first,)


def _read(text: str) -> Answer:
    text = strip_wrappers(_PREFIX.sub("", text, count=1) if _PREFIX.match(text) else text)
    if not text:
        return Words("")
    if "\\begin" in text or "\\\\" in text:
        return Opaque(text)
    plain = _words(text)
    if plain is not None:
        return plain
    thousands = _THOUSANDS.fullmatch(text)
    if thousands:
        text = thousands["sign"] + re.sub(r"[ ,]", "", thousands["whole"]) + thousands["rest"]
    member = _MEMBER.fullmatch(text)
    if member:
        return Assignment("", _read(member["set"]))
    unions = text.split("\\cup")
    if len(unions) > 1:
        return Group("union", tuple(_read(part) for part in unions))
    if _RELATION.search(text):
        return Opaque(text)
    return _read_parts(text)


def _read_parts(text: str) -> Answer:
    flat = _SEPARATOR.sub(",", text)
    parts = [part.strip() for part in _top_level(flat, ",;") if part.strip()]
    if len(parts) > 1:
        return Group("list", tuple(_read(part) for part in parts))
    if parts:
        text = parts[0]
    around = _bracketed(text)
    if around is not None:
        opening, inside, closing = around
        items = [part for part in _top_level(inside, ",;") if part.strip()]
        if opening == "\\{":
            return Group("list", tuple(_read(part) for part in items))
        if len(items) > 1:
            return Group(opening + closing, tuple(_read(part) for part in items))
        if opening + closing == "()":
            return _read(inside)
        return Opaque(text)
    sides = _top_level(text, "=")
    if len(sides) > 1:
        if _NAME.fullmatch(sides[0]) or all(parse(side.strip()) and not _free(side) for side in sides):
            return Assignment(re.sub(r"[\s{}]", "", sides[0]), _read(sides[-1]))
        return Opaque(text)
    if "\\pm" in text or "\\mp" in text:
        plus = text.replace("\\pm", "+").replace("\\mp", "-")
        minus = text.replace("\\pm", "-").replace("\\mp", "+")
        return Group("list", (_scalar(plus), _scalar(minus)))
    return _scalar(text)


def _free(text: str) -> bool:
    term = parse(text.strip())
    return term is None or any(True for _ in symbols(term))


def _scalar(text: str) -> Answer:
    text = text.strip()
    value, unit, ambiguous = split_unit(text)
    percent = "%" in value or "%" in text
    value = re.sub(r"\s*%\s*", " ", value).strip() if percent else value
    if any(is_word(word) for word in _WORDS.findall(re.sub(r"\\[A-Za-z]+", " ", value))):
        return Opaque(text)
    return Scalar(text, value, unit, ambiguous, percent)


def _words(text: str) -> Words | None:
    """A text answer: no digits and no mathematics, and at least one word that is not a product of unknowns."""
    choice = _CHOICE.fullmatch(text)
    if choice:
        return Words(choice[1] or choice[2])
    if re.fullmatch(r"[A-Za-z]", text):
        return Words(text)
    if text in ("\\emptyset", "\\{\\}", "\\{ \\}") or text.lower() in _NOTHING:
        return Words("no solution")
    if re.search(r"[\d=^_\\+*/|<>{}%]", text) or not any(is_word(word) for word in _WORDS.findall(text)):
        return None
    return Words(re.sub(r"[^a-z0-9]+", " ", text.lower()).strip())


def _is_prose(text: str) -> bool:
    """Words around a number or formula, more than a unit's: the answer must be searched for."""
    return isinstance(readings(text)[0], Opaque) and any(
        is_word(word) for word in _WORDS.findall(re.sub(r"\\[A-Za-z]+", " ", normalise(text)))
    )


@lru_cache(maxsize=65_536)
def stated(text: str) -> str:
    """The answer that a text states: its box, the formula it consists of, or the text itself."""
    boxed = boxed_answer(text)
    if boxed is not None:
        return boxed
    if len(_MATHS.findall(text)) > 1:
        rest = re.sub(r"\$\$|(?<!\\)\$|\\[()\[\]]", " ", text)
        if not _is_prose(rest):
            return rest
    return text


def decide(a: str, b: str) -> Verdict:
    """Whether two answers agree; None where that needs math-verify."""
    a, b = stated(a), stated(b)
    if a == b or normalise(a).replace(" ", "") == normalise(b).replace(" ", ""):
        return bool(a.strip())
    verdicts = [_same(left, right) for left in readings(a) for right in readings(b)]
    return _any(verdicts)


def _any(verdicts: Sequence[Verdict]) -> Verdict:
    if any(verdicts):
        return True
    return None if None in verdicts else False


def _all(verdicts: Sequence[Verdict]) -> Verdict:
    if False in verdicts:
        return False
    return None if None in verdicts else True


def _same(a: Answer, b: Answer) -> Verdict:
    if isinstance(a, Opaque) or isinstance(b, Opaque):
        return None
    if isinstance(a, Assignment) and isinstance(b, Assignment):
        if a.name == b.name or not (a.name and b.name):
            return _same(a.value, b.value)
        return None
    if isinstance(a, Assignment):
        return _same(a.value, b)
    if isinstance(b, Assignment):
        return _same(a, b.value)
    if isinstance(a, Words) or isinstance(b, Words):
        return _same_words(a, b)
    if isinstance(a, Group) and isinstance(b, Group):
        return _same_groups(a, b)
    if isinstance(a, Scalar) and isinstance(b, Scalar):
        return _same_scalars(a, b)
    return None


def _same_words(a: Answer, b: Answer) -> Verdict:
    if isinstance(a, Words) and isinstance(b, Words):
        return a.text == b.text
    other = b if isinstance(a, Words) else a
    words = a if isinstance(a, Words) else b
    assert isinstance(words, Words)
    if len(words.text) == 1 and isinstance(other, Scalar):
        return _same_scalars(Scalar(words.text, words.text, "", False, False), other)
    return False if isinstance(other, Scalar) and not other.unit else None


def _solutions(items: Sequence[Answer]) -> list[dict[str, Answer]] | None:
    """Solutions of several unknowns out of a flat list `p=5, q=2, p=7, q=2`; None if an item has no name."""
    found: list[dict[str, Answer]] = []
    for item in items:
        if not isinstance(item, Assignment) or not item.name:
            return None
        if not found or item.name in found[-1]:
            found.append({})
        found[-1][item.name] = item.value
    return found


def _same_solution(a: dict[str, Answer], b: dict[str, Answer]) -> Verdict:
    if a.keys() != b.keys():
        return False
    return _all([_same(a[name], b[name]) for name in a])


def _cover(a: Sequence, b: Sequence, same) -> Verdict:
    """Whether each item of either side agrees with one of the other: equality as sets."""
    table = [[same(x, y) for y in b] for x in a]
    return _all([_any(row) for row in table] + [_any([row[j] for row in table]) for j in range(len(b))])


def _same_groups(a: Group, b: Group) -> Verdict:
    if a.kind == b.kind == "list":
        left, right = _solutions(a.items), _solutions(b.items)
        if left and right and (len(left[0]) > 1 or len(right[0]) > 1):
            if len(left) == len(right) == 1 and left[0].keys() != right[0].keys():
                return _cover(a.items, b.items, _same)
            return _cover(left, right, _same_solution)
        return _cover(a.items, b.items, _same)
    if a.kind == b.kind == "union":
        return True if _cover(a.items, b.items, _same) else None
    if a.kind == b.kind:
        if len(a.items) != len(b.items):
            return False
        return _all([_same(x, y) for x, y in zip(a.items, b.items, strict=True)])
    if (
        "list" not in (a.kind, b.kind)
        and "union" not in (a.kind, b.kind)
        and len(a.items) == len(b.items) == 2
    ):
        return False  # intervals with other ends
    return None


def _same_scalars(a: Scalar, b: Scalar) -> Verdict:
    if a.unit == b.unit:
        return _same_values(a, b)
    if a.unit and b.unit:
        known = not a.unit.startswith("?") and not b.unit.startswith("?")
        if known and not (a.ambiguous or b.ambiguous):
            return False
        return _same_values(a, b) if not known else None
    with_unit, without = (a, b) if a.unit else (b, a)
    term = parse(without.value)
    if with_unit.ambiguous and (term is None or any(True for _ in symbols(term))):
        return _same_terms(with_unit.text, without.text)
    return _same_values(a, b)


def _same_values(a: Scalar, b: Scalar) -> Verdict:
    if a.percent == b.percent:
        return _same_terms(a.value, b.value)
    percent, plain = (a, b) if a.percent else (b, a)
    return _any([_same_terms(percent.value, plain.value), _same_terms(f"({percent.value})/100", plain.value)])


def _same_terms(a: str, b: str) -> Verdict:
    if a.replace(" ", "") == b.replace(" ", ""):
        return True
    left, right = parse(a), parse(b)
    if left is None or right is None:
        return _same_ratio(a, b)
    if any(True for _ in symbols(left)) or any(True for _ in symbols(right)):
        return same_value(left, right)
    x, y = exact(left), exact(right)
    decimal = "." in a or "." in b
    if x is not None and y is not None:
        return abs(x - y) <= _tolerance(x, y) if decimal else x == y
    if not decimal:
        return same_value(left, right)
    u, v = value_at(left, {}), value_at(right, {})
    if u is None or v is None:
        return None
    return abs(u - v) <= float(_tolerance(Fraction(abs(u)), Fraction(abs(v))))


def _tolerance(x: Fraction, y: Fraction) -> Fraction:
    return DECIMAL_TOLERANCE * min(Fraction(1), 1000 * max(abs(x), abs(y)))


def _same_ratio(a: str, b: str) -> Verdict:
    """Ratios 2:4 and 1:2 agree; clock times (two digits behind the colon) agree only if they are the same."""
    if ":" not in a or ":" not in b:
        return None
    left, right = (
        [exact(t) if (t := parse(part.strip())) else None for part in text.split(":")] for text in (a, b)
    )
    if len(left) != len(right) or None in left or None in right:
        return None
    if left == right:
        return True
    clock = re.compile(r"\d{1,2}:[0-5]\d(?::[0-5]\d)?")
    if clock.fullmatch(a.replace(" ", "")) and clock.fullmatch(b.replace(" ", "")):
        return False
    if not all(left) or not all(right):
        return False
    return all(x * right[0] == y * left[0] for x, y in zip(left, right, strict=True))  # pyright: ignore


def expressions(a: str, b: str) -> tuple[str, str] | None:
    """What the worker process is given for a pair that `decide` left open; None where that is refused by size."""
    texts = [_expression(text) for text in (a, b)]
    return None if None in texts else (texts[0], texts[1])  # pyright: ignore[reportReturnType]


_HUGE = re.compile(
    r"\d{40,}|(?:\^|\*\*)[\s{(]*\d{5,}|\d{4,}\s*\)?\s*!|!\s*\)?\s*!|(?:\^|\*\*)[^+\-=,;]{0,12}(?:\^|\*\*)[\s{(]*\d{2,}"
)
_TOWER = re.compile(r"\d[\s})]*(?:\^|\*\*)[\s{(]*\d+[\s})]*(?:\^|\*\*)[\s{(]*\d")


def _expression(text: str) -> str | None:
    answer = stated(text)
    if _is_prose(answer):
        tail = answer[-MAX_PROSE:]
        return None if _too_large(tail) else tail
    answer = normalise(answer)
    if len(answer) > MAX_ANSWER or _too_large(answer):
        return None
    return f"${answer}$"


def _too_large(text: str) -> bool:
    """Numbers that no grader should try to write out, and nesting that would exhaust a parser."""
    depth = deepest = 0
    for char in text:
        depth += char in "{([" or -(char in "})]")
        deepest = max(deepest, depth)
    return deepest > 60 or bool(_HUGE.search(text) or _TOWER.search(text))
