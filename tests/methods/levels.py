"""DARC on the shipped weights, which know one prompt for a question and none that shows a document.

Here both roles are asked in the words that they know.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from diagevo.arithmetic.numbers_judge import NumbersJudge
from diagevo.arithmetic.worked_questions import WorkedQuestions
from diagevo.config.models import Config
from tests import preloaded
from tests.run.small import SMALL

CHANGES: Mapping[str, Any] = {
    "method": "darc",
    "corpus": {"file": "builtin:arithmetic"},
    "darc": {"questioner_rounds": 1, "near": 0.6},
    "round": {"candidates": 36, "responses": 8, "challenger_votes": 5, "rounds": 3},
    "schedule": {"policy": "free"},
    "filter": {"variant": "absolute", "p_low": "3/10", "p_high": 1},
    "challenger_grpo": {"max_steps": 2, "batch_questions": 6, "group": 2},
    "solver_grpo": {"max_steps": 3, "batch_questions": 6, "group": 4, "advantage_scale": "none", "beta": 0},
    "validation": {"limit": 2, "samples": 1, "temperatures": []},
    "roles": {**SMALL["roles"], "judge": {"engine": "rules:arithmetic"}},  # type: ignore[dict-item]
}


def values(**changes: Any) -> dict[str, Any]:
    found = json.loads(json.dumps(SMALL))
    for name, change in [*CHANGES.items(), *changes.items()]:
        found[name] = {**found.get(name, {}), **change} if isinstance(change, Mapping) else change
    return found


def config(**changes: Any) -> Config:
    return Config.model_validate(values(**changes))


def written(home: Path) -> list[str]:
    """The arguments that start the run."""
    (home / "small.yaml").write_text(json.dumps(values()), encoding="utf-8")
    return ["-c", str(home / "small.yaml"), "--rounds", "3"]


def known_words(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WorkedQuestions, "asks", lambda *_: [{"role": "user", "content": "ask a question"}])
    patch.setattr(WorkedQuestions, "informed", lambda _, q, d: [{"role": "user", "content": q}])
    patch.setattr(NumbersJudge, "related", lambda _, pairs: [len(q) % 5 > 0 for _, q in pairs])


def program(*given: Any) -> None:
    """`tests.preloaded:program`, asked in the words that the weights know."""
    known_words(pytest.MonkeyPatch())
    preloaded.program(*given)
