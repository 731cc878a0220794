r"""One spelling for an answer: LaTeX and Unicode variants, spacing, wrappers, currency and percent signs.

Names of functions, constants and operators in plain letters become the commands that they are: `arctan 2`,
`alpha/beta`, `abs(-3)`, `(-inf, 3)`, `3 times 4`. Read as words they would lose what stands between them,
read as products of letters they would be something else.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Callable
from functools import lru_cache
from typing import Generic, TypeVar

from diagevo.answers.quantities import is_unit, is_word, plain_numbers

Result = TypeVar("Result")
BRIEF = 256
"""Maximum characters of a typical answer."""
BRIEF_KEPT = 8192
LONG_KEPT = 128
"""Cached long answers: those of the questions compared concurrently."""


class remembered(Generic[Result]):
    """A function of a text, with its latest results kept: many of brief texts, few of long ones."""

    def __init__(self, work: Callable[[str], Result]) -> None:
        self.__doc__ = work.__doc__
        self.brief, self.long = lru_cache(BRIEF_KEPT)(work), lru_cache(LONG_KEPT)(work)

    def __call__(self, text: str) -> Result:
        return (self.brief if len(text) <= BRIEF else self.long)(text)

    def cache_clear(self) -> None:
        self.brief.cache_clear()
        self.long.cache_clear()


def brief(text: str) -> str:
    """The key of a text: itself, or the digest of a long one."""
    return text if len(text) <= BRIEF else hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


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
"""Names that could be a product of letters."""
_ALSO_UNITS = frozenset({"sec", "min"})
_VALUE_ENDS = tuple("0123456789})")
_LINK_NAMES = "and or by multiplied divided percent mod square root of the squared cubed factorial choose"
_LINKS = frozenset([*_LINK_NAMES.split(), *_OPERATORS])
_REALS = frozenset({"all real numbers", "the set of all real numbers", "all reals", "any real number"})

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


MAX_ANSWER = 1_000
"""Maximum characters of an answer read as mathematics; longer ones agree only if spelled alike."""

MAX_NESTING = 60
"""Deepest brackets that are read as mathematics."""

_SIGN_NAMES = """× times √ sqrt ∞ infty ≠ ne ≈ approx ∪ cup ∩ cap ∈ in ± pm ∓ mp ∅ emptyset ≡ equiv → to ∑ sum
∏ prod ∫ int ∖ setminus · cdot ⋅ cdot ∙ cdot ≤ le ⩽ le ≥ ge ⩾ ge ⌊ lfloor ⌋ rfloor ⌈ lceil ⌉ rceil ¬ neg"""
_PLAIN_SIGNS = r"""− - – - — - ‐ - ‑ - ‒ - “ " ” " ″ " ’ ' ‘ ' ′ ' 。 . 【 [ 】 ] ÷ / ⁄ / ∛ \sqrt[3]
∜ \sqrt[4] º ° ∧ and ∨ or 、 , € EUR £ GBP ¥ JPY ₹ INR"""


def _pairs(text: str) -> list[tuple[str, str]]:
    words = text.split()
    return list(zip(words[::2], words[1::2], strict=True))


_SIGNS = str.maketrans(
    {sign: f"\\{name} " for sign, name in _pairs(_SIGN_NAMES)}
    | {sign: f" {name} " if name.isalpha() else name for sign, name in _pairs(_PLAIN_SIGNS)}
    | dict.fromkeys("\u00ad\u2061\u2062\u2063\u200b\u200c\u200d\u200e\u200f\u2060\ufeff", "")
)
_GREEK_WORD = re.compile(r"[\u0370-\u03ff\u1f00-\u1fff]+")
_RAISED = {"<super>": "^", "<sub>": "_"}
_UNICODE_ROOT = re.compile(r"√\s*+(\d++)")
_TEX_ACCENT = re.compile(
    r"""(?<!\\)\\(['`^"~=.]|[cvHu](?=[\s{]))\s*+(?:\{\s*+\\?([A-Za-z])\s*+\}|\\?([A-Za-z]))"""
)
_MARKS = dict(
    zip("'`^\"~=.cvHu", "\u0301\u0300\u0302\u0308\u0303\u0304\u0307\u0327\u030c\u030b\u0306", strict=True)
)
_MARKED_DIGIT = re.compile("(?:(?:\\d[\u0304\u0305])+)|(\\d)\u0307")
_ALIASES = {
    "dfrac": "frac", "tfrac": "frac", "cfrac": "frac", "leq": "le", "leqslant": "le", "geq": "ge",
    "geqslant": "ge", "neq": "ne", "ast": "cdot", "dbinom": "binom", "tbinom": "binom",
    "varnothing": "emptyset", "varepsilon": "epsilon", "vartheta": "theta", "varphi": "phi", "varrho": "rho",
    "varsigma": "sigma",
    "lbrace": "{", "rbrace": "}", "lbrack": "[", "rbrack": "]", "colon": ":", "percent": "%",
    "degree": "^\\circ ", "degrees": "^\\circ ", "lvert": "|", "rvert": "|", "vert": "|",
    "pounds": "GBP", "euro": "EUR", "yen": "JPY", "textdollar": "USD",
    "langle": "(", "rangle": ")",
    "mid": "|", "gt": ">", "lt": "<", "div": "/", "land": "and", "lor": "or", "infin": "infty",
    "nicefrac": "frac", "sfrac": "frac",
}  # fmt: skip
_DROPPED_NAMES = """\
left right big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr displaystyle textstyle scriptstyle limits
nolimits rm bf it sf tt quad qquad hfill centering noindent ensuremath mathstrut strut enspace thinspace
negthinspace medspace thickspace nobreakspace newline linebreak par null relax smallskip medskip bigskip
underline uline
"""
_DROPPED = frozenset(_DROPPED_NAMES.split())
_TEXT = re.compile(
    r"\\(?:text|mbox|hbox|textrm|textbf|textit|textsf|textnormal|mathrm|mathbf|mathit|mathsf|operatorname|emph)"
    r"\*?\s*+\{([^{}]*+)\}"
)
_GAP = re.compile(
    r"(?<!\\)\\(?:[,;:> ]|(?:[hv]?phantom|[hv]space|hskip|(?:text)?color|label|tag)\*?\s*+"
    r"\{(?:[^{}]|\{[^{}]*+\})*+\})|~"
)
_COMMAND = re.compile(r"\\([A-Za-z]++)")
_PLAIN_SET = re.compile(r"\s*+\{[^{},|:]++(?:,|\||:(?=[^{}]*+(?:[<>]|\\[lg]e)))[^{}]++\}\s*+")
"""{1, 2} and {x | x > 2} without the marks of LaTeX, which are no group of a formula."""
_PLAIN_NUMBER = re.compile(r"\s*+\{[-+]?\d{0,3}(?:,(?:\d{3})?)++(?:\.\d++)?\}\s*+")
_MATRIX = re.compile(r"\\begin\s*+\{|\\\\\s*+\[")
_ESCAPED_TWICE = re.compile(r"\\\\(?=[A-Za-z(){}\[\]])")
_TIGHT = re.compile(r"\\!\s*+")
_GAP_OF_THOUSANDS = re.compile(  # 32\,349, but not 3456\,789
    r"(?<![\d.,])\d{1,3}(?:\\[,;: ]\s*+\d{3})++(?!\d)"
    r"|\.\d{3}(?:\\[,;: ]\s*+\d{3}(?!\d))*+(?:\\[,;: ]\s*+\d{1,2}(?!\d))?+"
)
_GAPS = re.compile(r"\\[,;: ]\s*+")
_BETWEEN = re.compile(r"(?<=\d)\s*+\\q?quad(?![A-Za-z])\s*+(?=[-+]?\d|[A-Za-z]\w*+\s*+=)")
"""A wide gap between two numbers, which are two."""
_IN_DEGREES = re.compile(
    r"(\\(?:sin|cos|tan|cot|sec|csc)(?:\^\{?\d\}?)?)\s*+(\(?)\s*+(\d++(?:\.\d++)?)\s*+degrees(?![a-z])"
)
_COMMA = re.compile(r"(?:(?<!\s)\s++)?+\{\s*+,\s*+\}\s*+")
_DEGREES = re.compile(r"\^\s*+(?:\{\s*+)?\\(?:circ|degree)\s*+\}?")
_ORDINAL = re.compile(r"(?<=\d)\s*+(?:\^\s*+)?(?:\{\s*+)?(?:st|nd|rd|th)\s*\}?(?![A-Za-z])")  # 5th
_NOON = re.compile(r"(?<![A-Za-z])([AaPp])\.\s?([Mm])(?![A-Za-z])\.?")
_PERCENT = re.compile(r"(?<![A-Za-z\\])(?i:percent(?:age)?|pct)(?![A-Za-z-])")
_POINTS = re.compile(r"(?<![A-Za-z\\])(?i:percent(?:age)?|pct|%)[\s-]++points?(?![A-Za-z])")
_FRAC = re.compile(
    r"\\(frac|binom)\s*+(?:\{([^{}]*+)\}|(\\[A-Za-z]++|[0-9A-Za-z]))\s*+(?:\{([^{}]*+)\}|([0-9A-Za-z]))"
)
_SQRT = re.compile(r"\\sqrt\s*+([0-9A-Za-z])")
_SINGLE = re.compile(r"([\^_])\s*+\{\s*+([0-9A-Za-z])\s*+\}(?!\.?\d|[eE][-+]?\d)")
"""Braces that can go: those of 2^{3}4 cannot, since 2^34 is another number."""
_SPACES = re.compile(r"\s++")
_SEGMENT = re.compile(r"\\(?:overline|overleftrightarrow)\s*+\{\s*+([A-Z]{2,}+)\s*+\}")
_ACCENT = re.compile(
    r"\\(vec|hat|bar|overline|widehat|tilde|overrightarrow)\s*+\{\s*+(\\[A-Za-z]++|[A-Za-z])\s*+\}"
)
_DOTS = re.compile(r"\\(?:[lc]dots|dots[cbmio]?)(?![A-Za-z])|(?<=[-,+*/:;=<>])\s*+\.{3,}")
_TIMES = re.compile(r"(?<=\d)(?:\s++[xX]\s++(?=\d)|[xX](?=10\s*+\^))|(?<=\b[A-Z])\s++x\s++(?=[A-Z]\b)")
_NEGATION = re.compile(r"(?<![\w)}\]$])~(?=\s*+(?:[A-Za-z](?![A-Za-z])|\(\s*+[A-Za-z~(]|~))")
"""In plain text ~p is no p; in LaTeX it is a space, and ~5 is about 5."""
_TEMPERATURE = re.compile(r"degrees\s++(?:([CFK])(?![A-Za-z])|(?=(?i:celsius|fahrenheit|kelvin)))")
_SCALES = {"C": "celsius", "F": "fahrenheit", "K": "kelvin", None: ""}
_MICRO = re.compile(r"(?<=[\d ])\\mu\s*+(?=(?:m|g|s|L|l|A|V|F|W|mol)(?![A-Za-z]))")
_OHM = re.compile(r"(?<=\d)\s*+([kMm]?)\\Omega(?![A-Za-z])")
_DOLLAR = re.compile(r"(?:US\s?)?(?:\\\$|\$(?=[-+]?\.?\d))|(?<=\d)\s?+\$")
_MOD = re.compile(
    r"\\pmod\s*+(?:\{([^{}]*+)\}|(\d++|\w))|\\[bp]?mod(?![A-Za-z])|\(\s*+mod\s++([^()]*+)\)|(?<![a-z])modulo(?![a-z])"
)
_CHOOSE = re.compile(r"\{\s*+([^{}\\]*+)\\choose\s*+([^{}\\]*+)\}")
_OVER = re.compile(
    r"\{\s*+([^{}\\]*+)\\over(?![A-Za-z])\s*+([^{}\\]*+)\}|\A([^{}\\]++)\\over(?![A-Za-z])\s*+([^{}\\]++)\Z"
)
_COMBINATIONS = re.compile(
    r"(?<![\w)}])(?:\{\s*+\}\s*+)?[\^_]\s*+(?:\{\s*+)?(\d++|[a-z])\s*+\}?\s*+\{?([CP])\}?\s*+_\s*+(?:\{\s*+)?(\d++|[a-z])\s*+\}?"
)
_CALLED = re.compile(r"(?<![\w\\])C\((\d++)\s*+,\s*+(\d++)\)|(?<!\w)(\d++)C(\d++)(?!\w)")
_PER_MILLE = re.compile(r"(?<![a-z])(?:per ?mill?e?|basis points?|bps?)(?![a-z])")
_NUMBER = re.compile(r"-?\d{1,15}(?:\.\d{1,15})?", re.ASCII)
_INDEXED_POWER = re.compile(r"([A-Za-z])\^(?:(\w)|\{([^{}]*+)\})_(?:(\w)|\{([^{}]*+)\})")
_POWERS = re.compile(r"(\d\^(?:\d++|\{[^{}]*+\})) (?=\d++\^)")  # 2^3 5^2
_IDLE_SPACE = re.compile(
    r" (?!(?<=[\d.] )[\d.]|(?<=\d )[eE][-+]?\d|(?<=[^\W\d_]{2} )[^\W\d_]|(?<=[^\W\d_] )[^\W\d_]{2})"
)
"""A space that does not part two numbers or two words."""
MATHEMATICS = re.compile(r"[\d=^_\\+*/|<>{}%]")
"""What is in no text of words alone."""
_BOX = re.compile(r"\\++(?:boxed|fbox)\s*+(?=\{)")
_BRACES = re.compile(r"(?<!\\)[{}]")
_DELIMITERS = (
    ("$$", "$$"),
    ("$", "$"),
    (r"\(", r"\)"),
    (r"\[", r"\]"),
    ("```", "```"),
    ("`", "`"),
    ("**", "**"),
    ("*", "*"),
    ('"', '"'),
)


def _fraction(match: re.Match[str]) -> str:
    top = match[2] if match[2] is not None else match[3]
    bottom = match[4] if match[4] is not None else match[5]
    return f"\\{match[1]}{{{top}}}{{{bottom}}}"


def _command(match: re.Match[str]) -> str:
    name = match[1]
    if name in _DROPPED:
        return " "
    replaced = _ALIASES.get(name)
    if replaced is None:
        return match[0]
    if replaced in ("{", "}"):
        return "\\" + replaced
    plain = replaced.isupper() or replaced in ("and", "or") or not replaced.isalpha()
    return f" {replaced} " if plain else f"\\{replaced}"


def is_number(text: str) -> bool:
    """Whether a text is a plain decimal number, as most answers are."""
    return _NUMBER.fullmatch(text) is not None


def nesting(text: str) -> int:
    """How deep the brackets of a text are nested, or of any piece of it."""
    depth = lowest = deepest = 0
    for char in text:
        depth += (char in "{([") - (char in "})]")
        lowest = min(lowest, depth)
        deepest = max(deepest, depth - lowest)
    return deepest


def _closing_braces(text: str) -> dict[int, int]:
    """Where each opening brace of a text is closed. Escaped braces are content."""
    closed: dict[int, int] = {}
    opened: list[int] = []
    for brace in _BRACES.finditer(text):
        if brace[0] == "{":
            opened.append(brace.start())
        elif opened:
            closed[opened.pop()] = brace.start()
    return closed


def _undelimited(text: str) -> str:
    """A text without the first kind of delimiters that stand around it, if they stand nowhere inside."""
    for opening, closing in _DELIMITERS:
        if len(text) > len(opening + closing) and text.startswith(opening) and text.endswith(closing):
            inner = text[len(opening) : -len(closing)]
            return text if opening in inner or closing in inner or inner.endswith("\\") else inner
    return text


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    """The piece of a text without white space and marks of punctuation around it."""
    while start < end and (text[end - 1].isspace() or text[end - 1] in ".,;:"):
        end -= 1
    while start < end and (text[start].isspace() or text[start] in ",;:"):
        start += 1
    return start, end


def strip_wrappers(text: str) -> str:
    """Take off what surrounds a whole answer: math delimiters, invisible braces, bold marks, quotes.

    The braces are matched once for all layers, and delimiters of one kind are taken off at most once.
    """
    while True:
        before = text
        start, end = _trimmed(text, 0, len(text))
        text = _undelimited(text[start:end])
        start, end = 0, len(text)
        closed = _closing_braces(text) if "{" in text else {}
        while True:
            at = start, end
            box = _BOX.match(text, start, end)
            opening = box.end() if box else start
            if closed.get(opening) == end - 1:
                start, end = _trimmed(text, opening + 1, end - 1)
            if at == (start, end):
                break
        text = text[start:end]
        if text == before:
            return text


def plain_unicode(text: str) -> str:
    """NFKC with signs as LaTeX: powers, indices, fractions and letters keep what their place says."""
    if text.isascii():
        return text
    text = _MARKED_DIGIT.sub(
        lambda match: f"\\dot{{{match[1]}}}" if match[1] else f"\\overline{{{match[0][::2]}}}", text
    )
    text = _UNICODE_ROOT.sub(r"\\sqrt{\1}", text.replace("º", "°"))
    pieces: list[str] = []
    raised = ""
    for char in text:
        kind, _, code = ("", "", "") if char.isascii() else unicodedata.decomposition(char).partition(" ")
        mark = _RAISED.get(kind, "")
        if mark != raised:
            pieces.append(("}" if raised else "") + (f"{mark}{{" if mark else ""))
            raised = mark
        if kind == "<fraction>":
            top, _, bottom = "".join(chr(int(part, 16)) for part in code.split()).partition("\u2044")
            pieces.append(f"\\frac{{{top}}}{{{bottom}}} " if bottom else f"{top}/")
        elif kind == "<font>" and "DOUBLE-STRUCK CAPITAL" in unicodedata.name(char):
            pieces.append(f"\\mathbb{{{unicodedata.normalize('NFKC', char)}}}")
        else:
            digit = unicodedata.decimal(char, None)
            pieces.append(char if digit is None else str(digit))
    if raised:
        pieces.append("}")
    text = unicodedata.normalize("NFKC", "".join(pieces).translate(_SIGNS)).translate(_SIGNS)
    return _GREEK_WORD.sub(_greek, text.replace("°", "^\\circ "))


def _greek(match: re.Match[str]) -> str:
    """Letters of formulas by their commands; a word of three letters and more stays a word."""
    if len(match[0]) > 2:
        return match[0]
    names = [unicodedata.name(char).split() for char in match[0]]
    if any(len(name) != 4 or name[2] != "LETTER" for name in names):
        return match[0]
    called = [name[3].lower().replace("lamda", "lambda") for name in names]
    return "".join(
        f"\\{each.title() if name[1] == 'CAPITAL' else each} "
        for each, name in zip(called, names, strict=True)
    )


_NOTHING = re.compile(
    rf"{_GAP.pattern}|\\(?:{'|'.join(sorted(_DROPPED))}|f?box(?:ed)?)(?![A-Za-z])|\\[!$%#&_]"
)
_LETTER = re.compile(r"[^\W_]")
_SOMETHING = re.compile(r"[^\W_]|[<>=+]|\\[{]\s*+\\[}]")


@remembered
def has_content(answer: str) -> bool:
    r"""Whether an answer has content: letters, digits, a relation or an empty set.

    White space of any kind, `\text{}`, `\phantom{5}`, dots, dashes and question marks say nothing.
    """
    if "\\" not in answer and _LETTER.search(answer):
        return True
    text = plain_unicode(answer)
    for _ in range(3):
        text = _TEXT.sub(r" \1 ", _NOTHING.sub(" ", text))
    return _SOMETHING.search(text) is not None


@remembered
def normalise(text: str) -> str:
    r"""The spelling that answers are compared in: no spacing commands, one name a command, words of \text.

    A text that is too long for an answer keeps its spelling, but for white space.
    """
    if len(text) > MAX_ANSWER:
        return " ".join(text.split())
    if is_number(text):
        return text
    text = plain_unicode(text)
    if _PLAIN_SET.fullmatch(text) and not _PLAIN_NUMBER.fullmatch(text):
        text = f"\\{text.strip()[:-1]}\\}}"
    if "~" in text and "\\" not in text:
        text = _NEGATION.sub(r"\\neg ", text)
    text = _TEX_ACCENT.sub(lambda m: unicodedata.normalize("NFC", (m[2] or m[3]) + _MARKS[m[1]]), text)
    text = _CHOOSE.sub(lambda m: f"\\binom{{{(m[1] or m[3]).strip()}}}{{{m[2] or m[4]}}}", text)
    if "\\over" in text:
        text = _OVER.sub(lambda m: f"\\frac{{{(m[1] or m[3]).strip()}}}{{{m[2] or m[4]}}}", text)
    text = strip_wrappers(_DOTS.sub(r"\\dots ", plain_numbers(text))).rstrip("\\ ")
    if "\\\\" in text and not _MATRIX.search(text):
        text = _ESCAPED_TWICE.sub(r"\\", text)  # a string that was escaped once too often
    text = _COMMA.sub(",", text)
    if "\\" in text or "~" in text:
        text = _without_commands(text)
    if "$" in text:
        text = _DOLLAR.sub(" USD ", text) if text.count("$") % 2 else text
        text = text.replace("$", " ")
    if not _MATRIX.search(text):
        text = text.replace("&", " ")
    text = _TEMPERATURE.sub(lambda match: _SCALES[match[1]], text)
    text = _ORDINAL.sub("", text)
    text = _NOON.sub(r"\1\2", text)
    text = _PERCENT.sub("%", _POINTS.sub("percentage-points", text) if "oint" in text else text)
    text = _PER_MILLE.sub(lambda match: "‱" if match[0].startswith("b") else "‰", text)
    text = _TIMES.sub(r" \\times ", text)
    if "mod" in text:
        text = _MOD.sub(lambda match: f" mod {match[1] or match[2] or match[3] or ''} ", text)
    if "C" in text or "P" in text:
        text = _COMBINATIONS.sub(_combinations, text)
        text = _CALLED.sub(lambda m: f"\\binom{{{m[1] or m[3]}}}{{{m[2] or m[4]}}}", text)
    text = names_as_commands(text)
    if "degrees" in text:
        text = _IN_DEGREES.sub(r"\1 \2(\3\\pi /180)", text)
    if "_" in text and "^" in text:
        text = _INDEXED_POWER.sub(lambda m: f"{m[1]}_{{{m[4] or m[5]}}}^{{{m[2] or m[3]}}}", text)
    text = _SINGLE.sub(r"\1\2", text)
    text = _SPACES.sub(" ", text)
    if "^" in text:
        text = _POWERS.sub(r"\1*", text)
    return strip_wrappers(text)


def squeezed(text: str) -> str:
    """A text without the spaces that say nothing: 3 4 is not 34, and 2 e3 not 2e3."""
    return _IDLE_SPACE.sub("", text) if " " in text else text


def _without_commands(text: str) -> str:
    """A text without commands of form; each of the others has one name, and its groups have braces."""
    text = _TIGHT.sub("", text)
    text = _GAP_OF_THOUSANDS.sub(lambda match: _GAPS.sub("", match[0]), text)
    text = _BETWEEN.sub(", ", text)
    text = _GAP.sub(" ", text)
    for _ in range(3):
        text = _TEXT.sub(
            lambda match: f" {match[1]} " if len(match[1].strip()) != 1 else match[1].strip(), text
        )
    if r"\$" in text:
        text = _DOLLAR.sub(" USD ", text)
    text = _COMMAND.sub(_command, text)
    text = _DEGREES.sub(" degrees ", text)
    text = _OHM.sub(" \\1Ω", _MICRO.sub("u", text))
    text = _SEGMENT.sub(r"\1", text)
    text = _ACCENT.sub(r"\\\1 \2", text)
    text = text.replace(r"\%", "%").replace(r"\#", " ").replace(r"\'", "'")
    for _ in range(3):
        text = _FRAC.sub(_fraction, text)
    return _SQRT.sub(r"\\sqrt{\1}", text)


def _combinations(match: re.Match[str]) -> str:
    n, k = match[1], match[3]
    return f"\\binom{{{n}}}{{{k}}}" if match[2] == "C" else f"\\frac{{{n}!}}{{({n}-{k})!}}"
