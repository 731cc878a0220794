r"""Names of functions, constants and operators in plain letters, as the commands that they are.

`arctan 2`, `alpha/beta`, `abs(-3)`, `(-inf, 3)`, `3 times 4`: read as words they would lose what stands
between them, read as products of letters they would be something else.
"""

from __future__ import annotations

import re

from diagevo.answers.units import is_unit, is_word

_WRITTEN = {
    "abs": "|.|", "floor": r"\lfloor .\rfloor ", "ceil": r"\lceil .\rceil ", "ceiling": r"\lceil .\rceil ",
    "factorial": "(.)!", "sqrt": r"\sqrt{.}", "cbrt": r"\sqrt[3]{.}", "log2": r"\log_2(.)",
    "log10": r"\log_{10}(.)", "asin": r"\arcsin(.)", "acos": r"\arccos(.)", "atan": r"\arctan(.)",
}  # fmt: skip
"""What a call is in LaTeX, its argument a point."""
_OF_TWO = frozenset({"binomial", "binom", "comb", "choose", "nCr", "pow"})
_FUNCTION_NAMES = """arcsin arccos arctan arccot arcsec arccsc arcsinh arccosh arctanh sinh cosh tanh
coth sech csch sin cos tan cot sec csc exp log ln lg sqrt gcd lcm max min det"""
_GREEK_NAMES = """alpha beta gamma delta epsilon zeta eta theta iota kappa lambda rho sigma tau upsilon phi
chi psi omega"""
_CAPITALS = frozenset({"gamma", "delta", "theta", "lambda", "sigma", "upsilon", "phi", "psi", "omega"})
_OPERATORS = {"plus": "+ ", "minus": "- ", "times": r"\cdot ", "multiplied by": r"\cdot ", "divided by": "/ ",
              "over": "/ "}  # fmt: skip
_CONSTANTS = {name: f"\\{name} " for name in [*_GREEK_NAMES.split(), "pi"]}
_CONSTANTS |= {
    name.title(): f"\\{name.title() if name in _CAPITALS else name} " for name in _GREEK_NAMES.split()
}
_CONSTANTS |= {name: f"\\{name} " for name in ("mu", "nu", "xi")}
_CONSTANTS |= dict.fromkeys(("infinity", "Infinity", "infty", "inf"), r"\infty ")
_FUNCTIONS = frozenset(_FUNCTION_NAMES.split())
_PRODUCTS = frozenset({"mu", "nu", "xi"})
"""Names that may be a product of letters."""
_ALSO_UNITS = frozenset({"sec", "min"})
_VALUE_ENDS = tuple("0123456789})")
_LINK_NAMES = "and or by multiplied divided percent mod square root of the squared cubed factorial choose"
_LINKS = frozenset([*_LINK_NAMES.split(), *_OPERATORS])
_REALS = frozenset({"all real numbers", "the set of all real numbers", "all reals", "any real number"})

_COMPUTING_NAMES = """
sum product difference quotient ratio square squared cube cubed root sqrt cbrt log ln exp sin cos tan cot
sec csc arcsin arccos arctan sinh cosh tanh mod modulo gcd lcm min max minimum maximum factorial choose
binomial power plus minus times over divided multiplied multiply divide add adding added subtract
subtracting subtracted less more fewer than negative inverse average mean median absolute abs floor ceil
fraction remainder reciprocal percent quarter quarters third thirds fourth fifth twice thrice double
triple half halves base digits between from under half-way opposite decrease increase"""
COMPUTING = frozenset(_COMPUTING_NAMES.split())
"""Words that compute: a number or an expression beside one is not all there is."""

