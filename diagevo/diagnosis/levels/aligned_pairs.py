"""The place in a failure that a clause is about, beside what the nearest passing response has there."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import NamedTuple

from diagevo.diagnosis.levels.clauses import Clause
from diagevo.diagnosis.levels.features import ONE, part_of
from diagevo.diagnosis.levels.field_changes import LEFT_OUT, is_change, pair, written_like
from diagevo.diagnosis.levels.inputs import TOKEN, Prompt, Response

AROUND = 250
"""Tokens on either side of a place that are aligned."""
SHORT = 4
"""Tokens that stand in place of others; longer parts of two responses are no replacements."""
ALIAS = 2
"""Letters of a name that stands for a longer one: which letter is no difference."""
ROOM = 30
"""Characters on either side of a place that are shown."""
_ARGUMENT = re.compile(r"§an argument (\S+) written like .*")
_NO_DIGIT = re.compile(r"\D")
_LIKE = " written like "
_END = " at the end"
_CALL = "§call of "


class _Token(NamedTuple):
    word: str
    masked: str
    line: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Place:
    """Words of a response as it is stored: their line, from 0, and the characters before them in it."""

    line: int
    start: int
    text: str


@dataclass(frozen=True, slots=True)
class AlignedPair:
    """What the failure has at the place, and what the passing response has there; either may be nothing."""

    wrote: Place
    should: Place
    sibling: Response


def aligned(clause: Clause, prompt: Prompt, response: Response, sibling: Response) -> AlignedPair | None:
    """The first place with what the clause names that the other response does not have alike. None where
    the clause is about no place."""
    part, name = part_of(clause.name)
    if is_change(name):
        return None if part else _of_field(name, prompt, response, sibling)
    if found := _ARGUMENT.fullmatch(name):
        wrote, should = _argument(found[1], response), _argument(found[1], sibling)
        return AlignedPair(wrote, should, sibling) if wrote and should and wrote.text != should.text else None
    own, other = _tokens(prompt, response, part), _tokens(prompt, sibling, part)
    has = clause.sign > 0
    one, two = (own, other) if has else (other, own)
    for start, stop in _anchors(name, one):
        if _LIKE in name:
            place = (start, stop), _same_digits(two, one[start].word)
        elif (place := _opposite(one, two, start, stop)) is None:
            continue
        (a, b), (c, d) = place
        here = _place(response if has else sibling, one, a, b)
        there = _place(sibling if has else response, two, c, d)
        return AlignedPair(here, there, sibling) if has else AlignedPair(there, here, sibling)
    return None


def _of_field(name: str, prompt: Prompt, response: Response, sibling: Response) -> AlignedPair | None:
    """What either has at the path of a change, where it is as it is written in the text."""
    both = pair(response.fields, sibling.fields, prompt.question, name)
    if both is None:
        return None
    wrote, should = (
        at if (at := place_of(name, text, of)) is not None or text != LEFT_OUT else Place(0, 0, "")
        for text, of in zip(both, (response, sibling), strict=True)
    )
    return AlignedPair(wrote, should, sibling) if wrote and should else None


def place_of(name: str, value: str, response: Response) -> Place | None:
    """Of a value at the path of a change: after the name of its field, else the first."""
    key = re.split(r"[.\[(]", name[1:].rpartition(": ")[0].rstrip("[])"))[-1]
    written = re.compile(rf"(?<!\w){re.escape(value)}(?!\w)")
    raw = response.text.split("\n")
    for before in (key, ""):
        for line, text in response.own:
            at = text.find(before)
            if at >= 0 and value and (found := written.search(text, at + len(before))):
                return Place(line, max(raw[line].find(text), 0) + found.start(), value)
    return None


def _argument(key: str, response: Response) -> Place | None:
    """The text of a call's argument."""
    pattern = re.compile(rf'"{re.escape(key)}"\s*:\s*"([^"]*)"')
    raw = response.text.split("\n")
    for line, text in response.own:
        if text.startswith("[tool call]") and (found := pattern.search(raw[line])):
            return Place(line, found.start(1), found[1])
    return None


def _same_digits(tokens: Sequence[_Token], word: str) -> tuple[int, int]:
    """The number that has these digits in another form; nothing at the beginning where none has."""
    digits = _NO_DIGIT.sub("", word)
    found = (
        at for at, each in enumerate(tokens) if each.word != word and _NO_DIGIT.sub("", each.word) == digits
    )
    at = next(found, None)
    return (0, 0) if at is None else (at, at + 1)


def _tokens(prompt: Prompt, response: Response, part: str) -> list[_Token]:
    raw = response.text.split("\n")
    found: list[_Token] = []
    for line, text in response.thoughts if part else response.own:
        shift = max(raw[line].find(text), 0) if line < len(raw) else 0
        for each in TOKEN.finditer(text):
            word = each.group().lower()
            masked = (
                "#"
                if word[0].isdigit()
                else "•"
                if word[0].isalpha() and (word in prompt.words or (word.isascii() and len(word) <= ALIAS))
                else word
            )
            found.append(_Token(word, masked, line, shift + each.start(), shift + each.end()))
    return found


