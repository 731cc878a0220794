"""The place in a failure that a clause is about, and what the nearest passing response has there."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from fractions import Fraction
from typing import NamedTuple

from diagevo.diagnosis.levels.arithmetic_checks import numbers
from diagevo.diagnosis.levels.clauses import SIBLING, Clause
from diagevo.diagnosis.levels.features import ONE, UNUSED, made, part_of
from diagevo.diagnosis.levels.field_changes import LEFT_OUT, is_change, pair, written_like
from diagevo.diagnosis.levels.inputs import TOKEN, Prompt, Response
from diagevo.diagnosis.levels.step_location import first_difference

AROUND = 250
"""Tokens aligned on either side of a place."""
LEAVES = 8
"""Maximum values of an object to search for in its place."""
SHORT = 4
"""Maximum tokens of a replacement; longer differing parts are not replacements."""
ALIAS = 2
"""Maximum letters of an abbreviated name: the choice of letter is not a difference."""
ROOM = 30
"""Characters shown on either side of a place."""
_ARGUMENT = re.compile(r"§an argument (\S+) written like .*")
_DOES = {
    "multiplies": re.compile(r"[*×·]|\bx\b|\\times"),
    "divides": re.compile(r"[/÷:]|\\div"),
    "adds": re.compile(r"\+"),
    "subtracts": re.compile(r"\d\)?\s*[-−]"),
}
_NO_DIGIT = re.compile(r"\D")
_LIKE = " written like "
_END = " at the end"
_CALL = "§call of "
_CALLED = re.compile(r"\[tool call\] ([^\s(]+)\(")
_TURNS = re.compile(r"§(?:(?P<twice>\S+) called twice or more|(?P<before>\S+) then (?P<after>\S+))")
_OWN = ("words", "a call")
"""Turns of the policy."""
_ORDER = re.compile(r"§.+ → ")
_NUMBER_OF_CALLS = re.compile(r"§\d calls(?: or more)?")
_FIELD = re.compile(r"§the field (\S.*)")
_VALUE = re.compile(
    r"§(?!a |an |ends |the |its |in |one |new |no |two )(\S(?:.*\))?\S*)"
    r" (?:is (?:a text|a number|in |written like )|= |has (?:one element|no elements|an element twice))"
)
_OPERATION = re.compile(r"§a (?:(?:product|sum|subtraction|division)\b|number from nowhere)")


class _Token(NamedTuple):
    word: str
    masked: str
    line: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Place:
    """A span of the stored response: its line, from 0, and the characters before it in that line."""

    line: int
    start: int
    text: str


@dataclass(frozen=True, slots=True)
class AlignedPair:
    """What the failure and the passing response have at the place; either may be empty."""

    wrote: Place
    should: Place
    sibling: Response
    """That response; the known answer if none passed."""
    known: bool = False
    near: bool = False
    """Whether it answers another, similar prompt."""

    @property
    def whose(self) -> str:
        return "the reference" if self.known else "a pass on a prompt like this" if self.near else "a pass"


def aligned(
    clause: Clause, prompt: Prompt, response: Response, sibling: Response, near: Prompt | None = None
) -> AlignedPair | None:
    """The first place with what the clause names that differs in the other response. None if the clause
    is not about a place. `near`: the other response's prompt, if it is a different one."""
    if near is not None:
        found = _beside_another(clause, prompt, response, sibling, near)
        return None if found is None else replace(found, near=True)
    part, name = part_of(clause.name)
    if is_change(name):
        return None if part else _of_field(name, prompt, response, sibling)
    if sibling is prompt.reference:
        return None
    if SIBLING in name:
        return None if part else _of_step(response, sibling)
    if name in UNUSED:
        return _of_unused(clause.sign < 0, prompt, response, sibling, part)
    if found := _TURNS.fullmatch(name):
        return None if part else _of_call(found, clause.sign > 0, response, sibling)
    if _ORDER.match(name):
        return None if part else _of_events(name[1:].split(" → "), clause.sign > 0, response, sibling)
    if found := _NUMBER_OF_CALLS.fullmatch(name):
        return None if part else _of_number_of_calls(clause.sign > 0, response, sibling)
    if found := _FIELD.fullmatch(name):
        return None if part else _of_named_field(found[1], clause.sign > 0, response, sibling)
    if found := _VALUE.match(name):
        return None if part else _of_value(found[1], response, sibling)
    if _OPERATION.match(name):
        return _of_operation(clause, prompt, response, sibling)
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
        if here.text == there.text:  # a part of what is named
            there = Place(there.line, there.start, "")
        return AlignedPair(here, there, sibling) if has else AlignedPair(there, here, sibling)
    return None


