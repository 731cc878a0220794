"""What an answer says: a scalar with a unit, an assignment, a list, a tuple or interval, a matrix, or words.

The type is decided before anything is computed: a date, a range, a version or a string of capitals is no
term. A reading is syntax only; `comparison` decides which readings agree. What this module does not know for
certain it leaves opaque, for math-verify.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from diagevo.answers.extraction import PREFIX, about, has_word, hedged, stated, statements
from diagevo.answers.forms import (
    Answer,
    Assignment,
    Collection,
    Opaque,
    Rounded,
    Scalar,
    Within,
    Words,
    as_spelled,
    in_small_letters,
    text_type,
)
from diagevo.answers.notation import (
    MATHEMATICS,
    MAX_ANSWER,
    MAX_NESTING,
    is_number,
    nesting,
    normalise,
    remembered,
    strip_wrappers,
)
from diagevo.answers.quantities import (
    CURRENCIES,
    SMALL_NUMBERS,
    Unit,
    in_steps,
    is_word,
    number_words,
    split_unit,
    with_decimal_comma,
)
from diagevo.answers.terms import closed, infinite, parse, rounds, value_at

MAX_WORK = MAX_NESTING * MAX_ANSWER
"""Characters that the reading of one answer looks at, those it looks at again included."""

PIECE = 20
"""What the shortest piece of an answer costs beside its characters."""

MAX_DEPTH = 2 * MAX_NESTING
"""Deepest reading of a piece within a piece."""


_NAMED = (
    r"(?:(?:\\(?:vec|hat|bar|tilde|d?dot|mathcal|Delta|delta)\s?+)?+(?:\{[A-Za-z]\}|\\?[A-Za-z]++)"
    r"(?:_(?:\{[^{}]*+\}|\w|\\[A-Za-z]++))?(?:\^(?:\*|\{\*\}|\{?-1\}?(?=\s?\()))?'*+|\\[Dd]elta)"
)
_NAME = re.compile(
    rf"\s*+(?:(?:\\angle|\\triangle)?\s*+{_NAMED}(?:\s*+\([^()]*+\))?|\\frac\{{(?:d\^\d)?{_NAMED}\}}\{{{_NAMED}(?:\^\d)?\}}"
    rf"|{_NAMED}\s*+[/:]\s*+{_NAMED}|\|{_NAMED}\||\({_NAMED}(?:\s*+,\s*+{_NAMED})++\))\s*+"
)
_MEMBER = re.compile(rf"\s*+{_NAMED}\s*+\\in(?![A-Za-z])\s*+(?P<set>.*)", re.DOTALL)
_OF_ABSOLUTE = re.compile(rf"\|{_NAMED}\|")
_NAME_NOISE = re.compile(r"[\s{}]")
_ORDER = re.compile(r"\\(?:le|ge)(?![A-Za-z])|<=|>=|<|>")
_RELATION = re.compile(
    r"\\(?:ne|equiv|sim|mapsto|to|rightarrow|Rightarrow|iff|subset|notin|forall|exists)(?![A-Za-z])|:="
)
_THOUSANDS = re.compile(
    r"(?P<sign>(?:[A-Z]{3}\s*+)?+[-+]?\s*+)(?P<whole>[1-9]\d{0,2}(?:,\d{3})++|[1-9]\d{0,2}(?: \d{3}(?!\d))++)"
    r"(?P<rest>(?:\.\d++)?(?![\d.])[^,;]*+)"
)
_SHORT_DECIMAL = re.compile(r"[-+]?\d++,\d++")
_SEPARATOR = re.compile(r"(?<![A-Za-z\\])(?:and|or)(?![A-Za-z])", re.IGNORECASE)
_AND = re.compile(r"(?<![A-Za-z\\])and(?![A-Za-z])", re.IGNORECASE)
_CHOICE = re.compile(r"[(\[]\s*+([A-Z])\s*+[)\]]|([A-Z])[.)]?")
_CHOICES = re.compile(r"[A-Z](?:\s*+(?:,|and|or|,\s*+and)\s*+[A-Z](?![A-Za-z]))++")
_BASE = re.compile(
    r"(?P<digits>[0-9A-F]++(?:\.[0-9]++)?)\s*+_\s*+(?:\{\s*+)?"
    r"(?P<base>\d++|two|three|four|five|six|seven|eight|nine)\s*+\}?"
)
_GROUPING = re.compile(r"[ ,]")
_STATES = re.compile(r"(?<!\\)\$|\\[(\[]|(?i:\b(?:answer|solution|result|total|it's|is|are|equals)\b|=|:\s)")
"""Prose that states an answer: a formula, or "the answer is"."""
_INDIAN = re.compile(r"[-+]?\d{1,2}(?:,\d{2}(?!\d))++,\d{3}")
_SPELLED = re.compile(r"[\s{}$]++")
_MATRIX = re.compile(
    r"[(\[]?\s*+\\begin\s*+\{(?P<kind>[pb]?matrix|array)\}(?:\s*+\{[clr|\s]*+\})?"
    r"(?P<body>(?:(?!\\begin|\\hline|\\end).)*+)\\end\s*+\{(?P=kind)\}\s*+[)\]]?",
    re.DOTALL,
)
_CASES = re.compile(
    r"(?:\\\{\s*+)?\\begin\s*+\{(?P<kind>cases|array)\}(?:\s*+\{[clr\s]*+\})?"
    r"(?P<body>(?:(?!\\begin|\\hline|\\end)[^&])*+)\\end\s*+\{(?P=kind)\}\s*+\.?",
    re.DOTALL,
)
_CODES = re.compile(CURRENCIES)
_MONEY = rf"(?:(?:{CURRENCIES})\s*+)?+"
_RANGE = re.compile(
    rf"(?:from\s++)?+(?P<low>{_MONEY}\d++(?:\.\d++)?)(?P<percent>\s?%)?+(?P<sign>\s*+(?:--?+|to(?![a-z]))\s*+)"
    rf"(?P<high>{_MONEY}\d++(?:\.\d++)?)(?P<unit>\s*+(?:[%‰]|[^\W\d_][^\d]*+)?)"
)
_REMAINDER = re.compile(
    r"(?:quotient\s*+(?:is\s*+)?)?+(?P<quotient>-?\d++)\s*+,?\s*+(?:and\s*+|with\s*+)?+(?:an?\s*+)?+"
    r"(?:remainder|rem\.?|[rR]\.?)\s*+(?:of\s*+|is\s*+|=\s*+|:\s*+)?+(?P<remainder>\d++)"
)
_MODULUS = re.compile(r"\d{1,300}")
_DOMAIN = re.compile(
    r"(?:[,;(]|\s(?:where|for|with|and)(?:\s(?:all|any|some))?|\\forall)\s*+(?P<name>[A-Za-z])\s*+\\in\s*+"
    r"(?:\\mathbb\s*+\{?\s*+)?+(?P<set>[ZNQRC])\s*+\}?(?P<part>[\^_]?\{?[+*]?\}?)\s*+\)?\Z"
)
MAX_DOMAIN = 60
"""How much of the end of an answer is searched for the domain of a name, in characters."""
_BUILDER = re.compile(
    rf"\s*+(?P<name>{_NAMED})\s*+(?:\\in\s*+\\mathbb\s*+\{{?\s*+(?P<set>[A-Z])\s*+\}}?\s*+)?+[|:](?P<condition>.++)",
    re.DOTALL,
)
_NO_SOLUTION = frozenset(
    f"{article}{adjective}solution{s}"
    for article in ("no ",)
    for adjective in ("", "real ")
    for s in ("", "s")
) | {"none", "empty set", "the empty set", "does not exist", "dne", "\\emptyset", "\\{\\}", "\\{ \\}"}
_PARTS = {"%": 100, "‰": 1000, "‱": 10_000}
_CONDITION = re.compile(r"(?<![A-Za-z\\])(?:if|iff|unless|but|nor)(?![A-Za-z])")
"""Words that are no product of letters."""
_LABEL = re.compile(r"(?:\A|(?<=[\s,;]))\(?(?P<name>[a-e]|i{1,3}|iv|[1-5])\)(?=\s)")
_LABELS = (list("abcde"), ["i", "ii", "iii", "iv"], list("12345"))
_SIZE = re.compile(
    r"(?P<rows>\d++)\s*+(?P<sign>by|\\times|x)\s*+(?P<columns>\d++)(?P<shape>\s*+(?:matrix|grid|array|board|table))?+"
)
_WORDY = re.compile(r"\s*+\\?[A-Za-z][\w '()\\-]*+")
_SHARE = re.compile(r"\d++ (?:in|of|on|at|vs) \d++")
"""3 in 5, whose word is no product of letters."""
_FOR_ALL = re.compile(
    r"(?:for\s(?:all|every|each|any)|\\forall)\s*+(?:real\s(?:numbers?\s)?)?"
    r"(?P<names>[A-Za-z](?:\s?,\s?[A-Za-z])*+)\s?\)?\Z"
)


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


def _items(text: str) -> list[str]:
    """The items of a list. Semicolons part lists of lists: 1,2;3. There 1,5 is a decimal."""
    rows = [row.strip() for row in split_top_level(text, ";") if row.strip()]
    if len(rows) > 1 and "=" not in text:
        return [row.replace(",", ".") if _SHORT_DECIMAL.fullmatch(row) else row for row in rows]
    return [part.strip() for part in split_top_level(text, ",;") if part.strip()]


@remembered
def readings(text: str) -> tuple[Answer, ...]:
    """What an answer may mean, the likeliest first: `1,22` is a decimal with a comma, or a list of two."""
    answer = stated(text)
    if isinstance(answer, Opaque):
        if hedged(answer.text):
            return (Words(as_spelled(normalise(answer.text))),)
        return (_statement(answer.text) or answer,)
    spelled = normalise(answer)
    if is_number(spelled):
        return (Scalar(spelled, spelled),)
    if _SHARE.fullmatch(spelled):
        return (Words(as_spelled(spelled)),)
    if len(spelled) > MAX_ANSWER or nesting(spelled) > MAX_NESTING:
        return (Opaque(answer),)
    try:
        first = _Reader().read(spelled)
        if _is_prose(first):
            statement = None if hedged(answer) else _statement(answer)
            if statement is None and not hedged(answer) and _STATES.search(answer):
                return (Opaque(answer, prose=True),)
            return (statement or Words(as_spelled(spelled)),)
        decimal = with_decimal_comma(spelled) if "," in spelled else None
        if decimal is not None:
            return first, _Reader().read(decimal)
        if _INDIAN.fullmatch(spelled):
            return first, _Reader().read(spelled.replace(",", ""))
    except TooMuch:
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
        case Within():
            return _is_prose(answer.answer)
        case Rounded():
            return _is_prose(answer.exact) or _is_prose(answer.shown)
    return False


def _is_known(answer: Answer) -> bool:
    """Whether all of an answer is a value or term that is understood here, and no name."""
    match answer:
        case Scalar():
            known = infinite(answer.value) != 0 or parse(answer.value) is not None
            return known and not _CODES.search(answer.value)
        case Collection():
            return all(map(_is_known, answer.items))
        case Assignment():
            return not answer.name and _is_known(answer.value)
        case Rounded():
            return _is_known(answer.exact) and _is_known(answer.shown)
    return False


def _statement(text: str) -> Answer | None:
    """The answer of one sentence, with what the sentence says that it is; None where words are left in it."""
    for name, value in statements(text):
        spelled = normalise(value)
        read = _Reader().read(with_decimal_comma(spelled) or spelled)
        if _is_known(read):
            return Assignment(name, read) if name else read
    return None


def _words(text: str) -> Words | None:
    """A text answer: no digits and no mathematics, and a word that is no product of unknowns; or a choice."""
    choice = _CHOICE.fullmatch(text)
    if choice:
        return Words(choice[1] or choice[2])
    if text.lower() in _NO_SOLUTION:
        return Words("no solution")
    if not text or text.lower() == "no":
        return Words(text.lower())
    typed = text_type(text)
    if typed is not None:
        return Words(typed)
    if MATHEMATICS.search(text) or _CHOICES.fullmatch(text) or not has_word(text):
        return None
    return Words(in_small_letters(text))


def _in_digits(text: str) -> str:
    """Number words as digits: `twenty-five`, `five apples`."""
    value = number_words(text)
    if value is None:
        counted, _, noun = text.rpartition(" ")
        value = number_words(counted) if is_word(noun) else None
        return text if value is None else f"{value} {noun}"
    return value


def _residue(answer: Answer, modulus: str) -> Answer | None:
    """An answer modulo a number, which is then the unit of its values; None where it has no plain values."""
    match answer:
        case Scalar(unit=None, value=value):
            if value.lstrip("-").isdigit() and int(modulus):
                value = str(int(value) % int(modulus))
            return Scalar(f"{answer.text} mod {modulus}", value, Unit(((f"mod {modulus}", 1),), "1"))
        case Assignment():
            inner = _residue(answer.value, modulus)
            return inner and Assignment(answer.name, inner)
        case Collection():
            items = [_residue(item, modulus) for item in answer.items]
            return Collection(answer.kind, tuple(item for item in items if item)) if all(items) else None
    return None


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


def _rows(text: str) -> list[list[str]] | None:
    """The cells of [[1, 2], [3, 4]]; None where it is no matrix."""
    around = _bracketed(text)
    rows = [_bracketed(row.strip()) for row in split_top_level(around[1], ",")] if around else []
    cells = [split_top_level(row[1], ",") for row in rows if row and row[0] + row[2] == "[]"]
    return cells if cells and len(cells) == len(rows) and len(set(map(len, cells))) == 1 else None


def _labelled(text: str) -> list[str]:
    """The parts of `(a) 5 (b) 3`, whose labels are no factors; none where there are not two."""
    marks = list(_LABEL.finditer(text))
    names = [mark["name"] for mark in marks]
    if len(marks) < 2 or marks[0].start() or not any(names == labels[: len(names)] for labels in _LABELS):
        return []
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    parts = [text[mark.end() : end].strip(" ,;") for mark, end in zip(marks, ends, strict=True)]
    return parts if all(parts) else []


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


def _meeting(items: Sequence[Answer]) -> Answer | None:
    """x > 1 and x < 2 as one interval; x < 1 and x > 2, which none is, as people mean it. None for others."""
    ends: dict[bool, tuple[str, Answer, str]] = {}
    for item in items:
        if not isinstance(item, Assignment) or not isinstance(item.value, Collection):
            return None
        low, high = item.value.items
        if not isinstance(low, Scalar) or not isinstance(high, Scalar):
            return None
        below = low.value == "-\\infty"
        if below == (high.value == "\\infty"):
            return None
        ends[below] = (item.name, high if below else low, item.value.kind[below])
    if len(items) != 2 or len(ends) != 2 or ends[True][0] != ends[False][0]:
        return None
    (name, low, opening), (_, high, closing) = ends[False], ends[True]
    assert isinstance(low, Scalar)
    assert isinstance(high, Scalar)
    terms = [parse(end.value) for end in (low, high)]
    values = [value_at(term, {}) if term else None for term in terms]
    if None in values:
        return None
    first, last = (complex(value or 0).real for value in values)
    return (
        Assignment(name, Collection(opening + closing, (low, high)))
        if first < last
        else Collection("union", tuple(items))
    )


def _scalar(text: str) -> Answer:
    text = text.strip()
    if _CONDITION.search(text):
        return Words(as_spelled(text))
    based = _BASE.fullmatch(text)
    if based:
        base = SMALL_NUMBERS.get(based["base"], based["base"])
        return Scalar(text, based["digits"], Unit(((f"base {base}", 1),), "1"))
    value, unit = split_unit(text)
    parts = next((parts for sign, parts in _PARTS.items() if sign in value), 1)
    value = (
        " ".join(value.replace("%", " ").replace("‰", " ").replace("‱", " ").split()) if parts > 1 else value
    )
    return Opaque(text, prose=True) if has_word(value) else Scalar(text, value, unit, parts)


def _bounds(low: Answer, high: Answer, named: bool, tight: bool) -> bool:
    """Whether two numbers are the ends of a range: 5-7 cm, but not 5-7x, and 7 - 5 is a difference."""
    if not (isinstance(low, Scalar) and isinstance(high, Scalar)) or (named and high.unit is None):
        return False
    if high.unit is not None and high.unit.ambiguous:
        return False
    return tight or float(low.value) < float(high.value)


class TooMuch(Exception):
    """A text takes more work than an answer may."""


class _Reader:
    """Reads one answer, piece by piece, within a bound that holds whatever the rules below do."""

    def __init__(self) -> None:
        self.left = MAX_WORK
        self.depth = 0

    def read(self, text: str) -> Answer:
        """What a piece of the answer says. Raises TooMuch where the bound is reached."""
        self.left -= len(text) + PIECE
        self.depth += 1
        if self.left < 0 or self.depth > MAX_DEPTH:
            raise TooMuch
        answer = self._read(text)
        self.depth -= 1
        return answer

    def _read(self, text: str) -> Answer:
        text = strip_wrappers(PREFIX.sub("", text, count=1) if PREFIX.match(text) else text)
        labelled = _labelled(text) if ")" in text else []
        if labelled:
            return Collection("()", tuple(map(self.read, labelled)))
        size = _SIZE.fullmatch(text)
        if size and ("by" in size["sign"] or size["shape"]):
            return Collection("size", (_scalar(size["rows"]), _scalar(size["columns"])))
        text = _in_digits(text)
        words = _words(text)
        if words is not None:
            return words
        if "\\begin" in text or "\\\\" in text or text.startswith("[["):
            return self._matrix(text)
        thousands = _THOUSANDS.fullmatch(text)
        if thousands:
            text = thousands["sign"] + _GROUPING.sub("", thousands["whole"]) + thousands["rest"]
        typed = self._typed(text)
        if typed is not None:
            return typed
        member = _MEMBER.fullmatch(text)
        if member:
            return Assignment("", self.read(member["set"]))
        if _RELATION.search(text):
            return Opaque(text)
        return self._parts(text)

    def _typed(self, text: str) -> Answer | None:
        """A value in several units, a range, a division with remainder, a residue, or one with a domain."""
        steps = in_steps(text)
        if steps:
            return Scalar(text, *steps)
        span = _RANGE.fullmatch(text)
        if span:
            low, high = (
                _scalar(span["low"] + (span["percent"] or span["unit"])),
                _scalar(span["high"] + span["unit"]),
            )
            if _bounds(low, high, span["unit"].strip(" %‰") != "", span["sign"] != " - "):
                return Collection("range", (low, high))
        divided = _REMAINDER.fullmatch(text)
        if divided:
            return Collection("remainder", (_scalar(divided["quotient"]), _scalar(divided["remainder"])))
        left, mod, modulus = text.rpartition(" mod ")
        if mod and _MODULUS.fullmatch(modulus):
            answer = _residue(self.read(left.replace("\\equiv", "=").rstrip(" (")), modulus.rstrip(" )"))
            return answer or Opaque(text)
        return self._within(text)

    def _within(self, text: str) -> Answer | None:
        """An answer behind which the domain of a name stands: x = 2kπ, k ∈ ℤ."""
        end = max(0, len(text) - MAX_DOMAIN)
        if (every := _FOR_ALL.search(text, end)) and every.start():
            held = text[: every.start()].rstrip(" ,;(")
            return (
                self.read(held) if all(name.strip() in held for name in every["names"].split(",")) else None
            )
        match = _DOMAIN.search(text, end)
        if match is None or not match.start():
            return None
        answer = self.read(text[: match.start()])
        return answer if match["set"] in "RC" else Within(answer, match["name"], match["set"] + match["part"])

    def _matrix(self, text: str) -> Answer:
        r"""A lone matrix or vector, row by row, also [[1, 2], [3, 4]]; any other \begin … \end is opaque."""
        listed = _rows(text) if text.startswith("[[") else None
        if listed:
            return Collection(
                "matrix", tuple(Collection("row", tuple(map(self.read, row))) for row in listed)
            )
        if "\\" not in text:
            return self._parts(text)
        match = _MATRIX.fullmatch(text)
        if match is None:
            return self._cases(text)
        rows = [row for row in match["body"].split("\\\\") if row.strip()]
        return Collection(
            "matrix",
            tuple(Collection("row", tuple(self.read(cell) for cell in row.split("&"))) for row in rows),
        )

    def _cases(self, text: str) -> Answer:
        r"""A system in braces, an equation a row; a function by cases has conditions behind &."""
        match = _CASES.fullmatch(text)
        rows = [row for row in match["body"].split("\\\\") if row.strip()] if match else []
        read = [self.read(row) for row in rows]
        if len(read) > 1 and all(isinstance(row, Assignment) and row.name for row in read):
            return Collection("list", tuple(read))
        return Opaque(text)

    def _parts(self, text: str) -> Answer:
        """Lists first, then unions, brackets, relations; what is left is a scalar."""
        spelled, text = text, _SEPARATOR.sub(",", text)
        parts = _items(text)
        if len(parts) > 1:
            return self._list(spelled, parts)
        text = parts[0] if parts else text
        unions = text.split("\\cup")
        if len(unions) > 1:
            return Collection("union", tuple(self.read(part) for part in unions))
        around = _bracketed(text)
        if around is not None:
            opening, inside, closing = around
            builder = _BUILDER.fullmatch(inside) if opening == "\\{" else None
            if builder:
                condition = self.read(builder["condition"])
                plain = builder["set"] in (None, "R", "C")
                return condition if plain else Within(condition, builder["name"], builder["set"])
            pieces = _items(inside)
            if len(pieces) < 2 and opening != "\\{":
                return self.read(inside) if opening + closing == "()" else Opaque(text)
            items = tuple(map(self._item, pieces))
            kind = "sequence" if any("\\dots" in piece for piece in pieces) else "braces"
            return Collection(kind if opening == "\\{" else opening + closing, items)
        if "\\dots" in text:
            return Words(_SPELLED.sub("", text))
        exact, near, _ = text.partition("\\approx")
        if near and not _NAME.fullmatch(exact):
            return self._rounded(exact, text.rpartition("\\approx")[2])
        text = text.replace("\\approx", "=")
        if _ORDER.search(text):
            return _interval(text)
        sides = split_top_level(text, "=")
        if len(sides) > 1:
            if "." in sides[-1] and rounds(sides[-2].strip(), sides[-1].strip()):
                return self._rounded(text.rpartition("=")[0], sides[-1])
            if _NAME.fullmatch(sides[0]):
                return Assignment(_NAME_NOISE.sub("", sides[0]), self.read(sides[-1]))
            if all(closed(side.strip()) for side in sides):
                return Assignment("", self.read(sides[-1]))
            if _WORDY.fullmatch(sides[0]) and has_word(sides[0]):
                return Assignment(about(sides[0]), self.read(sides[-1]))
            if len(sides) == 2 and _NAME.fullmatch(sides[1]) and closed(sides[0].strip()):
                return Assignment(_NAME_NOISE.sub("", sides[1]), self.read(sides[0]))
            return Opaque(text)
        if "\\pm" in text or "\\mp" in text:
            plus = text.replace("\\pm", "+").replace("\\mp", "-")
            minus = text.replace("\\pm", "-").replace("\\mp", "+")
            return Collection("list", (_scalar(plus), _scalar(minus)))
        return _scalar(text)

    def _item(self, text: str) -> Answer:
        """A part of a list; a set among them is a set, where alone it is the list of its items."""
        item = self.read(text)
        if text.strip() in ("\\emptyset", "\\{\\}", "\\{ \\}"):
            return Collection("set", ())
        around = _bracketed(text.strip())
        if around and around[0] == "\\{" and isinstance(item, Collection) and item.kind == "braces":
            return Collection("set", item.items)
        return item

    def _rounded(self, exact: str, shown: str) -> Answer:
        """A value beside its decimal; alone where that is the decimal of another."""
        answer, decimal = self.read(exact), self.read(shown)
        value = answer.value if isinstance(answer, Assignment) else answer
        if not isinstance(value, Scalar) or not isinstance(decimal, Scalar) or not closed(decimal.value):
            return Opaque(f"{exact}\\approx {shown}")
        another = closed(value.value) and not rounds(value.value, decimal.value)
        return answer if another else Rounded(answer, decimal)

    def _list(self, text: str, parts: Sequence[str]) -> Answer:
        items = tuple(map(self._item, parts))
        ordered = [_ORDER.search(part) is not None for part in parts]
        intervals = [
            in_order and isinstance(item, Assignment) and isinstance(item.value, Collection)
            for item, in_order in zip(items, ordered, strict=True)
        ]
        if any(intervals):  # x < 1 or x > 2
            if not all(intervals):
                return Opaque(text)
            return _meeting(items) or Opaque(text) if _AND.search(text) else Collection("union", items)
        return Collection("sequence" if any("\\dots" in part for part in parts) else "list", items)
