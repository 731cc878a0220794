"""Finds the answer in a text: its box or boxes, a sentence that states it, the letter of a choice.

A text is a model's, of any length. Each pattern takes a run of like characters whole (`*+`, `++`) and begins
once a run, so its work grows with the length of the text and no faster. "The minimum is 6" is not "the
maximum is 6": what the words around an answer say is compared like a name.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from diagevo.answers.forms import Opaque
from diagevo.answers.notation import MATHEMATICS, MAX_ANSWER, has_content, normalise, remembered
from diagevo.answers.quantities import CURRENCIES, is_unit, is_word

_BOX_PARTS = re.compile(
    r"\\++(?:boxed|fbox)(?:(?P<box>\s*+\{)|(?![A-Za-z])\s*+(?P<bare>[-+]?\d++(?:\.\d++)?|[A-Za-z](?![A-Za-z])"
    r"|\\[dt]?frac(?:\s*+(?:\{[^{}]*+\}|\d)){2}))|(?:\\\\)++|\\.|(?P<open>\{)|(?P<close>\})",
    re.DOTALL,
)
_WORD = re.compile(r"[A-Za-z]+")
_COMMAND = re.compile(r"\\(?:text|mathrm|textbf|mbox)\b|\\[A-Za-z]+")


@dataclass(frozen=True, slots=True)
class Box:
    """A box's position in a text, and its content."""

    start: int
    end: int
    inside: slice


def boxes(text: str) -> list[Box]:
    r"""All balanced `\boxed{…}` and `\fbox{…}` of a text that say something, by start.

    One pass over the text: 100 kB of braces take no longer than any other 100 kB. Escaped braces are content.
    Without braces a box holds the number, letter or fraction that follows: `\boxed 42`.
    """
    opened: list[tuple[re.Match[str], bool]] = []  # the brace, and whether something follows it
    found: list[Box] = []
    at = 0
    for part in _BOX_PARTS.finditer(text):
        if opened and (part.lastgroup is None or text[at : part.start()].strip()):
            opened[-1] = (opened[-1][0], True)
        at = part.end()
        if part["bare"]:
            found.append(Box(part.start(), part.end(), slice(part.start("bare"), part.end("bare"))))
            opened[-1:] = [(brace, True) for brace, _ in opened[-1:]]
        elif part["box"] or part["open"]:
            opened.append((part, False))
        elif part["close"] and opened:
            brace, filled = opened.pop()
            if filled and opened:
                opened[-1] = (opened[-1][0], True)
            inside = slice(brace.end(), part.start())
            brief = inside.stop - inside.start <= MAX_ANSWER
            if filled and brace["box"] and not (brief and not has_content(text[inside])):
                found.append(Box(brace.start(), part.end(), inside))
    return sorted(found, key=lambda box: box.start)


def extract_boxed(text: str) -> str | None:
    r"""Content of the last balanced `\boxed{…}`, stripped; None if there is none, which is no vote.

    In nested boxes the innermost counts. A box that is empty or never closed is skipped.
    """
    found = boxes(text)
    return text[found[-1].inside].strip() if found else None


def _joined(between: str) -> bool:
    """Whether two boxes belong to one answer: only signs between them, or "and"/"or" and a few words."""
    words = [word.lower() for word in _WORD.findall(_COMMAND.sub(" ", between))]
    links = sum(word in ("and", "or") for word in words)
    return not words or (links == 1 and len(words) <= 5 and "." not in between)


def boxed_answer(text: str) -> str | None:
    r"""The answer of a whole solution: its last box, with the boxes before it that list further values."""
    found = boxes(text)
    if not found:
        return None
    contents = [text[found[-1].inside].strip()]
    for box, following in zip(found[-2::-1], found[:0:-1], strict=True):
        if box.end > following.start or not _joined(text[box.end : following.start]):
            break
        content = text[box.inside].strip()
        if content != contents[0]:
            contents.insert(0, content)
    return ", ".join(contents)


MAX_PROSE = 4_000
"""Characters at the end of a text without a box that are searched for its answer."""