def _beside_another(
    clause: Clause, prompt: Prompt, response: Response, sibling: Response, near: Prompt
) -> AlignedPair | None:
    """For responses to two prompts, calls can be compared, but other differences are about the topic:
    so only what the clause names is marked, in the response that has it."""
    part, name = part_of(clause.name)
    has = clause.sign > 0
    if is_change(name) or name in UNUSED or SIBLING in name:
        return None
    if not part and (
        name.startswith(_CALL)
        or any(each.match(name) for each in (_ARGUMENT, _TURNS, _ORDER, _NUMBER_OF_CALLS, _FIELD, _VALUE))
    ):
        return aligned(clause, prompt, response, sibling)
    own, of = (response, prompt) if has else (sibling, near)
    tokens = _tokens(of, own, part)
    where = (
        _made_at(name, of, own, part, tokens)
        if _OPERATION.match(name)
        else next(_anchors(name, tokens), None)
    )
    if where is None:
        return None
    place, nothing = _place(own, tokens, *where), Place(0, 0, "")
    return AlignedPair(place, nothing, sibling) if has else AlignedPair(nothing, place, sibling)


def _of_field(name: str, prompt: Prompt, response: Response, sibling: Response) -> AlignedPair | None:
    """What each has at the path of a change, if it appears literally in the text."""
    known = sibling is prompt.reference
    found = pair(response.fields, prompt.expected if known else sibling.fields, prompt.question, name)
    if found is None:
        return None
    path, *both = found
    wrote, should = (
        Place(0, 0, "") if text == LEFT_OUT else place_of(path, text, of)
        for text, of in zip(both, (response, sibling), strict=True)
    )
    return AlignedPair(wrote, should, sibling, known) if wrote and should else None


def _of_step(response: Response, sibling: Response) -> AlignedPair | None:
    """The whole first step that differs."""
    places = [
        Place(line, max(of.text.split("\n")[line].find(text), 0), text)
        for (line, text), of in zip(first_difference(response, sibling), (response, sibling), strict=True)
    ]
    wrote, should = places
    return AlignedPair(wrote, should, sibling) if wrote.text.lower() != should.text.lower() else None


def _of_unused(
    has: bool, prompt: Prompt, response: Response, sibling: Response, part: str
) -> AlignedPair | None:
    """The first place where a response has a number from the prompt that the other lacks, and the other's
    step with most of the numbers there."""
    here, there = (response, sibling) if has else (sibling, response)
    one, two = _tokens(prompt, here, part), _tokens(prompt, there, part)
    used = {number for each in two for number in _values(each)}
    asked = set(numbers(prompt.question))
    for at, each in enumerate(one):
        if any(number in asked and number not in used for number in _values(each)):
            start, stop = _expression(one, at, forward=True)
            place, other = _place(here, one, start, stop), _step_like(one[start:stop], there, two)
            return AlignedPair(place, other, sibling) if has else AlignedPair(other, place, sibling)
    return None


def _of_operation(
    clause: Clause, prompt: Prompt, response: Response, sibling: Response
) -> AlignedPair | None:
    """The expression that computes the number, and the other response's one with most of its numbers:
    the same step, if both have it."""
    part, name = part_of(clause.name)
    here, there = (response, sibling) if clause.sign > 0 else (sibling, response)
    one, two = _tokens(prompt, here, part), _tokens(prompt, there, part)
    if (where := _made_at(name, prompt, here, part, one)) is None:
        return None
    start, stop = where
    place, other = _place(here, one, start, stop), _step_like(one[start:stop], there, two)
    if place.text.lower() == other.text.lower():
        return None
    return AlignedPair(place, other, sibling) if clause.sign > 0 else AlignedPair(other, place, sibling)


