"""Exact numbers from text, within bounds: the ten characters 1e99999999 are a fraction of 40 megabytes."""

import re
from fractions import Fraction

LONGEST = 600
"""Maximum characters of a number."""

LARGEST = 10**308
"""The limit of a float: figures and exports have a float with each fraction."""

RECORDED = r"^-?(10{308}|[0-9]{1,308})(/(10{308}|[1-9][0-9]{0,307}))?\Z"
"""A fraction in the log's form: what `fraction` reads, written by Python."""

_NUMBER = re.compile(
    r"[-+]?(?:[0-9]+(?:/0*[1-9][0-9]*)?|(?:[0-9]+\.[0-9]*|\.?[0-9]+)(?:e[-+]?0*(?P<power>[0-9]+))?)",
    re.IGNORECASE | re.ASCII,
)


def fraction(text: str) -> Fraction:
    """The exact number: "0.7" is 7/10, and so is "7/10". Raises ValueError at once if it is not a number,
    or too long or too large."""
    written = _NUMBER.fullmatch(text.strip()) if len(text) <= LONGEST else None
    if written is None or len(written["power"] or "") > 3:
        raise ValueError(f"not a number like 0.7 nor a fraction like 7/10, of at most {LONGEST} characters")
    value = Fraction(text.strip())
    if max(abs(value.numerator), value.denominator) > LARGEST:
        raise ValueError("a number of at most 1e308, and of at most 308 decimal places, is needed")
    return value