_WORDS = re.compile(r"(?<![^\W\d_])(?<!\\)[^\W\d_]+(?:['-][^\W\d_]{2,})*")
_COMMANDS = re.compile(r"\\(?:begin|end)\s*+\{\w++\}|\\[A-Za-z]++")
_MATHS = re.compile(
    r"\$\$.*?\$\$|(?<!\\)\$(?:\\\$|[^$])*?(?<!\\)\$"
    r"|\\\((?:(?!\\\().)*?\\\)|\\\[(?:(?!\\\[).)*?\\\]",
    re.DOTALL,
)
_DELIMITERS = re.compile(r"\$\$|(?<!\\)\$|(?<!\\)\\[()\[\]]")
_SMALL_WORDS = frozenset({"and", "or", "percent", "percentage", "pct"})
_DIGIT = re.compile(r"\d")
PREFIX = re.compile(
    r"(?i:(?:the\s++)?(?:final\s++)?answer\s*+(?:is|:)\s*+:?|(?:答案|答え|答)\s*+[是为為は]?\s*+:?"
    r"|(?:antwort|respuesta|réponse|resposta|risposta|ответ)\s*+:"
    r"|(?:therefore|thus|hence)\s?,|about|approximately|roughly|approx\.?|around|\\approx|=)\s*+"
)
_MARKED = re.compile(r"(?:^|(?<=\s))####(?!#)\s*+(?P<answer>[^\n#]++)\s*+\Z")
"""GSM8K's mark of a final answer."""
_TAGGED = re.compile(r"<answer>(?P<answer>(?:(?!</?answer>).)*+)</answer>\s*+\Z", re.DOTALL)
"""The tag of a final answer in prompts that ask for one."""


def has_word(text: str) -> bool:
    """Whether a text contains an English word, ignoring commands."""
    return any(is_word(word) for word in _WORDS.findall(_COMMANDS.sub(" ", text)))


@remembered
def stated(text: str) -> Opaque | str:
    """The answer that a text states: its box, or itself without math delimiters; prose where it is hidden.

    Prose is a text with words around its formulas: `The answer is $5$, since …`.
    """
    boxed = boxed_answer(text)
    if boxed is not None:
        return boxed
    marked = _MARKED.search(text) if "####" in text else None
    marked = marked or (_TAGGED.search(text) if "</answer>" in text else None)
    if marked:
        text = marked["answer"].strip()
    if len(text) > MAX_PROSE:
        return Opaque(text[-MAX_PROSE:], prose=True)
    maths = _MATHS.findall(text)
    if maths:
        around = [word.lower() for word in _WORDS.findall(_COMMANDS.sub(" ", _MATHS.sub(" ", text)))]
        if PREFIX.match(text):
            around = around[2:]
        if any(len(word) > 1 and word not in _SMALL_WORDS and not is_unit(word) for word in around):
            return Opaque(text, prose=True)
        if len(maths) > 1 or around:
            return _DELIMITERS.sub(" ", text)
    return text


def prose_piece(text: str) -> str:
    """The formula at the end of prose, if no number follows it."""
    formulas = list(_MATHS.finditer(text))
    return formulas[-1][0] if formulas and not _DIGIT.search(text, formulas[-1].end()) else ""


MAX_STATEMENT = 200
"""Longest sentence whose words are compared; longer ones reason, and reasons differ."""

