"""A policy of one's own is asked again: does it say what the log has? Only where the user names it too, and
its source is here and unchanged; otherwise what was recorded stands, and that is said.

An audit is what a stranger's database is given to, so it runs nothing on a database's word.
"""

import os
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from diagevo.equations.policy import BUILT_IN, Known, Policy, epsilon_of
from diagevo.errors import ConfigError
from diagevo.memory.events import RunConfigured
from diagevo.memory.log.log import Log
from diagevo.memory.policy import Policies, named
from diagevo.memory.state.fold import advance
from diagevo.memory.state.model import MemoryState

NAMED = "DIAGEVO_SCHEDULE__POLICY"
"""The variable of the key schedule.policy, by which the user says whose code an audit may run."""


@dataclass(slots=True)
class Asked:
    """What came of it. `faults` are (position, message); `notes` say why a policy was not asked."""

    schedules: int = 0
    """ε that the policy says again."""
    faults: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    notes: list[str] = field(default_factory=list[str])


class Again:
    """The policies of one run, for reading."""

    def __init__(self, log: Log, run_id: str) -> None:
        self._policies = Policies(log, run_id, {"schedule": {"policy": os.environ.get(NAMED, BUILT_IN[0])}})
        self.notes: dict[str, None] = {}
        """Why a policy is not asked, once each."""

    def of(self, state: MemoryState) -> Policy | None:
        """The policy of one's own in force, where it can be asked."""
        name = named(state.config or {})
        if name is not None and self._policies.said is None:
            again = f"its schedules stand as recorded ({NAMED}={name} has it asked)"
            self.notes[f"an audit runs no code that only the log names: schedule.policy {name}; {again}"] = (
                None
            )
            return None
        try:
            return self._policies.of(state)
        except ConfigError as error:
            self.notes[f"{error.message}; its schedules stand as recorded"] = None
            return None

    def said(self, policy: Policy, known: Known) -> Fraction | None:
        """The ε that the policy says; None where it fails."""
        try:
            return epsilon_of(policy, known)
        except ConfigError as error:
            self.notes[f"{error.message}; its schedules stand as recorded"] = None
            return None


def ask_again(log: Log, run_id: str, until: int | None = None) -> Asked:
    """Ask for ε of every recorded schedule, up to event `until`."""
    asked, again = Asked(), Again(log, run_id)
    configured = (r.event for r in log.read(run_id, types=[RunConfigured.__name__]))
    if not any(isinstance(event, RunConfigured) and named(event.config) for event in configured):
        return asked
    state = MemoryState(run_id)
    told = {"RoundOpened": "epsilon", "RoundCommitted": "epsilon_next"}
    for fact in log.facts(run_id, until=until):
        if fact.type in told and named(state.config or {}) is not None:
            _ask(asked, again, state, fact.position, getattr(fact.event, told[fact.type]))
        advance(state, fact)
    asked.notes = list(again.notes)
    return asked


def _ask(asked: Asked, again: Again, state: MemoryState, position: int, recorded: Any) -> None:
    policy = again.of(state)
    if policy is None:
        return
    now = again.said(policy, state.known())
    if now is None:
        return
    if now == Fraction(recorded):
        asked.schedules += 1
        return
    number = state.known().round
    says = f"ε of round {number}: {named(state.config or {})} says {now}, recorded is {recorded}"
    asked.faults.append((position, says))
