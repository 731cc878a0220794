"""The grammar of the arithmetic world: which sentences are questions, and the procedure that answers each.

A question belongs to one of fourteen families, or joins two such questions ("first … ; second … ; add both").
A family is a few wordings with places for numbers, and a procedure in atomic steps. No family has a hidden
constraint: any numbers of one to three digits give an answer (a divisor is never 0).
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

JOIN = "join"
"""Name of the step that adds the answers of two joined questions."""

_NUMBER = r"(0|[1-9]\d{0,2})"
_DIVISOR = r"([1-9]\d{0,2})"


@dataclass(frozen=True, slots=True)
class Step:
    """One atomic step: `left op right = result`. `op` is +, -, * or r, which writes `left` backwards."""

    left: int
    op: str
    right: int
    result: int

    def __str__(self) -> str:
        if self.op == "r":
            return f"r{self.left}={self.result}"
        return f"{self.left}{self.op}{self.right}={self.result}"


def evaluate(left: int, op: str, right: int) -> int:
    if op == "+":
        return left + right
    if op == "-":
        return left - right
    if op == "*":
        return left * right
    return int(str(abs(left))[::-1])


Operand = int | str
"""A constant, `n2` (the question's third number) or `s1` (the result of the second step)."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """A step to do: its name in the family, its operands and its operation."""

    name: str
    left: Operand
    op: str
    right: Operand = 0


@dataclass(frozen=True, slots=True)
class Family:
    """A kind of question: wordings with places {0}, {1}, …, a sampler of its numbers, and its procedure."""

    name: str
    wordings: tuple[str, ...]
    draw: Callable[[Random], tuple[int, ...]]
    """Numbers like those of the corpus; the grammar itself takes any."""
    procedure: Callable[[Sequence[int]], list[Instruction]]
    divisor: int | None = None
    """Place of the number that may not be 0."""


@dataclass(frozen=True, slots=True)
class Part:
    """A family with its numbers: a question whatever its wording."""

    family: str
    numbers: tuple[int, ...]


def _fixed(written: str) -> Callable[[Sequence[int]], list[Instruction]]:
    """The same steps whatever the numbers, each as "name left op right"."""
    instructions = []
    for step in written.split(", "):
        name, left, op, *right = step.split(" ")
        instructions.append(Instruction(name, left, op, *(int(n) if n.isdecimal() else n for n in right)))
    return lambda numbers: list(instructions)


def _jumps(numbers: Sequence[int]) -> list[Instruction]:
    return [Instruction("add", "n0" if i == 0 else f"s{i - 1}", "+", "n2") for i in range(numbers[1])]


def _between(*ranges: tuple[int, int]) -> Callable[[Random], tuple[int, ...]]:
    return lambda rng: tuple(rng.randint(low, high) for low, high in ranges)


def _coins(rng: Random) -> tuple[int, ...]:
    count, price = rng.randint(2, 9), rng.randint(2, 9)
    return rng.randint(count * price + 1, 99), count, price


def _two_digits(rng: Random) -> tuple[int, ...]:
    return 10 * rng.randint(1, 9) + rng.randint(1, 9), rng.randint(3, 60)


def _square(rng: Random) -> tuple[int, ...]:
    side, more = rng.randint(3, 9), rng.randint(2, 40)
    return side, more, rng.randint(2, side * side + more - 1)


def _compare(rng: Random) -> tuple[int, ...]:
    left, right = rng.randint(4, 9), rng.randint(4, 9)
    first = rng.randint(2, left * right - 4)
    return left, right, first, rng.randint(2, left * right - first)


FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        Family(
            "jumps",
            ("start at {0} and make {1} jumps of {2}", "begin with {0} , then {1} times add {2}"),
            _between((2, 60), (2, 4), (2, 9)),
            _jumps,
        ),
        Family(
            "boxes",
            (
                "how many pens are in {0} boxes of {1} and {2} packs of {3}",
                "add {0} times {1} to {2} times {3}",
            ),
            _between((2, 9), (2, 9), (2, 9), (2, 9)),
            _fixed("first n0 * n1, second n2 * n3, sum s0 + s1"),
        ),
        Family(
            "quotient",
            ("solve (x-{0})/{1}={2}", "find x if (x-{0})/{1}={2}"),
            _between((2, 60), (2, 9), (2, 9)),
            _fixed("multiply n2 * n1, restore s0 + n0"),
            divisor=1,
        ),
        Family(
            "share",
            ("solve x/{0}-{1}={2}", "find x if x/{0}-{1}={2}"),
            _between((2, 9), (2, 9), (2, 9)),
            _fixed("restore n2 + n1, multiply s0 * n0"),
            divisor=0,
        ),
        Family(
            "fence",
            (
                "what is the perimeter of a {0} by {1} rectangle",
                "how long is a fence around a {0} by {1} field",
            ),
            _between((3, 60), (3, 40)),
            _fixed("half n0 + n1, double s0 * 2"),
        ),
        Family(
            "window",
            (
                "a {0} by {1} wall has a {2} by {3} window , what area is left",
                "cut {2} by {3} from a {0} by {1} sheet , what area is left",
            ),
            _between((4, 9), (4, 9), (2, 5), (2, 5)),
            _fixed("outer n0 * n1, inner n2 * n3, left s0 - s1"),
        ),
        Family(
            "coins",
            (
                "you have {0} coins and buy {1} pens at {2} each , how many are left",
                "pay for {1} books at {2} each from {0} coins , how many are left",
            ),
            _coins,
            _fixed("cost n1 * n2, change n0 - s0"),
        ),
        Family(
            "minutes",
            ("how many minutes are {0} hours and {1} minutes", "turn {0} hours {1} minutes into minutes"),
            _between((2, 9), (3, 59)),
            _fixed("sixes n0 * 6, tens s0 * 10, total s1 + n1"),
        ),
        Family(
            "mirror",
            ("swap the digits of {0} and add {1}", "write {0} backwards , then add {1}"),
            _two_digits,
            _fixed("turn n0 r, add s0 + n1"),
        ),
        Family(
            "pattern",
            (
                "a list starts at {0} and grows by {1} , what is entry {2}",
                "find term {2} if term 1 is {0} and each next is {1} more",
            ),
            _between((2, 60), (2, 9), (3, 10)),
            _fixed("gaps n2 - 1, rise s0 * n1, term s1 + n0"),
        ),
        Family(
            "lift",
            (
                "it is {0} degrees , falls by {1} and rises by {2} , how warm is it",
                "a lift at floor {0} goes down {1} and up {2} , where is it",
            ),
            _between((2, 20), (2, 25), (2, 20)),
            _fixed("fall n0 - n1, rise s0 + n2"),
        ),
        Family(
            "compare",
            (
                "how much more is {0} times {1} than {2} plus {3}",
                "by how much is {0} times {1} above {2} plus {3}",
            ),
            _compare,
            _fixed("product n0 * n1, sum n2 + n3, gap s0 - s1"),
        ),
        Family(
            "square",
            (
                "square {0} , add {1} and take away {2}",
                "take {0} times itself , then {1} more , then {2} less",
            ),
            _square,
            _fixed("square n0 * n0, more s0 + n1, less s1 - n2"),
        ),
        Family(
            "doubling",
            ("double {0} , add {1} and double again", "twice {0} , plus {1} , then all of it twice"),
            _between((3, 30), (2, 30)),
            _fixed("first n0 * 2, add s0 + n1, again s1 * 2"),
        ),
    )
}