_CALL = re.compile(
    rf"(?:(?<![A-Za-z\\])|\\(?=abs|floor|ceil))(?P<name>{'|'.join([*_WRITTEN, *_OF_TWO])})\s?[({{]"
)
_GLUED = re.compile(rf"(?<![A-Za-z\\])(?P<name>{'|'.join(sorted(_FUNCTIONS, key=len, reverse=True))})(?=\()")
_BRACKETS = re.compile(r"[(){}\[\],]")
_WORD = re.compile(r"(?<![A-Za-z\\])[A-Za-z]{2,}")
_LONGEST_FIRST = sorted([*_FUNCTIONS, *_CONSTANTS], key=len, reverse=True)
_NAME = re.compile(rf"(?<![A-Za-z\\])(?P<name>{'|'.join(_LONGEST_FIRST)})(?![A-Za-z])")
_SIGNED_INFINITY = re.compile(r"(?<![A-Za-z])(?P<sign>minus|negative|plus|positive)\s++(?=infinity)")
_SIGNED = re.compile(
    r"(?:\A|(?<=[(\[,=]))\s*+(?:(?P<minus>minus|negative)|plus)\s++"
    r"(?=[\d.(]|\\(?:frac|sqrt|pi)|[A-Za-z]\s*+(?:\Z|[-+*/^)\],]))"
)
_TWO_O = re.compile(r"(?<=[-+(,\[ ])oo(?=\s?[,)\]])")
_ROOT_OF = re.compile(r"(?<![A-Za-z])(?:the\s)?square\sroot\sof\s(\d++(?:\.\d++)?|[A-Za-z](?![A-Za-z])|\\pi)")
_BEHIND = {"squared": "^2", "cubed": "^3", "factorial": "!"}
_POWER_OF = re.compile(rf"(?<=[\w)}}])\s({'|'.join(_BEHIND)})(?![A-Za-z])")
_UNION = re.compile(r"(?<=[)\]])\s?U\s?(?=[(\[])")
_CHOSEN_OF = re.compile(r"(?<![\w.])(\d++|[a-zA-Z]) choose (\d++|[a-zA-Z])(?!\w)")
_OPERATOR = re.compile(
    rf"(?<=[\w)}}|!])\s++(?P<name>{'|'.join(_OPERATORS)})\s++(?=[-\d(\\|{{]|[A-Zb-z](?![A-Za-z]))"
)


def names_as_commands(text: str) -> str:
    r"""A text with `abs(x)`, `sin x` and `alpha` as `|x|`, `\sin x` and `\alpha`.

    A name with its argument in brackets is a function wherever it stands. Otherwise names are words where
    other words stand around them: the alpha particle, the max.
    """
    if "U" in text:
        text = _UNION.sub(r" \\cup ", text)
    if _WORD.search(text) is None and "\\" not in text:
        return text
    if text.lower() in _REALS:
        return r"\mathbb{R}"
    text = _SIGNED.sub(lambda match: " -" if match["minus"] else " ", text)
    text = _calls(text)
    text = _GLUED.sub(lambda match: f"\\{match['name']}", text)
    words = _WORD.findall(text)
    if not words or any(
        is_word(word)
        and not (word in _FUNCTIONS or word in _CONSTANTS or word.lower() in _LINKS or is_unit(word))
        and word not in ("positive", "negative")
        for word in words
    ):
        return text
    text = _SIGNED_INFINITY.sub(lambda match: "-" if match["sign"][0] in "mn" else "+", text)
    text = _TWO_O.sub(r"\\infty ", text)
    text = _NAME.sub(_named, text)
    text = _ROOT_OF.sub(r"\\sqrt{\1}", text)
    text = _POWER_OF.sub(lambda match: _BEHIND[match[1]], text)
    text = _CHOSEN_OF.sub(r"\\binom{\1}{\2}", text)
    return _OPERATOR.sub(lambda match: f" {_OPERATORS[match['name']]}", text)


def _named(match: re.Match[str]) -> str:
    name, behind = match["name"], match.string[match.end() : match.end() + 1]
    if name in _CONSTANTS:
        if name in _PRODUCTS and behind != "_":
            return match[0]
        apart = name.lower() in ("pi", "infinity") or not behind.isdigit()
        infimum = name == "inf" and behind in ("_", "{", "(")
        return _CONSTANTS[name] if apart and not infimum else match[0]
    if name in _ALSO_UNITS and behind != "^" and match.string[: match.start()].rstrip()[-1:] in _VALUE_ENDS:
        return match[0]
    return f"\\{name} "


def _calls(text: str) -> str:
    """The calls of functions that LaTeX writes by signs: each bracket is matched once."""
    calls = {match.end() - 1: match for match in _CALL.finditer(text)}
    if not calls:
        return text
    opened: list[tuple[int, list[int]]] = []
    instead: list[tuple[int, int, str]] = []
    for bracket in _BRACKETS.finditer(text):
        at = bracket.start()
        if bracket[0] in "([{":
            opened.append((at, []))
        elif bracket[0] == ",":
            if opened:
                opened[-1][1].append(at)
        elif opened:
            start, commas = opened.pop()
            call = calls.get(start)
            if call is None:
                continue
            name = call["name"]
            if name in _WRITTEN and not commas:
                before, _, after = _WRITTEN[name].partition(".")
                instead += [(call.start(), start + 1, before), (at, at + 1, after)]
            elif name in _OF_TWO and len(commas) == 1:
                before, between = ("(", ")^{") if name == "pow" else ("\\binom{", "}{")
                instead += [
                    (call.start(), start + 1, before),
                    (commas[0], commas[0] + 1, between),
                    (at, at + 1, "}"),
                ]
    pieces: list[str] = []
    at = 0
    for start, end, new in sorted(instead):
        pieces += [text[at:start], new]
        at = end
    return "".join([*pieces, text[at:]])
