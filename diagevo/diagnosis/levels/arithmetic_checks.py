"""Numbers and equations of a text, computed exactly: which hold, and which numbers come from nowhere.

An equation is the text on both sides of an equals sign, ignoring units between the numbers: `4 hours / 2 =
2 hours`. Text that cannot be fully parsed is not an equation: nothing is called wrong that was not
understood. So the words around it must not be mathematics (`the square root of 16 + 9`), the signs there must
be punctuation (not `3:00 + 2`, `x + 3 + 4`), and units must agree, unless it holds (`15 minutes * 4 = 1
hour`).
"""

import operator
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, reduce

from diagevo.answers.extraction import COMPUTING
from diagevo.answers.quantities import CANONICAL, MULTIPLIERS, is_unit

NUMBER = re.compile(r"(?<![\w.])(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?![\d])|(?<![\w.])\.\d+")
LONGEST = 40
"""Maximum characters of a number; more digits mean a model that repeats itself, and overflow a float."""
_TOKEN = re.compile(
    r"(?P<other>(?<![^\W_])(?:[^\W\d]\w*[\d_]\w*|_\w+|\d+_\w+|0[xXbBoO]\w+|\d+:\d[\d:]*"  # names, 0x10, 3:00
    r"|\d{4}-\d\d-\d\d|\d{1,2}/\d{1,2}/\d{4}))"  # dates
    r"|(?P<number>(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?(?:[eE][-+]?\d{1,2}(?!\w))?|\.\d+)"
    r"|(?P<sign>[-+*/×÷·−–()=≈^%])|(?P<word>[^\W\d_]+)|(?P<unknown>\S)"
)
_ANNOTATED = re.compile(r"<<[^<>]*>>")
_LATEX = (
    (re.compile(r"\\[dt]?frac\s*\{([^{}]+)\}\s*\{([^{}]+)\}"), r"((\1)/(\2))"),
    (re.compile(r",\\!\s*|\{,\}"), ","),
    (re.compile(r"\\[()\[\]]"), " "),
    (re.compile(r"\\(?:times|cdot)"), "*"),
    (re.compile(r"\\div"), "/"),
    (re.compile(r"\\(?:text|mathrm|left|right|boxed|,|;|!)"), " "),
    (re.compile(r"\\(?=[$%])"), ""),
    (re.compile(r"\*\*(?=\S)((?:(?!\*\*).)*\S)\*\*"), r" \1 "),
    (re.compile(r"\\?\{([^{}]*[-+*/^][^{}]*)\\?\}"), r"(\1)"),  # 2^{3+1} is no 2^3 + 1
    (re.compile(r"[{}]"), " "),
)
_OF = re.compile(  # a share: 3 of 4 is not a product
    r"(?:(?<=[%)])|(?<=[/.]\d)|(?<=[/.]\d\d))\s+of\s+(?=[$€£]?[\d(])", re.IGNORECASE
)
_CROSS = re.compile(r"(?<=[\d)%a-z])\s+[xX]\s+(?=[$€£(]?[\d(])|(?<=\))[xX](?=[$€£(]?\d)")
_TIMES = re.compile(r"(?<![\w.])(?!0[xX])\d[\d,.]*(?:[xX][$€£]?\d[\d,.]*)+(?!\w)")
_SIGNS = {"×": "*", "÷": "/", "·": "*", "−": "-", "–": "-", "≈": "="}
_COUNTED = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
    " seventeen eighteen nineteen twenty"
)
_OTHERS = (
    "30 thirty month months;40 forty;50 fifty;60 sixty hour hours minute minutes;70 seventy;80 eighty"
    ";90 ninety;100 hundred percent dollar dollars cents century;1000 thousand;1000000 million;10 decade"
    ";2 half halves twice double doubled couple pair both;3 third thirds triple thrice yard yards feet"
    ";4 quarter quarters fourth;5 fifth;6 sixth;7 week weeks days daily weekly;24 day days hours"
    ";12 dozen dozens month months year years foot feet inches;52 weeks year years;365 year years"
)
_MATHS = COMPUTING | MULTIPLIERS.keys() | {"binary", "octal", "hex", "hexadecimal", "xor", "carry"}
"""Words that compute: an expression next to one, or with one between its numbers, is incomplete."""
_RESETS = re.compile(
    r"[.,:;!?](?=\s)|[→⇒]"
    r"|\b(?:is|are|was|were|be|equals?|gives?|gets?|got|have|has|had|makes?|becomes?)\b",
    re.IGNORECASE,
)
"""Where a new clause begins in a sentence."""
_JOINS = frozenset({"and", "or", "by", "from", "than", "of", "to", "per"})
_CLAUSES = re.compile(r"\b(?:and|so|then|thus|therefore|hence|which)\b", re.IGNORECASE)
_WORDS = re.compile(r"[^\W\d_]{2}|[^\x00-\x7f]")
"""A word, or a character of another script: without one, the text beside an equation is part of it."""
_CLOSED = re.compile(r"[)\]}\"'*$`\s]*[.,;!]?[)\]}\"'*$`\s]*")
_MARK = re.compile(
    r"\s*(?:[-*•>#]+\s+)?"
    r"(?:(?:step|part|case|question|problem|line|equation)?\s*\(?(?:\d{1,2}|[a-zA-Z])[.):]\s+)?",
    re.IGNORECASE,
)
"""The beginning of a list item."""
_LAST_WORD = re.compile(r"(?<![^\W\d_])[^\W\d_]++(?=[\s$€£(\"'*]*+\Z)")
_THREE_PLACES = re.compile(r"(?<![\d.,])[1-9]\d{0,2}\.\d{3}(?!\d)")
_RANGE = re.compile(r"(\d{1,9})[-–](\d{1,9})\s*=")
_FRACTION_BEHIND = re.compile(r"(?<!\d)\d{1,3}-\d{1,2}/\d{1,2}(?!\d)|\^\d+/\d")
"""2-1/2 is read as two and a half as well, and 27^1/3 as the cube root."""
_CLOCK = re.compile(r"(\d{1,2})\s*[-–−]\s*(\d{1,2})\s*=\s*(\d{1,2})")
_HOURS = re.compile(r"\s*(?:[^\W\d_]+\s+)?(?:hours?|hrs?|h)\b", re.IGNORECASE)
_OF_DAY = re.compile(r"\s*(?:[ap]\.?m\b|o['’]clock\b|noon\b|midnight\b)", re.IGNORECASE)
_BINARY = re.compile(r"[01]+(?:\s*[-+*]\s*[01]+)+\s*=\s*[01]{2,}")
_NUMBERED = re.compile(r"\d{1,2}\s*[-–]\s+(?=\d)")
"""Step 1 - 5 + 3 = 8."""
_COUNTED_UP = re.compile(r"(\d{1,9})\s*[-–]\s*(\d{1,9})\s*=\s*(\d{1,9})")
_XOR = re.compile(r"\d{1,18}(?:\s*\^\s*\d{1,18})+\s*=\s*\d{1,18}")
_SHARE_OF_IT = re.compile(r"[-+−–]\s*[\d.,]+\s*%")
_NAMES = re.compile(r"[^\W\d_]{2,}|[$€£]")
_NOUN = re.compile(r"\d\s+(?:[^\W\d_]+\s+){0,2}([^\W\d_]{2,})(?=\s*(?:[-+−–)]|\Z))")
"""What a number in a sum counts: the last of up to three words after it."""
_COINS = frozenset(["penny", "pennies", "nickel", "nickels", "dime", "dimes", "quarter", "quarters"])
_BETWEEN = _MATHS | {"and", "or"}
"""Words that are not a unit of the number before them: $39$ and $-11 + 50$."""
DIGITS = 3
"""Minimum digits of a rounded result before its zeros."""
UNIT = 12
"""Characters after an expression that may be its unit."""
_UNCLAIMED = re.compile(
    r"(?:\b(?:not|never|cannot|suppos\w+|assum\w+|imagine|if|unless|whether|instead|rather"
    r"|says|said|claim(?:s|ed)|thinks|thought|wrote|writes|believe[sd])\b|n['’]t\b)(?!.*[.;:!?,]\s)"
    r"|\b(?:wrong|false|incorrect|mistaken?|error)[*\s]*:\W*\Z|\bbase[- ]?\w",
    re.IGNORECASE | re.DOTALL,
)
_TAKEN_BACK = re.compile(
    r"[^.!;]*?(?:\?|[✗✘❌]|\b(?:wrong|false|incorrect|untrue|impossible|contradiction)\b"
    r"|\b(?:mistaken?|error|left to right)\b"
    r"|(?:\bnot|n['’]t) (?:be )?(?:true|right|correct|possible)\b|[(,–—-]\s*no\b)",
    re.IGNORECASE,
)
"""Words before an equation, or after it in its sentence, that show it is not being asserted."""
_OPERATION = re.compile(r"\s[-+*/^×÷]\s")
_ENDS = re.compile(r"[)\]\"'’*$]*(?:\Z|[.,;:?…](?![\d])|\s+[(\[]?(?=[^\W\d_])|\s*[→⇒])")
WORDS: dict[str, list[int]] = {word: [number] for number, word in enumerate(_COUNTED.split())}
for _entry in _OTHERS.split(";"):
    for _word in _entry.split()[1:]:
        WORDS.setdefault(_word, []).append(int(_entry.split()[0]))
