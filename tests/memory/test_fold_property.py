"""Random histories: the fold against a brute-force reading of Equations 1, 6, 7 and 8, written from the
paper.

The reading below keeps M as a plain dictionary and applies a whole round at once, as the paper does; the
fold goes event by event. They share no code: the reading sees the raw votes and which cause each failure
was put down to.
"""

from dataclasses import dataclass, field
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from diagevo.memory.events import (
    UNNAMED,
    CauseDismissed,
    CauseReinstated,
    DuplicateJudged,
    Event,
    FailureAssigned,
    FailureUnassigned,
    NodeAssigned,
    PlacedFailure,
    RunConfigured,
)
from diagevo.memory.events.decode import Fact, read
from diagevo.memory.events.records import payload_of
from diagevo.memory.state import decide, projection
from diagevo.memory.state.fold import advance, apply
from diagevo.memory.state.model import MemoryState
from tests.memory.play import candidate, failure, new_cause

THETA = Fraction(7, 10)
K = Fraction(1, 2)


@dataclass
class Reading:
    """The paper, literally: s_t(e), f_t(e), F_1."""

    states: dict[str, str] = field(default_factory=dict)
    frequencies: dict[str, int] = field(default_factory=dict)
    first_total: int | None = None
    epsilon: Fraction = Fraction(1)
    p: dict[str, Fraction] = field(default_factory=dict)
    promoted: dict[str, int] = field(default_factory=dict)
    """The round of each cause's last promotion."""
    failures: dict[str, tuple[int, str | None]] = field(default_factory=dict)
    """Each failure's round, and the cause that it is of now."""

    def commit(self, number: int, p1s: dict[str, list[Fraction]], failures: list[str]) -> None:
        """One round: the p1 of the candidates that target each cause, and the cause of each counted
        failure."""
        provisional = {}
        for e, s in self.states.items():
            acc = sum(p1s[e], Fraction(0)) / len(p1s[e]) if p1s.get(e) else None
            if s == "active" and acc is not None and acc >= THETA:
                provisional[e] = ("mastered", 0)
                self.promoted[e] = number
            else:
                provisional[e] = (s, self.frequencies[e])
        delta = {e: failures.count(e) for e in set(failures) | set(self.states)}
        for e, d in delta.items():
            if e not in provisional:
                self.states[e], self.frequencies[e] = (
                    "active",
                    d,
                )  # a new cause: one, and one for each later match
            elif d == 0:
                self.states[e], self.frequencies[e] = provisional[e]
            elif provisional[e][0] in ("active", "dismissed"):
                self.states[e], self.frequencies[e] = provisional[e][0], provisional[e][1] + d
            else:
                self.states[e], self.frequencies[e] = "active", d
        total = sum(f for e, f in self.frequencies.items() if self.states[e] == "active")
        if self.first_total is None and total > 0:
            self.first_total = total
        self.schedule()

    def judge(self, e: str) -> None:
        """Dismiss a cause, or take its dismissal back; F₁ stays."""
        if self.states[e] != "dismissed":
            self.states[e] = "dismissed"
        else:
            self.states[e] = self.standing(e)
        self.schedule()

    def standing(self, e: str) -> str:
        return "mastered" if e in self.promoted and not self.frequencies[e] else "active"

    def assign(self, failure: str, e: str) -> None:
        """f anew, from nothing but the failures: those of the rounds since the last promotion."""
        self.failures[failure] = self.failures[failure][0], e
        for cause in self.states:
            since = self.promoted.get(cause, 0)
            counted = [of for round_, of in self.failures.values() if of == cause and round_ >= since]
            self.frequencies[cause] = len(counted)
            if self.states[cause] != "dismissed":
                self.states[cause] = self.standing(cause)
        self.schedule()

    def schedule(self) -> None:
        total = sum(f for e, f in self.frequencies.items() if self.states[e] == "active")
        if total == 0:
            self.epsilon, self.p = Fraction(1), {}
        else:
            z = Fraction(total, self.first_total or total)
            self.epsilon = 1 / (1 + z / K)
            self.p = {
                e: Fraction(f, total) for e, f in self.frequencies.items() if self.states[e] == "active" and f
            }


@dataclass
class Player:
    """Plays events through the fold, read back from their payloads, as a replay would."""

    state: MemoryState = field(default_factory=lambda: MemoryState("a"))
    facts: list[Fact] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.play(0, RunConfigured(config={}, models={}, embedder=UNNAMED, version="1"))

    def play(self, round_: int, *events: Event) -> None:
        for event in events:
            name, n = type(event).__name__, len(self.facts) + 1
            fact = Fact(name, round_, f"{n}", n, n, read(name, event.schema_version, payload_of(event)))
            self.facts.append(fact)
            advance(self.state, fact)


@st.composite
def _rounds(draw: st.DrawFn) -> list[dict]:
    """Per round: votes for targets chosen by index, and what becomes of each failure, causes chosen by
    index."""
    return draw(
        st.lists(
            st.fixed_dictionaries(
                {
                    "targets": st.lists(
                        st.tuples(st.integers(0, 9), st.integers(0, 12), st.booleans()), max_size=8
                    ),
                    "failures": st.lists(st.sampled_from(["new", "match", "slip"]), max_size=8),
                    "which": st.lists(st.integers(0, 30), min_size=8, max_size=8),
                    "node": st.lists(st.integers(0, 5), min_size=8, max_size=8),
                    "judged": st.lists(st.integers(0, 9), max_size=2),
                    "assigned": st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), max_size=3),
                }
            ),
            min_size=1,
            max_size=6,
        )
    )


