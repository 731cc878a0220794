"""Counts the steps of a regular expression: the matcher of `re` once more, one character a step.

It backtracks as `re` does (greedy, lazy and possessive repeats, groups, looks around, back-references), so a
pattern that takes quadratic time there takes a quadratic number of steps here, on any machine.
"""

import re
from collections.abc import Callable
from re import _constants as sre  # pyright: ignore[reportAttributeAccessIssue]  (the parse tree has no other home)
from re import _parser  # pyright: ignore[reportAttributeAccessIssue]  (likewise)
from typing import Any

Rest = Callable[[int], int]

FAILED = -1


class TooManySteps(Exception):
    """The limit of steps is reached."""


class Steps:
    """One pattern on one text."""

    def __init__(self, pattern: re.Pattern[str], text: str, limit: int) -> None:
        self.tree = list(_parser.parse(pattern.pattern, pattern.flags & ~re.UNICODE))
        self.flags = pattern.flags
        self.text = text
        self.taken = 0
        self.limit = limit
        self.groups: dict[int, tuple[int, int]] = {}
        self.single: dict[tuple[Any, Any, int], Callable[[str], bool]] = {}

    def step(self) -> None:
        self.taken += 1
        if self.taken > self.limit:
            raise TooManySteps

    def search(self, everywhere: bool = True) -> list[tuple[int, int]]:
        """Where `finditer` matches, or `match` at the beginning alone."""
        found, at = [], 0
        first, character = self.tree[0]
        while at <= (len(self.text) if everywhere else 0):
            self.step()
            self.groups = {}
            if first is sre.LITERAL and not self.fits(first, character, at, self.flags):
                at += 1
                continue
            end = self.sequence(self.tree, 0, at, self.flags, lambda end: end)
            if end == FAILED:
                at += 1
            else:
                found.append((at, end))
                at = max(end, at + 1)
        return found

    def sequence(self, items: list[Any], index: int, at: int, flags: int, rest: Rest) -> int:
        if index == len(items):
            return rest(at)
        op, value = items[index]

        def behind(at: int) -> int:
            return self.sequence(items, index + 1, at, flags, rest)

        return self.one(op, value, at, flags, behind)

    def fits(self, op: Any, value: Any, at: int, flags: int) -> bool:
        """Whether one character fits a literal, a class or a dot."""
        self.step()
        if at >= len(self.text):
            return False
        known = (op, id(value) if op is sre.IN else value, flags)
        test = self.single.get(known)
        if test is None:
            test = self.single[known] = _test(op, value, flags)
        return test(self.text[at])

    def one(self, op: Any, value: Any, at: int, flags: int, rest: Rest) -> int:
        if op in _SINGLE:
            return rest(at + 1) if self.fits(op, value, at, flags) else FAILED
        if op is sre.AT:
            self.step()
            return rest(at) if _at(value, self.text, at, flags) else FAILED
        if op is sre.SUBPATTERN:
            number, added, removed, inner = value
            inside = (flags | added) & ~removed

            def close(end: int) -> int:
                before = self.groups.get(number)
                if number is not None:
                    self.groups[number] = (at, end)
                result = rest(end)
                if result == FAILED and number is not None:
                    self.groups.pop(number)
                    if before is not None:
                        self.groups[number] = before
                return result

            return self.sequence(list(inner), 0, at, inside, close)
        if op is sre.BRANCH:
            for branch in value[1]:
                end = self.sequence(list(branch), 0, at, flags, rest)
                if end != FAILED:
                    return end
            return FAILED
        if op in (sre.ASSERT, sre.ASSERT_NOT):
            direction, inner = value
            start = at if direction > 0 else at - inner.getwidth()[0]
            end = FAILED if start < 0 else self.sequence(list(inner), 0, start, flags, lambda end: end)
            return rest(at) if (end != FAILED) == (op is sre.ASSERT) else FAILED
        if op is sre.ATOMIC_GROUP:
            end = self.sequence(list(value), 0, at, flags, lambda end: end)
            return FAILED if end == FAILED else rest(end)
        if op is sre.GROUPREF:
            start, end = self.groups[value]
            again = self.text[start:end]
            self.taken += len(again)
            return rest(at + len(again)) if self.text.startswith(again, at) else FAILED
        if op in (sre.MAX_REPEAT, sre.MIN_REPEAT, sre.POSSESSIVE_REPEAT):
            fewest, most, inner = value
            return self.repeat(op, fewest, most, list(inner), at, flags, rest)
        raise NotImplementedError(op)  # no pattern of ours has any other: add it here

    def repeat(
        self, op: Any, fewest: int, most: int, inner: list[Any], at: int, flags: int, rest: Rest
    ) -> int:
        if len(inner) == 1 and inner[0][0] in _SINGLE:
            (one, value), count = inner[0], 0
            if op is sre.MIN_REPEAT:
                while True:
                    if count >= fewest and (end := rest(at + count)) != FAILED:
                        return end
                    if count == most or not self.fits(one, value, at + count, flags):
                        return FAILED
                    count += 1
            while count < most and self.fits(one, value, at + count, flags):
                count += 1
            last = count if op is sre.POSSESSIVE_REPEAT else fewest
            while count >= max(last, fewest):
                self.step()
                end = rest(at + count)
                if end != FAILED:
                    return end
                count -= 1
            return FAILED
        if op is sre.POSSESSIVE_REPEAT:
            count = 0
            while count < most:
                end = self.sequence(inner, 0, at, flags, lambda end: end)
                if end in (FAILED, at):
                    break
                at, count = end, count + 1
            return rest(at) if count >= fewest else FAILED
        return self.again(op, 0, fewest, most, inner, at, flags, rest)

    def again(
        self, op: Any, count: int, fewest: int, most: int, inner: list[Any], at: int, flags: int, rest: Rest
    ) -> int:
        self.step()

        def more(end: int) -> int:
            if end == at and count >= fewest:
                return FAILED
            return self.again(op, count + 1, fewest, most, inner, end, flags, rest)

        if op is sre.MIN_REPEAT and count >= fewest and (end := rest(at)) != FAILED:
            return end
        if count < most and (end := self.sequence(inner, 0, at, flags, more)) != FAILED:
            return end
        return rest(at) if op is sre.MAX_REPEAT and count >= fewest else FAILED


