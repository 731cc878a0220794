"""What terms are worth: exact rationals, floating-point values at fixed points, and equality by both.

Terms that differ at one sample point differ; terms that agree at all of them are taken to be the same.
Arithmetic is of modest size, so that no answer costs more than its length suggests.
"""

from __future__ import annotations

import cmath
import hashlib
import math
import re
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

from diagevo.answers.notation import squeezed
from diagevo.answers.terms import LOG_BASE, Term, parse

MAX_BITS = 20_000
MAX_FACTORIAL = 400

_WHOLE = {"floor": math.floor, "ceil": math.ceil}
_CHOSEN: dict[str, Callable[..., Any]] = {
    "max": max,
    "min": min,
    "gcd": lambda a, b: math.gcd(int(a), int(b)),
    "lcm": lambda a, b: math.lcm(int(a), int(b)),
}
_STEPPED = {*_WHOLE, *_CHOSEN}
"""What samples cannot settle: ⌈x⌉ is ⌊x⌋ + 1 wherever x is no integer."""
_BENT = {"abs", "root"}
"""What may be something else far away: |x + 100| is x + 100 near 0."""
_FAR = (1, 40, 1500)

_WRITTEN = re.compile(r"(?<!\d)\d*+\.(\d++)")

_INFINITIES = {"\\infty": 1, "+\\infty": 1, "-\\infty": -1}


class _NoValue(Exception):
    """Outside of what arithmetic of modest size can give."""


def infinite(text: str) -> int:
    """1 for ∞, -1 for -∞, 0 for anything else."""
    return _INFINITIES.get(squeezed(text), 0)


def closed(text: str) -> bool:
    """Whether a text is a known term without unknowns, or an infinity: a value, or the end of an interval."""
    term = parse(text)
    return infinite(text) != 0 or (term is not None and not symbols(term))


def symbols(term: Term) -> set[str]:
    return _names_and_kinds(term)[0]


def _names_and_kinds(term: Term) -> tuple[set[str], set[str]]:
    """The unknowns of a term, and what kinds of terms are in it."""
    names, kinds = set[str](), set[str]()
    parts = [term]
    while parts:
        part = parts.pop()
        kinds.add(part[0])
        if part[0] == "s":
            names.add(part[1])
        elif part[0] != "n":
            parts += [inner for inner in part[1:] if isinstance(inner, tuple)]
    return names, kinds


def exact(term: Term) -> Fraction | None:
    """The rational value of a term; None where it has none that is found by arithmetic of modest size."""
    try:
        return _exact(term)
    except (_NoValue, ZeroDivisionError):
        return None


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _exact(term: Term) -> Fraction:
    kind = term[0]
    if kind == "n":
        return term[1]
    if kind == "-":
        return -_exact(term[1])
    if kind in _WHOLE or kind == "abs":
        inside = _exact(term[1])
        return Fraction(_WHOLE[kind](inside)) if kind in _WHOLE else abs(inside)
    if kind in _CHOSEN:
        left, right = _exact(term[1]), _exact(term[2])
        if kind in ("max", "min") or left.denominator == right.denominator == 1:
            return Fraction(_CHOSEN[kind](left, right))
        raise _NoValue
    if kind in "+*/^" or kind == "root":
        left, right = _exact(term[1]), _exact(term[2])
        if kind in "+*/":
            value = left + right if kind == "+" else left * right if kind == "*" else left / right
            if _bits(value) <= MAX_BITS:
                return value
            raise _NoValue
        if kind == "root":
            return _root(left, right)
        if right.denominator == 1 and abs(right) * _bits(left) <= MAX_BITS:
            return left ** int(right)
    if kind in ("!", "!!"):
        value = _exact(term[1])
        if value.denominator == 1 and 0 <= value <= MAX_FACTORIAL:
            return Fraction(math.prod(range(int(value), 0, -len(kind))))
    if kind == "binom":
        top, bottom = _exact(term[1]), _exact(term[2])
        if top.denominator == bottom.denominator == 1 and bottom >= 0 and 0 <= top <= MAX_FACTORIAL:
            return Fraction(math.comb(int(top), int(bottom)))
    raise _NoValue


def _root(value: Fraction, degree: Fraction) -> Fraction:
    """The square root of a rational square."""
    if degree == 2 and value >= 0:
        top, bottom = math.isqrt(value.numerator), math.isqrt(value.denominator)
        if top * top == value.numerator and bottom * bottom == value.denominator:
            return Fraction(top, bottom)
    raise _NoValue


def _gamma(value: complex) -> complex:
    if abs(value.imag) > 1e-12 or abs(value.real) > 100:
        raise _NoValue
    return math.gamma(value.real + 1)


def _in_steps(kind: str, value: complex) -> complex:
    """A floor or ceiling; none where rounding may have crossed a step."""
    if abs(value.imag) > 1e-12 or abs(value.real - round(value.real)) < 1e-9 or abs(value.real) > 1e12:
        raise _NoValue
    return complex(_WHOLE[kind](value.real))


def _real_root(value: complex, degree: complex) -> complex:
    """The n-th root as schools have it: real where an odd root of a negative number is asked for."""
    n = round(degree.real)
    if degree == n and n % 2 and value.imag == 0 and value.real < 0:
        return -((-value.real) ** (1 / n))
    return value ** (1 / degree)


