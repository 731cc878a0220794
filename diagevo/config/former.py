"""Current names of settings in stored configurations: a log keeps the names that it was written with."""

import copy
from collections.abc import Mapping
from typing import Any

RENAMED: dict[str, str] = {}
"""Former name → current one, both dotted: one line per rename, with its version. A former name is never
reused for another setting."""

_ANY = object()
LEFT: dict[str, Any] = {
    "diagnosis.prompts_as_written": False,
    "hardware.address": _ANY,
    "hardware.machines": _ANY,
    "hardware.main_address": _ANY,
    "hardware.serve": _ANY,
    "hardware.serve_gpus": _ANY,
    "hardware.serve_memory": _ANY,
    "hardware.serve_options": _ANY,
    "hardware.train_gpus": _ANY,
    "validation.baseline_temperature": _ANY,
}
"""Removed settings, with the value that equals today's fixed behaviour; any value for those that affected
only machine or measurement (before 0.1.0)."""


def in_todays_names(stored: Mapping[str, Any]) -> dict[str, Any]:
    """A stored configuration as it would be written today. Unknown keys stay where they are."""
    found = copy.deepcopy(dict(stored))
    for old, new in RENAMED.items():
        (*path, name), (*target, now) = old.split("."), new.split(".")
        section, place = _section(found, path), _section(found, target)
        if section is not None and name in section:
            place = _made(found, target) if place is None else place
            if now not in place:
                place[now] = section.pop(name)
    for old, value in LEFT.items():
        *path, name = old.split(".")
        section = _section(found, path)
        if section is not None and name in section and value in (_ANY, section[name]):
            del section[name]
    return found


def _section(tree: dict[str, Any], path: list[str]) -> dict[str, Any] | None:
    for name in path:
        inner = tree.get(name)
        if not isinstance(inner, dict):
            return None
        tree = inner
    return tree


def _made(tree: dict[str, Any], path: list[str]) -> dict[str, Any]:
    for name in path:
        tree = tree.setdefault(name, {})
    return tree
