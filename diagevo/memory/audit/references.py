"""How people name things: `c42`, `n7`, `r3.q318`, `r3.q318.a5`, or an unambiguous piece of a description."""

import re
from dataclasses import dataclass
from typing import Literal

from diagevo.errors import ConfigError, NotFoundError
from diagevo.memory.audit.timeline.nodes import nodes
from diagevo.memory.events import CandidateScored, CauseCreated, CauseRenamed, FailureObserved
from diagevo.memory.events.decode import Fact
from diagevo.memory.events.records import event_id
from diagevo.memory.history import AsOf, History, fact_of

Kind = Literal["cause", "node", "question", "failure"]

_FORMS: dict[Kind, re.Pattern[str]] = {
    "cause": re.compile(r"c\d+"),
    "node": re.compile(r"n\d+"),
    "question": re.compile(r"r\d+\.q\d+"),
    "failure": re.compile(r"r\d+\.q\d+\.a\d+"),
}
_LISTED = 10


@dataclass(frozen=True, slots=True)
class Reference:
    kind: Kind
    id: str

    @property
    def round(self) -> int:
        """Of a question or a failure: the round in its id."""
        return int(self.id[1:].split(".")[0])


def resolve(history: History, text: str, as_of: AsOf, *kinds: Kind) -> Reference:
    """What `text` names at that point, among `kinds` (all, if none is given).

    Raises NotFoundError (exit 3) where it names nothing, ConfigError (exit 2) where it names several things
    or something of another kind.
    """
    wanted: tuple[Kind, ...] = kinds or ("cause", "node", "question", "failure")
    given = text.strip()
    name = given.lower()
    for kind, form in _FORMS.items():
        if form.fullmatch(name):
            if kind not in wanted:
                raise ConfigError(f"{name} is a {kind}", hint=f"name a {' or a '.join(wanted)}")
            _must_exist(history, Reference(kind, name), as_of)
            return Reference(kind, name)
    return _by_text(history, given, as_of, wanted)


def causes(history: History, as_of: AsOf) -> dict[str, tuple[str, int]]:
    """Every cause created by then, by id: what it is called, and its round."""
    found: dict[str, tuple[str, int]] = {}
    for fact in history.events(CauseCreated, CauseRenamed, as_of=as_of):
        _, born = found.get(fact.event.cause_id, ("", fact.round))
        found[fact.event.cause_id] = fact.event.description, born
    return found


def _must_exist(history: History, reference: Reference, as_of: AsOf) -> None:
    where = f"in run {history.run_id} as of position {as_of.position}"
    match reference.kind:
        case "cause":
            there = reference.id in causes(history, as_of)
            hint = "list the causes: diagevo memory show"
        case "node":
            there = reference.id in nodes(history, as_of).labels
            hint = "list the nodes: diagevo memory show --tree"
        case "question":
            there = history.find(CandidateScored, reference.round, reference.id, as_of) is not None
            hint = f"list the questions: diagevo memory log --type CandidateScored --round {reference.round}"
        case "failure":
            there = observation(history, reference, as_of) is not None
            hint = f"list the failures: diagevo memory log --type FailureObserved --round {reference.round}"
    if not there:
        raise NotFoundError(f"there is no {reference.kind} {reference.id} {where}", hint=hint)


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
    gone = history.superseded(as_of)  # what they made may have been made again, in the same words
    if "cause" in wanted:
        made = causes(history, as_of).items()
        named += [(Reference("cause", i), words) for i, (words, round_) in made if round_ not in gone]
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
            f'nothing matches "{text}" in run {history.run_id}',
            hint="give an id (c42, n7, r3.q318, r3.q318.a5) or a piece of a description: diagevo memory show",
        )
    lines = [f"{reference.id}  {words}" for reference, words in fitting[:_LISTED]]
    if len(fitting) > _LISTED:
        lines.append(f"and {len(fitting) - _LISTED} more")
    raise ConfigError(
        f'"{text}" matches {len(fitting)} descriptions', hint="name one of them:\n  " + "\n  ".join(lines)
    )
