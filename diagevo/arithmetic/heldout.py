"""The held-out questions, and what keeps them out of the corpus.

One part in eight, by a hash of its family and numbers whatever the wording, lies in the held-out zone. The
corpus never draws from the zone, and `held_out.jsonl` draws from nothing else.
"""

import json
from functools import cache
from hashlib import sha256
from importlib import resources
from random import Random

from diagevo.arithmetic.grammar import FAMILIES, Part, draw_part, parse, word
from diagevo.arithmetic.truth import value

QUESTIONS_A_FAMILY = 40
_FILE = "held_out.jsonl"


def in_zone(part: Part) -> bool:
    """Whether a part belongs to the held-out zone."""
    key = f"{part.family} {' '.join(map(str, part.numbers))}"
    return sha256(key.encode()).digest()[0] < 32


def draw_seen(rng: Random, family: str) -> Part:
    """A part that the corpus may use."""
    while in_zone(part := draw_part(rng, family)):
        pass
    return part


@cache
def held_out() -> list[tuple[str, str]]:
    """The held-out questions with their answers, 40 a family, family by family."""
    lines = resources.files("diagevo.arithmetic").joinpath(_FILE).read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    return [(row["question"], row["answer"]) for row in rows]


@cache
def _held_parts() -> frozenset[Part]:
    return frozenset(part for question, _ in held_out() for part in parse(question) or ())


def is_held_out(question: str) -> bool:
    """Whether a question is, or joins, a held-out one in any wording: never train on such a question."""
    return any(part in _held_parts() for part in parse(question) or ())


def draw_held_out(seed: int = 0) -> list[dict[str, str]]:
    """The rows of the shipped file: distinct parts of the zone, each family's wordings in turn."""
    rows: list[dict[str, str]] = []
    for family in FAMILIES.values():
        rng = Random(f"{seed} {family.name}")
        parts: dict[Part, None] = {}
        while len(parts) < QUESTIONS_A_FAMILY:
            if in_zone(part := draw_part(rng, family.name)):
                parts[part] = None
        rows += [
            {"family": family.name, "question": word(part, i % 2), "answer": str(value(part))}
            for i, part in enumerate(parts)
        ]
    return rows
