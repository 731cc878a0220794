"""Code with tests: small Python functions, with think blocks, prose, names and layouts of each response's own."""

import random
from collections.abc import Callable

from benchmarks.causes.planted.voice import Prompt

MODES = ("mutable default", "off by one", "floor division", "fails on empty input", "changes its argument")
VALUES = ["nums", "values", "xs", "data", "items", "numbers", "seq", "arr", "lst", "series"]
ACCS = ["out", "result", "found", "acc", "res", "collected", "answer", "ys", "kept", "total_list"]
EACH = ["x", "v", "n", "item", "e", "value", "num", "el", "cur", "i_"]
THOUGHTS = (
    "The user wants a small function. Edge cases matter, let me think about which.",
    "Straightforward. I should keep the signature and return, not print.",
    "I need to be careful about what the tests will check here.",
    "Let me recall how Python does this. A loop is fine.",
    "Simple approach first, then check it on an example by hand.",
    "Could use the standard library, but a plain version is clearer.",
    "What would happen for a list of one? That works.",
    "Okay. Two lines will do, maybe three.",
    "I'd rather not import anything.",
    "The function name is given, so keep it.",
)
PROSE = (
    "Here's an implementation:",
    "This does what you ask for.",
    "The function below passes the examples.",
    "I went for the simplest thing that works.",
    "Solution:",
    "Below is the code you requested.",
    "You can drop this into your module.",
    "A short version:",
    "As requested:",
    "Sure thing!",
    "",
    "",
    "",
)
ENDS = (
    "It runs in linear time.",
    "Feel free to rename things.",
    "Let me know if you want type hints.",
    "Tested on a few inputs by hand.",
    "The idea is to walk over the input once.",
    "No imports are needed.",
    "That should pass the tests.",
    "Complexity: O(n).",
    "You could also write it as a one-liner.",
    "",
    "",
    "",
)
DOCS = (
    "",
    "",
    '"""Do what the task says."""',
    '"""Return the result."""',
    "# simple version",
    '"""See the task."""',
    "# O(n)",
    '"""Helper."""',
    "# no side effects intended",
    '"""Compute it."""',
)

Body = Callable[[random.Random, str | None, str, str, str], list[str]]
"""Lines of the function, without its head, given the mode and three names."""


def _guard(rng: random.Random, mode: str | None, v: str, empty: str) -> list[str]:
    if mode == "fails on empty input":
        return []
    test = rng.choice((f"if not {v}:", f"if len({v}) == 0:", f"if {v} == []:", f"if not len({v}):"))
    return rng.choice(([f"{test} return {empty}"], [test, f"    return {empty}"]))


def _mean(rng: random.Random, mode: str | None, v: str, a: str, e: str) -> list[str]:
    slash = "//" if mode == "floor division" else "/"
    size = rng.choice((f"len({v})", "count"))
    head = [f"count = len({v})"] if size == "count" else []
    if rng.random() < 0.5:
        return [*_guard(rng, mode, v, "0.0"), *head, f"return sum({v}) {slash} {size}"]
    return [
        *_guard(rng, mode, v, "0.0"),
        *head,
        f"{a} = 0",
        f"for {e} in {v}:",
        f"    {a} += {e}",
        f"return {a} {slash} {size}",
    ]


def _median(rng: random.Random, mode: str | None, v: str, a: str, e: str) -> list[str]:
    slash = "//" if mode == "floor division" else "/"
    if mode == "changes its argument":
        sort, used = (
            [rng.choice((f"{v}.sort()", f"{v}[:] = sorted({v})", f"{v}.sort(key=lambda {e}: {e})"))],
            v,
        )
    else:
        sort, used = (
            [rng.choice((f"{a} = sorted({v})", f"{a} = list({v}); {a}.sort()", f"{a} = sorted(list({v}))"))],
            a,
        )
    mid = rng.choice((f"mid = len({used}) // 2", f"mid = len({used}) >> 1", f"mid = int(len({used}) / 2)"))
    return [
        *_guard(rng, mode, v, "0.0"),
        *sort,
        mid,
        f"if len({used}) % 2:",
        f"    return {used}[mid]",
        f"return ({used}[mid - 1] + {used}[mid]) {slash} 2",
    ]


