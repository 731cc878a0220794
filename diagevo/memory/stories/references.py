"""How people name things: `c42`, `n7`, `r3.q318`, `r3.q318.a5`, their trainer's own id, or an
unambiguous part of a description; and the events that concern one."""

import re
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from diagevo.errors import AmbiguousError, ConfigError, NotFoundError
from diagevo.memory.events import (
    CandidateScored,
    CauseAdded,
    CauseCreated,
    CauseRenamed,
    FailureAssigned,
    FailureObserved,
    FailureUnassigned,
    IdGiven,
    NodeCreated,
    NodePairJudged,
    NodesMerged,
)
from diagevo.memory.events.decode import Fact
from diagevo.memory.events.records import Recorded, event_id
from diagevo.memory.history import AsOf, History, fact_of
from diagevo.memory.own_ids import named_so
from diagevo.text.escaping import shortened

Kind = Literal["cause", "node", "question", "failure"]

_FORMS: dict[Kind, re.Pattern[str]] = {
    "cause": re.compile(r"c\d{1,9}"),
    "node": re.compile(r"n\d{1,9}"),
    "question": re.compile(r"r\d{1,9}\.q\d{1,9}"),
    "failure": re.compile(r"r\d{1,9}\.q\d{1,9}\.a\d{1,9}"),
}
"""No number of the log has more digits."""
_LISTED = 10
_WORDS = 400
"""Maximum characters of a listed description."""


@dataclass(frozen=True, slots=True)
class Reference:
    kind: Kind
    id: str

    @property
    def round(self) -> int:
        """For a question or a failure: the round in its id."""
        return int(self.id[1:].split(".")[0])


def resolve(history: History, text: str, as_of: AsOf, *kinds: Kind) -> Reference:
    """What `text` names at that point, among `kinds` (all, if none is given).

    Our ids take precedence: `c1` is a cause, and a trainer's question with that id only if there is no such
    cause. Raises NotFoundError (exit 3) if it names nothing, ConfigError (exit 2) if it names several things
    or another kind.
    """
    wanted: tuple[Kind, ...] = kinds or ("cause", "node", "question", "failure")
    given = text.strip()
    name = given.lower()
    of_ours = next((Reference(kind, name) for kind, form in _FORMS.items() if form.fullmatch(name)), None)
    if of_ours is not None and of_ours.kind in wanted and _exists(history, of_ours, as_of):
        return of_ours
    if theirs := _by_own_id(history, text, as_of, wanted) or _by_own_id(history, given, as_of, wanted):
        return theirs
    if of_ours is None:
        return _by_text(history, given, as_of, wanted)
    if of_ours.kind not in wanted:
        raise ConfigError(f"{name} is a {of_ours.kind}", hint=f"name a {' or a '.join(wanted)}")
    raise _no_such(history, of_ours, as_of)


def _by_own_id(history: History, own_id: str, as_of: AsOf, wanted: tuple[Kind, ...]) -> Reference | None:
    """The question or failure with this trainer's id: the last one, if several rounds have it."""
    named = named_so(history.log, history.run_id, own_id, as_of.position)
    found = [Reference(kind, ours) for kind, ours in named.items() if kind in wanted]
    if len(found) > 1:
        message = f'"{shortened(own_id)}" is the id of a question and of a failure'
        raise AmbiguousError(message, {one.id: f"a {one.kind}" for one in found}, 0)
    return found[0] if found else None


def causes(history: History, as_of: AsOf) -> dict[str, tuple[str, int]]:
    """Every cause created by then, by id: its description and its round."""
    found: dict[str, tuple[str, int]] = {}
    for fact in history.events(CauseCreated, CauseAdded, CauseRenamed, as_of=as_of):
        _, born = found.get(fact.event.cause_id, ("", fact.round))
        found[fact.event.cause_id] = fact.event.description, born
    return found