_BOUND = (
    r"at\s(?:least|most)|(?:more|less|fewer|greater|smaller|larger|higher|lower)\sthan|up\sto|nearly|almost|not"
    r"|never|above|below|beyond|exceed(?:s|ing)?|except|excluding|without|(?:all|none)\sbut"
)
_HEDGED = re.compile(rf"\b(?:{_BOUND})\s\W*+\d\S*+\Z", re.IGNORECASE)
_SENTENCES = re.compile(r"[.?!;](?=\s)|\n")
_BOLD_END = re.compile(r"\*\*(?P<bold>[^*\n]++)\*\*[\s.!]*+\Z")
_LINK = re.compile(
    r"\b(?:is|are|was|were|be|equals?|becomes|gives)\b(?:\s(?:equal\sto|exactly|only|just)\b)?|=|:(?=\s)"
)
_BEGIN = re.compile(rf"(?<![\w(])(?:{CURRENCIES}|[-+]?\.?\d|\\(?!text)|\(|\[)")
_NO_NAME = re.compile(
    r"[=<>,;+*/?!\n^]|\b(?:because|since|if|when|where|not|never|cannot)\b|n't\b", re.IGNORECASE
)
_COMPUTING_NAMES = """
sum product difference quotient ratio square squared cube cubed root sqrt cbrt log ln exp sin cos tan cot
sec csc arcsin arccos arctan sinh cosh tanh mod modulo gcd lcm min max minimum maximum factorial choose
binomial power plus minus times over divided multiplied multiply divide add adding added subtract
subtracting subtracted less more fewer than negative inverse average mean median absolute abs floor ceil
fraction remainder reciprocal percent quarter quarters third thirds fourth fifth twice thrice double
triple half halves base digits between from under half-way opposite decrease increase"""
COMPUTING = frozenset(_COMPUTING_NAMES.split())
"""Words that compute: a number or an expression beside one is not all there is."""
_LETTERS = re.compile(r"[^\W\d_]{2}")
_ABOUT = re.compile(r"\\?[^\W\d_]++(?:_\w|_\{[^{}]*+\})?(?:\([^()]*+\))?|\d++\w*+")
_SAYS_NOTHING_WORDS = """
the a an so thus hence therefore then we i you he she it they get gets got have has had find finds obtain
obtained our your his her their its answer final result solution value values total overall number amount
of in for to that which this there here as by at on with from must should would will can and following
correct required desired given needed above exactly only just about approximately roughly function
expression equation is are was were be equal equals gives becomes
"""
_SAYS_NOTHING = frozenset(_SAYS_NOTHING_WORDS.split())


def about(name: str) -> str:
    """The meaningful words of a name: `minimum` for "the minimum value of the function"."""
    tokens = _ABOUT.findall(name)
    said = {token if len(token) < 2 or "(" in token else token.casefold() for token in tokens}
    return " ".join(sorted(said - _SAYS_NOTHING))


def hedged(text: str) -> bool:
    """Whether a sentence ends in what its answer is not, or in a bound of it: "at least 3" is not 3."""
    return len(text) <= MAX_STATEMENT and _HEDGED.search(text.strip().rstrip(".! $")) is not None


def statements(text: str) -> Iterator[tuple[str, str]]:
    """What one sentence may state: what its words say of the answer, and the answer. Nothing where it gives a
    reason, or where another sentence follows."""
    text = text.strip().rstrip(".! ")
    if len(text) > MAX_STATEMENT or _SENTENCES.search(text):
        return
    bold = _BOLD_END.search(text)
    whole = text[: bold.start()] if bold else text
    if whole.count("$") % 2 == 0:  # a lone one is a currency
        whole = _DELIMITERS.sub(" ", whole)
    whole = normalise(whole)
    links, begin = list(_LINK.finditer(whole)), _BEGIN.search(whole)
    if bold:
        sides = whole, bold["bold"]
    elif links:
        sides = whole[: links[-1].start()], whole[links[-1].end() :]
    elif begin:
        sides = whole[: begin.start()], whole[begin.start() :]
    else:
        return
    if not bold and not links and not COMPUTING.isdisjoint(sides[0].lower().split()):
        return  # twice 3
    for words, value in (sides, sides[::-1]):
        named = _LETTERS.search(words) or (links and words.strip())
        clear = not _NO_NAME.search(words) and not _LINK.search(words.strip(" :"))
        if named and clear and MATHEMATICS.search(value):
            yield about(words), value