_CALLS = {
    "sin": cmath.sin, "cos": cmath.cos, "tan": cmath.tan, "arcsin": cmath.asin, "arccos": cmath.acos,
    "arctan": cmath.atan, "sinh": cmath.sinh, "cosh": cmath.cosh, "tanh": cmath.tanh, "exp": cmath.exp,
    "ln": cmath.log, "cot": lambda z: 1 / cmath.tan(z), "sec": lambda z: 1 / cmath.cos(z),
    "csc": lambda z: 1 / cmath.sin(z), "coth": lambda z: 1 / cmath.tanh(z),
    "sech": lambda z: 1 / cmath.cosh(z), "csch": lambda z: 1 / cmath.sinh(z), "arcsinh": cmath.asinh,
    "arccosh": cmath.acosh, "arctanh": cmath.atanh, "arccot": lambda z: math.pi / 2 - cmath.atan(z),
    "arcsec": lambda z: cmath.acos(1 / z), "arccsc": lambda z: cmath.asin(1 / z),
}  # fmt: skip


def _at(term: Term, point: Mapping[str, complex]) -> complex:
    kind = term[0]
    if kind == "n":
        return complex(term[1].numerator / term[1].denominator)
    if kind == "s":
        return complex(point[term[1]])
    if kind in ("pi", "e", "i"):
        return {"pi": complex(math.pi), "e": complex(math.e), "i": 1j}[kind]
    first = _at(term[1], point)
    if len(term) == 2:
        if kind == "-":
            return 0 - first  # not -first: a negative zero would turn square roots to the other branch
        if kind == "abs":
            return complex(abs(first))
        if kind == "!":
            return _gamma(first)
        if kind == "!!":
            raise _NoValue
        if kind in _WHOLE:
            return _in_steps(kind, first)
        return _CALLS[kind](first)
    second = _at(term[2], point)
    if kind == "+":
        return first + second
    if kind == "*":
        return first * second
    if kind == "/":
        return first / second
    if kind == "root":
        return _real_root(first, second)
    if kind in _CHOSEN:
        if kind in ("gcd", "lcm") or first.imag or second.imag:
            raise _NoValue
        return complex(_CHOSEN[kind](first.real, second.real))
    if kind == "binom":
        return _gamma(first) / (_gamma(second) * _gamma(first - second))
    if abs(second) > 5000:
        raise _NoValue
    return first**second


def value_at(term: Term, point: Mapping[str, complex]) -> complex | None:
    """Floating-point value at a point, principal branches; None where it has none."""
    try:
        value = _at(term, point)
    except (_NoValue, ArithmeticError, ValueError):
        return None
    return value if cmath.isfinite(value) else None


def rounds(value: str, decimal: str) -> bool:
    """Whether a decimal is what a closed term is rounded to, or cut, at its last place."""
    term, shown = parse(value), parse(decimal)
    if term is None or shown is None or symbols(term) or symbols(shown) or shown == term:
        return False
    found, near = value_at(term, {}), value_at(shown, {})
    if found is None or near is None or found == near:
        return False
    written = _WRITTEN.search(decimal)
    if written is None or not float(written[0]):
        return False
    step = abs(near) / float(written[0]) / 10 ** len(written[1])  # what the last place is worth
    return abs(found - near) < step * (1 + 1e-9)


@lru_cache(maxsize=4096)
def _coordinate(name: str, point: int) -> complex:
    digest = hashlib.sha256(f"{name} {point}".encode()).digest()
    share = int.from_bytes(digest[:6], "big") / 2**48
    real = 0.35 + 2.3 * share
    return real * (1 + 0.2j) if name == "z" else real  # |z|² is not z²


POSITIVE_POINTS = 4
NEGATIVE_POINTS = 3


def equal_values(a: Term, b: Term) -> bool | None:
    """Whether two terms are equal wherever both have a value; None where sampling does not settle it.

    A difference at a point where every unknown is positive settles it. Agreement settles it only if it holds
    at positive and at mixed points. Values closer than rounding can tell apart settle nothing.
    """
    (left_names, left_kinds), (right_names, right_kinds) = _names_and_kinds(a), _names_and_kinds(b)
    names, kinds = sorted(left_names | right_names), left_kinds | right_kinds
    bent = not kinds.isdisjoint(_BENT)
    agreed = 0
    for number in range(POSITIVE_POINTS + NEGATIVE_POINTS if names else 1):
        mixed = number >= POSITIVE_POINTS
        point = {
            name: _coordinate(name, number)
            * (-1 if mixed and (number + i) % 2 == 0 else 1)
            * (_FAR[number - POSITIVE_POINTS] if mixed and bent else 1)
            for i, name in enumerate(names)
        }
        left, right = value_at(a, point), value_at(b, point)
        if left is None or right is None:
            continue
        scale = max(abs(left), abs(right))
        difference = abs(left - right)
        if difference > 1e-11 * scale:
            # Near zero a difference may be all rounding: sin π is 1.2e-16 in floating point.
            settled = difference > 1e-6 * scale and scale > 1e-9 and not mixed
            return False if settled and LOG_BASE not in names else None
        agreed += 1
    if agreed == 0:
        return None
    if names and not kinds.isdisjoint(_STEPPED):
        return None
    return True if agreed >= (5 if names else 1) else None
