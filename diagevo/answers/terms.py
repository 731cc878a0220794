r"""Reads closed and simple symbolic terms without a computer-algebra system.

`parse` turns normalised LaTeX or plain notation into a small tree, or None for anything it does not know for
certain: then the term belongs to math-verify. `values` says what the trees are worth.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

from diagevo.answers.cache import remembered

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
_FUNCTIONS_NAMES = """\
sin cos tan cot sec csc arcsin arccos arctan arccot arcsec arccsc sinh cosh tanh coth sech csch arcsinh
arccosh arctanh exp ln
"""
_FUNCTIONS = frozenset(_FUNCTIONS_NAMES.split())
_OF_MANY = frozenset(("gcd", "lcm", "max", "min"))
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
            known = value in _GREEK or value in _ACCENTS or value in _FUNCTIONS or value in _CLOSED
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
        if name in _OF_MANY:
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
        if name in _FUNCTIONS:
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
            while self.starts_factor() and not (self.peek()[0] == "command" and self.peek()[1] in _FUNCTIONS):
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
