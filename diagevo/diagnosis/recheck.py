"""Asks the same or another diagnostician about recorded decisions again, and compares the answers.
Writes nothing."""

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from diagevo.diagnosis.cause_extraction import pair_of, passed
from diagevo.diagnosis.chat import DECISIONS
from diagevo.diagnosis.diagnostician import (
    UNREAD,
    Computed,
    Diagnostician,
    FailurePair,
    NodeCandidate,
    NodeContents,
)
from diagevo.memory.events import (
    CandidateScored,
    DuplicateJudged,
    FailureDiagnosed,
    NodeAssigned,
    NodePairJudged,
    SimilarNode,
)
from diagevo.memory.events.records import Recorded
from diagevo.memory.history import History, point_of
from diagevo.memory.log.artifacts import Artifacts, Reply, digest_of
from diagevo.memory.log.vectors import Vectors
from diagevo.memory.state.model import MemoryState
from diagevo.memory.state.walk import nothing, walk


@dataclass(frozen=True, slots=True)
class Recheck:
    decision: str
    """extract, duplicate, assign, merge."""
    round: int
    position: int
    subject: str
    """A failure, or two nodes."""
    recorded: str
    answered: str
    agrees: bool
    """Never if no reply is readable."""


class Unrecorded(Artifacts):
    """Artifacts for asking without a trace: reads are real, nothing is written, no reply is
    recalled."""

    def __init__(self, artifacts: Artifacts) -> None:
        super().__init__(artifacts._database)

    def put_many(self, texts: Sequence[str]) -> list[str]:
        return [digest_of(text) for text in texts]

    def recall_reply(self, model: str, request: str) -> Reply | None:
        return None

    def remember_reply(self, model: str, request: str, reply: Reply, *, instead: bool = False) -> None:
        return None


def recheck(
    history: History,
    diagnostician: Diagnostician,
    *,
    sample: int,
    seed: int = 0,
    round: int | None = None,
    computed: Callable[[int], Mapping[str, Computed]] = lambda _: {},
) -> list[Recheck]:
    """Ask again about `sample` decisions of each kind (all where there are fewer), of committed rounds or of
    one.

    `computed` has the results about a round's ingested failures, as when they were asked about.
    Build a language-model diagnostician over `Unrecorded` artifacts, or it finds its own stored replies.
    """
    rounds = [c.round for c in history.commits] if round is None else [history.commit(round).round]
    by_kind: defaultdict[str, list[Recorded]] = defaultdict(list)
    for number in rounds:
        for recorded in _decisions(history, number):
            by_kind[recorded.type].append(recorded)
    rng = random.Random(f"recheck {seed}")
    chosen = [
        recorded
        for kind in DECISIONS
        for recorded in rng.sample(by_kind[kind], min(sample, len(by_kind[kind])))
    ]
    asker = _Asker(history, diagnostician, cache(computed))
    return [asker.ask(recorded, state) for recorded, state in _moments(history, chosen)]


def agreement(rechecks: Sequence[Recheck]) -> dict[str, tuple[int, int]]:
    """By kind of decision, in the order of asking: how many agree, out of how many."""
    kinds = {kind: [r.agrees for r in rechecks if r.decision == kind] for kind in DECISIONS.values()}
    return {kind: (sum(agrees), len(agrees)) for kind, agrees in kinds.items()}


def _decisions(history: History, number: int) -> Iterator[Recorded]:
    """The diagnostician's decisions in a round that counted: without void failures and those superseded by
    asking again."""
    end = point_of(history.commit(number))
    now = history.state(replace(end, sequence=end.sequence - 1)).open
    assert now is not None
    for recorded in history.log.read(history.run_id, types=list(DECISIONS), rounds=(number, number)):
        match event := recorded.event:
            case FailureDiagnosed():
                valid = now.diagnoses.get(event.failure_id)
                plain = event.level == 1  # not a reasoning mistake: no model is asked
                if (
                    not plain
                    and valid is not None
                    and (valid.attempt, valid.asked) == (event.attempt, event.asked)
                ):
                    yield recorded
            case DuplicateJudged() if not event.candidates:
                pass
            case _:
                yield recorded


def _moments(history: History, chosen: Sequence[Recorded]) -> Iterator[tuple[Recorded, MemoryState]]:
    """Each event with the memory right before it. The state is the same object throughout."""
    following = {recorded.sequence - 1: recorded for recorded in chosen}
    for fact, _, state, _ in walk(history.log, history.run_id, nothing, until=max(following, default=0)):
        if fact.sequence in following:
            yield following[fact.sequence], state


