"""Old events stay readable: a payload is stored with its version and brought up to date when it is read.

An upcaster takes the payload of one version and returns that of the next. Nothing is ever rewritten in the
log.
"""

from collections.abc import Callable
from typing import Any, cast

from diagevo.errors import StoreError
from diagevo.memory.events import EVENT_TYPES

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]


def _with(**fields: Any) -> Upcaster:
    """The step that adds fields which the old version did not know."""
    return lambda old: {**old, **fields}


def _processes_of_all_nodes(old: dict[str, Any]) -> dict[str, Any]:
    """Machines had once to be counted and joined by hand; a run of several goes on on a Ray cluster."""
    config = old.get("config")
    hardware = cast("dict[str, Any]", config).get("hardware") if isinstance(config, dict) else None
    if not isinstance(hardware, dict) or "machines" not in hardware:
        return old
    values = cast("dict[str, Any]", hardware)
    kept = {name: value for name, value in values.items() if name not in ("machines", "address")}
    machines, processes = values["machines"], values.get("processes", 1)
    if isinstance(machines, int) and isinstance(processes, int) and machines > 1:
        kept |= {"cluster": "ray", "processes": machines * processes}
    return {**old, "config": {**cast("dict[str, Any]", config), "hardware": kept}}


UPCASTERS: dict[tuple[str, int], Upcaster] = {
    ("RunConfigured", 1): _with(prompts={}),
    ("RunConfigured", 2): _processes_of_all_nodes,
    ("StageCompleted", 1): _with(parts={}, reward=None),
    ("StageAbandoned", 1): _with(seconds=None),
    ("StageAbandoned", 2): _with(reason=None),
    ("CandidateScored", 1): _with(invalid_reason=None, undecided=0),
    ("CandidateScored", 2): _with(votes_are="answers", drawn_round=None),
    ("FailureObserved", 1): _with(right=None),
    ("GroupIngested", 1): _with(draw=None, attempt=1),
}
"""(type, version) -> the step to version + 1. Add one, and a frozen example of the old version, with each
change."""

CURRENT: dict[str, int] = {name: model.schema_version for name, model in EVENT_TYPES.items()}


def upcast(type_: str, version: int, payload: dict[str, Any]) -> dict[str, Any]:
    """The payload in its current version. Raises StoreError for an unknown type or version."""
    current = CURRENT.get(type_)
    if current is None or version > current:
        raise StoreError(
            f"an event {type_} of version {version} was written by a newer DiagEvo",
            hint="install the newer DiagEvo",
        )
    if version < 1:
        raise StoreError(f"an event {type_} says it is of version {version}: versions begin at 1")
    for step in range(version, current):
        payload = UPCASTERS[type_, step](payload)
    return payload