def _share(rng: random.Random, mode: str | None, v: str, a: str, e: str) -> list[str]:
    slash = "//" if mode == "floor division" else "/"
    test = rng.choice((f"[{e} for {e} in {v} if {e} > limit]", f"list(filter(lambda {e}: {e} > limit, {v}))"))
    ratio = rng.choice((f"return 100 * len({a}) {slash} len({v})", f"return len({a}) * 100 {slash} len({v})"))
    return [*_guard(rng, mode, v, "0.0"), f"{a} = {test}", ratio]


def _largest(rng: random.Random, mode: str | None, v: str, a: str, e: str) -> list[str]:
    guard = _guard(rng, mode, v, "None")
    if mode == "changes its argument":
        return [
            *guard,
            rng.choice((f"{v}.sort(reverse=True)", f"{v}.sort()\n    {v}.reverse()")),
            f"return {v}[:k]",
        ]
    if rng.random() < 0.5:
        return (
            [*guard, f"return sorted({v}, reverse=True)[:k]"]
            if mode is None or mode == ""
            else [
                f"{a} = max({v})",
                f"return [{a}] + sorted(({e} for {e} in {v} if {e} != {a}), reverse=True)[: k - 1]",
            ]
        )
    return [
        *guard,
        f"{a} = [{v}[0]]" if mode == "fails on empty input" else f"{a} = list({v})",
        f"return sorted({v}, reverse=True)[:k]",
    ]


def _prefix(rng: random.Random, mode: str | None, v: str, a: str, e: str) -> list[str]:
    if mode == "changes its argument":
        return [f"for i in range(1, len({v})):", f"    {v}[i] += {v}[i - 1]", f"return {v}"]
    stop = (
        rng.choice((f"range(len({v}) - 1)", f"range(1, len({v}))", f"range(0, len({v}) - 1)"))
        if mode == "off by one"
        else rng.choice((f"range(len({v}))", f"range(0, len({v}))"))
    )
    return [
        f"{a} = []",
        "total = 0",
        f"for i in {stop}:",
        f"    total += {v}[i]",
        f"    {a}.append(total)",
        f"return {a}",
    ]


def _upto(rng: random.Random, mode: str | None, v: str, a: str, e: str) -> list[str]:
    stop = (
        rng.choice(("range(1, n)", "range(n)", "range(0, n)"))
        if mode == "off by one"
        else rng.choice(("range(1, n + 1)", "range(n + 1)", "range(1, 1 + n)"))
    )
    if rng.random() < 0.5:
        return [f"return sum({e} for {e} in {stop} if {e} % 3 == 0 or {e} % 5 == 0)"]
    return [
        f"{a} = 0",
        f"for {e} in {stop}:",
        f"    if {e} % 3 == 0 or {e} % 5 == 0:",
        f"        {a} += {e}",
        f"return {a}",
    ]


def _chunks(rng: random.Random, mode: str | None, v: str, a: str, e: str) -> list[str]:
    end = (
        rng.choice((f"len({v}) - size", f"len({v}) - 1", f"len({v}) - size + 0"))
        if mode == "off by one"
        else f"len({v})"
    )
    if rng.random() < 0.5:
        return [f"return [{v}[i : i + size] for i in range(0, {end}, size)]"]
    return [
        f"{a} = []",
        f"for i in range(0, {end}, size):",
        f"    {a}.append({v}[i : i + size])",
        f"return {a}",
    ]


