"""A diagnostician whose replies nobody can read is found out before everything was asked of it.

Three failures are asked about first; where none of the three replies can be read, the others are not asked
for. Ten in a row end it at any time. Such verdicts are held back until a later reply can be read, so that
none of them is recorded where it ends: whoever goes on asks about these failures again.
"""

from collections.abc import Iterable

from diagevo.diagnosis.diagnostician import Unread
from diagevo.errors import ServiceError
from diagevo.memory.events import FailureDiagnosed
from diagevo.text.escaping import visible

PROBED = 3
"""Failures asked about before any reply was read."""
IN_A_ROW = 10
"""Unreadable replies, one after another, that end it."""
SHOWN = 400
"""Characters of a reply in a message."""
UNREAD = frozenset({"unreadable", "refused"})
"""Flags of an answer that nobody could read, or that never came."""


class Legibility:
    """Sifts verdicts in the order in which they are recorded."""

    def __init__(self, *, whole: bool = False) -> None:
        """`whole`: an end at which no reply was ever read raises too, however few there were."""
        self.understood = False
        """Whether a reply was read."""
        self._whole = whole
        self._held: list[FailureDiagnosed] = []
        self._last: Unread | None = None

    def sift(
        self, verdicts: Iterable[tuple[FailureDiagnosed, Unread | None]]
    ) -> tuple[list[FailureDiagnosed], ServiceError | None]:
        """Those that may be recorded now, and what ends it."""
        ready: list[FailureDiagnosed] = []
        for event, unread in verdicts:
            if UNREAD.isdisjoint(event.flags):
                self.understood = True
                ready += [*self._held, event]
                self._held.clear()
                continue
            self._held.append(event)
            self._last = unread or self._last
            if len(self._held) >= (IN_A_ROW if self.understood else PROBED):
                return ready, self._error()
        return ready, None

    def rest(self) -> list[FailureDiagnosed]:
        """What was held back to the end. Raises ServiceError as `sift` says."""
        if self._held and self._whole and not self.understood:
            raise self._error()
        held, self._held = self._held, []
        return held

    def _error(self) -> ServiceError:
        number = len(self._held)
        which = f"{number} replies in a row" if self.understood else f"the first {number} replies"
        return unreadable(which if number > 1 else "the one reply", self._last)


def unreadable(which: str, unread: Unread | None) -> ServiceError:
    """None of these replies could be read, the last one shown."""
    said = "" if unread is None else f": {unread.complaint}"
    if unread is not None and unread.reply is not None:
        said += f"\nit said: {shown(unread.reply)}"
    return ServiceError(
        f"{which} of the diagnostician could not be read{said}",
        hint="none of them is recorded, and they are asked again when you continue: check what "
        "base_url serves, and the role's model and max_tokens",
    )


def shown(reply: str) -> str:
    """A reply as data on one line, not too much of it."""
    text = visible(reply, one_line=True)
    return f"{text[:SHOWN]}…" if len(text) > SHOWN else text or "(nothing)"
