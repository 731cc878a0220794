"""What an answer says: a scalar with a unit, an assignment, a list, a tuple or interval, a matrix, or words.

A reading is syntax only; `comparison` decides which readings agree. What this module does not know for
certain it leaves opaque, for math-verify.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from diagevo.answers.cache import remembered
from diagevo.answers.extraction import boxed_answer
from diagevo.answers.notation import MAX_ANSWER, MAX_NESTING, nesting, normalise, strip_wrappers
from diagevo.answers.units import is_unit, is_word, split_unit
from diagevo.answers.values import closed

MAX_PROSE = 4_000
"""How much of the end of a text without a box is searched for its answer."""

MAX_WORK = MAX_NESTING * MAX_ANSWER
"""Characters that the reading of one answer looks at, those it looks at again included."""

PIECE = 20
"""What the shortest piece of an answer costs beside its characters."""

MAX_DEPTH = 2 * MAX_NESTING
"""Deepest reading of a piece within a piece."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A number or term. `text` is the whole of it, `value` what is left without unit and percent sign."""

    text: str
    value: str
    unit: str = ""
    ambiguous: bool = False
    """The unit could be an unknown instead: `5m`."""
    percent: bool = False


@dataclass(frozen=True, slots=True)
class Assignment:
    """`x = 5`, `f(x) = …`, and `1 < x < 2` as x and its interval. `x ∈ …` is a set without a name."""

    name: str
    value: Answer


@dataclass(frozen=True, slots=True)
class Collection:
    """`kind`: "list" (sets and bare lists, unordered), "union", "matrix", "row", or brackets "()" to "[]"."""

    kind: str
    items: tuple[Answer, ...]


@dataclass(frozen=True, slots=True)
class Words:
    """A text answer or a choice, as its words in small letters (a single letter keeps its case)."""

    text: str


@dataclass(frozen=True, slots=True)
class Opaque:
    """For math-verify: mathematics of another form, or prose in which the answer must be searched for."""

    text: str
    prose: bool = False


Answer = Scalar | Assignment | Collection | Words | Opaque

_WORDS = re.compile(r"(?<![A-Za-z\\])[A-Za-z]+(?:['-][A-Za-z]{2,})*")
_COMMANDS = re.compile(r"\\(?:begin|end)\s*+\{\w++\}|\\[A-Za-z]++")
_MATHS = re.compile(
    r"\$\$.*?\$\$|(?<!\\)\$(?:\\\$|[^$])*?(?<!\\)\$"
    r"|\\\((?:(?!\\\().)*?\\\)|\\\[(?:(?!\\\[).)*?\\\]",
    re.DOTALL,
)
_DELIMITERS = re.compile(r"\$\$|(?<!\\)\$|(?<!\\)\\[()\[\]]")
_SMALL_WORDS = frozenset({"and", "or", "percent", "percentage", "pct"})