"""Numbers implied by a question's number words and units."""


@dataclass(frozen=True, slots=True)
class Equation:
    """The two sides of an equals sign, and their values."""

    line: int
    text: str
    numbers: tuple[Fraction, ...]
    """Of the left side."""
    signs: str
    """Operations of the left side."""
    left: Fraction
    right: Fraction
    holds: bool


@lru_cache(maxsize=10_000)
def value(number: str) -> Fraction:
    return Fraction(number.replace(",", ""))


def numbers(text: str) -> list[Fraction]:
    """All numbers in digits."""
    plain = _ANNOTATED.sub(" ", text) if "<<" in text else text
    return [value(found) for found in NUMBER.findall(plain) if len(found) <= LONGEST]


@lru_cache(maxsize=100)
def given(question: str) -> frozenset[Fraction]:
    """Numbers that a question gives, in digits, in words or with a unit."""
    found = set(numbers(question))
    for word in re.findall(r"[a-z]+", question.lower()):
        found.update(map(Fraction, WORDS.get(word, ())))
    if "%" in question or "percent" in question.lower():
        found |= {Fraction(100)} | {1 - n / 100 for n in found if 0 < n < 100} | {n / 100 for n in found}
        found |= {100 - n for n in found if 0 < n < 100} | {100 + n for n in found if 0 < n < 100}
    return frozenset(found)


