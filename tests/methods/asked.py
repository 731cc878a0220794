"""Absolute Zero on the shipped weights, which know one prompt for a question and none of its own.

Here every kind is asked for in the words that they know.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from diagevo.arithmetic.sentence_tasks import SentenceTasks
from diagevo.config.models import Config
from tests import preloaded
from tests.run.small import SMALL

CHANGES: Mapping[str, Any] = {
    "method": "absolute-zero",
    "round": {"candidates": 36, "responses": 4, "challenger_votes": 4, "rounds": 2},
    "schedule": {"policy": "free"},
    "filter": {"variant": "none"},
    "absolute_zero": {"shown": 2},
    "challenger_grpo": {"max_steps": 2, "batch_questions": 9, "group": 1, "advantage": "part", "beta": 0},
    "solver_grpo": {"max_steps": 2, "batch_questions": 9, "group": 1, "advantage": "part", "beta": 0},
    "validation": {"limit": 2, "samples": 1, "temperatures": []},
}


def values() -> dict[str, Any]:
    found = json.loads(json.dumps(SMALL))
    for name, change in CHANGES.items():
        found[name] = {**found.get(name, {}), **change} if isinstance(change, Mapping) else change
    return found


def config() -> Config:
    return Config.model_validate(values())


def written(home: Path) -> list[str]:
    """The arguments that start the run."""
    (home / "small.yaml").write_text(json.dumps(values()), encoding="utf-8")
    return ["-c", str(home / "small.yaml"), "--rounds", "2"]


def known_words(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SentenceTasks, "asks", lambda *_: [{"role": "user", "content": "ask a question"}])


def program(*given: Any) -> None:
    """`tests.preloaded:program`, asked in the words that the weights know."""
    known_words(pytest.MonkeyPatch())
    preloaded.program(*given)
