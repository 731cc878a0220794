"""Two runs beside each other: after which round their memories first differ, and which causes they share.

Each commit holds a hash of the memory that it left: equal histories number their causes alike. Causes are
shared where their descriptions are equal, one to one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Literal

from diagevo.memory.audit.timeline.causes import lives
from diagevo.memory.events import CauseState
from diagevo.memory.history import AsOf, History
from diagevo.memory.read.rounds import rounds, validations
from diagevo.memory.state.model import MemoryState
from diagevo.memory.state.stored_config import leaves
from diagevo.text.redaction import redacted


@dataclass(frozen=True, slots=True)
class Difference:
    """A value of the configuration that the runs do not share."""

    key: str
    a: Any
    b: Any


@dataclass(frozen=True, slots=True)
class InRun:
    """A cause as it stands in one of the runs."""

    id: str
    description: str
    state: CauseState
    frequency: int
    created: int
    promoted: tuple[int, ...]
    reactivated: tuple[int, ...]

    def timing(self, until: int) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        """Its rounds up to `until`: of what one run has not played, the other one cannot differ."""
        promoted = tuple(r for r in self.promoted if r <= until)
        return self.created, promoted, tuple(r for r in self.reactivated if r <= until)


@dataclass(frozen=True, slots=True)
class Shared:
    """A cause that both runs have, in the same words."""

    a: InRun
    b: InRun


@dataclass(frozen=True, slots=True)
class RunsDiff:
    runs: tuple[str, str]
    rounds: tuple[int, int]
    configuration: tuple[Difference, ...]
    divergence: int | None
    """The first round that left another memory in each; None where they are equal as far as both go."""
    further: Literal["a", "b"] | None
    """The run that committed rounds after the other one's last."""
    common_round: int
    """The last committed round that both have: timing is compared up to it."""
    shared: tuple[Shared, ...]
    """With the same timing."""
    timing: tuple[Shared, ...]
    """Shared, and created, promoted or reactivated in other rounds."""
    only_a: tuple[InRun, ...]
    only_b: tuple[InRun, ...]

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
class Learnt:
    """A round of both runs in measurements; None where a run has not played it or measured nothing."""

    round: int
    mean_at_k: tuple[float | None, float | None]
    greedy: tuple[float | None, float | None]
    mean_at_k_best: tuple[float | None, float | None]
    labels_true: tuple[float | None, float | None]
    solver_reward: tuple[float | None, float | None]
    pass_rate: tuple[float | None, float | None]
    kept: tuple[int | None, int | None]
    failures: tuple[int | None, int | None]


def learnt(a: History, b: History, rounds: tuple[int, int]) -> list[Learnt]:
    """What both runs came to, by round, as far as each is looked at; 0 is what a run starts from."""
    sides = [_learnt(run, last) for run, last in zip((a, b), rounds, strict=True)]

    def both(number: int, name: str) -> Any:
        return tuple(side.get(number, {}).get(name) for side in sides)

    names = [f.name for f in fields(Learnt)][1:]
    numbers = sorted(sides[0].keys() | sides[1].keys())
    return [Learnt(number, *(both(number, name) for name in names)) for number in numbers]


def _learnt(history: History, last: int) -> dict[int, dict[str, Any]]:
    before: dict[str, Any] = dict(validations(history, 0).get(0, {}))
    lines = {line.round: line for line in rounds(history) if line.round <= last}
    told = {number: {f.name: getattr(line, f.name) for f in fields(line)} for number, line in lines.items()}
    return {0: before} | told if before else told


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


def _in_run(history: History, as_of: AsOf, state: MemoryState) -> list[InRun]:
    told = lives(history, as_of)
    return [
        InRun(
            id=cause_id,
            description=cause.description,
            state=cause.state,
            frequency=cause.frequency,
            created=told[cause_id].created,
            promoted=tuple(told[cause_id].promoted),
            reactivated=tuple(told[cause_id].reactivated),
        )
        for cause_id, cause in state.causes.items()
    ]


def _match(causes_a: list[InRun], causes_b: list[InRun]) -> list[Shared]:
    waiting: dict[str, list[InRun]] = {}
    for cause in causes_b:
        waiting.setdefault(cause.description, []).append(cause)
    return [Shared(cause, same.pop(0)) for cause in causes_a if (same := waiting.get(cause.description))]
