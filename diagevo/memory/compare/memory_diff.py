"""What changed in a memory between two points of one run, and two runs side by side: after which round
their memories first differ, and which causes they share.

Each commit holds a hash of the memory that it left: equal histories number their causes alike. Causes are
shared where their descriptions are equal, one to one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any, Literal, assert_never

from diagevo.errors import ConfigError
from diagevo.memory.compare.replay import Rebuilt, describe
from diagevo.memory.events import Cause, CauseState, number_of
from diagevo.memory.history import AsOf, History
from diagevo.memory.log.tables import RoundCounts
from diagevo.memory.read.asking import select_rows
from diagevo.memory.read.round_figures import rounds, validations
from diagevo.memory.state.model import MemoryState
from diagevo.memory.state.projection import round_counts
from diagevo.memory.state.stored_config import leaves
from diagevo.text.redaction import redacted


@dataclass(frozen=True, slots=True)
class CauseChange:
    """A cause that is not the same at both points. `what`: created, promoted, reactivated, dismissed,
    reinstated, counted, moved."""

    cause_id: str
    description: str
    what: tuple[str, ...]
    state: tuple[str | None, str]
    frequency: tuple[int | None, int]
    node: tuple[str | None, str]
    probability: tuple[Fraction | None, Fraction | None]


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A node that is not the same. `what`: created, merged, relabelled."""

    node_id: str
    what: str
    label: str
    detail: str = ""


@dataclass(frozen=True, slots=True)
class MemoryDiff:
    """From point `a` to the later point `b`. The figures are (a, b)."""

    rounds: tuple[int, int]
    positions: tuple[int, int]
    failures: tuple[int, int]
    z: tuple[Fraction | None, Fraction | None]
    epsilon_next: tuple[Fraction, Fraction]
    active: tuple[int, int]
    mastered: tuple[int, int]
    nodes: tuple[int, int]
    causes: tuple[CauseChange, ...]
    node_changes: tuple[NodeChange, ...]

    @property
    def same(self) -> bool:
        return not self.causes and not self.node_changes and self.epsilon_next[0] == self.epsilon_next[1]


def diff_memory(history: History, a: AsOf, b: AsOf) -> MemoryDiff:
    """What changed between two points of a run. Raises ConfigError if `b` comes before `a`: read backwards,
    promotions would be events that never happened."""
    if a.position > b.position:
        raise ConfigError(
            f"round {a.round} comes after round {b.round}",
            hint=f"diagevo runs diff {history.run_id}@{b.round}..{history.run_id}@{a.round}",
        )
    before, after = history.state(a), history.state(b)
    old, new = describe(before), describe(after)
    return MemoryDiff(
        rounds=(a.round, b.round),
        positions=(a.position, b.position),
        failures=(old.failures, new.failures),
        z=(old.z, new.z),
        epsilon_next=(old.epsilon_next, new.epsilon_next),
        active=(old.active, new.active),
        mastered=(old.mastered, new.mastered),
        nodes=(old.nodes, new.nodes),
        causes=tuple(_causes(before, after, old, new)),
        node_changes=tuple(_nodes(before, after)),
    )


def _causes(before: MemoryState, after: MemoryState, old: Rebuilt, new: Rebuilt) -> list[CauseChange]:
    p_old = {c.id: c.probability for c in old.causes}
    p_new = {c.id: c.probability for c in new.causes}
    changes: list[CauseChange] = []
    for cause_id, now in after.causes.items():
        was = before.causes.get(cause_id)
        what = _what(was, now)
        if what:
            changes.append(
                CauseChange(
                    cause_id=cause_id,
                    description=now.description,
                    what=what,
                    state=(was.state if was else None, now.state),
                    frequency=(was.frequency if was else None, now.frequency),
                    node=(was.node_id if was else None, now.node_id),
                    probability=(p_old.get(cause_id), p_new.get(cause_id)),
                )
            )
    return changes