_NAMED = r"(?:\\?[A-Za-z]++(?:_(?:\{[^{}]*+\}|\w))?'*+)"
_NAME = re.compile(
    rf"\s*+(?:(?:\\angle|\\triangle)?\s*+{_NAMED}(?:\s*+\([^()]*+\))?|\\frac\{{{_NAMED}\}}\{{{_NAMED}\}}"
    rf"|{_NAMED}\s*+[/:]\s*+{_NAMED}|\|{_NAMED}\||\({_NAMED}(?:\s*+,\s*+{_NAMED})++\))\s*+"
)
_MEMBER = re.compile(rf"\s*+{_NAMED}\s*+\\in(?![A-Za-z])\s*+(?P<set>.*)", re.DOTALL)
_OF_ABSOLUTE = re.compile(rf"\|{_NAMED}\|")
_NAME_NOISE = re.compile(r"[\s{}]")
_ORDER = re.compile(r"\\(?:le|ge)(?![A-Za-z])|<=|>=|<|>")
_RELATION = re.compile(
    r"\\(?:ne|approx|equiv|sim|mapsto|to|rightarrow|Rightarrow|iff|subset|notin|forall|exists)(?![A-Za-z])|:="
)
_THOUSANDS = re.compile(
    r"(?P<sign>[-+]?\s*+)(?P<whole>\d{1,3}(?:,\d{3})++|\d{1,3}(?: \d{3}(?!\d))++)"
    r"(?P<rest>(?:\.\d++)?(?![\d.])[^,;]*+)"
)
_DECIMAL_COMMA = re.compile(r"[-+]?\d++,\d++[^,;]*+")
_SEPARATOR = re.compile(r"(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])", re.IGNORECASE)
_AND = re.compile(r"(?<![A-Za-z\\])and(?![A-Za-z])", re.IGNORECASE)
_CHOICE = re.compile(r"[(\[]\s*+([A-Z])\s*+[)\]]|([A-Z])[.)]?")
_BASE = re.compile(
    r"(?P<digits>[0-9]++(?:\.[0-9]++)?)\s*+_\s*+(?:\{\s*+)?"
    r"(?P<base>\d++|two|three|four|five|six|seven|eight|nine)\s*+\}?"
)
_GROUPING = re.compile(r"[ ,]")
_MATHEMATICS = re.compile(r"[\d=^_\\+*/|<>{}%]")
_NO_LETTERS = re.compile(r"[^a-z]++")
_MATRIX = re.compile(
    r"[(\[]?\s*+\\begin\s*+\{(?P<kind>[pb]?matrix|array)\}(?:\s*+\{[clr|\s]*+\})?"
    r"(?P<body>(?:(?!\\begin|\\hline|\\end).)*+)\\end\s*+\{(?P=kind)\}\s*+[)\]]?",
    re.DOTALL,
)
_PREFIX = re.compile(
    r"(?i:(?:the\s++)?(?:final\s++)?answer\s*+(?:is|:)\s*+:?"
    r"|about|approximately|roughly|approx\.?|around|\\approx)\s*+"
)
_NO_SOLUTION = frozenset(
    f"{article}{adjective}solution{s}"
    for article in ("no ",)
    for adjective in ("", "real ")
    for s in ("", "s")
) | {"none", "empty set", "the empty set", "does not exist", "\\emptyset", "\\{\\}", "\\{ \\}"}
_BASE_WORDS = {
    "two": "2",
    "three": "3",
    "four": "4",
    "five": "5",
    "six": "6",
    "seven": "7",
    "eight": "8",
    "nine": "9",
}


def split_top_level(text: str, separators: str) -> list[str]:
    """Split at separators outside all brackets. The brackets of an interval need not match in kind."""
    parts: list[str] = []
    depth = start = i = 0
    while i < len(text):
        char = text[i]
        if char == "\\" and text[i + 1 : i + 2] in ("{", "}"):
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


def has_word(text: str) -> bool:
    """Whether an English word stands in a text, commands left aside."""
    return any(is_word(word) for word in _WORDS.findall(_COMMANDS.sub(" ", text)))


@remembered
def stated(text: str) -> Opaque | str:
    """The answer that a text states: its box, or itself without math delimiters; prose where it is hidden.

    Prose is a text with words around its formulas: `The answer is $5$, since …`.
    """
    boxed = boxed_answer(text)
    if boxed is not None:
        return boxed
    if len(text) > MAX_PROSE:
        return Opaque(text[-MAX_PROSE:], prose=True)
    maths = _MATHS.findall(text)
    if maths:
        around = [word.lower() for word in _WORDS.findall(_COMMANDS.sub(" ", _MATHS.sub(" ", text)))]
        if _PREFIX.match(text):
            around = around[2:]
        if any(len(word) > 1 and word not in _SMALL_WORDS and not is_unit(word) for word in around):
            return Opaque(text, prose=True)
        if len(maths) > 1 or around:
            return _DELIMITERS.sub(" ", text)
    return text