NEAR = 40
"""Characters before and after a letter that show how it is meant."""
STATED = 1
"""The pattern of "answer: C", whose letter counts whatever is said of it."""
SEARCHED = (0, 2)
"""Patterns for a letter further on."""
ANSWERED = 3
"""The first pattern of a letter that is not called an answer: a list of verdicts is surer."""


@lru_cache(maxsize=64)
def _choice_patterns(letters: str) -> tuple[re.Pattern[str], ...]:
    """Ways to state a letter, most reliable first."""
    letter = rf"[{re.escape(letters)}]"
    wrapped = (
        rf"(?:\\(?:text|mathrm|mathbf|textbf)\s*+\{{)?+\s*+[(\[*$]*+\s*+(?P<letter>{letter})(?![A-Za-z0-9'’])"
    )
    plain = rf"(?<![A-Za-z0-9'’\\])(?P<letter>{letter})(?![A-Za-z0-9'’])"
    marked = rf"(?<![A-Za-z0-9'’\\])(?P<letter>{letter})(?=\s*(?:[.):,*\]]|$))"
    at_line = r"^[^\S\n]*+"
    return (
        re.compile(rf"(?i:final\s++answer).{{0,100}}?(?<![A-Za-z]){plain}", re.DOTALL),
        re.compile(
            rf"(?i:answer|solution)(?i:\s++(?:is|should be|must be|would be))?\s*+(?::\s*+)?{wrapped}"
        ),
        re.compile(rf"(?i:answer)[^.\n]{{0,50}}?{plain}"),
        re.compile(rf"\A\s*+[(\[*]*+{marked}"),
        re.compile(rf"(?i:\b(?:it'?s|it is|is|choose|pick|select|option|choice))\s*+(?::\s*+)?{wrapped}"),
        re.compile(rf"(?<!\w)[(\[]\s*+(?P<letter>{letter})\s*+[)\]]"),
        re.compile(rf"{at_line}\**+{marked}", re.MULTILINE),
        re.compile(rf"{at_line}{plain}(?=\s++[A-Z])", re.MULTILINE),
        re.compile(plain),
    )


_NEGATED = re.compile(
    r"(?i:\bnot|n't|\bcannot|\bnor|\bneither|\bnever|\bexcept|\brather than|\binstead of|\bnicht|\bpas|\bnão)"
    r"[^\w.!?;]*+(?:\w+[^\w.!?;\n]+){0,2}\Z|\b(?i:no|non)[\s(\[*]+(?:(?:es|la|el)\s+)?\Z"
)
_REFUSED = re.compile(
    r"[)\]*.:}$]*+\s*+(?:(?:is|are|was|seems|looks|(?:must|can|would|should)\sbe)\s+(?:also\s+|too\s+|just\s+|\w+ly\s+)?"
    r"(?:not|wrong|incorrect|false|out|impossible|invalid|untrue|eliminated|excluded|ruled|rejected|no)\b"
    r"|(?:isn|wasn|can|couldn|won|doesn)['’]t\b|cannot\b|can\snot\b|does\snot\b|fails?\b"
    r"|(?:es|ist|est|è|é)\s+(?:incorrect|fals|falsch|errad|faux|fauss)"
    r"|[✗✘❌])",
    re.IGNORECASE,
)
"""What follows a rejected letter."""
_OPERATED = re.compile(
    r"(?:[+/^_]|\\[a-z]++|\s\*(?=\s)|(?<!nswer)(?<!nswer )(?<!hoice )(?<!ption )(?<!ution )=)\s*+\Z"
)
_OPERATES = re.compile(
    r"\s*+(?:[+^_=/]|[<>]\s?[A-Z\d]|\\(?:c[au]p|cdot|times|pm|mp|subset|in|to)\b|\*\s*+[A-Z\d(]"
    r"|[-−]\s*+(?:\d|[A-Za-z](?![a-z])|[\\(]))|\("
)
"""Signs before and behind a letter that make it a part of a formula."""
_LED = re.compile(
    r"(?:\A|[.,:;!?)\]}=\n—–-]|\b(?:is|was|be|it['’]?s|that['’]?s|so|thus|therefore|hence|then|picks?|chooses?|choosing|chose"
    r"|selects?|selected|with|options?|choices?|answers?|letter|say|think|believe|guess|get|gives|to|for|as|seems|becomes"
    r"|equals|leaves|leaving|namely|only|sure|es|est|ist|é|è|\w{3,}ly))\s*+[(\[*$\"“]*+\Z",
    re.IGNORECASE,
)
"""What leads to a letter that is meant, and stands alone: no vitamin C, no team A."""
_BELONGS = re.compile(
    r"\b(?:vitamin|hepatitis|influenza|type|class|group|team|matrix|event|grade)\s+\Z", re.IGNORECASE
)
_LISTED = re.compile(r"(?<![A-Za-z])[A-Z][)\]]?\s*(?:,|/|,?\s*(?:and|or)\b)\s*[(\[]?\Z")
_MODIFIES = re.compile(
    r"\s++(?!(?:because|since|as|and|or|is|was|which|with|due|for|by|in|from|but|while|where|given|it|the|this|that"
    r"|he|she|they|we|must|would|should|seems|looks|holds|fits|works|correct|right|true|\w+ly)\b)[a-z]{2,}"
)
"""A noun after a letter: C deficiency."""
_SMALL = re.compile(r"\s++[a-z]")
_TAKEN_BACK = (
    r"(?i:\b(?:wait|actually|no|sorry|correction|rather|oops|hmm|scratch that|on second thought|i mean)\b)"
    r"[\s,.:;!…—–-]++(?:(?i:wait|actually|no|sorry|correction|rather|i mean|then|so|it'?s|that'?s"
    r"|it (?:is|must be|should be|has to be)|make (?:it|that)|i(?: think|'d say)|choose|option"
    r"|the (?:right |correct )?answer(?: is| should be| must be)?)\b[\s,.:;!…—–-]*+)*+"
)
"""What leads to a letter that takes the place of the one before: wait, actually."""


