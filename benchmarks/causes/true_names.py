"""Is what is printed of a cause true of its failures? Looked up in the texts by a search of its own."""

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from benchmarks.causes.rows import LabelledRow

TRUE = 0.9
"""Share of a cause's failures for which a clause that is printed must hold."""
COUNTED = re.compile(
    r"(.+?) \(([\d,]+) of ([\d,]+) failures, ([\d,]+) of ([\d,]+) passes(?: at diagnosis)?\)(?:; |$)"
)
WORDS = re.compile(r"`([^`]+)`")
HEADING = re.compile(r'(?:wrote ".*?"|[a-z]+) where (?:a pass|the reference) .*? \([\d,]+ of [\d,]+\); ')
SEARCHED = ("has `", "has any of", "leaves out `", "leaves out any of")
"""Clauses that a search in the texts can check; of others the printed counts are taken."""


def searched(words: list[str]) -> Callable[[str], bool]:
    """Whether what a text answers has one of them, however it breaks and spaces its lines."""
    patterns = [
        re.compile(
            r"\s*".join(re.escape(part) for part in re.findall(r"\w+|[^\w\s]+", each)).join(
                (_not_before(each[0]), _not_after(each[-1]))
            ),
            re.IGNORECASE,
        )
        for each in words
    ]
    return lambda text: any(pattern.search(text.rpartition("</think>")[2]) for pattern in patterns)


def _not_before(sign: str) -> str:
    return r"(?<!\w)" if sign.isalnum() else f"(?<!{re.escape(sign)})"


def _not_after(sign: str) -> str:
    return r"(?!\w)" if sign.isalnum() else f"(?!{re.escape(sign)})"


def true_of_members(
    rows: Sequence[LabelledRow], causes: Mapping[str, str], by_row: Sequence[str | None]
) -> tuple[float | None, float | None]:
    """The share of printed clauses that hold for TRUE of the failures under their cause, and the median share
    of passes for which they hold. None where no clause is printed."""
    passed: dict[str, list[str]] = defaultdict(list)
    members: dict[str, list[LabelledRow]] = defaultdict(list)
    for row, cause in zip(rows, by_row, strict=True):
        if not row.failed:
            passed[row.question].append(row.text)
        elif cause is not None:
            members[cause].append(row)
    true: list[bool] = []
    passing: list[float] = []
    for cause, description in causes.items():
        for clause, held, of, among, passes in COUNTED.findall(HEADING.sub("", description, count=1)):
            share = int(held.replace(",", "")) / int(of.replace(",", ""))
            if clause.startswith(SEARCHED):
                has = searched(WORDS.findall(clause))
                found = [has(row.text) == clause.startswith("has") for row in members[cause]]
                share = sum(found) / len(found)
            true.append(share >= TRUE)
            passing.append(int(among.replace(",", "")) / max(int(passes.replace(",", "")), 1))
    return (sum(true) / len(true), median(passing)) if true else (None, None)


def pair_shows(
    causes: Mapping[str, str], by_row: Sequence[str | None], pairs: Sequence[Mapping[str, Any] | None]
) -> float | None:
    """The share of causes with clauses in most of whose failures a place is marked that has the words of the
    first clause: in the failure what it has, in the response that passed what it leaves out."""
    shown: list[bool] = []
    for cause, description in causes.items():
        clauses = COUNTED.findall(HEADING.sub("", description, count=1))
        if not clauses:
            continue
        clause = clauses[0][0]
        has = searched(WORDS.findall(clause))
        side = "should" if clause.startswith("leaves out") else "wrote"
        own = [pair for pair, of in zip(pairs, by_row, strict=True) if of == cause]
        marked = sum(
            pair is not None and (not clause.startswith(SEARCHED) or has(str(pair[side]))) for pair in own
        )
        shown.append(2 * marked > len(own))
    return sum(shown) / len(shown) if shown else None
