"""Why a cause stands where it stands: its story round by round, with the evidence of each turn.

Read from the cause's own events (an index finds them), the commits, and the chain of causation behind each
failure.
"""

from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction

from diagevo.memory.decide import next_epsilon
from diagevo.memory.events import (
    CandidateScored,
    CauseCreated,
    CauseMatched,
    CausePromoted,
    CauseReactivated,
    CauseState,
    NodeCreated,
    NodePairJudged,
    NodesMerged,
    RoundOpened,
)
from diagevo.memory.failures import asked, story_of
from diagevo.memory.history import AsOf, History, expect
from diagevo.memory.model import settings_of
from diagevo.memory.records import Recorded
from diagevo.memory.turns import (
    CauseStory,
    Counted,
    Created,
    Effect,
    Merged,
    Promoted,
    Reactivated,
    Sampled,
    Turn,
)

TURNS = ("created", "promoted", "reactivated", "merged", "sampled")
"""The kinds of turn that `--event` chooses from; `counted` is told where none is chosen."""


@dataclass(slots=True)
class _Aimed:
    """Questions of a round that aim at the cause."""

    questions: int = 0
    valid: int = 0
    stitched: int = 0
    agreeing: int = 0
    responses: int = 0
    consistency: Fraction = Fraction(0)
    verdicts: Counter[str] = field(default_factory=Counter)

    def add(self, event: CandidateScored) -> None:
        self.questions += 1
        self.stitched += event.mode == "stitched"
        self.verdicts[event.verdict] += 1
        if event.verdict != "invalid":
            self.valid += 1
            self.agreeing += event.first
            self.responses += event.responses
            self.consistency += Fraction(event.first, event.responses)

    @property
    def mean(self) -> Fraction | None:
        return self.consistency / self.valid if self.valid else None


@dataclass(slots=True)
class _Matches:
    """Matches of a round, in order; `kept` are those that are told one by one."""

    via: Counter[str] = field(default_factory=Counter)
    frequency: int = 0
    position: int = 0
    kept: list[Recorded] = field(default_factory=list)


def why_cause(
    history: History, cause_id: str, as_of: AsOf, *, evidence: int | None = 3, full: bool = False
) -> CauseStory:
    """The story of a cause that exists by then. `evidence`: failures told one by one a turn, None for all;
    `full` loads trajectories, prompts and replies."""
    return _Reader(history, cause_id, as_of, evidence, full).read()


