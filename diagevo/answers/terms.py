r"""Closed and simple symbolic terms, without a computer-algebra system: read, and what they are worth.

`parse` turns normalised LaTeX or plain notation into a small tree, or None for anything it does not know for
certain: then the term belongs to math-verify. Its worth is an exact rational, or floating-point values at
fixed points: terms that differ at one sample point differ, terms that agree at all of them are taken to be
the same. Arithmetic is of modest size, so that no answer costs more than its length suggests.
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

from diagevo.answers.notation import remembered, squeezed

Term = tuple[Any, ...]

MAX_CHARACTERS = 400
MAX_DEPTH = 40

_GREEK_NAMES = """\
alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho sigma tau
upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Sigma Upsilon Phi Psi Omega hbar ell
"""
_GREEK = frozenset(_GREEK_NAMES.split())
"""Commands that are a letter."""
_ACCENTS = frozenset(("vec", "hat", "bar", "tilde", "dot", "ddot", "mathcal"))
_CLOSED = {"lfloor": "rfloor", "lceil": "rceil"}
_TOKEN = re.compile(
    r"(?P<gap>\s++)|(?P<number>(?:\d++(?:\.\d*+)?|\.\d++)(?:[eE][-+]?\d{1,3}(?!\d))?)|\\(?P<command>[A-Za-z]++)|(?P<sign>\*\*|.)",
    re.DOTALL,
)
LOG_BASE = "\\log"
"""Name of the unknown base of a logarithm that is written without one: 10 for some, e for others."""
_FUNCTION_LETTERS = frozenset("fghFGHP")


class _Unknown(Exception):
    """Not in the small language of this module."""


class _Reader:
    """Recursive descent over the tokens of one term."""

    def __init__(self, text: str) -> None:
        if " mod " in text:
            raise _Unknown  # no product of letters
        self.tokens: list[tuple[str, str, bool]] = []
        gap = False
        for match in _TOKEN.finditer(text):
            kind = match.lastgroup or ""
            if kind == "gap":
                gap = True
                continue
            self.tokens.append((kind, match[kind], gap))
            gap = False
        self.at = 0
        self.depth = 0
        self.taken = 0
        self.argument = -1
        """Where the braces of the last argument or power end: a digit behind them is a factor."""

    def peek(self, offset: int = 0) -> tuple[str, str, bool]:
        return self.tokens[self.at + offset] if self.at + offset < len(self.tokens) else ("end", "", False)

    def take(self) -> tuple[str, str, bool]:
        token = self.peek()
        self.at += 1
        self.taken += 1
        if self.taken > len(self.tokens) + 1:
            raise _Unknown  # every token is taken once, whatever the rules below do
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
        term = self.signed()
        while self.is_sign("+-"):
            minus = self.take()[1] == "-"
            right = self.product()
            term = ("+", term, ("-", right) if minus else right)
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
                term = _crossed(term, self.unary()) if value == "times" else ("*", term, self.unary())
            elif kind == "sign" and value == "/":
                self.take()
                term = ("/", term, self.unary())
                divided = True
            elif self.starts_factor():
                digits = self.tokens[self.at - 1][0] == self.peek(1)[0] == "number"
                if divided or (kind == "number" and self.argument != self.at) or (value == "{" and digits):
                    raise _Unknown  # 1/2x, x 2 and 3{4} are read differently by different people
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
            known = value in _GREEK or value in _ACCENTS or value in _CALLS or value in _CLOSED
            return known or value in ("frac", "sqrt", "pi", "binom", "log", "lg")
        return kind == "number" or (
            kind == "sign" and (value in "({" or (value.isalpha() and value.isascii()))
        )

    def power(self) -> Term:
        term = self.primary()
        while True:
            if self.is_sign("!"):
                self.take()
                kind = "!!" if self.is_sign("!") else "!"
                if kind == "!!":
                    self.take()
                if term[0] in ("!", "!!") or self.is_sign("!"):
                    raise _Unknown
                term = (kind, term)
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
        return self.group() if self.is_sign("{") else self.primary()

    def group(self) -> Term:
        """`{…}` after a command, or a single digit or letter."""
        if self.is_sign("{"):
            inside = self.primary()
            self.argument = self.at
            return inside
        kind, value, _ = self.take()
        if kind == "number":
            return ("n", Fraction(value))
        if kind == "sign" and value.isalpha():
            return _name(value)
        raise _Unknown

    def primary(self) -> Term:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _Unknown
        term = self._primary()
        self.depth -= 1
        return term

    def _primary(self) -> Term:
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
            top, behind = self.plain_group(1)
            bottom, behind = self.plain_group(behind)
            if top is not None and bottom is not None and 0 < top < bottom and not self.is_sign("^", behind):
                self.at += behind
                return ("+", whole, ("/", ("n", top), ("n", bottom)))
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

    def plain_group(self, offset: int) -> tuple[Fraction | None, int]:
        """The number in a `{…}` that holds nothing else, and the offset behind it."""
        braced = self.is_sign("{", offset)
        kind, value, _ = self.peek(offset + braced)
        if kind != "number" or (braced and not self.is_sign("}", offset + 2)):
            return None, offset
        return Fraction(value), offset + (3 if braced else 1)

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
        self.argument = self.at
        return "".join(parts)

    def command(self, name: str) -> Term:
        if name == "frac":
            return ("/", self.group(), self.group())
        if name == "binom":
            return ("binom", self.group(), self.group())
        if name == "pi":
            return ("pi",)
        if name in _ACCENTS:
            return self.accented(name)
        if name in _CLOSED:
            inside = self.sum()
            if self.take()[:2] != ("command", _CLOSED[name]):
                raise _Unknown
            return (name[1:], inside)
        if name in _CHOSEN:
            return self.of_many(name)
        if name in _GREEK:
            return self.symbol("\\" + name)
        if name == "sqrt":
            root: Term = ("n", Fraction(2))
            if self.is_sign("["):
                self.take()
                root = self.sum()
                self.expect("]")
            radicand = self.primary() if self.is_sign("(") else self.group()
            return ("root", radicand, root)
        if name in ("log", "lg"):
            base = _name(LOG_BASE) if name == "log" else ("n", Fraction(10))
            if name == "log" and self.is_sign("_"):
                self.take()
                base = self.group()
            return ("/", self.function("ln"), ("ln", base))
        if name in _CALLS:
            return self.function(name)
        raise _Unknown

    def accented(self, name: str) -> Term:
        r"""`\vec{v}` and `\dot\theta`: a letter of its own."""
        braced = self.is_sign("{")
        if braced:
            self.take()
        kind, value, _ = self.take()
        if braced:
            self.expect("}")
        if not (value in _GREEK if kind == "command" else value.isalpha()):
            raise _Unknown
        return self.symbol(f"\\{name} {value}")

    def of_many(self, name: str) -> Term:
        r"""`\gcd(12, 18, 27)`."""
        self.expect("(")
        term = self.sum()
        while self.is_sign(","):
            self.take()
            term = (name, term, self.sum())
        self.expect(")")
        if term[0] != name:
            raise _Unknown
        return term

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
            while self.starts_factor() and not (self.peek()[0] == "command" and self.peek()[1] in _CALLS):
                if self.is_sign("("):
                    raise _Unknown
                argument = ("*", argument, self.power())
        term: Term = (name, argument)
        return term if power is None else ("^", term, power)


def _crossed(left: Term, right: Term) -> Term:
    """A product; that of two vectors does not commute, so it is an unknown of its own."""
    *rest, last = left if left[0] == "*" else [left]
    if all(term[0] == "s" and term[1].startswith("\\vec") for term in (last, right)):
        crossed = ("s", f"{last[1]} \\times {right[1]}")
        return (*rest, crossed) if rest else crossed
    return ("*", left, right)


def _name(name: str) -> Term:
    return {"e": ("e",), "i": ("i",)}.get(name, ("s", name))


@remembered
def parse(text: str) -> Term | None:
    """The tree of a term, or None where this module does not know it for certain."""
    if not text or len(text) > MAX_CHARACTERS:
        return None
    try:
        return _Reader(text).whole()
    except _Unknown:
        return None


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


def undefined(term: Term) -> bool:
    """Whether a value is divided by zero within a term."""
    try:
        _exact(term)
    except ZeroDivisionError:
        return True
    except _NoValue:
        return False
    return False


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