def equations(
    lines: Sequence[tuple[int, str]], known: Mapping[str, Fraction] | None = None
) -> Iterator[Equation]:
    """The equations of a text, by line; letters with a `known` value are replaced by it."""
    for line, text in lines:
        yield from _of_line(line, text, known or {})


def _of_line(line: int, text: str, known: Mapping[str, Fraction]) -> Iterator[Equation]:
    if "=" not in text and "≈" not in text:
        return
    text = _ANNOTATED.sub(" ", text)
    if "\\" in text or "{" in text or "**" in text:
        for pattern, instead in _LATEX:
            text = pattern.sub(instead, text)
    text = _OF.sub(" * ", text)
    if "x" in text or "X" in text:
        text = _CROSS.sub(" * ", text)
        text = _TIMES.sub(lambda match: match[0].replace("x", " * ").replace("X", " * "), text)
    parts: list[list[re.Match[str]]] = [[]]
    for token in _TOKEN.finditer(text):
        if token.group() in "=≈":
            parts.append([])
        else:
            parts[-1].append(token)
    percent = "%" in text or "percent" in text.lower()
    for place in range(len(parts) - 1):
        left = _read(parts[place], known, last=True, whole=place > 0)
        right = left and _read(parts[place + 1], known, last=False, whole=place + 2 < len(parts))
        if left is None or right is None or not (left[1] or right[1] or known):
            continue
        if not left[1] and not left[3] and not right[3]:
            continue
        shown = text[left[2].start : right[2].stop].strip()
        a, b = left[0], right[0]
        pairs = [(a, b), (a * 100, b), (a, b * 100)] if percent else [(a, b)]
        holds = any(_agree(one, other, right[5]) for one, other in pairs) or _is_rounded(a, b, left[4])
        behind = text[right[2].stop :]
        if (
            not holds
            and (
                _units_differ(left, right)
                or _is_ambiguous(shown)
                or _holds_otherwise(shown, behind, a - b)
                or (place + 2 < len(parts) and right[1] and right[4][0] == a)  # 5 + 3 = 8 - 2 = 6
                or ((label := _NUMBERED.match(shown)) and _all_hold(shown[label.end() :]))
            )
        ):
            continue  # 15 minutes * 4 = 1 hour
        if not holds and (_UNCLAIMED.search(text[: left[2].start]) or _TAKEN_BACK.match(behind)):
            continue  # is 5 + 3 = 9? No
        yield Equation(
            line=line,
            text=" ".join(shown.split()),
            numbers=left[4],
            signs=left[1],
            left=a,
            right=b,
            holds=holds,
        )


