"""The process that asks math-verify about two expressions: `python -m diagevo.answers.algebra_worker`.

It reads one JSON line a comparison and writes "1" or "0" and the CPU seconds that it took. math-verify cannot
be trusted to end, so before each comparison the process arms a timer of its own CPU time, whose signal the
kernel answers by ending the process, whatever it is doing; a busy machine does not shorten the limit. The
parent sees it gone (`algebra`).
"""

import json
import os
import re
import resource
import signal
import sys
import time
from functools import lru_cache
from typing import Any

from math_verify import LatexExtractionConfig, parse, verify
from math_verify.grader import is_assignment_relation, is_equation, take_first_relation, take_last_relation

MEMORY_BYTES = 4 << 30


_LATEX = [LatexExtractionConfig()]
_NAMES = re.compile(r"\\(?:mathbb\s*\{?\s*[A-Z]|(?:begin|end)\s*\{[a-z]*\}|[A-Za-z]+)|([A-Za-z])")
_KNOWN = {"e", "i", "d"}
_DROPPED = re.compile(r"\\(?:(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?|exp)\s*_")
"""A subscript that math-verify passes over."""


@lru_cache(maxsize=4096)
def parsed(text: str) -> tuple[Any, ...]:
    """What math-verify reads in a text: an expression and the text it came from, or nothing.

    A formula counts where all of it was read: no number is taken out of a formula that is not understood, and
    every name in it is in the expression. Prose is searched for its answer.
    """
    if not (text.startswith("$") and text.endswith("$")):
        return tuple(parse(text, parsing_timeout=None))  # pyright: ignore[reportArgumentType]  (None is off, as its docs say)
    if _DROPPED.search(text):
        return ()
    read = tuple(parse(text, _LATEX, fallback_mode="no_fallback", parsing_timeout=None))  # pyright: ignore[reportArgumentType]
    shown = set(re.findall("[a-z]", str(read[0]).lower())) if read else set[str]()
    return read if _small(set(_NAMES.findall(text))) - {""} <= shown | _KNOWN else ()


def _value(side: tuple[Any, ...]) -> tuple[Any, ...]:
    """`1/2 + 1/3 = 5/6` is the value 5/6: a left side without unknowns says nothing more."""
    if side and is_equation(side[0]) and not take_first_relation(side[0]).lhs.free_symbols:
        return (take_last_relation(side[0]).rhs,)
    return side


def _small(names: set[str]) -> set[str]:
    return {name.lower() for name in names}


def agree(a: str, b: str) -> bool:
    """math-verify's verdict in either direction.

    One direction is left out: an equation that is no assignment (`a + 3z = 0`) is not its right side (`0`).
    """
    sides = [_value(parsed(a)), _value(parsed(b))]
    names, others = set(_NAMES.findall(a)), set(_NAMES.findall(b))
    if not all(sides) or (names != others and _small(names) == _small(others)):
        return False  # math-verify takes X for x
    equations = [is_equation(side[0]) for side in sides]
    if equations[0] != equations[1]:
        equation, value = sides if equations[0] else sides[::-1]
        if not is_assignment_relation(equation[0]):
            return _verify(equation, value)
    return _verify(sides[0], sides[1]) or _verify(sides[1], sides[0])


def _verify(gold: tuple[Any, ...], answer: tuple[Any, ...]) -> bool:
    return bool(verify(list(gold), list(answer), timeout_seconds=None))


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # nothing a library prints may pass for a reply
    agree(
        "$x + \\frac{y}{2} = 3$", "$2x + y = 6$"
    )  # grammar and solver are loaded on first use, on nobody's time
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    print("ready", file=replies, flush=True)
    for line in sys.stdin:
        a, b, seconds = json.loads(line)
        began = time.process_time()
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            same = agree(a, b)
        except (Exception, MemoryError, RecursionError):
            same = False  # what cannot be read or compared is not equal
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(int(same), time.process_time() - began, file=replies, flush=True)


if __name__ == "__main__":
    main()