def _what(was: Cause | None, now: Cause) -> tuple[str, ...]:
    if was is None:
        return ("created",) if now.state == "active" else ("created", now.state)
    what: list[str] = []
    if was.promotion != now.promotion:
        what.append("promoted")
    match was.state, now.state:
        case "dismissed", "dismissed":
            pass
        case "dismissed", "active" | "mastered":
            what.append("reinstated")
        case "active" | "mastered", "dismissed":
            what.append("dismissed")
        case "active" | "mastered", "active":
            if was.state == "mastered" or was.promotion != now.promotion:
                what.append("reactivated")
        case "active" | "mastered", "mastered":
            pass
        case _ as states:
            assert_never(states)
    if was.frequency != now.frequency and not what:
        what.append("counted")
    if was.node_id != now.node_id:
        what.append("moved")
    return tuple(what)


def _nodes(before: MemoryState, after: MemoryState) -> list[NodeChange]:
    changes = [
        NodeChange(n.node_id, "created", n.label) for i, n in after.nodes.items() if i not in before.nodes
    ]
    for node_id, (survivor, label) in after.absorbed.items():
        if node_id not in before.absorbed:
            known = before.nodes.get(node_id)
            changes.append(NodeChange(node_id, "merged", known.label if known else label, f"into {survivor}"))
    for node_id, now in after.nodes.items():
        was = before.nodes.get(node_id)
        if was is not None and was.label != now.label:
            changes.append(NodeChange(node_id, "relabelled", now.label, f"was “{was.label}”"))
    return sorted(changes, key=lambda change: number_of(change.node_id))


@dataclass(frozen=True, slots=True)
class Difference:
    """A configuration value that differs between the runs."""

    key: str
    a: Any
    b: Any


@dataclass(frozen=True, slots=True)
class CauseInRun:
    """A cause as it stands in one of the runs."""

    id: str
    description: str
    state: CauseState
    frequency: int
    created: int
    promoted: tuple[int, ...]
    reactivated: tuple[int, ...]

    def timing(self, until: int) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        """Its rounds up to `until`: runs cannot differ in rounds that only one has played."""
        promoted = tuple(r for r in self.promoted if r <= until)
        return self.created, promoted, tuple(r for r in self.reactivated if r <= until)


@dataclass(frozen=True, slots=True)
class Shared:
    """A cause that both runs have, in the same words."""

    a: CauseInRun
    b: CauseInRun


@dataclass(frozen=True, slots=True)
class RunsDiff:
    runs: tuple[str, str]
    rounds: tuple[int, int]
    configuration: tuple[Difference, ...]
    divergence: int | None
    """The first round after which their memories differ; None if they agree in all common rounds."""
    further: Literal["a", "b"] | None
    """The run that committed rounds after the other one's last."""
    common_round: int
    """The last committed round that both have: timing is compared up to it."""
    shared: tuple[Shared, ...]
    """With the same timing."""
    timing: tuple[Shared, ...]
    """Shared, and created, promoted or reactivated in other rounds."""
    only_a: tuple[CauseInRun, ...]
    only_b: tuple[CauseInRun, ...]

    @property
    def same(self) -> bool:
        return self.divergence is None and self.further is None and not self.configuration


def diff_runs(a: History, b: History, at_a: AsOf, at_b: AsOf) -> RunsDiff:
    """Compare run `a` up to `at_a` with run `b` up to `at_b`."""
    state_a, state_b = a.state(at_a), b.state(at_b)
    causes_a, causes_b = _in_run(a, at_a, state_a), _in_run(b, at_b, state_b)
    pairs = _match(causes_a, causes_b)
    left, right = {p.a.id for p in pairs}, {p.b.id for p in pairs}
    common = min(at_a.round, at_b.round)
    alike = [p.a.timing(common) == p.b.timing(common) for p in pairs]
    return RunsDiff(
        runs=(a.run_id, b.run_id),
        rounds=(at_a.round, at_b.round),
        configuration=tuple(configuration(a, b, at_a, at_b)),
        divergence=_divergence(a, b, at_a, at_b),
        further=None if at_a.round == at_b.round else "a" if at_a.round > at_b.round else "b",
        common_round=common,
        shared=tuple(p for p, same in zip(pairs, alike, strict=True) if same),
        timing=tuple(p for p, same in zip(pairs, alike, strict=True) if not same),
        only_a=tuple(c for c in causes_a if c.id not in left),
        only_b=tuple(c for c in causes_b if c.id not in right),
    )