_SINGLE = frozenset({sre.LITERAL, sre.NOT_LITERAL, sre.ANY, sre.IN})


def _test(op: Any, value: Any, flags: int) -> Callable[[str], bool]:
    """A character's test, made by `re` itself out of the one piece of the pattern."""
    if op is sre.ANY:
        return (lambda char: True) if flags & re.DOTALL else (lambda char: char != "\n")
    negated, texts = op is sre.NOT_LITERAL, []
    for kind, part in value if op is sre.IN else [(sre.LITERAL, value)]:
        if kind is sre.NEGATE:
            negated = True
        elif kind is sre.LITERAL:
            texts.append(re.escape(chr(part)))
        elif kind is sre.RANGE:
            texts.append(f"{re.escape(chr(part[0]))}-{re.escape(chr(part[1]))}")
        else:
            texts.append(_CATEGORIES[part])
    compiled = re.compile(f"[{'^' if negated else ''}{''.join(texts)}]", re.IGNORECASE & flags)
    return lambda char: compiled.match(char) is not None


_CATEGORIES = {
    sre.CATEGORY_DIGIT: r"\d",
    sre.CATEGORY_NOT_DIGIT: r"\D",
    sre.CATEGORY_SPACE: r"\s",
    sre.CATEGORY_NOT_SPACE: r"\S",
    sre.CATEGORY_WORD: r"\w",
    sre.CATEGORY_NOT_WORD: r"\W",
}


def _at(where: Any, text: str, at: int, flags: int) -> bool:
    if where is sre.AT_BEGINNING_STRING or (where is sre.AT_BEGINNING and not flags & re.MULTILINE):
        return at == 0
    if where is sre.AT_BEGINNING:
        return at == 0 or text[at - 1] == "\n"
    if where is sre.AT_END_STRING:
        return at == len(text)
    if where is sre.AT_END:
        return at == len(text) or (text[at] == "\n" and (at == len(text) - 1 or bool(flags & re.MULTILINE)))
    words = [0 <= i < len(text) and re.match(r"\w", text[i]) is not None for i in (at - 1, at)]
    return (words[0] != words[1]) == (where is sre.AT_BOUNDARY)


def steps(pattern: re.Pattern[str], text: str, everywhere: bool, limit: int = 10_000_000) -> int:
    """How many steps it takes to find all matches, or the one at the beginning. Raises TooManySteps."""
    counter = Steps(pattern, text, limit)
    counter.search(everywhere)
    return counter.taken
