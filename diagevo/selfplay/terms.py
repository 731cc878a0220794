r"""Reads closed and simple symbolic terms without a computer-algebra system.

`parse` turns normalised LaTeX or plain notation into a small tree, or None for anything it does not know for
certain: then the term belongs to math-verify. `exact` gives a rational value; `compare` tests two terms at fixed
sample points: terms that differ at one point differ, and terms that agree at all of them are the same.
"""

from __future__ import annotations

import cmath
import hashlib
import math
import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import Any

Term = tuple[Any, ...]

MAX_CHARACTERS = 400
MAX_DEPTH = 40
MAX_BITS = 20_000
MAX_FACTORIAL = 400

_GREEK = frozenset(
    "alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta kappa lambda mu nu xi rho sigma tau phi varphi chi"
    " psi omega Gamma Delta Theta Lambda Xi Sigma Phi Psi Omega".split()
)
_FUNCTIONS = frozenset("sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh exp ln".split())
_PLAIN = re.compile(
    r"(?<![A-Za-z\\])(arcsin|arccos|arctan|sqrt|sin|cos|tan|cot|sec|csc|ln|exp|pi|infty|infinity|inf)(?![A-Za-z])"
)
_TOKEN = re.compile(
    r"(?P<gap>\s+)|(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)|\\(?P<command>[A-Za-z]+)|(?P<sign>\*\*|.)",
    re.DOTALL,
)
_INFINITIES = frozenset({"\\infty", "-\\infty", "+\\infty"})
_FUNCTION_LETTERS = frozenset("fghFGHP")


class _Unknown(Exception):
    """Not in the small language of this module."""


