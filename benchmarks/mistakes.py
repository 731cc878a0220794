"""Failures in plain words, code and tool calls, each labelled with the mistake that was put into it."""

import random
from collections.abc import Callable

from diagevo.diagnosis.grouping import FailedResponse

Made = tuple[str, str, str]
"""Question, response that passed, response that failed."""


def _name(rng: random.Random) -> str:
    return rng.choice(["Ana", "Ben", "Chen", "Dora", "Emeka", "Farah", "Goran", "Hana"])


def _adds(rng: random.Random) -> Made:
    who, a, b = _name(rng), rng.randint(3, 9), rng.randint(11, 40)
    thing = rng.choice(["apples", "pencils", "stickers", "marbles"])
    asked = f"{who} buys {a} bags with {b} {thing} each. How many {thing} does {who} have?"
    return (
        asked,
        f"There are {a} bags.\nEach holds {b} {thing}, so {a} * {b} = {a * b}.\nThe answer is {a * b}.",
        f"There are {a} bags.\nAdding them up, {a} + {b} = {a + b}.\nThe answer is {a + b}.",
    )


def _carries(rng: random.Random) -> Made:
    """The question of `_adds`, with a product that is wrong by ten."""
    asked, right, _ = _adds(rng)
    product = right.rpartition(" ")[2].rstrip(".")
    return asked, right, right.replace(product, str(int(product) + 10))


def _minutes(rng: random.Random) -> Made:
    hours, speed = rng.randint(2, 6), rng.randint(3, 9)
    asked = f"A {rng.choice(['pump', 'printer', 'robot'])} does {speed} units a minute. How many in {hours}h?"
    right = hours * 60 * speed
    return (
        asked,
        f"{hours} hours are {hours * 60} minutes.\nSo it does {hours * 60} * {speed} = {right} units.",
        f"It runs for {hours}.\nSo it does {hours} * {speed} = {hours * speed} units.",
    )


def _posts(rng: random.Random) -> Made:
    length, gap = rng.randint(4, 12) * 5, 5
    what = rng.choice(["fence", "hedge", "row of lamps"])
    asked = f"A {what} of {length} metres has a post every {gap} metres, at both ends too. How many posts?"
    return (
        asked,
        f"There are {length} / {gap} = {length // gap} gaps.\nOne more post than gaps: {length // gap + 1}.",
        f"There are {length} / {gap} = {length // gap} posts.",
    )


def _ends(rng: random.Random) -> Made:
    """The question of `_posts`, with a post too many."""
    asked, right, _ = _posts(rng)
    gaps = int(right.rpartition(" ")[2].rstrip(".")) - 1
    return asked, right, f"{right.splitlines()[0]}\nTwo more posts than gaps, one for each end: {gaps + 2}."


def _percent(rng: random.Random) -> Made:
    price, share = rng.randint(2, 9) * 100, rng.choice([10, 20, 25])
    low = price * (100 - share) // 100
    asked = f"A coat of {price} euros is {share}% cheaper, then rises by {share}%. What is its price?"
    return (
        asked,
        f"After the cut it is {low}.\nThe rise is {share}% of {low}, so it is {low * (100 + share) // 100}.",
        f"After the cut it is {low}.\nThe rise undoes the cut, so it is {price} again.",
    )


def _range(rng: random.Random) -> Made:
    verb = rng.choice(["sum", "list", "count"])
    asked = f"Write a Python function that {verb}s the integers from 1 to n, n included."
    head = "def solve(n):\n    found = []\n"
    tail = f"\n        found.append(i)\n    return {verb}(found)"
    return asked, f"{head}    for i in range(1, n + 1):{tail}", f"{head}    for i in range(1, n):{tail}"


def _zero(rng: random.Random) -> Made:
    """The question of `_range`, begun at 0."""
    asked, right, _ = _range(rng)
    return asked, right, right.replace("range(1, n + 1)", "range(0, n + 1)")


def _shared(rng: random.Random) -> Made:
    name = rng.choice(["add", "collect", "push", "store"])
    asked = f"Write a Python function {name}(x, items) that appends x to items, else to a new list."
    body = "    items.append(x)\n    return items"
    right = f"def {name}(x, items=None):\n    items = [] if items is None else items\n{body}"
    return asked, right, f"def {name}(x, items=[]):\n{body}"


def _tool(rng: random.Random) -> Made:
    city, day = rng.choice(["Oslo", "Lima", "Kyoto", "Accra"]), rng.choice(["today", "tomorrow", "on Friday"])
    asked = f"You have the tools weather, search and calculator. Will it rain in {city} {day}?"
    return (
        asked,
        f'[tool call] weather({{"city": "{city}"}})\nIt will be dry in {city}.',
        f'[tool call] search({{"query": "rain {city} {day}"}})\nI found no forecast for {city}.',
    )


def _stops(rng: random.Random) -> Made:
    who, a, b, c = _name(rng), rng.randint(20, 60), rng.randint(2, 9), rng.randint(2, 5)
    asked = f"{who} has {a} coins, gives {b} away, and splits the rest into {c} piles. How many are left?"
    first = f"{a} - {b} = {a - b} coins stay.\n"
    return (
        asked,
        f"{first}{a - b} in {c} piles leaves {(a - b) % c}.\nThe answer is {(a - b) % c}.",
        f"{first}The answer is {a - b}.",
    )


MISTAKES: tuple[Callable[[random.Random], Made], ...] = (
    _adds,
    _carries,
    _minutes,
    _posts,
    _ends,
    _percent,
    _range,
    _zero,
    _shared,
    _tool,
    _stops,
)


def mistakes(seed: int, each: int = 12) -> list[tuple[FailedResponse, str]]:
    """`each` failures of every mistake, shuffled, with its name."""
    rng = random.Random(seed)
    made = [(FailedResponse(*make(rng)), make.__name__) for make in MISTAKES for _ in range(each)]
    rng.shuffle(made)
    return made