def _dedupe(rng: random.Random, mode: str | None, v: str, a: str, e: str) -> list[str]:
    if mode == "changes its argument":
        return rng.choice(
            (
                [
                    f"for {e} in list({v}):",
                    f"    while {v}.count({e}) > 1:",
                    f"        {v}.remove({e})",
                    f"return {v}",
                ],
                [
                    "i = 0",
                    f"while i < len({v}):",
                    f"    if {v}[i] in {v}[:i]:",
                    f"        del {v}[i]",
                    "    else:",
                    "        i += 1",
                    f"return {v}",
                ],
            )
        )
    start = (
        rng.choice((f"range(1, len({v}))", f"range(len({v}) - 1)"))
        if mode == "off by one"
        else f"range(len({v}))"
    )
    return [
        f"{a} = []",
        f"for i in {start}:",
        f"    if {v}[i] not in {a}:",
        f"        {a}.append({v}[i])",
        f"return {a}",
    ]


def _collect(rng: random.Random, mode: str | None, v: str, a: str, e: str) -> list[str]:
    make = (
        []
        if mode == "mutable default"
        else rng.choice(
            (
                [f"if {v} is None:", f"    {v} = []"],
                [f"{v} = [] if {v} is None else {v}"],
                [f"{v} = {v} if {v} is not None else []"],
            )
        )
    )
    return [*make, rng.choice((f"{v}.append({e})", f"{v} += [{e}]", f"{v}.extend([{e}])")), f"return {v}"]


def _tally(rng: random.Random, mode: str | None, v: str, a: str, e: str) -> list[str]:
    make = (
        []
        if mode == "mutable default"
        else rng.choice(
            (
                [f"if {a} is None:", f"    {a} = {{}}"],
                [f"{a} = {{}} if {a} is None else {a}"],
                [f"{a} = dict() if {a} is None else {a}"],
            )
        )
    )
    return [
        *make,
        f"for {e} in {v}:",
        rng.choice(
            (f"    {a}[{e}] = {a}.get({e}, 0) + 1", f"    {a}.setdefault({e}, 0)\n        {a}[{e}] += 1")
        ),
        f"return {a}",
    ]


def _head(mode: str | None, name: str, kind: str, v: str, a: str, e: str) -> str:
    empty = {"collect": "[]", "tally": "{}"}.get(kind, "")
    default = empty if mode == "mutable default" else "None"
    return (
        f"def {name}("
        + {
            "collect": f"{e}, {v}={default}",
            "tally": f"{v}, {a}={default}",
            "upto": "n",
            "chunks": f"{v}, size",
            "share": f"{v}, limit",
            "largest": f"{v}, k",
        }.get(kind, v)
        + "):"
    )


TASKS: dict[str, tuple[Body, tuple[str, ...], tuple[str, ...], str]] = {
    "mean": (
        _mean,
        ("floor division", "fails on empty input"),
        ("average", "mean_of", "avg", "mean_score", "typical_height"),
        "gives the mean of a list of whole numbers as a float, and 0.0 for an empty list",
    ),
    "median": (
        _median,
        ("changes its argument", "floor division", "fails on empty input"),
        ("median", "middle", "mid_value", "median_price"),
        "gives the median of a list (the mean of the two middle ones where its length is even, 0.0 for an empty list) and leaves the list as it was",
    ),
    "share": (
        _share,
        ("floor division", "fails on empty input"),
        ("percent_above", "share_over", "pct_over", "part_beyond"),
        "gives the percentage of numbers in a list above a limit as a float, 0.0 for an empty list",
    ),
    "largest": (
        _largest,
        ("changes its argument", "fails on empty input"),
        ("largest", "top_scores", "best", "highest_bids"),
        "gives the k largest of a list, the largest first, None for an empty list, and leaves the list as it was",
    ),
    "prefix": (
        _prefix,
        ("off by one", "changes its argument"),
        ("running_totals", "prefix_sums", "cumulative", "balance_by_day"),
        "gives the running totals of a list as a new list, one for each of its numbers",
    ),
    "upto": (
        _upto,
        ("off by one",),
        ("multiples_sum", "sum_35", "fizz_total", "threes_and_fives"),
        "adds up all multiples of 3 or 5 from 1 to n, n included",
    ),
    "chunks": (
        _chunks,
        ("off by one",),
        ("chunks", "split_up", "batches", "pages_of"),
        "cuts a list into pieces of a size, the last one shorter where need be",
    ),
    "dedupe": (
        _dedupe,
        ("changes its argument", "off by one"),
        ("unique", "distinct", "without_repeats", "first_seen"),
        "gives the different elements of a list as a new list, in order of their first place",
    ),
    "collect": (
        _collect,
        ("mutable default",),
        ("add_tag", "collect", "push", "log_event", "remember", "enqueue"),
        "appends an element to a list that may be handed over, and to a new list where none is",
    ),
    "tally": (
        _tally,
        ("mutable default",),
        ("tally", "count_words", "histogram", "votes", "frequencies"),
        "counts elements into a dict that may be handed over, and into a new one where none is",
    ),
}


