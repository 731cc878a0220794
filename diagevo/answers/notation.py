r"""One spelling for an answer: LaTeX and Unicode variants, spacing, wrappers, currency and percent signs."""

import re

from diagevo.answers.cache import remembered

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
    r"\*?\s*+\{([^{}]*+)\}"
)
_GAP = re.compile(r"(?<!\\)\\(?:[,;:> ]|(?:hspace|vspace|phantom|hskip)\*?\s*+\{[^{}]*+\})|~")
_COMMAND = re.compile(r"\\([A-Za-z]++)")
_MATRIX = re.compile(r"\\begin\s*+\{|\\\\\s*+\[")
_ESCAPED_TWICE = re.compile(r"\\\\(?=[A-Za-z(){}\[\]])")
_TIGHT = re.compile(r"\\!\s*+")
_GAP_OF_THOUSANDS = re.compile(r"(?<=\d)\\[,;: ]\s*+(?=\d{3}(?!\d))")  # 32\,349
_COMMA = re.compile(r"(?:(?<!\s)\s++)?+\{\s*+,\s*+\}\s*+")
_DEGREES = re.compile(r"\^\s*+(?:\{\s*+)?\\(?:circ|degree)\s*+\}?")
_ORDINAL = re.compile(r"(?<=\d)\s*+(?:\^\s*+)?(?:\{\s*+)?(?:st|nd|rd|th)\s*\}?(?![A-Za-z])")  # 5th
_NOON = re.compile(r"(?<![A-Za-z])([AaPp])\.\s?([Mm])(?![A-Za-z])\.?")
_PERCENT = re.compile(r"(?<![A-Za-z\\])(?i:percent(?:age)?|pct)(?![A-Za-z])")
_FRAC = re.compile(
    r"\\(frac|binom)\s*+(?:\{([^{}]*+)\}|(\\[A-Za-z]++|[0-9A-Za-z]))\s*+(?:\{([^{}]*+)\}|([0-9A-Za-z]))"
)
_SQRT = re.compile(r"\\sqrt\s*+([0-9A-Za-z])")
_SINGLE = re.compile(r"([\^_])\s*+\{\s*+([0-9A-Za-z])\s*+\}")
_SPACES = re.compile(r"\s++")
_REPEATING = re.compile(r"(?<!\d)(\d*+)\.(\d*+)\s*+\\(?:overline|bar|dot)\s*+(?:\{\s*+)?(\d++)\s*+\}?")
_SEGMENT = re.compile(r"\\(?:overline|overleftrightarrow)\s*+\{\s*+([A-Z]{2,}+)\s*+\}")
_ACCENT = re.compile(r"\\(vec|hat|bar|overline|widehat|tilde|overrightarrow)\s*+\{\s*+([A-Za-z])\s*+\}")
_MILLIONS = re.compile(r"(?<=\d)(\s*+)(thousand|million|billion|trillion)(?![A-Za-z])", re.IGNORECASE)
_ZEROS = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_INDEXED_POWER = re.compile(r"([A-Za-z])\^(\w|\{[^{}]*+\})_(\w|\{[^{}]*+\})")
_BOX = re.compile(r"\\++boxed\s*+(?=\{)")
_BRACES = re.compile(r"(?<!\\)[{}]")
_DELIMITERS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("**", "**"), ('"', '"'))


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


@remembered
def normalise(text: str) -> str:
    r"""The spelling that answers are compared in: no spacing commands, one name a command, words of \text.

    A text that is too long for an answer keeps its spelling, but for white space.
    """
    if len(text) > MAX_ANSWER:
        return " ".join(text.split())
    text = strip_wrappers(text.translate(_UNICODE))
    if "\\\\" in text and not _MATRIX.search(text):
        text = _ESCAPED_TWICE.sub(r"\\", text)  # a string that was escaped once too often
    text = _TIGHT.sub("", text)
    text = _GAP_OF_THOUSANDS.sub("", text)
    text = _COMMA.sub(",", text)
    text = _GAP.sub(" ", text)
    if not _MATRIX.search(text):
        text = text.replace("&", " ")
    for _ in range(3):
        text = _TEXT.sub(
            lambda match: f" {match[1]} " if len(match[1].strip()) != 1 else match[1].strip(), text
        )
    text = _COMMAND.sub(_command, text)
    text = _DEGREES.sub(" degrees ", text)
    text = _REPEATING.sub(_repeating, text)
    text = _SEGMENT.sub(r"\1", text)
    text = _ACCENT.sub(r"\\\1 \2", text)
    text = _ORDINAL.sub("", text)
    text = _NOON.sub(r"\1\2", text)
    text = _MILLIONS.sub(lambda match: f"{match[1]}\\times 10^{{{_ZEROS[match[2].lower()]}}} ", text)
    text = text.replace(r"\$", " ").replace("$", " ").replace(r"\%", "%").replace(r"\#", " ")
    text = _PERCENT.sub("%", text)
    for _ in range(3):
        text = _FRAC.sub(_fraction, text)
    text = _SQRT.sub(r"\\sqrt{\1}", text)
    text = _SINGLE.sub(r"\1\2", text)
    text = _SPACES.sub(" ", text)
    text = _INDEXED_POWER.sub(r"\1_\3^\2", text)
    return strip_wrappers(text)
