"""The interface of a diagnostician: four decisions over plain values.

The paper's four calls (appendix "Prompt Templates and Memory Routing"): extraction with recurrence
verification (Prompt 1), deduplication (2), node assignment (3) and consolidation (4). Screening, retrieval
and routing are code (`maintain.py`). A language model answers them in `openai_diagnostician.py`; a world with
rules may answer them too.

A diagnostician never raises because of a strange reply: every malformed reply has a defined verdict
(README, Fidelity). It raises ServiceError if the service cannot be reached and StoppedSafely if its budget
is spent; nothing is recorded then, and the question is asked again when the run continues.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from diagevo.errors import ServiceError
from diagevo.memory.events import DiagnosisVerdict, FailureDiagnosed, ModelCall, WrongStep
from diagevo.memory.events.catalogue import Votes
from diagevo.memory.nearest.similarity import NodeCandidate
from diagevo.memory.state.model import KnownCause
from diagevo.text.escaping import visible


@dataclass(frozen=True, slots=True)
class Computed:
    """What was computed about an ingested failure before a model is asked."""

    passed: str | None
    """The nearest passing response, by digest; None if none passed."""
    findings: tuple[str, ...]
    """What sets it apart from passes."""
    step: WrongStep | None
    """The step computed to be wrong."""


@dataclass(frozen=True, slots=True)
class FailurePair:
    """One failed trajectory and the stored reference of its question: what Equation 5 compares."""

    failure_id: str
    question: str
    label: str
    """The pseudo-label: the majority answer, not a known truth. Of rewards the expected answer, or empty."""
    agreeing: str
    """The construction response that reaches the label; for rewards one that passed; empty if none did."""
    disagreeing: str
    """The optimization response that does not."""
    known: tuple[KnownCause, ...] = ()
    """Causes shown at generation, in their state as committed in the round before: none, one or two."""
    asked: int = 1
    """2 or more if an unresolved failure is asked again: a stored reply to the first request does not
    count."""
    votes_are: Votes = "answers"
    """What distinguishes the two: the solver's own majority, or the rewards of another trainer's check."""
    computed: Computed | None = None
    """Of an ingested failure."""


@dataclass(frozen=True, slots=True)
class Unread:
    """An unreadable reply, and why; no reply if the service refused the request."""

    reply: str | None
    complaint: str


@dataclass(frozen=True, slots=True)
class Extraction:
    """Answer of Prompt 1. `cause_id` belongs to `recurrence`, `description` to `new_cause`; else both are
    None. `unread`: for an unresolved one, the last reply received."""

    verdict: DiagnosisVerdict
    cause_id: str | None = None
    description: str | None = None
    flags: tuple[str, ...] = ()
    call: ModelCall | None = None
    unread: Unread | None = None
    step: str | None = None
    """For an ingested failure: the quoted step that is called wrong."""


@dataclass(frozen=True, slots=True)
class DuplicateJudgement:
    """Answer of Prompt 2. `cause_id` is one of the candidates exactly when `duplicate`."""

    duplicate: bool
    cause_id: str | None = None
    call: ModelCall | None = None
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeAssignment:
    """Answer of Prompt 3: exactly one of `node_id` (from the shortlist) and `new_label` is given."""

    node_id: str | None = None
    new_label: str | None = None
    flags: tuple[str, ...] = ()
    call: ModelCall | None = None


@dataclass(frozen=True, slots=True)
class PairJudgement:
    """Answer of Prompt 4. `label` is the merged node's, given exactly when `merge`."""

    merge: bool
    label: str | None = None
    flags: tuple[str, ...] = ()
    call: ModelCall | None = None


@dataclass(frozen=True, slots=True)
class NodeContents:
    """A node as Prompt 4 shows it: its label and the descriptions of all its causes, by id."""

    node_id: str
    label: str
    causes: tuple[str, ...]