@remembered
def readings(text: str) -> tuple[Answer, ...]:
    """What an answer may mean, the likeliest first: `1,22` is a decimal with a comma, or a list of two."""
    answer = stated(text)
    if isinstance(answer, Opaque):
        return (answer,)
    spelled = normalise(answer)
    if len(spelled) > MAX_ANSWER or nesting(spelled) > MAX_NESTING:
        return (Opaque(answer),)
    try:
        first = _Reader().read(spelled)
        if _is_prose(first):
            return (Opaque(answer, prose=True),)
        if _DECIMAL_COMMA.fullmatch(spelled) and not _THOUSANDS.fullmatch(spelled):
            return first, _Reader().read(spelled.replace(",", ".", 1))
    except _TooMuch:
        return (Opaque(answer),)
    return (first,)


def _is_prose(answer: Answer) -> bool:
    match answer:
        case Opaque():
            return answer.prose or ("\\begin" not in answer.text and has_word(answer.text))
        case Collection():
            return any(_is_prose(item) for item in answer.items)
        case Assignment():
            return _is_prose(answer.value)
    return False


def _words(text: str) -> Words | None:
    """A text answer: no digits and no mathematics, and a word that is no product of unknowns; or a choice."""
    choice = _CHOICE.fullmatch(text)
    if choice:
        return Words(choice[1] or choice[2])
    if text.lower() in _NO_SOLUTION:
        return Words("no solution")
    if not text or text.lower() == "no":
        return Words(text.lower())
    if _MATHEMATICS.search(text) or not has_word(text):
        return None
    return Words(_NO_LETTERS.sub(" ", text.lower()).strip())


def _bracketed(text: str) -> tuple[str, str, str] | None:
    """Opening, inside and closing of a text in one pair of brackets, which may differ in kind: (1, 2]."""
    if text.startswith("\\{") and text.endswith("\\}"):
        opening, inside, closing = "\\{", text[2:-2], "\\}"
    elif len(text) > 1 and text[0] in "([" and text[-1] in ")]":
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


def _interval(text: str) -> Answer:
    """`1 < x ≤ 2`, `x > 2` and `|x| < 2` as a name and its interval; other inequalities are opaque."""
    signs = [sign.replace("\\le", "<=").replace("\\ge", ">=") for sign in _ORDER.findall(text)]
    parts = [part.strip() for part in _ORDER.split(text)]
    if all(sign.startswith(">") for sign in signs):
        signs, parts = [sign.replace(">", "<") for sign in signs[::-1]], parts[::-1]
    if not all(sign.startswith("<") for sign in signs):
        return Opaque(text)
    if len(parts) == 2 and _OF_ABSOLUTE.fullmatch(parts[0]) and closed(parts[1]):
        parts, signs = [f"-({parts[1]})", parts[0].strip("|"), parts[1]], signs * 2
    elif len(parts) == 2 and _NAME.fullmatch(parts[0]) and closed(parts[1]):
        parts, signs = ["-\\infty", *parts], ["<", *signs]
    elif len(parts) == 2 and _NAME.fullmatch(parts[1]) and closed(parts[0]):
        parts, signs = [*parts, "\\infty"], [*signs, "<"]
    if len(parts) != 3 or not _NAME.fullmatch(parts[1]) or parts[1].startswith("|"):
        return Opaque(text)
    kind = ("[" if signs[0] == "<=" else "(") + ("]" if signs[1] == "<=" else ")")
    return Assignment(_NAME_NOISE.sub("", parts[1]), Collection(kind, (_scalar(parts[0]), _scalar(parts[2]))))


def _scalar(text: str) -> Answer:
    text = text.strip()
    based = _BASE.fullmatch(text)
    if based:
        return Scalar(text, based["digits"], f"base {_BASE_WORDS.get(based['base'], based['base'])}")
    value, unit, ambiguous = split_unit(text)
    percent = "%" in value
    value = " ".join(value.replace("%", " ").split()) if percent else value
    return Opaque(text, prose=True) if has_word(value) else Scalar(text, value, unit, ambiguous, percent)


