"""Sentences that state an answer: which words say what it is, and where it stands.

"The minimum is 6" is not "the maximum is 6": what the words around an answer say is compared like a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from diagevo.answers.names import COMPUTING
from diagevo.answers.notation import normalise

MAX_STATEMENT = 200
"""Longest sentence whose words are compared; longer ones reason, and reasons differ."""

_DELIMITERS = re.compile(r"\$\$|(?<!\\)\$|(?<!\\)\\[()\[\]]")
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
_BEGIN = re.compile(r"(?<![\w(])(?:USD|EUR|GBP|JPY|INR|[-+]?\.?\d|\\(?!text)|\(|\[)")
_NO_NAME = re.compile(
    r"[=<>,;+*/?!\n^]|\b(?:because|since|if|when|where|not|never|cannot)\b|n't\b", re.IGNORECASE
)
_MATHEMATICS = re.compile(r"[\d=^_\\+*/|<>{}%]")
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
    """What the words of a name say: `minimum` for "the minimum value of the function"."""
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
        if named and clear and _MATHEMATICS.search(value):
            yield about(words), value