class _Asker:
    def __init__(
        self,
        history: History,
        diagnostician: Diagnostician,
        computed: Callable[[int], Mapping[str, Computed]],
    ) -> None:
        self._history = history
        self._computed = computed
        self._diagnostician = diagnostician
        self._texts = Artifacts(history.database)
        self._described: dict[str, str] = {}

    def ask(self, recorded: Recorded, state: MemoryState) -> Recheck:
        match event := recorded.event:
            case FailureDiagnosed():
                return self._extract(recorded, event, state)
            case DuplicateJudged():
                return self._duplicate(recorded, event, state)
            case NodeAssigned():
                return self._assign(recorded, event, state)
            case NodePairJudged():
                return self._merge(recorded, event, state)
            case _:
                raise AssertionError(recorded.type)

    def _extract(self, recorded: Recorded, event: FailureDiagnosed, state: MemoryState) -> Recheck:
        answer = self._diagnostician.extract(self._pair(recorded.round, event, state))
        was = f"{event.verdict} {event.cause_id or event.description or ''}".strip()
        now = f"{answer.verdict} {answer.cause_id or answer.description or ''}".strip()
        same = (event.verdict, event.cause_id) == (answer.verdict, answer.cause_id)
        return _compared(recorded, event.failure_id, was, now, answer.flags, same=same)

    def _duplicate(self, recorded: Recorded, event: DuplicateJudged, state: MemoryState) -> Recheck:
        shown = [state.known_cause(state.causes[c.cause_id]) for c in event.candidates]
        description = self._description(recorded.round, event.failure_id)
        answer = self._diagnostician.judge_duplicate(description, shown)
        was, now = event.cause_id or "a new cause", answer.cause_id or "a new cause"
        return _compared(recorded, event.failure_id, was, now, answer.flags)

    def _assign(self, recorded: Recorded, event: NodeAssigned, state: MemoryState) -> Recheck:
        description = self._description(recorded.round, event.failure_id)
        shortlist = self._shortlist(state, description, event.shortlist)
        answer = self._diagnostician.assign_node(description, shortlist)
        was, now = event.node_id or "a new node", answer.node_id or "a new node"
        return _compared(recorded, event.failure_id, was, now, answer.flags)

    def _merge(self, recorded: Recorded, event: NodePairJudged, state: MemoryState) -> Recheck:
        a, b = (self._contents(state, node_id) for node_id in event.nodes)
        answer = self._diagnostician.judge_pair(a, b)
        was, now = ("one skill" if merge else "two skills" for merge in (event.merge, answer.merge))
        return _compared(recorded, " ".join(event.nodes), was, now, answer.flags)

    def _pair(self, number: int, event: FailureDiagnosed, state: MemoryState) -> FailurePair:
        assert state.open is not None
        observed = state.open.failures[event.failure_id]
        found = self._history.find(CandidateScored, number, observed.question_id)
        assert found is not None
        known_of = self._computed(number).get(event.failure_id)
        digests = [found.event.question, passed(observed, known_of), observed.trajectory]
        pair = pair_of(observed, found.event, self._texts.get_many(digests), known_of)
        causes = state.open.causes
        known = (state.known_cause(causes[s.cause_id], s.state) for s in event.supplied)
        return replace(pair, known=tuple(known), asked=event.asked)

    def _description(self, number: int, failure_id: str) -> str:
        """The failure's last diagnosis in the round."""
        if failure_id not in self._described:
            for fact in self._history.events(FailureDiagnosed, round=number):
                if fact.event.description is not None:
                    self._described[fact.event.failure_id] = fact.event.description
        return self._described[failure_id]

    def _shortlist(
        self, state: MemoryState, description: str, recorded: Sequence[SimilarNode]
    ) -> list[NodeCandidate]:
        """The nodes as shown: each with its member nearest to the new cause."""
        assert state.embedder is not None
        vectors = Vectors(self._history.database, self._history.run_id, state.embedder)
        shortlist = []
        for entry in recorded:
            node = state.nodes[entry.node_id]
            members = [state.causes[cause_id].description for cause_id in node.causes]
            cosines = (vectors.of(members) @ vectors.of([description])[0]).round(6)
            nearest = members[int(cosines.argmax())]
            shortlist.append(NodeCandidate(node.node_id, node.label, entry.similarity, nearest))
        return shortlist

    @staticmethod
    def _contents(state: MemoryState, node_id: str) -> NodeContents:
        node = state.nodes[node_id]
        return NodeContents(node_id, node.label, tuple(state.causes[c].description for c in node.causes))


def _compared(
    recorded: Recorded, subject: str, was: str, now: str, flags: Sequence[str], *, same: bool | None = None
) -> Recheck:
    """The answers agree if they read the same, or if `same` says so; an unreadable one never agrees."""
    readable = UNREAD.isdisjoint(flags)
    return Recheck(
        decision=DECISIONS[recorded.type],
        round=recorded.round,
        position=recorded.position,
        subject=subject,
        recorded=was,
        answered=now if readable else "unreadable",
        agrees=readable and (was == now if same is None else same),
    )
