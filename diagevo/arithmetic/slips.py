"""The kinds of mistake, their rates as random slips, and what each makes of a step.

A kind is a family, a step of its procedure and a type of mistake. Rates are chances a step, and the rates of
one step sum to 0.09-0.24; how much of them is played, `doing` says. A type offers several wrong steps
wherever it can, so that random slips disagree with each other. Generating and recognising are one function,
`alternatives`: a wrong step belongs to the first type of its step that offers it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from diagevo.arithmetic.grammar import FAMILIES, JOIN, Part, Step, evaluate


@dataclass(frozen=True, slots=True, order=True)
class Kind:
    """One way to fail: the unit that a diagnosed cause describes."""

    family: str
    step: str
    type: str


# Order within a step is the order of recognition: exact structural types before the spread of near values.
_RATES: dict[str, dict[str, dict[str, float]]] = {
    "jumps": {"add": {"carry": 0.03, "ten": 0.01, "near": 0.08, "copy": 0.01, "count": 0.06}},
    "boxes": {
        "first": {"row": 0.09, "near": 0.05, "copy": 0.01},
        "second": {"row": 0.03, "swap": 0.01, "near": 0.10},
        "sum": {"carry": 0.07, "ten": 0.01, "near": 0.07, "stop": 0.015},
    },
    "quotient": {
        "multiply": {"row": 0.11, "near": 0.05, "operation": 0.015},
        "restore": {"carry": 0.07, "ten": 0.01, "near": 0.10, "operation": 0.03, "stop": 0.01},
    },
    "share": {
        "restore": {"near": 0.12, "operation": 0.05, "copy": 0.015},
        "multiply": {"row": 0.10, "swap": 0.01, "near": 0.06, "stop": 0.015},
    },
    "fence": {
        "half": {"carry": 0.07, "ten": 0.01, "near": 0.12, "copy": 0.015},
        "double": {"carry": 0.03, "ten": 0.01, "near": 0.12, "stop": 0.05},
    },
    "window": {
        "outer": {"row": 0.09, "near": 0.04, "operation": 0.01},
        "inner": {"row": 0.03, "near": 0.09, "operation": 0.015},
        "left": {"borrow": 0.07, "flip": 0.015, "near": 0.07, "operation": 0.02},
    },
    "coins": {
        "cost": {"row": 0.10, "near": 0.04, "count": 0.03},
        "change": {"borrow": 0.07, "flip": 0.015, "ten": 0.03, "near": 0.09, "operation": 0.01},
    },
    "minutes": {
        "sixes": {"row": 0.11, "near": 0.05},
        "tens": {"place": 0.10},
        "total": {"carry": 0.03, "ten": 0.05, "near": 0.08, "copy": 0.01, "stop": 0.01},
    },
    "mirror": {
        "turn": {"order": 0.04, "twin": 0.11, "near": 0.03},
        "add": {"carry": 0.07, "ten": 0.015, "near": 0.11, "operation": 0.01, "stop": 0.015},
    },
    "pattern": {
        "gaps": {"count": 0.10, "copy": 0.015},
        "rise": {"row": 0.08, "near": 0.06, "operation": 0.01},
        "term": {"carry": 0.06, "ten": 0.01, "near": 0.08, "stop": 0.015},
    },
    "lift": {
        "fall": {"sign": 0.06, "order": 0.015, "near": 0.13},
        "rise": {"sign": 0.05, "ten": 0.06, "near": 0.08, "operation": 0.015},
    },
    "compare": {
        "product": {"row": 0.09, "near": 0.05, "copy": 0.01},
        "sum": {"carry": 0.05, "near": 0.07, "operation": 0.01},
        "gap": {"borrow": 0.06, "flip": 0.01, "near": 0.08, "order": 0.015},
    },
    "square": {
        "square": {"operation": 0.05, "row": 0.06, "near": 0.03},
        "more": {"carry": 0.05, "ten": 0.01, "near": 0.06, "copy": 0.01},
        "less": {"borrow": 0.05, "flip": 0.01, "near": 0.06, "operation": 0.015, "stop": 0.01},
    },
    "doubling": {
        "first": {"carry": 0.015, "near": 0.10, "copy": 0.01},
        "add": {"carry": 0.05, "ten": 0.01, "near": 0.07},
        "again": {"carry": 0.03, "ten": 0.01, "near": 0.10, "stop": 0.04},
    },
    JOIN: {"total": {"carry": 0.03, "ten": 0.01, "near": 0.05, "stop": 0.01}},
}

RATES: dict[Kind, float] = {
    Kind(family, step, type_): rate
    for family, steps in _RATES.items()
    for step, types in steps.items()
    for type_, rate in types.items()
}
"""Chance of each kind at each occurrence of its step."""

KINDS: tuple[Kind, ...] = tuple(RATES)

_NEAR = (-4, -3, -2, -1, 1, 2, 3, 4)


def _neighbours(number: int) -> list[int]:
    """What a number is misread as: one digit off by one to three, never negative."""
    steps = (1, 2, 3, -1, -2, -3) if number < 10 else (1, 2, 3, 10, 20, -1, -2, -3, -10, -20)
    return [number + d for d in steps if number + d > 0]


def _recomputed(left: int, op: str, right: int) -> Step:
    return Step(left, op, right, evaluate(left, op, right))


def _carried(step: Step) -> list[int]:
    """The sum with one of its carries forgotten."""
    left, right = (step.left, step.left) if step.op == "*" else (step.left, step.right)
    if left < 0 or right < 0:
        return []
    units = left % 10 + right % 10 >= 10
    tens = left // 10 % 10 + right // 10 % 10 + units >= 10
    return [step.result - 10] * units + [step.result - 100] * tens


def _flipped(left: int, right: int) -> int:
    """Column by column, the smaller digit from the larger."""
    columns = zip(str(left).zfill(3)[::-1], str(right).zfill(3)[::-1], strict=False)
    return sum(abs(int(a) - int(b)) * 10**place for place, (a, b) in enumerate(columns))


def alternatives(type_: str, step: Step) -> list[Step | None]:
    """The wrong steps that a type of slip makes of `step`; None stands for leaving the step out."""
    left, op, right, result = step.left, step.op, step.right, step.result

    def results(values: Sequence[int]) -> list[Step | None]:
        return [Step(left, op, right, value) for value in values if value != result]

    match type_:
        case "near":
            return results([result + d for d in _NEAR if result < 0 or result + d >= 0])
        case "ten":
            return results([result + 10, result - 10])
        case "swap":
            return results([int(str(result)[:-2] + str(result)[:-3:-1])] if result >= 10 else [])
        case "carry":
            return results(_carried(step))
        case "borrow":
            return results([result + 10] if left >= right >= 0 and left % 10 < right % 10 else [])
        case "flip":
            return results([_flipped(left, right)] if left >= right >= 0 else [])
        case "row":
            return results([result + d for d in (left, right, -left, -right)])
        case "place":
            return results([result * 10, result // 10])
        case "sign":
            if op == "-":
                return results([-result] if result < 0 else [])
            return results([-result, abs(left) + right] if left < 0 else [])
        case "twin":
            return results([left // 10 * 11, left % 10 * 11])
        case "order":
            if op == "r":
                return results([left])
            return [_recomputed(right, op, left)] if left != right else []
        case "operation":
            other = {"+": "-", "-": "+", "*": "+"}.get(op)  # a reference may have any step at this place
            wrong = None if other is None else _recomputed(left, other, right)
            return [wrong] if wrong is not None and wrong.result != result else []
        case "count":
            if op == "*":
                return [_recomputed(left + d, op, right) for d in (-1, 1)]
            if op == "-":
                return [_recomputed(left, op, right + d) for d in (-1, 1)]
            return [None]
        case "copy":
            wrong = [_recomputed(other, op, right) for other in _neighbours(left)]
            wrong += [_recomputed(left, op, other) for other in _neighbours(right) if op != "-"]
            return [step for step in wrong if step.result != result]
        case "stop":
            return [None]
    raise ValueError(f"no type of slip {type_!r}")


def _equal(offered: Step | None, found: Step | None, right: Step) -> bool:
    """Whether a found step is the offered one; where the slip changed the operands, whatever its result."""
    if offered is None or found is None:
        return offered is found
    changed = (offered.left, offered.op, offered.right) != (right.left, right.op, right.right)
    if changed:
        return (offered.left, offered.op, offered.right) == (found.left, found.op, found.right)
    return offered == found


def step_kinds(family: str, step: str) -> list[Kind]:
    """The kinds of a step, in order of recognition."""
    return [Kind(family, step, type_) for type_ in _RATES[family][step]]


def recognise(family: str, name: str, right: Step, found: Step | None) -> Kind | None:
    """The kind of slip that made `found` of `right`, or None where no kind of this step offers it."""
    for kind in step_kinds(family, name):
        if any(_equal(offered, found, right) for offered in alternatives(kind.type, right)):
            return kind
    return None


def offers(kind: Kind, right: Step) -> list[Step | None]:
    """The wrong steps of a kind that are recognised as this very kind."""
    return [
        wrong
        for wrong in alternatives(kind.type, right)
        if recognise(kind.family, kind.step, right, wrong) == kind
    ]


def applies(kind: Kind, steps: Sequence[Step], part: Part) -> bool:
    """Whether a part's right procedure has a step at which the kind can happen."""
    instructions = FAMILIES[part.family].procedure(part.numbers)
    return kind.family == part.family and any(
        instruction.name == kind.step and offers(kind, step)
        for instruction, step in zip(instructions, steps, strict=True)
    )
