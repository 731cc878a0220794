"""The wordings of kinds and skills: 10-20-word verb-object phrases, several for each.

The wordings of one kind share most of their words, so that an embedder of words finds them near each other
and deduplication has work to do; which kind a phrase means is known exactly (`kind_of`, `skill_of`).
"""

from diagevo.arithmetic.grammar import JOIN
from diagevo.arithmetic.slips import KINDS, Kind

_FAMILY = {
    "jumps": "repeated jumps from a starting number",
    "boxes": "a sum of two products of groups",
    "quotient": "an equation that divides a difference",
    "share": "an equation that lowers a quotient",
    "fence": "the perimeter of a rectangular field",
    "window": "the area left around a window",
    "coins": "the change after buying several things",
    "minutes": "the conversion of hours into minutes",
    "mirror": "sums with a number written backwards",
    "pattern": "entries of a steadily growing list",
    "lift": "levels that first fall and then rise",
    "compare": "comparisons of a product with a sum",
    "square": "changes made to a squared number",
    "doubling": "numbers that are doubled two times",
    JOIN: "two questions joined into one",
}

_STEP = {
    ("jumps", "add"): "adding the next jump",
    ("boxes", "first"): "multiplying the first group",
    ("boxes", "second"): "multiplying the second group",
    ("boxes", "sum"): "adding both groups",
    ("quotient", "multiply"): "undoing the division",
    ("quotient", "restore"): "undoing the subtraction inside",
    ("share", "restore"): "undoing the final subtraction",
    ("share", "multiply"): "undoing the division last",
    ("fence", "half"): "adding length and width",
    ("fence", "double"): "doubling length plus width",
    ("window", "outer"): "multiplying the outer sides",
    ("window", "inner"): "multiplying the inner sides",
    ("window", "left"): "subtracting the inner area",
    ("coins", "cost"): "multiplying count and price",
    ("coins", "change"): "subtracting the cost",
    ("minutes", "sixes"): "multiplying hours by six",
    ("minutes", "tens"): "making tens of sixes",
    ("minutes", "total"): "adding the extra minutes",
    ("mirror", "turn"): "turning the digits around",
    ("mirror", "add"): "adding to the turned number",
    ("pattern", "gaps"): "counting gaps between entries",
    ("pattern", "rise"): "multiplying gaps and growth",
    ("pattern", "term"): "adding growth to the start",
    ("lift", "fall"): "subtracting the fall",
    ("lift", "rise"): "adding the rise",
    ("compare", "product"): "multiplying the compared factors",
    ("compare", "sum"): "adding the compared numbers",
    ("compare", "gap"): "subtracting the compared sum",
    ("square", "square"): "squaring the number",
    ("square", "more"): "adding to the square",
    ("square", "less"): "subtracting from the square",
    ("doubling", "first"): "doubling the first time",
    ("doubling", "add"): "adding between both doublings",
    ("doubling", "again"): "doubling the second time",
    (JOIN, "total"): "adding both answers",
}

_TYPE = {
    "near": (
        "misses the result by a few",
        "misses the result by some few ones",
        "misjudges the result by a few",
    ),
    "ten": ("misses the result by ten", "misses the result by exactly ten", "shifts the result by ten"),
    "swap": (
        "swaps the digits of the result",
        "swaps both digits of the result",
        "turns the digits of the result",
    ),
    "carry": ("forgets the carried digit", "forgets to add the carried digit", "loses the carried digit"),
    "borrow": ("forgets the borrowed ten", "forgets to pay the borrowed ten", "ignores the borrowed ten"),
    "flip": (
        "subtracts smaller digits from larger digits",
        "always subtracts smaller from larger digits",
        "takes smaller digits from larger digits",
    ),
    "row": (
        "recalls a neighbour in the times table",
        "takes a neighbour in the times table",
        "slides by one in the times table",
    ),
    "place": ("misplaces the final zero", "misplaces or drops the final zero", "mishandles the final zero"),
    "sign": ("drops the minus sign", "drops or ignores the minus sign", "loses the minus sign"),
    "twin": ("writes one digit twice", "writes the same one digit twice", "repeats one digit twice"),
    "order": (
        "keeps the wrong order of numbers",
        "uses the wrong order of numbers",
        "takes the wrong order of numbers",
    ),
    "operation": (
        "uses the wrong operation",
        "picks and uses the wrong operation",
        "applies the wrong operation",
    ),
    "count": (
        "miscounts the repetitions by one",
        "miscounts how many repetitions by one",
        "counts the repetitions off by one",
    ),
    "copy": (
        "misreads a digit of a number",
        "misreads one digit of a number",
        "copies wrongly a digit of a number",
    ),
    "stop": ("leaves out the last step", "stops and leaves out the last step", "skips the last step"),
}

