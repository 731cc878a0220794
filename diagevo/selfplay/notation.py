r"""One spelling for an answer: LaTeX and Unicode variants, spacing, wrappers, currency and percent signs."""

import re
from functools import lru_cache

MAX_ANSWER = 1_000
"""Longest answer, in characters, that is read as mathematics; longer ones agree only if spelled alike."""

MAX_NESTING = 60
"""Deepest brackets that are read as mathematics."""

_SIGN_NAMES = "times sqrt pi infty ne approx cup cap in pm mp emptyset theta alpha beta gamma lambda phi"
_UNICODE = str.maketrans(
    {
        **dict.fromkeys("−–—‐", "-"),
        **dict.fromkeys("·⋅∙", r"\cdot "),
        **dict.fromkeys("≤⩽", r"\le "),
        **dict.fromkeys("≥⩾", r"\ge "),
        **dict.fromkeys("\u00a0\u2009\u202f€£¥₹", " "),
        **dict.fromkeys("\u2061\u200b", ""),
        **dict.fromkeys("“”", '"'),
        **dict.fromkeys("’‘", "'"),
        **{digit: f"^{power}" for power, digit in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
        **dict(zip("，；：（）［］【】％＝。÷", (", ", "; ", *":()[][]%=./"), strict=True)),
        **{
            sign: rf"\frac{{{top}}}{{{bottom}}} "
            for sign, top, bottom in ("½12", "⅓13", "⅔23", "¼14", "¾34", "⅕15")
        },
        **{
            sign: f"\\{name} "
            for sign, name in zip(
                "×√π∞≠≈∪∩∈±∓∅θαβγλφ",
                _SIGN_NAMES.split(),
                strict=True,
            )
        },
        "°": r"^\circ ",
    }
)

_ALIASES = {
    "dfrac": "frac", "tfrac": "frac", "cfrac": "frac", "leq": "le", "leqslant": "le", "geq": "ge",
    "geqslant": "ge", "neq": "ne", "ast": "cdot", "dbinom": "binom", "tbinom": "binom",
    "varnothing": "emptyset",
    "lbrace": "{", "rbrace": "}", "lbrack": "[", "rbrack": "]", "colon": ":", "percent": "%",
    "degree": "^\\circ ", "degrees": "^\\circ ", "arccot": "acot", "lvert": "|", "rvert": "|", "vert": "|",
    "mid": "|", "gt": ">", "lt": "<", "div": "/", "land": "and", "lor": "or", "infin": "infty",
}  # fmt: skip
_DROPPED_NAMES = """\
left right big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr displaystyle textstyle scriptstyle limits
nolimits rm bf it sf tt quad qquad hfill centering noindent ensuremath mathstrut strut
"""
_DROPPED = frozenset(_DROPPED_NAMES.split())
_TEXT = re.compile(
    r"\\(?:text|mbox|hbox|textrm|textbf|textit|textsf|textnormal|mathrm|mathbf|mathit|mathsf|operatorname|emph)"
    r"\*?\s*\{([^{}]*)\}"
)
_GAP = re.compile(r"(?<!\\)\\(?:[,;:> ]|(?:hspace|vspace|phantom|hskip)\*?\s*\{[^{}]*\})|~")
_COMMAND = re.compile(r"\\([A-Za-z]+)")
_MATRIX = re.compile(r"\\begin\s*\{|\\\\\s*\[")
_FRAC = re.compile(
    r"\\(frac|binom)\s*(?:\{([^{}]*)\}|(\\[A-Za-z]+|[0-9A-Za-z]))\s*(?:\{([^{}]*)\}|([0-9A-Za-z]))"
)
_REPEATING = re.compile(r"(\d*)\.(\d*)\s*\\(?:overline|bar|dot)\s*\{?\s*(\d+)\s*\}?")
_SEGMENT = re.compile(r"\\(?:overline|overleftrightarrow)\s*\{\s*([A-Z]{2,})\s*\}")
_ACCENT = re.compile(r"\\(vec|hat|bar|overline|widehat|tilde|overrightarrow)\s*\{\s*([A-Za-z])\s*\}")
_MILLIONS = re.compile(r"(?<=\d)(\s*)(thousand|million|billion|trillion)(?![A-Za-z])", re.IGNORECASE)
_ZEROS = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_INDEXED_POWER = re.compile(r"([A-Za-z])\^(\w|\{[^{}]*\})_(\w|\{[^{}]*\})")
_LAST_NOISE = re.compile(r"[\s.,;:]+\Z|\A[\s,;:]+")


def _repeating(match: re.Match[str]) -> str:
    """0.1\\overline{6} as the fraction 15/90."""
    whole, fixed, cycle = match.groups()
    value = int((whole + fixed + cycle) or 0) - int((whole + fixed) or 0)
    return f"\\frac{{{value}}}{{{'9' * len(cycle) + '0' * len(fixed)}}}"


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
    return f"\\{replaced}" if replaced.isalpha() and replaced not in ("and", "or") else f" {replaced} "


def nesting(text: str) -> int:
    """How deep the brackets of a text are nested."""
    depth = deepest = 0
    for char in text:
        depth += (char in "{([") - (char in "})]")
        deepest = max(deepest, depth)
    return deepest


def enclosed(text: str, opening: str, closing: str) -> bool:
    """Whether the first character's bracket is closed by the last character, and not before."""
    if not (text.startswith(opening) and text.endswith(closing)) or len(text) < 2:
        return False
    depth = 0
    for i, char in enumerate(text):
        escaped = i > 0 and text[i - 1] == "\\" and char in "{}"
        if char == opening and not escaped:
            depth += 1
        elif char == closing and not escaped:
            depth -= 1
            if depth == 0:
                return i == len(text) - 1
    return False


def strip_wrappers(text: str) -> str:
    """Take off what surrounds a whole answer: math delimiters, invisible braces, bold marks, quotes."""
    while True:
        before = text
        text = _LAST_NOISE.sub("", text)
        for opening, closing in (
            ("$$", "$$"),
            ("$", "$"),
            (r"\(", r"\)"),
            (r"\[", r"\]"),
            ("**", "**"),
            ('"', '"'),
        ):
            inner = text[len(opening) : -len(closing)]
            if len(text) > len(opening + closing) and text.startswith(opening) and text.endswith(closing):
                if opening not in inner and closing not in inner and not inner.endswith("\\"):
                    text = inner
                break
        if enclosed(text, "{", "}"):
            text = text[1:-1]
        box = re.match(r"\\+boxed\s*(?=\{)", text)
        if box and enclosed(text[box.end() :], "{", "}"):
            text = text[box.end() + 1 : -1]
        if text == before:
            return text


@lru_cache(maxsize=65_536)
def normalise(text: str) -> str:
    r"""The spelling that answers are compared in: no spacing commands, one name a command, words of \text.

    A text that is too long for an answer keeps its spelling, but for white space.
    """
    if len(text) > MAX_ANSWER:
        return " ".join(text.split())
    text = strip_wrappers(text.translate(_UNICODE))
    if "\\\\" in text and not _MATRIX.search(text):
        text = re.sub(r"\\\\(?=[A-Za-z(){}\[\]])", r"\\", text)  # a string that was escaped once too often
    text = re.sub(r"\\!\s*", "", text)
    text = re.sub(r"(?<=\d)\\[,;: ]\s*(?=\d{3}(?!\d))", "", text)  # 32\,349
    text = re.sub(r"\s*\{\s*,\s*\}\s*", ",", text)
    text = _GAP.sub(" ", text)
    if not _MATRIX.search(text):
        text = text.replace("&", " ")
    for _ in range(3):
        text = _TEXT.sub(
            lambda match: f" {match[1]} " if len(match[1].strip()) != 1 else match[1].strip(), text
        )
    text = _COMMAND.sub(_command, text)
    text = re.sub(r"\^\s*\{?\s*\\(?:circ|degree)\s*\}?", " degrees ", text)
    text = _REPEATING.sub(_repeating, text)
    text = _SEGMENT.sub(r"\1", text)
    text = _ACCENT.sub(r"\\\1 \2", text)
    text = re.sub(r"(?<=\d)\s*\^?\s*\{?\s*(?:st|nd|rd|th)\s*\}?(?![A-Za-z])", "", text)  # 5th
    text = re.sub(r"(?<![A-Za-z])([AaPp])\.\s?([Mm])(?![A-Za-z])\.?", r"\1\2", text)
    text = _MILLIONS.sub(lambda match: f"{match[1]}\\times 10^{{{_ZEROS[match[2].lower()]}}} ", text)
    text = text.replace(r"\$", " ").replace("$", " ").replace(r"\%", "%").replace(r"\#", " ")
    text = re.sub(r"(?<![A-Za-z\\])(?i:percent(?:age)?|pct)(?![A-Za-z])", "%", text)
    for _ in range(3):
        text = _FRAC.sub(_fraction, text)
    text = re.sub(r"\\sqrt\s*([0-9A-Za-z])", r"\\sqrt{\1}", text)
    text = re.sub(r"([\^_])\s*\{\s*([0-9A-Za-z])\s*\}", r"\1\2", text)
    text = re.sub(r"\s+", " ", text)
    text = _INDEXED_POWER.sub(r"\1_\3^\2", text)
    return strip_wrappers(text)