def _anchors(name: str, tokens: Sequence[_Token]) -> Iterator[tuple[int, int]]:
    """Where the text has what a clause names."""
    if name.startswith(ONE):
        words = set(name.removeprefix(ONE).split(", "))
        yield from ((at, at + 1) for at, token in enumerate(tokens) if token.word in words)
    elif _LIKE in name:
        shape = name.rpartition(_LIKE)[2]
        for at, token in enumerate(tokens):
            if token.word[0].isdigit() and written_like(token.word) == shape:
                yield at, at + 1
    elif name.startswith("§") and name.endswith(_END):
        at = max((at for at, token in enumerate(tokens) if token.word[0].isdigit()), default=-1)
        if at >= 0:
            yield at, at + 1
    elif name.startswith(_CALL):
        called = tuple(TOKEN.findall(name.removeprefix(_CALL).partition("(")[0].lower()))
        yield from _runs(called, tokens)
    elif not name.startswith("§"):
        yield from _runs(tuple(name.split()), tokens)


def _runs(words: Sequence[str], tokens: Sequence[_Token]) -> Iterator[tuple[int, int]]:
    n = len(words)
    for at in range(len(tokens) - n + 1):
        if tokens[at].line != tokens[at + n - 1].line:
            continue  # a place is one of a line
        if tokens[at].word == words[0] and all(tokens[at + k].word == words[k] for k in range(n)):
            yield at, at + n


def _opposite(
    one: Sequence[_Token], two: Sequence[_Token], start: int, stop: int
) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """The place in `one` with the difference about it, and what `two` has there; None where that is alike."""
    low = max(start - AROUND, 0)
    about = one[low : stop + AROUND]
    shift = max(min(low, len(two) - len(about)), 0) if len(two) > 2 * AROUND else 0
    whole = others = two[shift : shift + 2 * AROUND + len(about)]
    blocks = SequenceMatcher(
        None, [each.masked for each in about], [each.masked for each in others], autojunk=False
    ).get_opcodes()
    a, b = start - low, stop - low
    c, d = len(others), 0
    first, last = a, b
    for tag, i1, i2, j1, j2 in blocks:
        if (i2 <= a and not (i2 == a and tag == "delete")) or i1 >= b:
            if i1 == i2 and a <= i1 <= b:  # what only the other has, at the edge
                c, d = min(c, j1), max(d, j2)
            continue
        if tag == "equal":
            c, d = min(c, j1 + max(a - i1, 0)), max(d, j1 + min(b, i2) - i1)
        else:
            first, last = min(first, i1), max(last, i2)
            c, d = min(c, j1), max(d, j2)
    if c > d:
        return None
    others = others[c:d] if d - c <= SHORT else []
    if last - first > b - a + SHORT or d - c > SHORT:
        first, last = a, b  # a long difference is shown by what the clause names alone
    elif last - first == d - c:
        c, d = c + a - first, c + b - first  # token by token
        first, last = a, b
        others = whole[c:d]
    if all(each.masked == "•" for each in others):
        d = c  # another name says nothing
    if [each.word for each in about[first:last]] == [each.word for each in whole[c:d]]:
        return None
    line = about[a].line
    kept = [at for at in range(first, last) if about[at].line == line]
    return (low + kept[0], low + kept[-1] + 1), (shift + c, shift + (d if others else c))


def _place(response: Response, tokens: Sequence[_Token], start: int, stop: int) -> Place:
    """The tokens of the first of their lines, as they are written; or where they would be, where none are."""
    if start >= stop:
        if not tokens:
            return Place(0, 0, "")
        before = tokens[min(start, len(tokens) - 1)]
        return Place(before.line, before.start if start < len(tokens) else before.end, "")
    first = tokens[start]
    last = [each for each in tokens[start:stop] if each.line == first.line][-1]
    raw = response.text.split("\n")[first.line]
    return Place(first.line, first.start, raw[first.start : last.end])


def in_words(pair: AlignedPair, response: Response) -> str:
    """Both sides, and the line with the place: `wrote "ASC" where a pass has "DESC": ORDER BY n «ASC»`."""
    wrote, should = pair.wrote.text, pair.should.text
    if not wrote:
        return f'left out "{should}"; a pass has: {_marked(pair.should, pair.sibling)}'
    other = f' where a pass has "{should}"' if should else ""
    return f'wrote "{wrote}"{other}: {_marked(pair.wrote, response)}'


def _marked(place: Place, response: Response) -> str:
    line = response.text.split("\n")[place.line]
    end = place.start + len(place.text)
    before, after = line[: place.start].lstrip(), line[end:].rstrip()
    if len(before) > ROOM:
        before = f"…{before[1 - ROOM :]}"
    if len(after) > ROOM:
        after = f"{after[: ROOM - 1]}…"
    return f"{before}«{place.text}»{after}"
