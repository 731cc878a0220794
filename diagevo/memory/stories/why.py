"""Why a cause has its state: its story round by round, with the evidence of each turn."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from heapq import merge
from itertools import groupby, islice
from typing import cast

from diagevo.equations.policy import next_epsilon
from diagevo.equations.states import Tally, counted, part_in_schedule, reaches, reinstated, tallied, withdrawn
from diagevo.memory.events import (
    EVENT_TYPES,
    CandidateScored,
    CauseAdded,
    CauseCreated,
    CauseDismissed,
    CauseMatched,
    CausePromoted,
    CauseReactivated,
    CauseReinstated,
    CauseRenamed,
    CauseState,
    Event,
    FailureAssigned,
    FailureUnassigned,
    RoundsSuperseded,
    Trait,
    having,
)
from diagevo.memory.events.decode import Fact
from diagevo.memory.events.records import event_id
from diagevo.memory.history import AsOf, History, expect
from diagevo.memory.read.asking import filled
from diagevo.memory.read.opened_rounds import opened_rounds
from diagevo.memory.stories.cause_story import (
    Added,
    Assigned,
    CauseStory,
    Counted,
    Created,
    Dismissed,
    Effect,
    Merged,
    Promoted,
    Reactivated,
    Reinstated,
    Renamed,
    Sampled,
    Standing,
    Superseded,
    Turn,
    Unassigned,
    Vote,
)
from diagevo.memory.stories.failures import (
    FailureStory,
    QuestionStory,
    asked,
    failure_story,
    question_story,
    stories_of,
)
from diagevo.memory.stories.nodes import NodeStory, why_node
from diagevo.memory.stories.references import Reference, nodes, resolve


@dataclass(slots=True)
class Aimed:
    """Questions of a round that aim at a cause."""

    questions: int = 0
    stitched: int = 0
    agreeing: int = 0
    """Σ of the majority's votes over the valid ones."""
    responses: int = 0
    """Σ of N over the valid ones."""
    tally: Tally | None = None
    verdicts: Counter[str] = field(default_factory=Counter[str])
    rewards: bool = False
    """Whether another trainer's rewards were counted."""

    def add(self, event: CandidateScored) -> None:
        self.questions += 1
        self.stitched += event.mode == "stitched"
        self.verdicts[event.verdict] += 1
        self.rewards = event.votes_are == "rewards"
        if event.verdict != "invalid":
            first, responses = event.first, event.responses
            self.agreeing += first
            self.responses += responses
            self.tally = tallied(self.tally, first, responses)


@dataclass(slots=True)
class _Matches:
    """Matches of a round, in order; `kept` are those that are listed one by one."""

    round: int = 0
    via: Counter[str] = field(default_factory=Counter[str])
    frequency: int = 0
    position: int = 0
    kept: list[Fact[CauseMatched]] = field(default_factory=list[Fact[CauseMatched]])
    questions: list[str] = field(default_factory=list[str])
    reactivation: tuple[Fact[Event], CauseReactivated] | None = None

    def add(self, facts: Sequence[Fact[CauseMatched]], frequency: int, evidence: int | None) -> None:
        """Matches that came one after the other, before anything else happened to the cause."""
        room = None if evidence is None else max(evidence - len(self.kept), 0)
        self.kept += facts[:room]
        known = {*self.via, *(fact.event.via for fact in facts[:room])}
        for fact in facts[len(facts) if room is None else room :]:
            if fact.event.via not in known and self.kept:
                known.add(fact.event.via)
                self.kept[-1] = fact  # of recurrence and of deduplication one is listed
        self.via.update(fact.event.via for fact in facts)
        self.questions += (fact.event.failure_id.rpartition(".")[0] for fact in facts)
        self.frequency, self.position = frequency, facts[-1].position


Story = CauseStory | NodeStory | QuestionStory | FailureStory


def story_of(
    history: History, ref: str, as_of: AsOf, *, evidence: int | None = 3, full: bool = False
) -> Story:
    """The story of the cause, node, question or failure that `ref` names; `evidence` and `full` as
    `why_cause` has them. Raises as `resolve` does."""
    found = resolve(history, ref, as_of)
    match found.kind:
        case "cause":
            return why_cause(history, found.id, as_of, evidence=evidence, full=full)
        case "node":
            return why_node(history, found.id, as_of, full=full)
        case "question":
            return question_story(history, found, as_of, full=full)
        case "failure":
            return failure_story(history, found, as_of, full=full)


