"""Old events stay readable: a payload is stored with its version and brought up to date when it is read.

An upcaster takes the payload of one version and returns that of the next. Nothing is ever rewritten in the
log.
"""

from collections.abc import Callable
from typing import Any

from diagevo.errors import StoreError
from diagevo.memory.events import EVENT_TYPES

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]


def _with(**fields: Any) -> Upcaster:
    """The step that adds fields which the old version did not know."""
    return lambda old: {**old, **fields}


UPCASTERS: dict[tuple[str, int], Upcaster] = {
    ("FailureObserved", 1): _with(right=None),
    ("FailureObserved", 2): _with(against="response"),
    ("CheckpointEvaluated", 1): _with(seconds=None),
    ("GroupIngested", 1): lambda old: {
        **old,
        "passed": [] if old["reference"] is None else [old["reference"]],
        "feedback": [],
        "tags": [],
    },
}
"""(type, version) -> the step to version + 1. Add one, and a frozen example of the old version, with each
change of a payload."""

CURRENT: dict[str, int] = {name: model.schema_version for name, model in EVENT_TYPES.items()}


def upcast(type_: str, version: int, payload: dict[str, Any]) -> dict[str, Any]:
    """The payload in its current version. Raises StoreError for an unknown type or version."""
    current = CURRENT.get(type_)
    if current is None or version > current:
        raise StoreError(
            f"an event {type_} of version {version} was written by a newer DiagEvo",
            hint="install the newer version of DiagEvo",
        )
    if version < 1:
        raise StoreError(f"an event {type_} says it is of version {version}: versions begin at 1")
    for step in range(version, current):
        payload = UPCASTERS[type_, step](payload)
    return payload