class _TooMuch(Exception):
    """A text takes more work than an answer may."""


class _Reader:
    """Reads one answer, piece by piece, within a bound that holds whatever the rules below do."""

    def __init__(self) -> None:
        self.left = MAX_WORK
        self.depth = 0

    def read(self, text: str) -> Answer:
        """What a piece of the answer says. Raises _TooMuch where the bound is reached."""
        self.left -= len(text) + PIECE
        self.depth += 1
        if self.left < 0 or self.depth > MAX_DEPTH:
            raise _TooMuch
        answer = self._read(text)
        self.depth -= 1
        return answer

    def _read(self, text: str) -> Answer:
        text = strip_wrappers(_PREFIX.sub("", text, count=1) if _PREFIX.match(text) else text)
        words = _words(text)
        if words is not None:
            return words
        if "\\begin" in text or "\\\\" in text:
            return self._matrix(text)
        thousands = _THOUSANDS.fullmatch(text)
        if thousands:
            text = thousands["sign"] + _GROUPING.sub("", thousands["whole"]) + thousands["rest"]
        member = _MEMBER.fullmatch(text)
        if member:
            return Assignment("", self.read(member["set"]))
        if _RELATION.search(text):
            return Opaque(text)
        return self._parts(text)

    def _matrix(self, text: str) -> Answer:
        r"""A lone matrix or vector, row by row; anything else between \begin and \end is opaque."""
        match = _MATRIX.fullmatch(text)
        if match is None:
            return Opaque(text)
        rows = [row for row in match["body"].split("\\\\") if row.strip()]
        return Collection(
            "matrix",
            tuple(Collection("row", tuple(self.read(cell) for cell in row.split("&"))) for row in rows),
        )

    def _parts(self, text: str) -> Answer:
        """Lists first, then unions, brackets, relations; what is left is a scalar."""
        parts = [part.strip() for part in split_top_level(_SEPARATOR.sub(",", text), ",;") if part.strip()]
        if len(parts) > 1:
            return self._list(text, parts)
        text = parts[0] if parts else text
        unions = text.split("\\cup")
        if len(unions) > 1:
            return Collection("union", tuple(self.read(part) for part in unions))
        around = _bracketed(text)
        if around is not None:
            opening, inside, closing = around
            pieces = [part for part in split_top_level(inside, ",;") if part.strip()]
            if len(pieces) < 2 and opening != "\\{":
                return self.read(inside) if opening + closing == "()" else Opaque(text)
            items = tuple(self.read(piece) for piece in pieces)
            return Collection("list" if opening == "\\{" else opening + closing, items)
        if _ORDER.search(text):
            return _interval(text)
        sides = split_top_level(text, "=")
        if len(sides) > 1:
            if _NAME.fullmatch(sides[0]) or all(closed(side.strip()) for side in sides):
                return Assignment(_NAME_NOISE.sub("", sides[0]), self.read(sides[-1]))
            return Opaque(text)
        if "\\pm" in text or "\\mp" in text:
            plus = text.replace("\\pm", "+").replace("\\mp", "-")
            minus = text.replace("\\pm", "-").replace("\\mp", "+")
            return Collection("list", (_scalar(plus), _scalar(minus)))
        return _scalar(text)

    def _list(self, text: str, parts: Sequence[str]) -> Answer:
        items = tuple(self.read(part) for part in parts)
        ordered = [_ORDER.search(part) is not None for part in parts]
        intervals = [
            in_order and isinstance(item, Assignment) and isinstance(item.value, Collection)
            for item, in_order in zip(items, ordered, strict=True)
        ]
        if any(intervals):  # x < 1 or x > 2
            return Opaque(text) if not all(intervals) or _AND.search(text) else Collection("union", items)
        return Collection("list", items)
