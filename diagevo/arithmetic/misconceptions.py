"""The solver's false beliefs: at some steps one fixed wrong step, with a probability set by an operand's
digit.

A slip is noise around a right answer, and one cure serves all slips: a lower temperature. A misconception
is not. Each belongs to one step of one family and always gives the same wrong step, so that practice
elsewhere does not fix it; where it is strong the wrong answer is the solver's majority, which no
temperature fixes."""

from diagevo.arithmetic.families import GROUPS
from diagevo.arithmetic.grammar import Step
from diagevo.arithmetic.slips import Kind, offers

MISCONCEPTIONS: dict[tuple[str, str], tuple[str, int]] = {
    ("jumps", "add"): ("carry", 0),
    ("boxes", "first"): ("row", 0),
    ("boxes", "sum"): ("ten", 1),
    ("quotient", "multiply"): ("row", 2),
    ("quotient", "restore"): ("operation", 0),
    ("share", "restore"): ("operation", 0),
    ("share", "multiply"): ("row", 3),
    ("fence", "half"): ("carry", 0),
    ("fence", "double"): ("near", 2),
    ("window", "outer"): ("operation", 0),
    ("window", "left"): ("near", 4),
    ("coins", "cost"): ("count", 1),
    ("coins", "change"): ("ten", 0),
    ("minutes", "sixes"): ("near", 1),
    ("minutes", "total"): ("ten", 0),
    ("mirror", "turn"): ("twin", 0),
    ("mirror", "add"): ("near", 3),
    ("pattern", "gaps"): ("count", 0),
    ("pattern", "term"): ("near", 7),
    ("lift", "fall"): ("order", 0),
    ("lift", "rise"): ("near", 0),
    ("compare", "product"): ("row", 1),
    ("compare", "gap"): ("order", 0),
    ("square", "square"): ("operation", 0),
    ("square", "less"): ("borrow", 0),
    ("doubling", "first"): ("near", 6),
    ("doubling", "again"): ("stop", 0),
}
"""By family and step: the type of the wrong step, and its place among what the type offers there."""

WEAK, MIDDLING, STRONG = 0.1, 0.33, 0.58
"""Chances of a misconception: up to middling the majority is right, where it is strong it is wrong."""
FAMILIAR = dict.fromkeys(GROUPS["head"], 0.12) | {"jumps": 0.75}
"""What is left of the chances. In the head little: the premise that a challenger writes most what the solver
knows already. A question of jumps takes its step several times, so each time less often."""
_BY_DIGIT = (STRONG, MIDDLING, WEAK, MIDDLING, WEAK, MIDDLING, MIDDLING, WEAK, MIDDLING, MIDDLING)
"""Strength by a digit of the step; each misconception begins three places further on."""
_STRONG_AT = {
    ("jumps", "add"), ("quotient", "restore"), ("share", "multiply"), ("minutes", "total"),
    ("lift", "rise"), ("compare", "product"), ("square", "less"), ("doubling", "first"),
}  # fmt: skip
"""At most one step a family whose misconception is strong at some digits; elsewhere these are middling."""
_BY_LEFT = {
    ("mirror", "turn"), ("fence", "double"), ("minutes", "sixes"), ("pattern", "gaps"),
    ("doubling", "first"), ("doubling", "again"),
}  # fmt: skip
"""Steps without a right operand that varies: the left one's digit counts."""
_TURN = {step: 3 * place for place, step in enumerate(MISCONCEPTIONS)}


def strength(family: str, step: str, right: Step) -> float:
    """The strength of a step's misconception: by the last digit of an operand, before scaling by
    familiarity."""
    digit = abs(right.left if (family, step) in _BY_LEFT else right.right) % 10
    found = _BY_DIGIT[(digit + _TURN[family, step]) % 10]
    return MIDDLING if found == STRONG and (family, step) not in _STRONG_AT else found


def misconception(family: str, step: str, right: Step) -> tuple[Step | None, float] | None:
    """The wrong step believed in (None: the step is left out) and its probability; None if there is none."""
    if (family, step) not in MISCONCEPTIONS:
        return None
    type_, place = MISCONCEPTIONS[family, step]
    wrong = offers(Kind(family, step, type_), right)
    if not wrong:
        return None
    return wrong[place % len(wrong)], strength(family, step, right) * FAMILIAR.get(family, 1.0)