@lru_cache(maxsize=64)
def _in_box(letters: str) -> re.Pattern[str]:
    """A box that holds a letter, with signs, a text command or further words around it."""
    return re.compile(
        rf"(?:[^\w\\]|\\(?![a-z]))*+(?:\\[a-z]++\s*+\{{)?\W*+([{re.escape(letters)}])\b(?:[\W_].*)?",
        re.DOTALL,
    )


@lru_cache(maxsize=64)
def _small_letters(letters: str) -> tuple[re.Pattern[str], ...]:
    """Ways to state a small letter: alone, behind "answer" or in brackets."""
    letter = rf"(?P<letter>[{re.escape(letters.lower())}])"
    end = r"(?=\s*(?:[.):,*\]}]|$))"
    return (
        re.compile(rf"\W*+(?:\\[a-z]++\s*+\{{)?+\W*+{letter}\W*+"),
        re.compile(
            rf"(?i:answer|solution|option|choice)(?:\s++is)?+\s*+(?::\s*+)?+[(\[*]*+{letter}{end}",
            re.MULTILINE,
        ),
        re.compile(rf"[(\[]\s*+{letter}\s*+[)\]]"),
    )


@lru_cache(maxsize=64)
def _replaced(letters: str) -> re.Pattern[str]:
    """A letter that replaces another: "A? No, B."."""
    return re.compile(rf"{_TAKEN_BACK}[(\[*$]*+(?P<letter>[{re.escape(letters)}])(?![A-Za-z0-9'’])")


@lru_cache(maxsize=64)
def _verdict(letters: str) -> re.Pattern[str]:
    """A letter and what is said of it, a clause each: "A: wrong", "(B) - correct"."""
    return re.compile(
        rf"(?:^|(?<=[.;,:\s]))[(\[*]*+(?P<letter>[{re.escape(letters)}])[)\]*.]*+"
        r"(?:\s*+(?P<apart>[:–—=-])|(?<=[)\]*.])|\s++is)[\s*]*+"
        r"(?i:(?P<right>right|correct|true)|wrong|incorrect|false|untrue|not (?:right|correct|true)"
        r"|(?(apart)(?:(?P<yes>yes)|no)|\b\B))\b(?![^\S\n]++(?!because|since|as\b)[A-Za-z])",
        re.MULTILINE,
    )


