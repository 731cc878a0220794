"""The challenger's rewards of a run, worked out from raw SQL: no code of the program's."""

import json
import math
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

Measures = Sequence[dict[str, Any]]


def compared(database: Path, method: str) -> int:
    """How many rewards of the challenger's steps are in the log; each is what its measures give."""
    with closing(sqlite3.connect(database)) as db:
        rows = db.execute("SELECT payload FROM event WHERE type = 'StepTrained' ORDER BY position").fetchall()
    steps = [json.loads(payload) for (payload,) in rows]
    count = 0
    for step in steps:
        if step["stage"] != "challenger":
            assert step["measured"] == []
            continue
        recorded = [reward for group in step["groups"] for reward in group["rewards"]]
        right = {"absolute-zero": _tasks, "spice": _answered, "darc": _levels}[method](step["measured"])
        assert len(right) == len(recorded)
        assert all(
            math.isclose(*pair, rel_tol=1e-12, abs_tol=1e-12) for pair in zip(right, recorded, strict=True)
        )
        count += len(recorded)
    return count


def _tasks(step: Measures) -> list[float]:
    return [
        -1.0
        if one["right"] is None
        else (one["answers"] - one["right"]) / one["answers"]
        if 0 < one["right"] < one["answers"]
        else -0.5
        for one in step
    ]


def _answered(step: Measures) -> list[float]:
    found: list[float] = []
    for one in step:
        if one["right"] is None:
            found.append(-1.0)
        elif not one["related"]:
            found.append(0.0)
        else:
            p = one["right"] / one["answers"]
            found.append(math.exp(-50 * (p * (1 - p) - 0.25) ** 2))
    return found


def _levels(step: Measures) -> list[float]:
    """Pairs that follow each other within a document lose a half of how much their order is short of 0.2."""
    shares = [None if one["right"] is None else one["right"] / one["answers"] for one in step]
    found = [
        -1.0 if share is None else -0.1 if share == 0 else 1 - abs(share - (1.1 - 0.3 * one["level"]))
        for one, share in zip(step, shares, strict=True)
    ]
    usable = sorted(
        (one["document"], one["level"], place) for place, one in enumerate(step) if found[place] >= 0
    )
    for (document, low, first), (other, high, second) in pairwise(usable):
        easier, harder = shares[first], shares[second]
        if document == other and low < high and easier is not None and harder is not None:
            cost = 0.5 * max(0.0, harder + 0.2 - easier)
            found[first] = max(0.0, found[first] - cost)
            found[second] = max(0.0, found[second] - cost)
    return found