class Diagnostician(Protocol):
    """Makes the four decisions. Thread-safe: `extract` is called from `workers` threads at once."""

    @property
    def name(self) -> str: ...

    @property
    def revision(self) -> str: ...

    @property
    def workers(self) -> int:
        """Maximum concurrent extractions."""
        ...

    def extract(self, pair: FailurePair) -> Extraction:
        """Equation 5: the cause e = D(x, ŷ, r⁻, r⁺) of the earliest difference, or the matching supplied
        cause."""
        ...

    def judge_duplicate(self, description: str, candidates: Sequence[KnownCause]) -> DuplicateJudgement: ...

    def assign_node(self, description: str, shortlist: Sequence[NodeCandidate]) -> NodeAssignment: ...

    def judge_pair(self, a: NodeContents, b: NodeContents) -> PairJudgement: ...


PROBED = 3
"""Failures asked about before any reply was read."""
IN_A_ROW = 10
"""Consecutive unreadable replies that end it."""
FEWEST = 20
"""Minimum replies before a majority of unreadable ones ends it: with fewer, a few bad ones are a majority."""
SHOWN = 400
"""Maximum characters of a reply in a message."""
UNREAD = frozenset({"unreadable", "refused"})
"""Flags of an unreadable or missing answer."""


class UnreadableReplyGuard:
    """Checks verdicts in recording order, so that a diagnostician with unreadable replies is detected
    early.

    Three failures are asked about first; if none of the three replies can be read, the others are not sent.
    Ten in a row end it at any time, and so does a majority of twenty or more. Such verdicts are held back
    until a later reply can be read, so that none of them is recorded if it ends: the next call asks about
    these failures again.
    """

    def __init__(self, *, whole: bool = False) -> None:
        """`whole`: also raise at the end if no reply was ever read, however few there were."""
        self.understood = False
        """Whether any reply was readable."""
        self._whole = whole
        self._replies = self._unread = 0
        self._held: list[FailureDiagnosed] = []
        self._last: Unread | None = None

    def sift(
        self, verdicts: Iterable[tuple[FailureDiagnosed, Unread | None]]
    ) -> tuple[list[FailureDiagnosed], ServiceError | None]:
        """The verdicts that may be recorded now, and the error that ends it."""
        ready: list[FailureDiagnosed] = []
        for event, unread in verdicts:
            self._replies += 1
            if UNREAD.isdisjoint(event.flags):
                self.understood = True
                ready += [*self._held, event]
                self._held.clear()
                continue
            self._held.append(event)
            self._unread += 1
            self._last = unread or self._last
            if len(self._held) >= (IN_A_ROW if self.understood else PROBED):
                return ready, self._error()
            if self._replies >= FEWEST and 2 * self._unread > self._replies:
                return ready, self._mostly()
        return ready, None

    def rest(self) -> list[FailureDiagnosed]:
        """The verdicts held back to the end. Raises ServiceError under the rules of `sift`."""
        if self._held and self._whole and not self.understood:
            raise self._error()
        held, self._held = self._held, []
        return held

    def _error(self) -> ServiceError:
        number = len(self._held)
        which = f"{number} replies in a row" if self.understood else f"the first {number} replies"
        return unreadable(which if number > 1 else "the one reply", self._last)

    def _mostly(self) -> ServiceError:
        recorded = self._unread - len(self._held)
        return unreadable(
            f"{self._unread} of {self._replies} replies",
            self._last,
            f"what could be read is kept, and {recorded} of these failures are recorded as unresolved, which"
            " --again asks about once more",
        )


NONE_RECORDED = "none of them is recorded, and they are asked again when you continue"


def unreadable(which: str, unread: Unread | None, kept: str = NONE_RECORDED) -> ServiceError:
    """The error if none of these replies could be read, showing the last; `kept`: what was recorded."""
    detail = "" if unread is None else f": {unread.complaint}"
    if unread is not None and unread.reply is not None:
        detail += f"\nits reply: {shown(unread.reply)}"
    return ServiceError(
        f"{which} of the diagnostician could not be read{detail}",
        hint=f"{kept}: check what base_url serves, and the role's model and max_tokens",
    )


def shown(reply: str) -> str:
    """A reply as data on one line, shortened."""
    text = visible(reply, one_line=True)
    return f"{text[:SHOWN]}…" if len(text) > SHOWN else text or "(nothing)"