def _made_at(
    name: str, prompt: Prompt, response: Response, part: str, tokens: Sequence[_Token]
) -> tuple[int, int] | None:
    """The tokens of the first expression that computes a number this way."""
    text = (response.thought or response) if part else response
    at = next((at for each, at in made(prompt, text) if each == name), None)
    if at is None:
        return None
    line = response.thoughts[at[0]][0] if part else at[0]
    ends = [n for n, each in enumerate(tokens) if each.line == line and at[1] in map(float, _values(each))]
    return _expression(tokens, ends[-1]) if ends else None


def _step_like(step: Sequence[_Token], response: Response, tokens: Sequence[_Token]) -> Place:
    """The expression that shares most numbers with a step of another response; empty if none does."""
    own = {each.word for each in step if each.word[0].isdigit()}
    others = [_expression(tokens, n) for n, each in enumerate(tokens) if each.word[0].isdigit()]
    shared = [
        (len(own & {each.word for each in tokens[a:b]}), b - a) if b - a > 2 else (0, 0) for a, b in others
    ]
    best = max(range(len(others)), key=shared.__getitem__, default=-1)
    return _place(response, tokens, *others[best]) if best >= 0 and shared[best][0] else Place(0, 0, "")


def _of_call(name: re.Match[str], has: bool, response: Response, sibling: Response) -> AlignedPair | None:
    """The call that completes an order of calls, and what the other response calls there."""
    one, two = (response, sibling) if has else (sibling, response)
    mine, theirs = _called(one), _called(two)
    before, after, twice = name["before"], name["after"], name["twice"]
    names = ["start", *(each.text for each in mine), "end"]
    if twice:
        at = [n for n, each in enumerate(names) if each == twice][1:2]
    else:
        at = [n for n in range(1, len(names)) if names[n - 1] == before and names[n] == after][:1]
    if not at:
        return None
    nothing = Place(0, 0, "")
    here, there = (calls[at[0] - 1] if at[0] <= len(calls) else nothing for calls in (mine, theirs))
    if here.text == there.text:
        return None
    return AlignedPair(here, there, sibling) if has else AlignedPair(there, here, sibling)


def _of_events(
    pattern: Sequence[str], has: bool, response: Response, sibling: Response
) -> AlignedPair | None:
    """The place of an order of turns that the other response lacks: the first turn that differs, and the
    other's turn there."""
    here, there = (response, sibling) if has else (sibling, response)
    one, two = here.placed_events, there.placed_events
    kinds, others = ([kind for kind, _ in each] for each in (one, two))
    start = next((at for at in range(len(one)) if kinds[at : at + len(pattern)] == list(pattern)), None)
    if start is None:
        return None
    stop = start + len(pattern)
    alike = next((at for at, (a, b) in enumerate(zip(kinds, others, strict=False)) if a != b), len(others))
    own = [at for at in range(start, stop) if kinds[at] in _OWN]
    at = next((at for at in own if at >= alike), own[-1] if own else stop - 1)
    place, other = _event(here, one, at), _event(there, two, at)
    if place.text == other.text:
        other = Place(0, 0, "")
    return AlignedPair(place, other, sibling) if has else AlignedPair(other, place, sibling)


def _event(response: Response, events: Sequence[tuple[str, int]], at: int) -> Place:
    """A turn's first line, or the name of the call; empty if the policy did not write it."""
    if at >= len(events) or events[at][0] not in _OWN:
        return Place(0, 0, "")
    line = events[at][1]
    raw = response.text.split("\n")[line]
    if found := _CALLED.search(raw):
        return Place(line, found.start(1), found[1])
    text = next((text for place, text in response.own if place == line), raw)
    return Place(line, max(raw.find(text), 0), text)