def _is_ambiguous(equation: str) -> bool:
    """Whether the numbers are ambiguous: 1.000 as a thousand, 100 - 10% as 90."""
    points = equation.count(".")
    if (between := _RANGE.match(equation)) and int(between[1]) < int(between[2]):
        return True  # pages 5-7
    if _FRACTION_BEHIND.search(equation):
        return True
    return _SHARE_OF_IT.search(equation) is not None or 0 < points == len(_THREE_PLACES.findall(equation))


def _all_hold(text: str) -> bool:
    found = list(equations([(0, text)]))
    return bool(found) and all(each.holds for each in found)


def _holds_otherwise(equation: str, behind: str, off: Fraction) -> bool:
    """Whether it holds of hours of the day (9-5 = 8 hours, 9 + 5 = 2 PM), of a range that is counted (3 - 7 =
    5), in binary, or where ^ is the exclusive or (12 ^ 10 = 6). `off`: how much the left side is more."""
    if _OF_DAY.match(behind) and off % 12 == 0:
        return True
    if (span := _COUNTED_UP.fullmatch(equation)) and re.match(r"\s*[^\W\d_]", behind):
        first, last, counted = map(int, span.groups())
        if first < last and last - first + 1 == counted:
            return True
    if _BINARY.fullmatch(equation):
        found = list(equations([(0, re.sub(r"[01]+", lambda digits: str(int(digits[0], 2)), equation))]))
        return all(each.holds for each in found)
    if (clock := _CLOCK.fullmatch(equation)) and _HOURS.match(behind):
        begins, ends, hours = map(int, clock.groups())
        return max(begins, ends) <= 24 and (ends - begins - hours) % 12 == 0
    if _XOR.fullmatch(equation):
        *operands, result = map(int, re.findall(r"\d+", equation))
        return reduce(operator.xor, operands) == result
    return False


def _agree(a: Fraction, b: Fraction, decimals: int) -> bool:
    """Whether b is a, rounded or truncated to b's decimals."""
    if a == b:
        return True
    if decimals == 0 and a.denominator == 1:
        return False
    if decimals == 0 and b.denominator != 1:  # 1/2 + 1/3 is no 2/5
        return False
    return abs(a - b) < Fraction(1, 10 ** min(decimals, 12))  # 0.30000000000000004 is what a machine prints


def _is_rounded(a: Fraction, b: Fraction, numbers: Sequence[Fraction]) -> bool:
    """Whether b is a, rounded to three or more digits before zeros, as measurements are: a result of whole
    numbers is exact."""
    if b.denominator != 1 or all(each.denominator == 1 for each in numbers):
        return False
    digits = str(abs(b.numerator))
    zeros = len(digits) - len(digits.rstrip("0"))
    return zeros > 0 and len(digits) - zeros >= DIGITS and abs(a - b) * 2 <= 10**zeros


_Side = tuple[Fraction, str, slice, bool, tuple[Fraction, ...], int, str]
"""Value, operations, place, whether a letter is in it, numbers, decimals of the last number, its words."""


def _units_differ(left: _Side, right: _Side) -> bool:
    """Whether units are converted, or a sum adds different things: 2 dimes + 1 nickel = 25 cents."""
    if len(_units(left[6] + right[6])) > 1:
        return True
    nouns = {noun.lower().removesuffix("s") for noun in _NOUN.findall(left[6])}
    return len(nouns) > 1 and not set(left[1]) - {"+", "-"}


def _begins(before: str, line: str) -> bool:
    """Whether an expression may begin after this: nothing, a list mark, or words of a sentence. A mark
    opened there must be closed: *2 + 2 = 4 is incomplete."""
    before = before.rstrip("$€£")
    if _MARK.fullmatch(before):
        return True
    if line.count("(") > line.count(")") and "(" in before:
        return False
    if "*" in before and not (before.strip() and line.rstrip(" .!")[-1:] == "*"):
        return False
    if before.strip(" ($€£\"'*") and not _WORDS.search(before):
        return False
    segment = _RESETS.split(before)[-1]
    if not segment.strip(" ($€£\"'*"):
        return True
    word = _LAST_WORD.search(segment)
    if word is None or segment[-1] not in " (" or (len(word[0]) == 1 and word[0] not in "aI"):
        return False
    if "\\" in segment or _OPERATION.search(segment) or _computes(segment, _MATHS):
        return False
    clause = segment if word[0].lower() in _JOINS else _CLAUSES.split(segment)[-1]
    return not any(char.isdigit() for char in clause)