def _pattern(family: Family, wording: str) -> tuple[re.Pattern[str], list[int]]:
    """The wording as a regular expression, and which number each of its groups is."""
    pieces = re.split(r"\{(\d)\}", wording)
    places = [int(place) for place in pieces[1::2]]
    numbers = [_DIVISOR if place == family.divisor else _NUMBER for place in places]
    texts = [re.escape(text) for text in pieces[0::2]]
    return re.compile("".join(a + b for a, b in zip(texts, [*numbers, ""], strict=True))), places


_PATTERNS = [
    (family.name, *_pattern(family, wording)) for family in FAMILIES.values() for wording in family.wordings
]


def _parse_part(text: str) -> Part | None:
    for name, pattern, places in _PATTERNS:
        if match := pattern.fullmatch(text):
            numbers = dict(zip(places, map(int, match.groups()), strict=True))
            return Part(name, tuple(numbers[place] for place in sorted(numbers)))
    return None


def parse(question: str) -> tuple[Part, ...] | None:
    """The one or two parts of a question; None outside the grammar. Case and spaces are forgiven."""
    text = " ".join(question.lower().split()).rstrip(" .?!")
    if part := _parse_part(text):
        return (part,)
    if text.startswith("first ") and text.endswith(" ; add both"):
        left, _, right = text.removeprefix("first ").removesuffix(" ; add both").partition(" ; second ")
        first, second = _parse_part(left), _parse_part(right)
        if first and second:
            return first, second
    return None


def word(part: Part, wording: int = 0) -> str:
    """The sentence of a part in one of its family's wordings."""
    return FAMILIES[part.family].wordings[wording].format(*part.numbers)


def word_joined(first: str, second: str) -> str:
    return f"first {first} ; second {second} ; add both"


def draw_part(rng: Random, family: str) -> Part:
    """A part of the family with numbers like the corpus's."""
    return Part(family, FAMILIES[family].draw(rng))


def resolve(operand: Operand, numbers: Sequence[int], results: Sequence[int]) -> int:
    """The value of an operand, given the question's numbers and the results of the steps so far."""
    if isinstance(operand, int):
        return operand
    return (numbers if operand[0] == "n" else results)[int(operand[1:])]


def right_step(instruction: Instruction, numbers: Sequence[int], results: Sequence[int]) -> Step:
    """An instruction carried out rightly on what the steps so far gave."""
    left = resolve(instruction.left, numbers, results)
    right = resolve(instruction.right, numbers, results)
    return Step(left, instruction.op, right, evaluate(left, instruction.op, right))


def solve(part: Part) -> list[Step]:
    """The right procedure of a part, step by step."""
    results: list[int] = []
    steps: list[Step] = []
    for instruction in FAMILIES[part.family].procedure(part.numbers):
        steps.append(right_step(instruction, part.numbers, results))
        results.append(steps[-1].result)
    return steps


def outcome(part: Part, steps: Sequence[Step]) -> int:
    """The answer that the steps of a part lead to; with no step (no jumps at all) its first number."""
    return steps[-1].result if steps else part.numbers[0]


def write_solution(steps: Sequence[Step], answer: int) -> str:
    """A trajectory: steps, then the answer in a box."""
    return ";".join([*map(str, steps), f"\\boxed{{{answer}}}"])


_INTEGER = r"(-?\d{1,100})"  # what is longer no model worked out, and Python refuses to read
_STEP = re.compile(rf"(?:r{_INTEGER}|{_INTEGER}([-+*]){_INTEGER})={_INTEGER}")


def read_steps(trajectory: str) -> list[Step]:
    """The well-formed steps of a trajectory, up to the first piece that is none."""
    steps: list[Step] = []
    for piece in trajectory.split(";"):
        match = _STEP.fullmatch(piece.strip())
        if not match:
            break
        turned, left, op, right, result = match.groups()
        if turned is not None:
            steps.append(Step(int(turned), "r", 0, int(result)))
        else:
            steps.append(Step(int(left), op, int(right), int(result)))
    return steps