class _Reader:
    """One pass over the events that name the cause, in order."""

    def __init__(
        self, history: History, cause_id: str, as_of: AsOf, evidence: int | None, full: bool
    ) -> None:
        self.history, self.cause_id, self.as_of, self.evidence, self.full = (
            history,
            cause_id,
            as_of,
            evidence,
            full,
        )
        self.turns: list[Turn] = []
        self.state: CauseState = "active"
        self.frequency = 0
        self.since, self.how = 0, "created"
        self.aimed: dict[int, _Aimed] = {}
        self.matches = _Matches()
        self.match_round = 0
        self.reactivation: tuple[Recorded, CauseReactivated] | None = None
        self.promoted_rounds: dict[str, int] = {}

    def read(self) -> CauseStory:
        types = (CandidateScored, CauseCreated, CauseMatched, CausePromoted, CauseReactivated)
        created: CauseCreated | None = None
        for recorded in self.history.events(*types, as_of=self.as_of, cause_id=self.cause_id):
            if recorded.round != self.match_round:
                self._close_matches()
                self.match_round = recorded.round
            match recorded.event:
                case CandidateScored() as event:
                    self.aimed.setdefault(recorded.round, _Aimed()).add(event)
                case CauseCreated() as event:
                    created = event
                    self._created(recorded)
                case CausePromoted() as event:
                    self._promoted(recorded, event)
                case CauseMatched() as event:
                    self._matched(recorded, event)
                case CauseReactivated() as event:
                    self.reactivation = recorded, event
                    self.state, self.frequency, self.since, self.how = (
                        "active",
                        1,
                        recorded.round,
                        "reactivated",
                    )
                    self.matches.frequency = 1
        assert created is not None
        self._close_matches()
        node_id, label, merges = self._node(created.node_id)
        self.turns += merges
        self.turns += self._sampled()
        order = (Sampled, Promoted, Created, Counted, Reactivated, Merged)
        self.turns.sort(key=lambda turn: (turn.round, order.index(type(turn))))
        return CauseStory(
            self.cause_id,
            created.description,
            node_id,
            label,
            self.state,
            self.frequency,
            self.since,
            self.how,
            tuple(self.turns),
            self._effect(),
        )

    def _created(self, recorded: Recorded) -> None:
        evidence = story_of(self.history, recorded, full=self.full)
        self.state, self.frequency, self.since = "active", 1, recorded.round
        new_node = evidence.new_label is not None
        node_id = expect(recorded, CauseCreated).node_id
        self.turns.append(Created(recorded.round, recorded.position, node_id, new_node, evidence))

    def _promoted(self, recorded: Recorded, event: CausePromoted) -> None:
        aimed = self.aimed.get(recorded.round, _Aimed())
        self.state, self.frequency, self.since, self.how = "mastered", 0, recorded.round, "promoted"
        self.promoted_rounds[recorded.event_id] = recorded.round
        self.turns.append(
            Promoted(
                recorded.round,
                recorded.position,
                recorded.event_id,
                event.questions,
                aimed.agreeing,
                aimed.responses,
                Fraction(event.consistency),
                Fraction(event.threshold),
                event.closed_frequency,
            )
        )

    def _matched(self, recorded: Recorded, event: CauseMatched) -> None:
        if self.state == "active":
            self.frequency += 1
        kept, first = self.matches.kept, event.via not in self.matches.via
        self.matches.via[event.via] += 1
        self.matches.frequency, self.matches.position = self.frequency, recorded.position
        if self.evidence is None or len(kept) < self.evidence:
            kept.append(recorded)
        elif first and kept:  # recurrence or deduplication: one of each is told
            kept[-1] = recorded

    def _close_matches(self) -> None:
        """Tell the matches of the round that ended: as a reactivation if they undid a promotion."""
        matches, reactivation = self.matches, self.reactivation
        self.matches, self.reactivation = _Matches(), None
        total = matches.via.total()
        if total == 0:
            return
        recurrences, deduplications = matches.via["recurrence"], matches.via["deduplication"]
        evidence = tuple(story_of(self.history, r, full=self.full) for r in matches.kept)
        told = (total, recurrences, deduplications, matches.frequency, evidence)
        if reactivation is None:
            self.turns.append(Counted(self.match_round, matches.position, *told))
            return
        recorded, event = reactivation
        promoted_round = self.promoted_rounds.get(event.promotion)
        turn = Reactivated(recorded.round, recorded.position, *told, event.promotion, promoted_round)
        self.turns.append(turn)

    def _node(self, node_id: str) -> tuple[str, str, list[Turn]]:
        """Node and label now, and the merges on the way."""
        label, turns = "", []
        similarities: dict[tuple[str, str], NodePairJudged] = {}
        for recorded in self.history.events(NodeCreated, NodePairJudged, NodesMerged, as_of=self.as_of):
            match recorded.event:
                case NodeCreated() as event if event.node_id == node_id:
                    label = event.label
                case NodePairJudged(merge=True) as event:
                    similarities[_pair(*event.nodes)] = event
                case NodesMerged() as event if node_id in (event.survivor, event.absorbed):
                    judged = similarities.get(_pair(event.survivor, event.absorbed))
                    call = judged.call if judged and self.full else None
                    turns.append(
                        Merged(
                            recorded.round,
                            recorded.position,
                            event.survivor,
                            event.absorbed,
                            event.label,
                            judged.similarity if judged else None,
                            node_id == event.absorbed,
                            asked(self.history, "consolidation (Prompt 4)", call) if call else None,
                        )
                    )
                    node_id, label = event.survivor, event.label
        first = next(turn.round for turn in self.turns if isinstance(turn, Created))
        return node_id, label, [turn for turn in turns if turn.round >= first]

    def _sampled(self) -> list[Turn]:
        found: list[Turn] = []
        config = settings_of(self.history.configuration(self.as_of).config)
        for recorded in self.history.events(RoundOpened, as_of=self.as_of):
            event = expect(recorded, RoundOpened)
            weight = next((w.frequency for w in event.weights if w.cause_id == self.cause_id), 0)
            aimed = self.aimed.get(recorded.round)
            if not weight and aimed is None:
                continue
            aimed = aimed or _Aimed()
            found.append(
                Sampled(
                    recorded.round,
                    recorded.position,
                    Fraction(event.epsilon),
                    Fraction(weight, event.failures) if event.failures else Fraction(0),
                    weight,
                    event.failures,
                    aimed.questions,
                    aimed.stitched,
                    dict(aimed.verdicts),
                    aimed.mean,
                    config.theta_up,
                )
            )
        return found

    def _effect(self) -> Effect | None:
        """On the schedule after the last commit, if the cause was counted by then."""
        done = [c for c in self.history.commits if c.recorded.position <= self.as_of.position]
        if not done or done[-1].round < min(
            turn.round for turn in self.turns if not isinstance(turn, Sampled)
        ):
            return None
        commit = done[-1].event
        state = self.history.state(done[-1].as_of)
        cause = state.causes.get(self.cause_id)
        if cause is None or not commit.failures:
            return None
        without = commit.failures - cause.frequency
        reference = commit.reference_failures
        if commit.reference_round == done[-1].round and reference is not None:
            reference -= cause.frequency
        settings = state.settings
        next_ = Fraction(commit.epsilon_next)
        return Effect(
            done[-1].round + 1,
            next_,
            next_epsilon(settings, without, reference),
            Fraction(cause.frequency, commit.failures),
        )


def _pair(a: str, b: str) -> tuple[str, str]:
    return (a, b) if int(a[1:]) < int(b[1:]) else (b, a)


def chosen(turns: tuple[Turn, ...], event: str) -> tuple[Turn, ...]:
    """The turns of one kind: created, promoted, reactivated, merged or sampled."""
    return tuple(turn for turn in turns if turn.event == event)