def _exists(history: History, reference: Reference, as_of: AsOf) -> bool:
    match reference.kind:
        case "cause":
            return reference.id in causes(history, as_of)
        case "node":
            return reference.id in nodes(history, as_of).labels
        case "question":
            return history.find(CandidateScored, reference.round, reference.id, as_of) is not None
        case "failure":
            return observation(history, reference, as_of) is not None


def _no_such(history: History, reference: Reference, as_of: AsOf) -> NotFoundError:
    where = f"in run {history.run_id} as of position {as_of.position}"
    match reference.kind:
        case "cause":
            hint = "list the causes: diagevo memory show"
        case "node":
            hint = "list the nodes: diagevo memory show --tree"
        case "question":
            hint = f"list the questions: diagevo memory log --type CandidateScored --round {reference.round}"
        case "failure":
            hint = f"list the failures: diagevo memory log --type FailureObserved --round {reference.round}"
    return NotFoundError(f"there is no {reference.kind} {reference.id} {where}", hint=hint)


def observation(history: History, failure: Reference, as_of: AsOf) -> Fact[FailureObserved] | None:
    """The last observation of a failure by then, whatever its attempt."""
    question = event_id(failure.round, "CandidateScored", failure.id.rpartition(".")[0])
    found = None
    for recorded in history.log.read(history.run_id, causation_id=question, until=as_of.position):
        if recorded.type == "FailureObserved":
            fact = fact_of(recorded, FailureObserved)
            found = fact if fact.event.failure_id == failure.id else found
    return found


def _by_text(history: History, text: str, as_of: AsOf, wanted: tuple[Kind, ...]) -> Reference:
    named: list[tuple[Reference, str]] = []
    gone = history.superseded(as_of)  # the same causes may have been created again, with the same description
    if "cause" in wanted:
        made = causes(history, as_of).items()
        stored = history.state(as_of).causes  # one may have been added by hand after a superseding
        counts = ((i, words) for i, (words, round_) in made if round_ not in gone or i in stored)
        named += [(Reference("cause", i), words) for i, words in counts]
    if "node" in wanted:
        found = nodes(history, as_of)
        living = [(i, label) for i, label in found.labels.items() if found.created[i].round not in gone]
        named += [(Reference("node", i), label) for i, label in living]
    piece = text.casefold()
    fitting = [(reference, words) for reference, words in named if piece and piece in words.casefold()]
    exact = [(reference, words) for reference, words in fitting if words.casefold() == piece]
    fitting = exact if len(exact) == 1 else fitting
    if len(fitting) == 1:
        return fitting[0][0]
    if not fitting:
        raise NotFoundError(
            f'nothing matches "{shortened(text)}" in run {history.run_id}',
            hint="give an id (c42, n7, r3.q318, r3.q318.a5) or part of a description: diagevo memory show",
        )
    listed = {reference.id: shortened(words, _WORDS) for reference, words in fitting[:_LISTED]}
    message = f'"{shortened(text)}" matches {len(fitting)} descriptions'
    raise AmbiguousError(message, listed, len(fitting) - len(listed))


@dataclass(frozen=True, slots=True)
class Nodes:
    """Every node created up to a point, merged and superseded ones included."""

    created: dict[str, Fact[NodeCreated | CauseAdded]] = field(
        default_factory=dict[str, Fact[NodeCreated | CauseAdded]]
    )
    """A cause added by hand may have brought its node."""
    merges: list[Fact[NodesMerged]] = field(default_factory=list[Fact[NodesMerged]])
    labels: dict[str, str] = field(default_factory=dict[str, str])
    """The last label of each."""
    judged: list[Fact[NodePairJudged]] = field(default_factory=list[Fact[NodePairJudged]])
    """In order."""

    def way(self, node_id: str) -> Iterator[Fact[NodesMerged]]:
        """The merges of the node that now contains `node_id`, up to its current survivor."""
        for merge in self.merges:
            if node_id in (merge.event.survivor, merge.event.absorbed):
                yield merge
                node_id = merge.event.survivor

    def moves(self, node_id: str) -> list[Fact[NodesMerged]]:
        """The merges that took what is under `node_id` elsewhere; the last one's survivor is its home."""
        moves: list[Fact[NodesMerged]] = []
        for merge in self.way(node_id):
            if merge.event.absorbed == node_id:
                moves.append(merge)
                node_id = merge.event.survivor
        return moves

    def judgement(self, merge: Fact[NodesMerged]) -> NodePairJudged | None:
        """The diagnostician's verdict before the two became one."""
        pair = {merge.event.survivor, merge.event.absorbed}
        earlier = (one.event for one in reversed(self.judged) if one.position < merge.position)
        return next((event for event in earlier if event.merge and set(event.nodes) == pair), None)