@dataclass(frozen=True, slots=True)
class RoundComparison:
    """A round's measurements in both runs; None if a run has not played it or measured nothing."""

    round: int
    mean_at_k: tuple[float | None, float | None]
    greedy: tuple[float | None, float | None]
    mean_at_k_best: tuple[float | None, float | None]
    labels_true: tuple[float | None, float | None]
    solver_reward: tuple[float | None, float | None]
    pass_rate: tuple[float | None, float | None]
    kept: tuple[int | None, int | None]
    failures: tuple[int | None, int | None]


def learnt(a: History, b: History, rounds: tuple[int, int]) -> list[RoundComparison]:
    """The measurements of both runs by round, up to the compared points; 0 is the starting model."""
    sides = [_learnt(run, last) for run, last in zip((a, b), rounds, strict=True)]

    def both(number: int, name: str) -> Any:
        return tuple(side.get(number, {}).get(name) for side in sides)

    names = [f.name for f in fields(RoundComparison)][1:]
    numbers = sorted(sides[0].keys() | sides[1].keys())
    return [RoundComparison(number, *(both(number, name) for name in names)) for number in numbers]


def _learnt(history: History, last: int) -> dict[int, dict[str, Any]]:
    before: dict[str, Any] = dict(validations(history, 0).get(0, {}))
    lines = {line.round: line for line in rounds(history) if line.round <= last}
    values = {number: {f.name: getattr(line, f.name) for f in fields(line)} for number, line in lines.items()}
    return {0: before} | values if before else values


def configuration(a: History, b: History, at_a: AsOf, at_b: AsOf) -> Iterator[Difference]:
    """The values of the configuration in which the two points differ, in the order of their keys."""
    left, right = (dict(leaves(redacted(run.configuration(at).config))) for run, at in ((a, at_a), (b, at_b)))
    for key in sorted(left.keys() | right.keys()):
        if left.get(key) != right.get(key):
            yield Difference(key, left.get(key), right.get(key))


def _divergence(a: History, b: History, at_a: AsOf, at_b: AsOf) -> int | None:
    left, right = ({fact.round: fact.event for fact in run.counted(at)} for run, at in ((a, at_a), (b, at_b)))
    return next(
        (number for number in sorted(left.keys() & right.keys()) if left[number] != right[number]), None
    )


def _in_run(history: History, as_of: AsOf, state: MemoryState) -> list[CauseInRun]:
    """The causes at that point, with the rounds that counted then and turned them."""
    counted = {commit.round for commit in history.counted(as_of)}
    turned = [
        one for one in select_rows(history, "v_round", RoundCounts, order="round") if one.round in counted
    ]
    if state.open is not None:
        turned.append(round_counts(state.open))
    return [
        CauseInRun(
            id=cause_id,
            description=cause.description,
            state=cause.state,
            frequency=cause.frequency,
            created=cause.created_round,
            promoted=tuple(one.round for one in turned if cause_id in one.promoted_causes),
            reactivated=tuple(one.round for one in turned if cause_id in one.reactivated_causes),
        )
        for cause_id, cause in state.causes.items()
    ]


def _match(causes_a: list[CauseInRun], causes_b: list[CauseInRun]) -> list[Shared]:
    waiting: dict[str, list[CauseInRun]] = {}
    for cause in causes_b:
        waiting.setdefault(cause.description, []).append(cause)
    return [Shared(cause, same.pop(0)) for cause in causes_a if (same := waiting.get(cause.description))]
