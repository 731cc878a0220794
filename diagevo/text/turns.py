"""A conversation as one text, and its turns again: each under its role, with a blank line between.

    assistant: I look it up.
    [tool call] search({"q": "tides"})

    tool search: Two a day.

    assistant: Twice a day.

A turn's text is data. A paragraph that begins like a turn gets an extra leading space, so that nobody
can forge another's turn, and `turns` recovers exactly what was joined.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

OWN = ("assistant", "gpt", "model")
"""Roles of the policy."""
NAMED = ("tool", "function", "other")
"""Roles that have a name."""
_ROLES = (*OWN, "user", "human", "system", "developer", "environment", "observation", "ipython")
_MARK = rf"(?:({'|'.join(_ROLES)})|({'|'.join(NAMED)})(?: (\S+))?):(?: |(?=\n\n|\Z))"
_TURN = re.compile(rf"(?:\A|\n\n){_MARK}")
_WRITTEN = _MARK.replace(r"\Z", r"\n\Z|\Z")
"""As above in a text by itself: a line's end before the next turn makes one of the last paragraph."""
_LOOKS_LIKE_ONE = re.compile(rf"(\A|\n\n)(?= *{_WRITTEN})")
_ESCAPED = re.compile(rf"(\A|\n\n) (?= *{_WRITTEN})")


class Turn(NamedTuple):
    """One speaker's text."""

    role: str
    text: str
    name: str = ""
    """The name of a tool, or of an unusual role."""

    @property
    def own(self) -> bool:
        """Whether the policy wrote it."""
        return self.role in OWN


def joined(found: Iterable[Turn], begun: str = "") -> str:
    """Turns as one text, after the end of a turn of the policy that `begun` holds."""
    parts = [alone(begun)] if begun else []
    for role, text, name in found:
        role = role.lower()
        if role not in _ROLES and role not in NAMED:
            role, name = "other", role
        name = "_".join(name.split())
        parts.append(f"{role} {name}: {alone(text)}" if name and role in NAMED else f"{role}: {alone(text)}")
    return "\n\n".join(parts)


def alone(text: str) -> str:
    """One speaker's text, escaped so that `turns` reads it as a single turn."""
    return _LOOKS_LIKE_ONE.sub(r"\1 ", text)


def turns(response: str) -> list[Turn]:
    """The turns of a response, or of a whole conversation. Text without a role is the policy's."""
    found: list[Turn] = []
    role, name, start = OWN[0], "", 0
    for mark in _TURN.finditer(response):
        if mark.start() or found:
            found.append(Turn(role, _ESCAPED.sub(r"\1", response[start : mark.start()]), name))
        role, name, start = mark[1] or mark[2], mark[3] or "", mark.end()
    return [*found, Turn(role, _ESCAPED.sub(r"\1", response[start:]), name)]
