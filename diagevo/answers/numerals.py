r"""Numbers that are not written in plain decimal digits: repeating decimals, hexadecimal, words."""

from __future__ import annotations

import re

_MARKED = re.compile(
    r"(?<!\d)(?P<whole>\d*+)\.(?P<fixed>\d*+)\s*+(?:"
    r"\\dot\s*+\{?\s*+(?P<first>\d)\s*+\}?(?:(?P<between>\d*+)\\dot\s*+\{?\s*+(?P<last>\d)\s*+\}?)?"
    r"|\\(?:overline|bar)\s*+\{?\s*+(?P<barred>\d++)\s*+\}?"
    r"|\((?P<bracketed>\d++)\)(?![\w(^!]))"
)
_ENDLESS = re.compile(r"(?<![\d.])(?P<whole>\d*+)\.(?P<digits>\d++)\s*+(?:\.{3}|…|\\[lc]?dots(?![A-Za-z]))")
_BASED = re.compile(r"(?<![\w.])0(?:[xX][0-9A-Fa-f]++|[bB][01]++|[oO][0-7]++)(?![\w.])")
_DECIMAL_COMMA = re.compile(r"(?<![\d.,])(?P<whole>\d++|\d{1,3}(?:[. ]\d{3})++),(?P<part>\d++)(?![\d.,])")
_PARTED = re.compile("[. ]")
_GROUPED = re.compile(r"(?<![\w,.'])\d{1,3}(?:(?:_\d{3})++|(?:'\d{3})++)(?![\w'])")

_ONES = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen
sixteen seventeen eighteen nineteen"""
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_SMALL = {name: value for value, name in enumerate(_ONES.split())} | {
    name: 10 * value for value, name in enumerate(_TENS.split(), 2)
}
_LARGE = {"dozen": 12, "thousand": 1000, "lakh": 10**5, "million": 10**6, "crore": 10**7, "billion": 10**9,
          "trillion": 10**12}  # fmt: skip
_PARTS = {"half": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7, "eighth": 8,
          "ninth": 9, "tenth": 10}  # fmt: skip
_PARTS |= {"halves": 2} | {f"{name}s": value for name, value in _PARTS.items()}
_GAPS = re.compile(r"[\s-]++")
_NUMBER_WORDS = re.compile(r"[A-Za-z\s-]{3,150}")


def _repeating(whole: str, fixed: str, cycle: str) -> str:
    """0.1 and the cycle 6 as the fraction 15/90."""
    value = int((whole + fixed + cycle) or 0) - int((whole + fixed) or 0)
    return f"\\frac{{{value}}}{{{'9' * len(cycle) + '0' * len(fixed)}}}"


def _marked(match: re.Match[str]) -> str:
    cycle = match["barred"] or match["bracketed"]
    if cycle is None:
        cycle = match["first"] + (match["between"] or "") + (match["last"] or "")
    return _repeating(match["whole"], match["fixed"], cycle)


def _endless(match: re.Match[str]) -> str:
    """0.1666… where the last digits repeat; what does not repeat is not known to its end."""
    digits = match["digits"]
    best = max(range(1, min(len(digits) // 2, 20) + 1), key=lambda n: (_periodic(digits, n), -n), default=0)
    covered = _periodic(digits, best) if best else 0
    if covered < 2 * best or not best:
        return f"{match['whole']}.{digits}\\dots "
    start = len(digits) - covered
    return _repeating(match["whole"], digits[:start], digits[start : start + best])


def _periodic(digits: str, length: int) -> int:
    """How many digits at the end repeat with this length."""
    covered = length
    while covered < len(digits) and digits[-covered - 1] == digits[length - covered - 1]:
        covered += 1
    return covered


def plain_numbers(text: str) -> str:
    r"""0.\dot{3}, 0.(3), 0.333…, 0x1F, 0b101, 9_500 as fractions and decimal digits."""
    text = _ENDLESS.sub(_endless, text)
    text = _MARKED.sub(_marked, text)
    text = _BASED.sub(lambda match: str(int(match[0], 0)), text)
    return _GROUPED.sub(lambda match: match[0].replace("_", "").replace("'", ""), text)


def with_decimal_comma(text: str) -> str | None:
    """A text with its one comma as a decimal point: 3,14 and 1.234,56, but not 1,234 and (1,2)."""
    commas = text.count(",")
    found = _DECIMAL_COMMA.search(text) if commas == 1 else None
    if found is None or any(bracket in text for bracket in ("(", "[", "\\{")):
        return None
    whole, part = found["whole"], found["part"]
    if whole.isdigit() and len(part) == 3 and len(whole) < 4 and whole[0] != "0":
        return None
    return f"{text[: found.start()]}{_PARTED.sub('', whole)}.{part}{text[found.end() :]}"


def number_words(text: str) -> str | None:
    """`twenty-five`, `a hundred and five`, `two thirds`, `half a dozen` in digits; None for other texts."""
    if not _NUMBER_WORDS.fullmatch(text):
        return None
    words = [word for word in _GAPS.split(text.strip().lower()) if word != "and"]
    sign = "-" if words and words[0] in ("minus", "negative") else ""
    words = words[1:] if sign else words
    parts = [word for word in words if word in _PARTS]
    if len(parts) == 1:
        top, bottom = words[: words.index(parts[0])], words[words.index(parts[0]) + 1 :]
        over = _PARTS[parts[0]]
        if top[-1:] == ["a"]:  # one and a half
            value = over * (_whole(top[:-1]) or 0) + 1 if len(top) == 1 or _whole(top[:-1]) else None
        else:
            value = _whole(top) if top else 1
        times = _whole(bottom) if bottom else 1
        return None if value is None or times is None else f"{sign}{value * times}/{over}"
    value = _whole(words)
    return None if value is None else f"{sign}{value}"


def _whole(words: list[str]) -> int | None:
    total = current = 0
    room = 10**15
    """What the next word must stay below: "one two" is no number."""
    if not words:
        return None
    for i, word in enumerate(words):
        if word in ("a", "an") and i == 0:
            current, room = 1, 0
        elif word in _SMALL:
            value = _SMALL[word]
            if value >= room or (value == 0 and len(words) > 1):
                return None
            current += value
            room = 10 if value >= 20 else 0
        elif word == "hundred" and 0 < current < 100:
            current, room = current * 100, 100
        elif word in _LARGE and current:
            total, current, room = total + current * _LARGE[word], 0, 1000
        else:
            return None
    return None if words[-1] in ("a", "an") else total + current