class _Reader:
    """Recursive descent over the tokens of one term."""

    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, str, bool]] = []
        gap = False
        for match in _TOKEN.finditer(_PLAIN.sub(lambda m: f"\\{m[1]} ", text)):
            kind = match.lastgroup or ""
            if kind == "gap":
                gap = True
                continue
            self.tokens.append((kind, match[kind], gap))
            gap = False
        self.at = 0
        self.depth = 0

    def peek(self, offset: int = 0) -> tuple[str, str, bool]:
        return self.tokens[self.at + offset] if self.at + offset < len(self.tokens) else ("end", "", False)

    def take(self) -> tuple[str, str, bool]:
        token = self.peek()
        self.at += 1
        return token

    def is_sign(self, signs: str, offset: int = 0) -> bool:
        kind, value, _ = self.peek(offset)
        return kind == "sign" and value in signs

    def expect(self, sign: str) -> None:
        if not self.is_sign(sign):
            raise _Unknown
        self.at += 1

    def whole(self) -> Term:
        term = self.sum()
        if self.at != len(self.tokens):
            raise _Unknown
        return term

    def sum(self) -> Term:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _Unknown
        term = self.signed()
        while self.is_sign("+-"):
            minus = self.take()[1] == "-"
            right = self.product()
            term = ("+", term, ("-", right) if minus else right)
        self.depth -= 1
        return term

    def signed(self) -> Term:
        minus = False
        while self.is_sign("+-"):
            minus ^= self.take()[1] == "-"
        term = self.product()
        return ("-", term) if minus else term

    def product(self) -> Term:
        term = self.power()
        divided = False
        while True:
            kind, value, _ = self.peek()
            if (kind == "sign" and value == "*") or (kind == "command" and value in ("cdot", "times")):
                self.take()
                term = ("*", term, self.unary())
            elif kind == "sign" and value == "/":
                self.take()
                term = ("/", term, self.unary())
                divided = True
            elif self.starts_factor():
                if divided or kind == "number":
                    raise _Unknown  # 1/2x and x 2 are read differently by different people
                term = ("*", term, self.power())
            else:
                return term

    def unary(self) -> Term:
        if self.is_sign("-"):
            self.take()
            return ("-", self.power())
        return self.power()

    def starts_factor(self) -> bool:
        kind, value, _ = self.peek()
        if kind == "command":
            return value in _GREEK or value in _FUNCTIONS or value in ("frac", "sqrt", "pi", "binom")
        return kind == "number" or (
            kind == "sign" and (value in "({" or (value.isalpha() and value.isascii()))
        )

    def power(self) -> Term:
        term = self.primary()
        while True:
            if self.is_sign("!"):
                self.take()
                term = ("!", term)
            elif self.is_sign("^") or (self.peek()[0] == "sign" and self.peek()[1] == "**"):
                self.take()
                term = ("^", term, self.exponent())
                if self.is_sign("^"):
                    raise _Unknown
            elif self.is_sign("_"):
                raise _Unknown
            else:
                return term

    def exponent(self) -> Term:
        if self.is_sign("-"):
            self.take()
            return ("-", self.primary())
        return self.primary()

    def group(self) -> Term:
        """`{…}` after a command, or a single digit or letter."""
        if self.is_sign("{"):
            return self.primary()
        kind, value, _ = self.take()
        if kind == "number" and len(value) == 1:
            return ("n", Fraction(value))
        if kind == "sign" and value.isalpha():
            return _name(value)
        raise _Unknown

    def primary(self) -> Term:
        kind, value, _ = self.take()
        if kind == "number":
            return self.number(value)
        if kind == "sign":
            if value in "({":
                term = self.sum()
                self.expect(")" if value == "(" else "}")
                return term
            if value == "|":
                term = self.sum()
                self.expect("|")
                return ("abs", term)
            if value.isalpha() and value.isascii():
                if value in _FUNCTION_LETTERS and self.is_sign("("):
                    raise _Unknown  # f(x) is no product
                return self.symbol(value)
        if kind == "command":
            return self.command(value)
        raise _Unknown

    def number(self, text: str) -> Term:
        """A literal, or a mixed number: 1\\frac{1}{2}, 1 1/2."""
        whole = ("n", Fraction(text))
        if not text.isdigit():
            return whole
        if self.peek()[:2] == ("command", "frac"):
            mark = self.at
            self.take()
            top, bottom = self.group(), self.group()
            if top[0] == bottom[0] == "n" and 0 < top[1] < bottom[1] and not self.is_sign("^"):
                return ("+", whole, ("/", top, bottom))
            self.at = mark
        following = [self.peek(i) for i in range(3)]
        if (
            following[0][0] == following[2][0] == "number"
            and following[0][2]
            and following[1][:2] == ("sign", "/")
        ):
            top, bottom = following[0][1], following[2][1]
            if top.isdigit() and bottom.isdigit() and 0 < int(top) < int(bottom):
                self.at += 3
                return ("+", whole, ("/", ("n", Fraction(top)), ("n", Fraction(bottom))))
        return whole

    def symbol(self, name: str) -> Term:
        if self.is_sign("_"):
            self.take()
            name += "_" + self.subscript()
        while self.is_sign("'"):
            self.take()
            name += "'"
        return _name(name)

    def subscript(self) -> str:
        kind, value, _ = self.take()
        if not (kind == "sign" and value == "{"):
            return value
        parts = []
        while not self.is_sign("}"):
            kind, value, _ = self.take()
            if kind == "end" or value == "{":
                raise _Unknown
            parts.append(value)
        self.take()
        return "".join(parts)

    def command(self, name: str) -> Term:
        if name == "frac":
            return ("/", self.group(), self.group())
        if name == "binom":
            return ("binom", self.group(), self.group())
        if name == "pi":
            return ("pi",)
        if name in _GREEK:
            return self.symbol("\\" + name)
        if name == "sqrt":
            root: Term = ("n", Fraction(2))
            if self.is_sign("["):
                self.take()
                root = self.sum()
                self.expect("]")
            radicand = self.primary() if self.is_sign("({") else self.group()
            return ("root", radicand, root)
        if name in _FUNCTIONS:
            return self.function(name)
        raise _Unknown

    def function(self, name: str) -> Term:
        power = None
        if self.is_sign("^"):
            self.take()
            power = self.exponent()
            if power[0] == "-":
                raise _Unknown  # \sin^{-1} is an inverse for some and a reciprocal for others
        if self.is_sign("({"):
            argument = self.primary()
        else:
            argument = self.power()
            while self.starts_factor() and not (self.peek()[0] == "command" and self.peek()[1] in _FUNCTIONS):
                if self.is_sign("("):
                    raise _Unknown
                argument = ("*", argument, self.power())
        term: Term = (name, argument)
        return term if power is None else ("^", term, power)


def _name(name: str) -> Term:
    return {"e": ("e",), "i": ("i",)}.get(name, ("s", name))