def _of_number_of_calls(has: bool, response: Response, sibling: Response) -> AlignedPair | None:
    """The first call that differs or is additional."""
    mine, theirs = _called(response), _called(sibling)
    if len(mine) == len(theirs):
        return None
    nothing = Place(0, 0, "")
    for at in range(max(len(mine), len(theirs))):
        here, there = (calls[at] if at < len(calls) else nothing for calls in (mine, theirs))
        if here.text != there.text:
            return AlignedPair(here, there, sibling)
    return None


def _of_named_field(path: str, has: bool, response: Response, sibling: Response) -> AlignedPair | None:
    """The name of a field that only one of them has."""
    key = re.split(r"[.\[(]", path.rstrip("[])"))[-1]
    written = re.compile(rf"(?<!\w){re.escape(key)}(?!\w)")
    here = response if has else sibling
    raw = here.text.split("\n")
    for line, _ in here.own:
        if found := written.search(raw[line]):
            place, nothing = Place(line, found.start(), key), Place(0, 0, "")
            return AlignedPair(place, nothing, sibling) if has else AlignedPair(nothing, place, sibling)
    return None


def _of_value(path: str, response: Response, sibling: Response) -> AlignedPair | None:
    """What each has in a field."""
    key = re.split(r"[.\[(]", path.rstrip("[])"))[-1]
    written = re.compile(rf'(?<!\w){re.escape(key)}"?\s*[:=]\s*"?([^",}}\]\n]*[^",}}\]\s])')
    places: list[Place] = []
    for of in (response, sibling):
        raw = of.text.split("\n")
        found = ((line, each) for line, _ in of.own if (each := written.search(raw[line])))
        line, each = next(found, (0, None))
        places.append(Place(0, 0, "") if each is None else Place(line, each.start(1), each[1]))
    wrote, should = places
    return None if wrote.text == should.text else AlignedPair(wrote, should, sibling)


def _called(response: Response) -> list[Place]:
    """The names of its calls, in order."""
    raw = response.text.split("\n")
    calls = (
        (line, _CALLED.search(raw[line])) for line, text in response.own if text.startswith("[tool call]")
    )
    return [Place(line, found.start(1), found[1]) for line, found in calls if found]


def _values(token: _Token) -> list[Fraction]:
    return numbers(token.word) if token.word[0].isdigit() else []


def _expression(tokens: Sequence[_Token], at: int, forward: bool = False) -> tuple[int, int]:
    """The numbers and signs around a number in its line."""

    def belongs(token: _Token) -> bool:
        return token.line == tokens[at].line and (
            not token.word[0].isalpha() or len(token.word) <= ALIAS or token.word in ("times", "div", "frac")
        )

    start, stop = at, at + 1
    while start > 0 and belongs(tokens[start - 1]):
        start -= 1
    while forward and stop < len(tokens) and belongs(tokens[stop]):
        stop += 1
    while (
        start < at and not tokens[start].word[0].isdigit() and tokens[start].word not in ("(", "$", "-", "−")
    ):
        start += 1
    while stop > at + 1 and not tokens[stop - 1].word[0].isdigit() and tokens[stop - 1].word != ")":
        stop -= 1
    return start, stop


def place_of(path: str, value: str, response: Response) -> Place | None:
    """The place of a value at a path: after the name of its field, else the first occurrence."""
    key = re.split(r"[.\[(]", path.rstrip("[])"))[-1]
    if (call := next((each for each in _called(response) if each.text == path), None)) is not None:
        return call
    raw = response.text.split("\n")
    for each in (value, *_leaves(value)):
        written = re.compile(rf"(?<!\w){re.escape(each)}(?!\w)")
        for before in (key, ""):
            for line, text in response.own:
                at = text.find(before)
                if at >= 0 and each and (found := written.search(text, at + len(before))):
                    return Place(line, max(raw[line].find(text), 0) + found.start(), each)
    return None


def _leaves(value: str) -> list[str]:
    """The texts and numbers of an object or an array: as a whole it is rarely written identically."""
    try:
        waiting = [json.loads(value)] if value[:1] in ("{", "[") else []
    except (ValueError, RecursionError):
        return []
    found: list[str] = []
    while waiting and len(found) < LEAVES:
        match waiting.pop():
            case dict() as fields:
                waiting += reversed(fields.values())
            case list() as elements:
                waiting += reversed(elements)
            case str() | int() | float() as leaf if not isinstance(leaf, bool):
                found.append(str(leaf))
            case _:
                pass
    return found


