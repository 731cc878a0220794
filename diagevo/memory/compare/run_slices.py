"""Parts of runs that are compared with each other: a run, one of its models, or one of its steps."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from diagevo.errors import ConfigError, NotFoundError
from diagevo.memory.history import AsOf, History
from diagevo.memory.read.asking import select_rows
from diagevo.memory.read.pass_rates import CauseRate
from diagevo.memory.read.placed_groups import PlacedGroup, placed_groups
from diagevo.text.lines import listed

LISTED = 12
"""Maximum models that an error names."""
_ADDRESS = re.compile(
    r"(?:(?P<run>[A-Za-z0-9][A-Za-z0-9._-]{0,99})(?:@(?P<round>\d{1,9}))?(?:\Z|:(?=model=|step=)))?"
    r"(?:(?P<kind>model|step)=(?P<value>.+))?",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class RunSlice:
    """Rollouts of a run that are compared with others."""

    run: "SlicedRun"
    address: str
    """Its address within the run: `model=gpt-x`, `step=3`; empty for a whole run."""
    groups: Mapping[str, PlacedGroup]
    """By question id, in order of the log."""

    @property
    def history(self) -> History:
        return self.run.history

    @property
    def name(self) -> str:
        """`gpt-x`, `step 3`, or the run."""
        return self.model or (f"step {self.step}" if self.step else self.history.run_id)

    @property
    def model(self) -> str:
        return self.address.removeprefix("model=") if self.address.startswith("model=") else ""

    @property
    def step(self) -> str:
        return self.address.removeprefix("step=") if self.address.startswith("step=") else ""

    @property
    def rollouts(self) -> int:
        return sum(group.rollouts for group in self.groups.values())

    def cause_rates(self) -> tuple[CauseRate, ...]:
        """The causes of its failures, most frequent first, without dismissed causes."""
        known = self.history.state(self.history.end).causes
        failures: dict[str, int] = {}
        within: dict[str, list[PlacedGroup]] = {}
        for one in self.caused():
            failures[one.cause_id] = failures.get(one.cause_id, 0) + one.failures
            within.setdefault(one.cause_id, []).append(self.groups[one.question_id])
        failed = sum(group.rollouts - group.passes for group in self.groups.values())
        rates: list[CauseRate] = []
        for cause_id, groups in within.items():
            rollouts, passes = sum(g.rollouts for g in groups), sum(g.passes for g in groups)
            rates.append(
                CauseRate(
                    cause_id=cause_id,
                    description=known[cause_id].description,
                    failures=failures[cause_id],
                    groups=len(groups),
                    rollouts=rollouts,
                    passes=passes,
                    pass_rate=passes / rollouts,
                    share=failures[cause_id] / failed,
                )
            )
        return tuple(sorted(rates, key=lambda one: (-one.failures, len(one.cause_id), one.cause_id)))

    def caused(self) -> "list[CausedFailures]":
        """Its failures by cause and group, without dismissed causes."""
        return [one for one in self.run.caused if one.question_id in self.groups]


@dataclass(frozen=True, slots=True)
class CausedFailures:
    """`v_cause_question`: failures of a group that are counted under a cause."""

    question_id: str
    question: str
    cause_id: str
    failures: int


class SlicedRun:
    """An ingested run and its slices."""

    def __init__(self, history: History) -> None:
        self.history = history

    @cached_property
    def groups(self) -> dict[str, PlacedGroup]:
        return placed_groups(self.history)

    @cached_property
    def caused(self) -> list[CausedFailures]:
        """All failures by cause and group, without dismissed causes."""
        gone = {cause.cause_id for cause in self.history.state(self.history.end).left_out()}
        found = select_rows(self.history, "v_cause_question", CausedFailures)
        return [one for one in found if one.cause_id not in gone]

    @cached_property
    def models(self) -> list[RunSlice]:
        """By name; empty for a run that names fewer than two."""
        return self._divided("model", {name: group.model for name, group in self.groups.items()})

    @cached_property
    def steps(self) -> list[RunSlice]:
        """In order; empty for a run with fewer than two."""
        return self._divided("step", {name: group.step for name, group in self.groups.items()})

    def whole(self, at: AsOf | None = None) -> RunSlice:
        """All of it, or up to a round; after the last commit the waiting groups are included."""
        groups = self.groups
        if at is not None and at.round < self.history.end.round:
            groups = {name: group for name, group in groups.items() if group.round <= at.round}
        return RunSlice(self, "", groups)

    def at(self, address: str, at: AsOf | None = None) -> RunSlice:
        """The slice at this address. Raises NotFoundError if there is none."""
        if not address:
            return self.whole(at)
        kind = address.partition("=")[0]
        among = self.models if kind == "model" else self.steps
        for one in among:
            if one.address == address:
                return one
        have = (
            listed([one.address for one in among], LISTED) if among else f"it does not name several {kind}s"
        )
        raise NotFoundError(f"run {self.history.run_id} has no {address}", hint=f"it has: {have}")

    def _divided(self, kind: str, values: Mapping[str, str | int | None]) -> list[RunSlice]:
        parts: dict[str | int, dict[str, PlacedGroup]] = {}
        for name, value in values.items():
            if value is not None:
                parts.setdefault(value, {})[name] = self.groups[name]
        slices = [RunSlice(self, f"{kind}={value}", parts[value]) for value in sorted(parts, key=_order)]
        return slices if len(slices) > 1 else []


def _order(value: str | int) -> tuple[int, str]:
    return (value, "") if isinstance(value, int) else (0, value)


def names(slices: Sequence[RunSlice]) -> list[str]:
    """The name of each among the others: with its run, if they belong to several."""
    runs = {one.history.run_id for one in slices}
    return [
        one.name if len(runs) == 1 or not one.address else f"{one.history.run_id}: {one.name}"
        for one in slices
    ]


@dataclass(frozen=True, slots=True)
class SliceNamed:
    """What an address names: `a`, `a@3`, `model=gpt-x`, `a:step=7`."""

    run: str | None
    round: int | None
    address: str


def slice_named(text: str) -> SliceNamed:
    """Raises ConfigError if it names none."""
    found = _ADDRESS.fullmatch(text)
    if found is None or not text:
        raise ConfigError(
            f"{text[:80]!r} names no run, model or step",
            hint="write a, a@3, model=NAME, step=7 or a:model=NAME",
        )
    kind = found["kind"]
    return SliceNamed(
        found["run"],
        None if found["round"] is None else int(found["round"]),
        f"{kind}={found['value']}" if kind else "",
    )