def prompt(rng: random.Random) -> Prompt:
    kind = rng.choice([*TASKS])
    body, modes, names, what = TASKS[kind]
    name = rng.choice(names)
    asked = rng.choice(
        (
            f"Write a Python function `{name}` that {what}.",
            f"Implement `{name}`. It {what}. Hidden tests will be run.",
            f"Task {rng.randint(10, 990)}: the function {name} {what}. Reply with code.",
            f"Please write {name} in Python: it {what}. Example calls are in the tests of lesson {rng.randint(2, 90)}.",
        )
    )

    def write(rng: random.Random, mode: str | None) -> tuple[object, int | None, tuple[str, ...]]:
        v, a, e = rng.choice(VALUES), rng.choice(ACCS), rng.choice(EACH)
        doc = rng.choice(DOCS)
        inside = body(rng, mode or None, v, a, e)
        if mode == "":
            inside = _odd(rng, inside, v, a)
        code = [
            _head(mode or None, name, kind, v, a, e),
            *(f"    {line}" for line in ([doc] if doc else []) + inside),
        ]
        fence = rng.choice(("```python", "```python", "```py", "```", None))
        thinks = rng.random() < 0.35
        before, after = rng.choice(PROSE), rng.choice(ENDS)
        thought = ["<think>", *rng.sample(THOUGHTS, rng.randint(1, 3)), "</think>"] if thinks else []
        lines = [*thought, before, *([fence] if fence else []), *code, *(["```"] if fence else []), after]
        traits = (
            f"before {before[:12]}",
            f"after {after[:12]}",
            f"fence {fence}",
            f"thinks {thinks}",
            f"list {v}",
            f"acc {a}",
            f"doc {doc}",
        )
        return "\n".join(line for line in lines if line), None, traits

    return Prompt(asked, modes, write)


def _odd(rng: random.Random, lines: list[str], v: str, a: str) -> list[str]:
    """A failure that is nobody's mode: what stands here in quotes is a model's code, unfinished lines too."""
    place = rng.randrange(len(lines))
    return rng.choice(
        (
            lambda: [*lines[:-1], lines[-1].replace("return", "print", 1)],
            lambda: [*lines[:place], "pass  # TODO", *lines[place:-1]],
            lambda: [line.replace(v, f"{v}_", 1) for line in lines],
            lambda: [*lines[:-1], lines[-1] + rng.choice(("[0]", "[-1]", "[1:]", " or 1"))],
            lambda: [
                f"import {rng.choice(('numpy', 'pandas', 'mathx'))} as lib",
                *lines[:-1],
                f"return lib.{rng.choice(('run', 'reduce', 'apply'))}({v})",
            ],
            lambda: ["raise NotImplementedError" if rng.random() < 0.5 else f"return {rng.randint(0, 9)}"],
            lambda: [*lines[:place], f"assert len({v}) > {rng.randint(2, 5)}", *lines[place:]],
        )
    )()