def operations(clause: Clause, pair: AlignedPair) -> tuple[str, str] | None:
    """The operations at the place of a pair, if each response does exactly one and they differ."""
    if not _OPERATION.match(part_of(clause.name)[1]):
        return None
    own, other = (
        {name for name, sign in _DOES.items() if sign.search(text)}
        for text in (pair.wrote.text, pair.should.text)
    )
    return (own.pop(), other.pop()) if len(own) == len(other) == 1 and own != other else None


def _argument(key: str, response: Response) -> Place | None:
    """The text of a call's argument."""
    pattern = re.compile(rf'"{re.escape(key)}"\s*:\s*"([^"]*)"')
    raw = response.text.split("\n")
    for line, text in response.own:
        if text.startswith("[tool call]") and (found := pattern.search(raw[line])):
            return Place(line, found.start(1), found[1])
    return None


def _same_digits(tokens: Sequence[_Token], word: str) -> tuple[int, int]:
    """The number with these digits in another form; an empty span at the beginning if there is none."""
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
    """Where the text contains what a clause names."""
    if name.startswith(ONE):
        words = set(name.removeprefix(ONE).split(", "))
        yield from ((at, at + 1) for at, token in enumerate(tokens) if token.word in words)
    elif _LIKE in name:
        shape = name.rpartition(_LIKE)[2]
        for at, token in enumerate(tokens):
            if token.word[0].isdigit() and written_like(token.word) == shape:
                yield at, at + 1
    elif name.startswith("§ends ") or (name.startswith("§") and name.endswith(_END)):
        at = max((at for at, token in enumerate(tokens) if token.word[0].isdigit()), default=-1)
        if at >= 0:
            yield at, at + 1
    elif name.startswith(_CALL):
        called = tuple(TOKEN.findall(name.removeprefix(_CALL).partition("(")[0].lower()))
        yield from _runs(called, tokens)
    elif not name.startswith("§"):
        yield from _runs(tuple(name.split()), tokens)


def _runs(words: Sequence[str], tokens: Sequence[_Token]) -> Iterator[tuple[int, int]]:
    """For a run over several lines, the line with most of its words: a place lies within one line."""
    n = len(words)
    for at in range(len(tokens) - n + 1):
        if tokens[at].word == words[0] and all(tokens[at + k].word == words[k] for k in range(n)):
            lines = Counter(each.line for each in tokens[at : at + n] if each.word[0].isalnum())
            line = max(lines, key=lambda each: (lines[each], -each), default=tokens[at].line)
            there = [place for place in range(at, at + n) if tokens[place].line == line]
            yield there[0], there[-1] + 1


def _opposite(
    one: Sequence[_Token], two: Sequence[_Token], start: int, stop: int
) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """The place in `one` with the surrounding difference, and what `two` has there; None if they agree."""
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
            if i1 == i2 and a <= i1 <= b:  # text that only the other has, at the edge
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
        first, last = a, b  # for a long difference, show only what the clause names
    elif last - first == d - c:
        c, d = c + a - first, c + b - first  # token by token
        first, last = a, b
        others = whole[c:d]
    if all(each.masked == "•" for each in others):
        d = c  # a different name is not informative
    if [each.word for each in about[first:last]] == [each.word for each in whole[c:d]]:
        return None
    line = about[a].line
    kept = [at for at in range(first, last) if about[at].line == line]
    return (low + kept[0], low + kept[-1] + 1), (shift + c, shift + (d if others else c))


def _place(response: Response, tokens: Sequence[_Token], start: int, stop: int) -> Place:
    """The tokens in their first line, as written; or the position where they would be."""
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
        return f'left out "{should}"; {pair.whose} has: {_marked(pair.should, pair.sibling)}'
    other = f' where {pair.whose} has "{should}"' if should else ""
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