def _ended(behind: str, line: str) -> bool:
    """Whether an expression may end before this: at the end, at a pause, or before words of a sentence. A
    mark closed there must have been opened: 2 + 2 = 2) and 2 + 2 = 2* are incomplete."""
    if not _ENDS.match(behind) or (behind[:1] == "*" and line.lstrip()[:1] != "*"):
        return False
    if not _WORDS.search(behind):
        opened = line.lstrip()[:1] == "*"
        if not _CLOSED.fullmatch(behind) or ("*" in behind and not opened):
            return False
    if behind[:1] == ")" and line.count("(") < line.count(")"):
        return False
    clause = _RESETS.split(behind, 1)[0]
    return "\\" not in clause and not _OPERATION.search(clause) and not _computes(clause, _MATHS)


def _computes(words: str, names: frozenset[str]) -> bool:
    """Whether words between or beside numbers are mathematics."""
    return any(word in names for word in _NAMES.findall(words.lower()))


def _units(words: str) -> frozenset[str]:
    """The units of measure and currencies among the words of an expression."""
    found: list[str] = _NAMES.findall(words)
    return frozenset(
        CANONICAL.get(word, word) for word in found if word in "$€£" or word in _COINS or is_unit(word)
    )


def _read(
    tokens: Sequence[re.Match[str]], known: Mapping[str, Fraction], *, last: bool, whole: bool
) -> _Side | None:
    """The longest expression at the end (`last`) or beginning of the text between two equals signs."""
    kept: list[tuple[str, str, re.Match[str]]] = []  # kind: number, sign, word; text
    for token in tokens:
        text = token.group()
        kind = token.lastgroup or "other"
        if kind == "sign":
            text = _SIGNS.get(text, text)
        if text in "$€£":
            continue
        if kind == "word" and text in known:
            kind = "letter"
        elif kind in ("other", "unknown") or (kind == "number" and len(text) > LONGEST):
            kind = "end"
        kept.append((kind, text, token))
    chosen = _suffix(kept) if last else _prefix(kept)
    while chosen and chosen[-1][1] in "+-*/^(" and not last:
        chosen.pop()
    if not chosen:
        return None
    ended = any(kind == "end" for kind, _, _ in kept)  # what is between two signs may be two expressions
    if whole and not ended and len(chosen) < sum(kind in ("number", "sign", "letter") for kind, _, _ in kept):
        return None
    place = slice(chosen[0][2].start(), chosen[-1][2].end())
    line = chosen[0][2].string
    before, behind = line[tokens[0].start() : place.start], line[place.stop : tokens[-1].end()]
    between = line[place]
    if _computes(between, _BETWEEN) or not (_begins(before, line) if last else _ended(behind, line)):
        return None
    words = f"{before[-1:]} {between} {behind if last else behind[:UNIT]}"
    items = [(kind, text) for kind, text, _ in chosen]
    found = _Reader(items, known).result()
    if found is None:
        return None
    texts = [text for kind, text in items if kind == "number"]
    decimals = len(texts[-1].partition(".")[2]) if texts else 0
    signs = "".join(text for kind, text in items if kind == "sign" and text in "+-*/^")
    letters = any(kind == "letter" for kind, _ in items)
    return found, signs, place, letters, tuple(value(text) for text in texts), decimals, words


_Kept = tuple[str, str, re.Match[str]]


def _suffix(kept: Sequence[_Kept]) -> list[_Kept]:
    """From the end: operands, each perhaps with a unit of up to three words behind it, and signs between."""
    found: list[_Kept] = []
    place, operand, skipped, depth = len(kept) - 1, True, 0, 0
    while place >= 0:
        kind, text, token = kept[place]
        adjacent = place + 1 < len(kept) and kept[place + 1][2].start() == token.end()
        if operand:
            if kind in ("number", "letter"):
                if (
                    kind == "number"
                    and adjacent
                    and kept[place + 1][0] == "word"
                    and len(kept[place + 1][1]) == 1
                ):
                    return []  # 2x: a letter without a value
                found.append(kept[place])
                operand = False
            elif text in (")", "%"):
                found.append(kept[place])
                depth += text == ")"
            elif kind == "word" and skipped < 3 and len(text) > 1:
                skipped += 1
            else:
                break
            if kind != "word":
                skipped = 0
        elif kind == "sign" and text in "+-*/^":
            found.append(kept[place])
            operand = True
        elif text == "(" and depth:
            found.append(kept[place])
            depth -= 1
        elif kind in ("number", "letter") and found and found[-1][0] == "letter" and adjacent:
            found.append(kept[place])  # 9x
        else:
            break
        place -= 1
    while found and (found[-1][1] in "+*/^)" or (operand and found[-1][1] == "-")):
        if found[-1][1] == ")":
            return []
        if found[-1][1] == "-" and len(found) > 1 and _is_unary(kept, place + 1, found[-2][2]):
            break
        found.pop()
    return found[::-1] if depth == 0 else []


