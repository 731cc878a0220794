"""Old events stay readable: a payload is stored with its version and brought up to date when it is read.

A step takes the payload of one version to the next and back: back, because a payload must be what its own
version would have written. Nothing is ever rewritten in the log.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from diagevo.errors import StoreError
from diagevo.memory.events import EVENT_TYPES

Payload = dict[str, Any]


class Upcast(NamedTuple):
    """From one version of a payload to the next, and back."""

    up: Callable[[Payload], Payload]
    down: Callable[[Payload], Payload]


def _with(**fields: Any) -> Upcast:
    """The step that adds fields which the old version did not know; a function makes one of the others."""

    def up(payload: Payload) -> Payload:
        new = {name: made(payload) if callable(made) else made for name, made in fields.items()}
        return {**payload, **new}

    def down(payload: Payload) -> Payload:
        return {name: value for name, value in payload.items() if name not in fields}

    return Upcast(up, down)


def _reference_alone(payload: Payload) -> list[Any]:
    return [] if payload["reference"] is None else [payload["reference"]]


STEPS: dict[tuple[str, int], Upcast] = {
    ("FailureObserved", 1): _with(right=None),
    ("FailureObserved", 2): _with(against="response"),
    ("StageCompleted", 1): _with(),  # its reward is what it was: the mean over the last attempt's steps
    ("FailureObserved", 3): _with(),
    ("FailureDiagnosed", 1): _with(cause_key=None, level=None, evidence=[], step=None),
    ("CheckpointEvaluated", 1): _with(seconds=None),
    ("GroupIngested", 1): _with(passed=_reference_alone, feedback=[], tags=[]),
}
"""(type, version) -> the step to version + 1. Add one, and a frozen example of the old version, with each
change of a payload."""

CURRENT: dict[str, int] = {name: model.schema_version for name, model in EVENT_TYPES.items()}


def upcast(type_: str, version: int, payload: Payload) -> Payload:
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
        payload = STEPS[type_, step].up(payload)
    return payload


def downcast(type_: str, version: int, payload: Payload) -> Payload:
    """What an older version would have written of a current payload."""
    for step in reversed(range(version, CURRENT[type_])):
        payload = STEPS[type_, step].down(payload)
    return payload