@lru_cache(maxsize=65_536)
def parse(text: str) -> Term | None:
    """The tree of a term, or None where this module does not know it for certain."""
    if not text or len(text) > MAX_CHARACTERS:
        return None
    try:
        return _Reader(text).whole()
    except _Unknown:
        return None


def closed(text: str) -> bool:
    """Whether a text is a known term without unknowns, or an infinity: a value, or the end of an interval."""
    term = parse(text)
    return text in _INFINITIES or (term is not None and not any(True for _ in symbols(term)))


def symbols(term: Term) -> Iterator[str]:
    """Names of the unknowns in a term, repeats included."""
    if term[0] == "s":
        yield term[1]
    else:
        for part in term[1:]:
            if isinstance(part, tuple):
                yield from symbols(part)


def exact(term: Term) -> Fraction | None:
    """The rational value of a term; None where it has none that is found by arithmetic of modest size."""
    try:
        return _exact(term)
    except (_Unknown, ZeroDivisionError):
        return None


def _exact(term: Term) -> Fraction:
    kind = term[0]
    if kind == "n":
        return term[1]
    if kind == "-":
        return -_exact(term[1])
    if kind == "abs":
        return abs(_exact(term[1]))
    if kind in "+*/^" or kind == "root":
        left, right = _exact(term[1]), _exact(term[2])
        if kind == "+":
            return left + right
        if kind == "*":
            return left * right
        if kind == "/":
            return left / right
        if kind == "root":
            return _root(left, right)
        size = max(left.numerator.bit_length(), left.denominator.bit_length())
        if right.denominator == 1 and abs(right) * size <= MAX_BITS:
            return left ** int(right)
    if kind == "!":
        value = _exact(term[1])
        if value.denominator == 1 and 0 <= value <= MAX_FACTORIAL:
            return Fraction(math.factorial(int(value)))
    if kind == "binom":
        top, bottom = _exact(term[1]), _exact(term[2])
        if top.denominator == bottom.denominator == 1 and 0 <= bottom and 0 <= top <= MAX_FACTORIAL:
            return Fraction(math.comb(int(top), int(bottom)))
    raise _Unknown


def _root(value: Fraction, degree: Fraction) -> Fraction:
    """The square root of a rational square."""
    if degree == 2 and value >= 0:
        top, bottom = math.isqrt(value.numerator), math.isqrt(value.denominator)
        if top * top == value.numerator and bottom * bottom == value.denominator:
            return Fraction(top, bottom)
    raise _Unknown


def _gamma(value: complex) -> complex:
    if abs(value.imag) > 1e-12 or abs(value.real) > 100:
        raise _Unknown
    return math.gamma(value.real + 1)


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
    "csc": lambda z: 1 / cmath.sin(z),
}  # fmt: skip


def _at(term: Term, point: Mapping[str, float]) -> complex:
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
    if kind == "binom":
        return _gamma(first) / (_gamma(second) * _gamma(first - second))
    if abs(second) > 5000:
        raise _Unknown
    return first**second


def value_at(term: Term, point: Mapping[str, float]) -> complex | None:
    """Floating-point value at a point, principal branches; None where it has none."""
    try:
        value = _at(term, point)
    except (_Unknown, ArithmeticError, ValueError):
        return None
    return value if cmath.isfinite(value) else None


@lru_cache(maxsize=4096)
def _coordinate(name: str, point: int) -> float:
    digest = hashlib.sha256(f"{name} {point}".encode()).digest()
    share = int.from_bytes(digest[:6], "big") / 2**48
    return 0.35 + 2.3 * share


POSITIVE_POINTS = 4
NEGATIVE_POINTS = 3


def same_value(a: Term, b: Term) -> bool | None:
    """Whether two terms are equal wherever both have a value; None where sampling does not settle it.

    A difference at a point where every unknown is positive settles it. Agreement settles it only if it holds at
    positive and at mixed points. Values closer than rounding can tell apart settle nothing.
    """
    names = sorted({*symbols(a), *symbols(b)})
    agreed = 0
    for number in range(POSITIVE_POINTS + NEGATIVE_POINTS if names else 1):
        mixed = number >= POSITIVE_POINTS
        point = {
            name: _coordinate(name, number) * (-1 if mixed and (number + i) % 2 == 0 else 1)
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
            return False if settled else None
        agreed += 1
    if agreed == 0:
        return None
    return True if agreed >= (5 if names else 1) else None
