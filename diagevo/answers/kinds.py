"""Texts that look like mathematics and are none: dates, versions, codes, grades, strings of capitals."""

from __future__ import annotations

import re

from diagevo.answers.units import is_word

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
_MATHEMATICS = re.compile(r"[\d=^_\\+*/|<>{}%]")
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
        return f"{first}/{second}/{dated['year']}"  # which of them is the month, nobody knows
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
    if not _MATHEMATICS.search(text):
        return in_small_letters(text)
    tokens = _TOKENS.findall(_PAUSE.sub(" ", _HYPHEN.sub(" ", text)))
    return " ".join(token.casefold() if is_word(token) else token for token in tokens)


def _date(year: str, month: int, day: int) -> str:
    return f"{year}-{month:02}-{day:02}"
