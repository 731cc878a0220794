"""What changed in a memory between two points of one run."""

from dataclasses import dataclass
from fractions import Fraction

from diagevo.errors import ConfigError
from diagevo.memory.audit.replay import Rebuilt, describe
from diagevo.memory.events import Cause, number_of
from diagevo.memory.history import AsOf, History
from diagevo.memory.state.model import MemoryState


@dataclass(frozen=True, slots=True)
class CauseChange:
    """A cause that is not the same at both points. `what`: created, promoted, reactivated, counted, moved."""

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
    """What lies between two points of a run. Raises ConfigError where `b` comes before `a`: a memory changes
    forwards, and told backwards its promotions would read as what never happened."""
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
        return ("created", "mastered") if now.state == "mastered" else ("created",)
    what: list[str] = []
    if was.promotion != now.promotion:
        what.append("promoted")
    if now.state == "active" and (was.state == "mastered" or was.promotion != now.promotion):
        what.append("reactivated")
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