def why_cause(
    history: History,
    cause_id: str,
    as_of: AsOf,
    *,
    evidence: int | None = 3,
    full: bool = False,
) -> CauseStory:
    """The story of a cause that exists by then. `evidence`: failures listed one by one a turn, None for all,
    and with it the questions behind each promotion; `full` loads trajectories, prompts and replies."""
    return _Reader(history, cause_id, as_of, evidence, full).read()


class _Reader:
    """One pass over the changes of the cause, in order."""

    def __init__(
        self,
        history: History,
        cause_id: str,
        as_of: AsOf,
        evidence: int | None,
        full: bool,
    ) -> None:
        self.history, self.cause_id, self.as_of = history, cause_id, as_of
        self.evidence, self.full = evidence, full
        self.aimed: dict[int, Aimed] = {}
        self.turns: list[Turn] = []
        self.matches = _Matches()
        self.closed: list[_Matches] = []
        self.promoted_rounds: dict[str, int] = {}

    def _turned(self) -> Iterator[Fact[Event] | list[Fact[CauseMatched]]]:
        """What happened to the cause, in order, matches of a round with nothing between them together; a
        superseding names every cause."""
        kinds = [EVENT_TYPES[name] for name in sorted(having(Trait.TURN) - {RoundsSuperseded.__name__})]
        gone: list[Fact[Event]] = [f for f in self.history.supersedings if f.position <= self.as_of.position]
        own: Iterator[Fact[Event]] = self.history.events(
            Event, CandidateScored, *kinds, as_of=self.as_of, cause_id=self.cause_id
        )
        in_order = merge(own, gone, key=lambda fact: fact.position) if gone else own
        for (kind, round), facts in groupby(in_order, lambda fact: (fact.type, fact.round)):
            if kind == CauseMatched.__name__:
                yield cast("list[Fact[CauseMatched]]", list(facts))
                continue
            for fact in facts:
                if isinstance(fact.event, CandidateScored):
                    self.aimed.setdefault(round, Aimed()).add(fact.event)
                else:
                    yield fact

    def read(self) -> CauseStory:
        created: CauseCreated | CauseAdded | None = None
        promoted: int | None = None
        state: Standing = "superseded"
        frequency, last, since, how, renamed = 0, 0, 0, "created", False
        for turn in self._turned():
            if isinstance(turn, list):
                last = turn[0].round
                if last != self.matches.round:
                    self._close_matches(last)
                if state != "superseded" and counted(state, frequency, 1)[0] == state:
                    frequency += len(turn)  # else it is Active again with the event that comes next
                self.matches.add(turn, frequency, self.evidence)
                continue
            fact = turn
            if isinstance(fact.event, RoundsSuperseded):
                before = next((one for one in fact.event.causes if one.cause_id == self.cause_id), None)
                back: tuple[Standing, int] = (
                    ("superseded", 0) if before is None else (before.state, before.frequency)
                )
                if back == (state, frequency):
                    continue
                state, frequency = back
                promoted = None if before is None else self.promoted_rounds.get(before.promotion or "")
            last = fact.round
            if last != self.matches.round:
                self._close_matches(last)
            match fact.event:
                case CauseCreated() as event:
                    created, since, state, frequency = event, last, "active", 1
                    [evidence] = stories_of(self.history, [fact], full=self.full)
                    new = evidence.new_label is not None
                    self.turns.append(Created(last, fact.position, event.node_id, new, evidence))
                case CausePromoted() as event:
                    since, how, state, frequency = last, "promoted", "mastered", 0
                    promoted = last
                    self._promoted(fact, event)
                case CauseReactivated() as event:
                    since, how, state, frequency = last, "reactivated", "active", frequency + 1
                    self.matches.reactivation = fact, event
                    self.matches.frequency = frequency
                case CauseRenamed() as event:
                    renamed = True
                    self.turns.append(Renamed(last, fact.position, event.before, event.description))
                case CauseDismissed() as event:
                    since, how, state = last, "dismissed", "dismissed"
                    at = self._recorded_at(fact)
                    self.turns.append(Dismissed(last, fact.position, event.because, event.by, at, frequency))
                case CauseReinstated() as event:
                    since, how, state = last, "reinstated", reinstated(frequency, promoted is not None)
                    at = self._recorded_at(fact)
                    self.turns.append(Reinstated(last, fact.position, event.by, at, state, frequency))
                case CauseAdded() as event:
                    created, since, state, frequency, how = event, last, "active", 0, "added"
                    failure = Reference("failure", event.failure_id)
                    evidence = failure_story(self.history, failure, self.as_of, full=self.full)
                    new, at = event.label is not None, self._recorded_at(fact)
                    self.turns.append(
                        Added(
                            round=last,
                            position=fact.position,
                            node_id=event.node_id,
                            new_node=new,
                            by=event.by,
                            at=at,
                            evidence=evidence,
                        )
                    )
                case FailureAssigned() | FailureUnassigned() as event:
                    assert state != "superseded"
                    was, failure = state, event.failure
                    if promoted is None or failure.round >= promoted:
                        if isinstance(event, FailureAssigned):
                            state, frequency = counted(state, frequency, 1)
                        else:
                            state, frequency = withdrawn(state, frequency, promoted is not None)
                    if state != was:
                        since, how = last, "assigned" if isinstance(event, FailureAssigned) else "unassigned"
                    self.turns.append(self._moved(fact, event, state, frequency))
                case RoundsSuperseded() as event:
                    self._close_matches(0)
                    self.turns.append(Superseded(last, fact.position, event.first, state, frequency))
                case _:
                    raise AssertionError(f"a story has no words for {fact.type}")
        assert created is not None
        self._close_matches(0)
        node_id, label, merges = self._node(created.node_id)
        self.turns += merges
        self.turns += self._counted()
        self.turns += self._sampled()
        order = (Sampled, Promoted, Created, Counted, Reactivated, Merged)
        # What comes between two rounds follows in the order of the log.
        self.turns.sort(
            key=lambda turn: (
                turn.round,
                order.index(type(turn)) if isinstance(turn, order) else len(order),
                turn.position,
            )
        )
        return CauseStory(
            cause_id=self.cause_id,
            description=self._words(created) if renamed else created.description,
            node_id=node_id,
            node_label=label,
            state=state,
            frequency=frequency,
            since=since if state != "superseded" else last,
            how=how,
            turns=tuple(self.turns),
            effect=self._effect(),
        )

    def _moved(
        self,
        fact: Fact[Event],
        event: FailureAssigned | FailureUnassigned,
        state: CauseState,
        frequency: int,
    ) -> Turn:
        place = fact.round, fact.position, event.failure.failure_id, event.by, self._recorded_at(fact)
        if isinstance(event, FailureAssigned):
            return Assigned(*place, event.note, event.undo, state, frequency)
        return Unassigned(*place, state, frequency)

    def _recorded_at(self, fact: Fact[Event]) -> str:
        return self.history.log.by_id(self.history.run_id, fact.event_id).recorded_at

    def _words(self, created: CauseCreated | CauseAdded) -> str:
        """What it is called now; a cause that a superseding took out, as it was found."""
        cause = self.history.state(self.as_of).causes.get(self.cause_id)
        return created.description if cause is None else cause.description

    def _promoted(self, recorded: Fact[Event], event: CausePromoted) -> None:
        aimed = self.aimed.get(recorded.round, Aimed())
        self.promoted_rounds[recorded.event_id] = recorded.round
        self.turns.append(
            Promoted(
                round=recorded.round,
                position=recorded.position,
                event_id=recorded.event_id,
                questions=event.questions,
                agreeing=aimed.agreeing,
                responses=aimed.responses,
                consistency=Fraction(event.consistency),
                threshold=Fraction(event.threshold),
                closed_frequency=event.closed_frequency,
                votes=tuple(self._votes(recorded.round)) if self.evidence is None else (),
                rewards=aimed.rewards,
            )
        )

    def _votes(self, round: int) -> Iterator[Vote]:
        """The questions of a round whose votes were held against θ_up."""
        for recorded in self.history.events(CandidateScored, round=round, cause_id=self.cause_id):
            event = recorded.event
            if event.verdict != "invalid":
                yield filled(
                    Vote,
                    event,
                    position=recorded.position,
                    agreeing=event.first,
                    question=self.history.text(event.question) if self.full else None,
                )

    def _close_matches(self, following: int) -> None:
        """The matches of the round that ended."""
        if self.matches.via.total():
            self.closed.append(self.matches)
        self.matches = _Matches(following)

    def _counted(self) -> Iterator[Turn]:
        """A turn for the matches of each round: a reactivation if they undid a promotion."""
        stories = iter(stories_of(self.history, [r for m in self.closed for r in m.kept], full=self.full))
        labels = _labels(self.history, [(m.round, question) for m in self.closed for question in m.questions])
        for matches in self.closed:
            recurrences, deduplications = matches.via["recurrence"], matches.via["deduplication"]
            evidence = tuple(islice(stories, len(matches.kept)))
            known = [
                label for q in matches.questions if (label := labels.get((matches.round, q))) is not None
            ]
            false = known.count(False) if known else None
            counted = (matches.via.total(), recurrences, deduplications, matches.frequency, evidence, false)
            if matches.reactivation is None:
                yield Counted(matches.round, matches.position, *counted)
                continue
            recorded, event = matches.reactivation
            promoted_round = self.promoted_rounds.get(event.promotion)
            yield Reactivated(recorded.round, recorded.position, *counted, event.promotion, promoted_round)

    def _node(self, node_id: str) -> tuple[str, str, list[Turn]]:
        """Node and label now, and the merges on the way."""
        walked = nodes(self.history, self.as_of)
        turns: list[Turn] = []
        first = next(turn.round for turn in self.turns if isinstance(turn, Created | Added))
        for merged in walked.way(node_id):
            event, judged = merged.event, walked.judgement(merged)
            call = judged.call if judged and self.full else None
            if merged.round >= first:
                turns.append(
                    Merged(
                        round=merged.round,
                        position=merged.position,
                        survivor=event.survivor,
                        absorbed=event.absorbed,
                        label=event.label,
                        similarity=judged.similarity if judged else None,
                        moved=node_id == event.absorbed,
                        call=asked(self.history, "consolidation (Prompt 4)", call) if call else None,
                    )
                )
            node_id = event.survivor
        return node_id, walked.labels[node_id], turns

    def _sampled(self) -> Iterator[Turn]:
        for round_ in opened_rounds(self.history, self.as_of):
            scheduled = round_.aimed(self.cause_id)
            if scheduled is None and round_.number not in self.aimed:
                continue
            frequency, share = scheduled or (0, None)
            aimed = self.aimed.get(round_.number, Aimed())
            settings, failures = round_.configured.settings, round_.schedule.failures
            yield Sampled(
                round=round_.number,
                position=round_.position,
                epsilon=round_.epsilon,
                probability=share.p if share else Fraction(0),
                sum=str(share or f"0/{failures}"),
                frequency=frequency,
                failures=failures,
                questions=aimed.questions,
                stitched=aimed.stitched,
                verdicts=dict(aimed.verdicts),
                consistency=aimed.tally.score if aimed.tally else None,
                threshold=settings.theta_up,
                reached=reaches(aimed.tally, settings),
                rewards=self.history.ingested is not None and not self.history.steered,
            )

    def _effect(self) -> Effect | None:
        """On the schedule of the round after the last commit, if the cause was counted by then."""
        done = self.history.counted(self.as_of)
        if not done or done[-1].round < min(
            turn.round for turn in self.turns if not isinstance(turn, Sampled)
        ):
            return None
        commit, number = done[-1].event, done[-1].round
        after = min(self.history.after(number), self.as_of, key=lambda point: point.position)
        state = self.history.state(after)
        cause = state.causes.get(self.cause_id)
        if cause is None or not state.failures:
            return None
        counts = cause.frequency if part_in_schedule(cause.state) == "target" else 0
        without, reference = state.failures - counts, commit.reference_failures
        if commit.reference_round == number and reference is not None:
            reference -= counts
        return Effect(
            self.history.round_by(self.as_of.position) + 1,
            state.epsilon,
            next_epsilon(state.settings, without, reference),
            share.p if (share := state.schedule().shares.get(self.cause_id)) else Fraction(0),
        )


def _labels(history: History, questions: Sequence[tuple[int, str]]) -> dict[tuple[int, str], bool | None]:
    """Whether the label of each question, by round and id, is true; None where that is not known, which
    it is of no other trainer's rollouts."""
    if history.ingested is not None:
        return {}
    ids = {event_id(n, "CandidateScored", question): (n, question) for n, question in questions}
    found = history.log.known(history.run_id, ids)
    return {ids[key]: expect(one, CandidateScored).label_true for key, one in found.items()}


def failures_in(story: CauseStory) -> Iterator[FailureStory]:
    """Those that the turns of a story tell one by one."""
    for turn in story.turns:
        match turn:
            case Created() | Added():
                yield turn.evidence
            case Counted() | Reactivated():
                yield from turn.evidence
            case _:
                pass