def _is_unary(kept: Sequence[_Kept], place: int, operand: re.Match[str]) -> bool:
    """Whether the minus belongs to the number right after it: -3^2, not a list mark."""
    minus = kept[place][2]
    apart = minus.start() == 0 or minus.string[minus.start() - 1] in " (\t"
    return apart and minus.end() == operand.start() and (place == 0 or kept[place - 1][0] in ("word", "end"))


def _prefix(kept: Sequence[_Kept]) -> list[_Kept]:
    found: list[_Kept] = []
    operand, skipped, depth = True, 0, 0
    for place, (kind, text, token) in enumerate(kept):
        adjacent = place > 0 and kept[place - 1][2].end() == token.start()
        if operand:
            if kind in ("number", "letter"):
                operand = False
            elif text == "(" or (text == "-" and (not found or found[-1][1] == "(")):
                depth += text == "("
            else:
                break
            found.append(kept[place])
            skipped = 0
        elif kind == "sign" and text in "+-*/^":
            found.append(kept[place])
            operand = True
        elif text == "%" or (text == ")" and depth):
            depth -= text == ")"
            found.append(kept[place])
        elif kind == "letter" and adjacent and found[-1][0] == "number":
            found.append(kept[place])
        elif kind == "word" and adjacent and found[-1][0] == "number" and len(text) == 1:
            return []  # 2x
        elif kind == "word" and skipped < 3 and len(text) > 1:
            skipped += 1
        else:
            break
    while found and found[-1][0] == "sign" and found[-1][1] in "+-*/^(":
        found.pop()
    return found if depth == 0 else []


class _Reader:
    """Sums, products, powers and brackets, exactly."""

    def __init__(self, items: Sequence[tuple[str, str]], known: Mapping[str, Fraction]) -> None:
        self._items, self._known, self._place = items, known, 0

    def result(self) -> Fraction | None:
        try:
            found = self._sum()
        except (ArithmeticError, ValueError, IndexError, RecursionError):
            return None
        return found if self._place == len(self._items) else None

    def _next(self) -> str:
        return self._items[self._place][1] if self._place < len(self._items) else ""

    def _sum(self) -> Fraction:
        total = self._product()
        while (sign := self._next()) in ("+", "-"):
            self._place += 1
            part = self._product()
            total = total + part if sign == "+" else total - part
        return total

    def _is_letter(self) -> bool:
        return self._place < len(self._items) and self._items[self._place][0] == "letter"

    def _product(self) -> Fraction:
        total, divided = self._power(), False
        while True:
            sign = self._next()
            if sign in ("*", "/"):
                self._place += 1
                part = self._power()
                total = total * part if sign == "*" else total / part
                divided |= sign == "/"
            elif divided and (sign == "(" or self._is_letter()):
                raise ValueError  # 8 / 2(2 + 2) is read differently by different people
            elif sign == "(" or self._is_letter():
                total *= self._power()
            else:
                return total

    def _power(self) -> Fraction:
        if self._next() == "-":  # -3^2 is -(3^2)
            self._place += 1
            return -self._power()
        base = self._one()
        if self._next() == "^":
            self._place += 1
            exponent = self._one()
            if exponent.denominator != 1 or abs(exponent) > 64 or base.numerator.bit_length() > 64:
                raise ValueError
            base **= int(exponent)
        return base

    def _one(self) -> Fraction:
        kind, text = self._items[self._place]
        self._place += 1
        if text == "-":
            return -self._one()
        if text == "(":
            inner = self._sum()
            if self._next() != ")":
                raise ValueError
            self._place += 1
            found = inner
        elif kind == "letter":
            found = self._known[text]
        elif kind == "number":
            found = value(text)
        else:
            raise ValueError
        if self._next() == "%":
            self._place += 1
            found /= 100
        return found