def nodes(history: History, as_of: AsOf) -> Nodes:
    """Read from the events of nodes. Merges of superseded rounds are undone."""
    found, gone = Nodes(), history.superseded(as_of)
    for made in history.events(NodeCreated, CauseAdded, as_of=as_of):
        if made.event.label is not None:
            found.created[made.event.node_id] = made
            found.labels[made.event.node_id] = made.event.label
    for merge in history.events(NodesMerged, as_of=as_of):
        if merge.round not in gone:
            found.merges.append(merge)
            found.labels[merge.event.survivor] = merge.event.label
    found.judged.extend(history.events(NodePairJudged, as_of=as_of))
    return found


_NAMED_IN = {
    "node": ("node_id", "survivor", "absorbed"),
    "question": ("question_id", "failure_id"),
    "failure": ("failure_id",),
}
"""The fields of an event that name its subject, by kind."""
_NODE_EVENTS = ("NodeCreated", "NodeAssigned", "CauseCreated", "CauseAdded", "NodePairJudged", "NodesMerged")


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events: each field narrows the choice, None and () leave it open."""

    ref: str | None = None
    types: tuple[str, ...] = ()
    round: int | None = None
    last: int | None = None


def trail(history: History, wanted: EventFilter, as_of: AsOf, *, after: int = 0) -> Iterator[Recorded]:
    """The selected events after position `after`, oldest first, streamed."""
    reference = None if wanted.ref is None else resolve(history, wanted.ref, as_of)
    types: tuple[str, ...] | None = wanted.types or None
    rounds = None if wanted.round is None else (wanted.round, wanted.round)
    cause_id = None
    keep: Callable[[Recorded], bool] | None = None
    if reference is not None:
        if reference.kind == "cause":
            cause_id = reference.id
        else:
            keep = _naming(reference)
        if reference.kind == "node":
            types = tuple(t for t in _NODE_EVENTS if types is None or t in types) or ("none",)
        if reference.kind in ("question", "failure"):
            rounds = (reference.round, reference.round)
    newest = wanted.last is not None and keep is None
    found: Iterable[Recorded] = history.log.read(
        history.run_id,
        types=types,
        rounds=rounds,
        cause_id=cause_id,
        after=after,
        until=as_of.position,
        newest_first=newest,
        limit=min(wanted.last, sys.maxsize) if newest and wanted.last else None,
    )
    if keep is not None:
        found = filter(keep, found)
    if wanted.last is None:
        return iter(found)
    kept = deque(found, maxlen=min(wanted.last, sys.maxsize))
    return reversed(kept) if newest else iter(kept)


def _naming(reference: Reference) -> Callable[[Recorded], bool]:
    """Whether an event is about the reference; that of a failure is about its question too. That a node stood
    on a shortlist did nothing to it."""

    def named(recorded: Recorded) -> bool:
        event = recorded.event
        values = [getattr(event, name, None) for name in _NAMED_IN[reference.kind]]
        if reference.kind == "question":
            values += [failure.rpartition(".")[0] for failure in values if isinstance(failure, str)]
        if isinstance(event, NodePairJudged):
            values += event.nodes
        if isinstance(event, IdGiven):
            values.append(event.named)
        if isinstance(event, FailureAssigned | FailureUnassigned):
            values += [event.failure.failure_id, event.failure.failure_id.rpartition(".")[0]]
        return reference.id in values

    return named
