"""How often free exploration writes each family: a premise of this world, in head, middle and tail.

The free challenger draws families with a heavy tail; targeted and stitched questions, the solver's documents
and the held-out set draw them all alike. So what the schedule can add is visible here: it can ask for what
free exploration leaves out.
"""

from diagevo.arithmetic.grammar import parse

GROUPS: dict[str, tuple[str, ...]] = {
    "head": ("boxes", "mirror", "coins", "fence", "pattern"),
    "middle": ("doubling", "quotient", "lift", "square"),
    "tail": ("jumps", "share", "minutes", "compare", "window"),
}
"""The families in the free challenger's order of frequency."""
FREE_ORDER = tuple(name for names in GROUPS.values() for name in names)
FREE_WEIGHTS = {name: 1 / rank**1.8 for rank, name in enumerate(FREE_ORDER, 1)}
"""A heavy tail: the first family is written 116 times as often as the last."""
_GROUP_OF = {name: group for group, names in GROUPS.items() for name in names}


def family(question: str) -> str | None:
    """The family of a question's first part; None outside the grammar."""
    parts = parse(question)
    return None if parts is None else parts[0].family


def group(question: str) -> str | None:
    """Head, middle or tail: the group of a question's first part; None outside the grammar."""
    name = family(question)
    return None if name is None else _GROUP_OF[name]