def _play_round(player: Player, reading: Reading, number: int, plan: dict) -> None:
    state = player.state
    player.play(number, decide.opening(state, seed=0))
    active = [c.cause_id for c in state.active()]
    p1s: dict[str, list[Fraction]] = {}
    scored = [candidate(f"r{number}.q0")]
    for i, (index, votes, invalid) in enumerate(plan["targets"], 1):
        if not active:
            break
        cause_id = active[index % len(active)]
        scored.append(candidate(f"r{number}.q{i}", votes, cause=cause_id, invalid=invalid))
        if not invalid:
            p1s.setdefault(cause_id, []).append(Fraction(votes, 12))
    player.play(number, *scored)
    player.play(number, *decide.promotions(state))
    counted: list[str] = []
    for sample, kind in enumerate(plan["failures"]):
        failure_id = f"r{number}.q0.a{sample}"
        player.play(number, failure(failure_id))
        reading.failures[failure_id] = number, None
        if kind == "slip":
            continue
        player.play(number, new_cause(failure_id, f"cause of {failure_id}"))
        known = list(state.causes)
        if kind == "match" and known:
            cause_id = known[plan["which"][sample] % len(known)]
            judged, assigned = _judged(failure_id, cause_id), None
        else:
            cause_id = f"c{len(known) + 1}"
            nodes = list(state.nodes)
            pick = plan["node"][sample]
            node = nodes[pick % len(nodes)] if nodes and pick else None
            judged, assigned = _judged(failure_id, None), _assigned(failure_id, node)
        consequences = decide.settlement(state, failure_id, judged, assigned)
        player.play(number, judged, *([assigned] if assigned else []), *consequences)
        counted.append(cause_id)
        reading.failures[failure_id] = number, cause_id
    player.play(number, decide.commitment(state))
    reading.commit(number, p1s, counted)
    for index in plan["judged"] if state.causes else ():
        cause_id = list(state.causes)[index % len(state.causes)]
        of = {"number": state.dismissals + 1, "cause_id": cause_id, "by": "ada"}
        back = state.causes[cause_id].state == "dismissed"
        player.play(number, CauseReinstated(**of) if back else CauseDismissed(**of, because="not a fault"))
        reading.judge(cause_id)
    for which, index in plan["assigned"] if state.causes and reading.failures else ():
        failure_id = list(reading.failures)[which % len(reading.failures)]
        cause_id = list(state.causes)[index % len(state.causes)]
        round_, before = reading.failures[failure_id]
        placed = PlacedFailure(
            failure_id=failure_id,
            round=round_,
            trajectory="0" * 64,
            question="0" * 64,
            responses=12,
            first=6,
        )
        if before is not None:
            out = FailureUnassigned(number=state.assignments + 1, cause_id=before, failure=placed, by="ada")
            player.play(number, out)
        to = FailureAssigned(number=state.assignments + 1, cause_id=cause_id, failure=placed, by="ada")
        player.play(number, to)
        reading.assign(failure_id, cause_id)


def _judged(failure_id: str, cause_id: str | None) -> DuplicateJudged:
    return DuplicateJudged(
        failure_id=failure_id, candidates=[], nearest=None, duplicate=cause_id is not None, cause_id=cause_id
    )


def _assigned(failure_id: str, node: str | None) -> NodeAssigned:
    label = None if node else f"skill of {failure_id}"
    return NodeAssigned(failure_id=failure_id, shortlist=[], node_id=node, new_label=label)


@given(_rounds())
@settings(max_examples=150, deadline=None)
def test_the_fold_is_the_papers_memory(rounds: list[dict]) -> None:
    player, reading = Player(), Reading()
    for number, plan in enumerate(rounds, 1):
        _play_round(player, reading, number, plan)
        state = player.state
        assert {c.cause_id: c.state for c in state.causes.values()} == reading.states
        assert {c.cause_id: c.frequency for c in state.causes.values()} == reading.frequencies
        assert state.epsilon == reading.epsilon
        assert {cause: share.p for cause, share in state.schedule().shares.items()} == reading.p
        assert state.reference_failures == reading.first_total
        for cause in state.causes.values():
            never = cause.promotion is None
            assert cause.state == "dismissed" or (cause.state == "active") == (never or cause.frequency >= 1)


@given(_rounds())
@settings(max_examples=30, deadline=None)
def test_apply_leaves_the_state_before_it_alone(rounds: list[dict]) -> None:
    player, reading = Player(), Reading()
    for number, plan in enumerate(rounds, 1):
        _play_round(player, reading, number, plan)
    state = MemoryState("a")
    for fact in player.facts:
        before = state.copy()
        after = apply(state, fact)
        assert state == before
        assert after != before or fact.type == "CheckpointEvaluated"
        state = after
    assert state == player.state


@given(_rounds())
@settings(max_examples=30, deadline=None)
def test_a_snapshot_is_the_state(rounds: list[dict]) -> None:
    player, reading = Player(), Reading()
    for number, plan in enumerate(rounds, 1):
        _play_round(player, reading, number, plan)
    assert projection.from_bytes(projection.to_bytes(player.state)) == player.state
