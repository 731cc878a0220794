"""The true answer of every sentence of the grammar, by one formula per family, independent of the step
procedures.

With it the world can measure what a majority vote is worth. The loop uses it for two things: a
question that has no true answer here is invalid, and under `round.true_labels` the label is the truth.
Everything else that is computed from it is a measurement.
"""

from collections.abc import Callable

from diagevo.arithmetic.grammar import Part, parse

FORMULAS: dict[str, Callable[..., int]] = {
    "jumps": lambda start, jumps, size: start + jumps * size,
    "boxes": lambda boxes, in_box, packs, in_pack: boxes * in_box + packs * in_pack,
    "quotient": lambda less, divisor, value: value * divisor + less,
    "share": lambda divisor, less, value: (value + less) * divisor,
    "fence": lambda length, width: 2 * (length + width),
    "window": lambda height, width, high, wide: height * width - high * wide,
    "coins": lambda coins, count, price: coins - count * price,
    "minutes": lambda hours, minutes: 60 * hours + minutes,
    "mirror": lambda number, more: int(str(number)[::-1]) + more,
    "pattern": lambda start, growth, place: start + (place - 1) * growth,
    "lift": lambda start, down, up: start - down + up,
    "compare": lambda left, right, first, second: left * right - (first + second),
    "square": lambda side, more, less: side * side + more - less,
    "doubling": lambda number, more: 2 * (2 * number + more),
}


def value(part: Part) -> int:
    return FORMULAS[part.family](*part.numbers)


def answer(question: str) -> str | None:
    """The canonical answer of a sentence of the grammar, a decimal integer; None outside the grammar."""
    parts = parse(question)
    return None if parts is None else str(sum(map(value, parts)))