_CONNECTIVES = ("when", "when", "while")


def _phrases(kind: Kind) -> tuple[str, ...]:
    place = f"{_STEP[kind.family, kind.step]} in {_FAMILY[kind.family]}"
    return tuple(f"{verb} {c} {place}" for verb, c in zip(_TYPE[kind.type], _CONNECTIVES, strict=True))


CAUSES: dict[Kind, tuple[str, ...]] = {kind: _phrases(kind) for kind in KINDS}
"""The wordings of each kind."""

_MULTIPLY = {
    ("boxes", "first"), ("boxes", "second"), ("quotient", "multiply"), ("share", "multiply"),
    ("window", "outer"), ("window", "inner"), ("coins", "cost"), ("minutes", "sixes"), ("minutes", "tens"),
    ("pattern", "rise"), ("compare", "product"), ("square", "square"),
}  # fmt: skip
_SUBTRACT = {
    ("window", "left"),
    ("coins", "change"),
    ("compare", "gap"),
    ("square", "less"),
    ("lift", "fall"),
}
_DOUBLE = {("fence", "double"), ("doubling", "first"), ("doubling", "again")}


def skill(kind: Kind) -> str:
    """The skill that a kind of slip lacks: by its type where that says it, else by what the step computes."""
    named = {
        "carry": "carry", "borrow": "borrow", "flip": "borrow", "row": "tables", "operation": "operation",
        "order": "order", "count": "count", "copy": "read", "stop": "finish", "sign": "sign",
        "place": "digits", "twin": "digits", "swap": "digits",
    }  # fmt: skip
    if kind.type in named:
        return named[kind.type]
    step = (kind.family, kind.step)
    if step == ("mirror", "turn"):
        return "digits"
    if step in _MULTIPLY:
        return "tables"
    if step in _DOUBLE:
        return "double"
    return "subtract" if step in _SUBTRACT else "add"


LABELS: dict[str, tuple[str, ...]] = {
    "carry": (
        "carry digits over to the next column when adding numbers",
        "carry every digit over to the next column when adding numbers",
    ),
    "borrow": (
        "borrow from the next column when subtracting a larger digit",
        "borrow correctly from the next column when subtracting a larger digit",
    ),
    "tables": (
        "recall products of small numbers exactly from the times tables",
        "recall all products of small numbers exactly from the times tables",
    ),
    "operation": (
        "choose the operation that each step of the question needs",
        "choose the one operation that each step of the question needs",
    ),
    "order": (
        "keep numbers and digits in the order that is asked",
        "keep both numbers and digits in the order that is asked",
    ),
    "count": (
        "count repetitions and gaps exactly before working with their number",
        "count all repetitions and gaps exactly before working with their number",
    ),
    "read": (
        "read every digit of the given numbers before using it",
        "read each single digit of the given numbers before using it",
    ),
    "finish": (
        "finish all the steps of a procedure before giving answers",
        "finish really all the steps of a procedure before giving answers",
    ),
    "sign": (
        "track the sign of numbers that fall below zero level",
        "track carefully the sign of numbers that fall below zero level",
    ),
    "digits": (
        "write the digits of a number in their right places",
        "write all the digits of a number in their right places",
    ),
    "double": (
        "double numbers of several digits exactly without losing any ones",
        "double all numbers of several digits exactly without losing any ones",
    ),
    "subtract": (
        "subtract numbers of several digits exactly down to the ones",
        "subtract two numbers of several digits exactly down to the ones",
    ),
    "add": (
        "add numbers of several digits exactly down to the ones",
        "add two numbers of several digits exactly down to the ones",
    ),
}
"""The wordings of each skill, as labels of skill nodes."""

_KIND_OF = {phrase: kind for kind, phrases in CAUSES.items() for phrase in phrases}
_SKILL_OF = {label: name for name, labels in LABELS.items() for label in labels}


def kind_of(description: str) -> Kind | None:
    """The kind that a wording of this module describes; None for any other text."""
    return _KIND_OF.get(description)


def skill_of(label: str) -> str | None:
    """The skill that a label of this module names; None for any other text."""
    return _SKILL_OF.get(label)