def _judged(text: str, letters: str) -> dict[int, tuple[str, bool]]:
    """A list of verdicts: where each letter stands, and whether it is right. Nothing for a single letter."""
    said = {
        one.start("letter"): (one["letter"], bool(one["right"] or one["yes"]))
        for one in _verdict(letters).finditer(text)
    }
    return said if len({letter for letter, _ in said.values()}) > 1 else {}


@lru_cache(maxsize=64)
def _another(letters: str) -> re.Pattern[str]:
    """What follows the first letter of "A or B"."""
    return re.compile(rf"\s*+[)\]*]*+\s*+(?:,|or|and|/)\s*+[(\[*]*+\s*+[{re.escape(letters)}](?![A-Za-z])")


def _meant(text: str, start: int, end: int, *, stated: bool = False) -> bool:
    """Whether a letter is a choice where it stands: not negated, ruled out, in a formula or of a noun."""
    before, after = text[max(0, start - NEAR) : start], text[end : end + NEAR]
    if _NEGATED.search(before) or (not stated and _REFUSED.match(after)):
        return False
    if (text[start:end] in "AI" and _SMALL.match(after)) or _OPERATED.search(before):
        return False
    return not _OPERATES.match(after) and (stated or not _MODIFIES.match(after))


def extract_choice(text: str, letters: Sequence[str]) -> str | None:
    """The letter a response settles on, or None: an unreadable answer is wrong, never a guess.

    In this order: a box that holds a letter; what follows the last "final answer" or "answer"; the one that
    is right in a list of verdicts ("A: wrong, B: right"); a letter with a mark at the start ("D. …");
    "it's D", "option D"; a letter in brackets; a letter that heads a line; the last letter that stands alone.
    A letter said in its place counts instead ("wait, actually B"). A letter after a negation does not count,
    "A or B" decides nothing, and a letter that reads as a word ("A train", "I think") is taken only where it
    heads a line before a name. Nor does one that is ruled out ("A is wrong"), stands in a formula (A + B) or
    belongs to a noun (vitamin C). A small letter counts where no capital does, alone, behind "answer" or in
    brackets.
    """
    joined = "".join(letters)
    text = unicodedata.normalize("NFKC", text)
    box = extract_boxed(text)
    if box is not None:
        bare = _in_box(joined).fullmatch(box)
        if bare is not None and _another(joined).match(box, bare.end(1)):
            return None
        if bare is not None and not _OPERATES.match(box, bare.end(1)):
            return bare.group(1)
    judged = _judged(text, joined)
    right = {letter for letter, holds in judged.values() if holds}
    *sure, last = _choice_patterns(joined)
    for place, pattern in enumerate((*sure, last)):
        stated = place == STATED
        if place == ANSWERED and right:
            return right.pop() if len(right) == 1 else None
        for match in reversed(list(pattern.finditer(text))):
            letter, start, end = match["letter"], match.start("letter"), match.end("letter")
            if start in judged or not _meant(text, start, end, stated=stated):
                continue
            if pattern is not last and _another(joined).match(text, end):
                return None
            before = text[max(0, start - NEAR) : start]
            if pattern is last and (not _LED.search(before) or _LISTED.search(before)):
                continue
            if place in SEARCHED and _BELONGS.search(before):
                continue
            later = [
                one for one in _replaced(joined).finditer(text, end) if _meant(text, *one.span("letter"))
            ]
            return later[-1]["letter"] if later else letter
    alone, *named = _small_letters(joined)
    small = alone.fullmatch(text if box is None else box)
    for pattern in named if small is None else ():
        for match in pattern.finditer(text):
            if not _NEGATED.search(text[max(0, match.start() - NEAR) : match.start("letter")]):
                small = match
    return small["letter"].upper() if small else None
