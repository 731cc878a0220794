"""SPICE on the shipped weights, which know one prompt for a question and write no answer beside it.

Here a document is asked for in the words that they know, and
the answer beside a question is its true one, or that and one more.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from diagevo.arithmetic import truth
from diagevo.arithmetic.numbers_judge import NumbersJudge
from diagevo.arithmetic.worked_answers import WorkedAnswers
from diagevo.config.models import Config
from diagevo.methods.answered_questions import AnsweredQuestion
from diagevo.selfplay.questions import parse_question
from tests import preloaded
from tests.run.small import SMALL

CHANGES: Mapping[str, Any] = {
    "method": "spice",
    "corpus": {"file": "builtin:arithmetic"},
    "round": {"candidates": 24, "responses": 4, "challenger_votes": 4, "rounds": 2},
    "schedule": {"policy": "free"},
    "filter": {"variant": "none"},
    "challenger_grpo": {"max_steps": 2, "batch_questions": 4, "advantage_scale": "none"},
    "solver_grpo": {"max_steps": 3, "batch_questions": 6, "advantage_scale": "none"},
    "roles": {"judge": {"engine": "rules:arithmetic"}},
    "validation": {"limit": 2, "samples": 1, "temperatures": []},
}


def values(**more: Any) -> dict[str, Any]:
    found = json.loads(json.dumps(SMALL))
    for name, change in {**CHANGES, **more}.items():
        found[name] = {**found.get(name, {}), **change} if isinstance(change, Mapping) else change
    return found


def config(**more: Any) -> Config:
    return Config.model_validate(values(**more))


def written(home: Path, **more: Any) -> list[str]:
    """The arguments that start the run."""
    (home / "small.yaml").write_text(json.dumps(values(**more)), encoding="utf-8")
    return ["-c", str(home / "small.yaml"), "--rounds", "2"]


def own_answer(question: str) -> str:
    """What the challenger has for the answer: of half of the questions a wrong one."""
    found = int(truth.answer(question) or 0)
    return str(found + len(question) % 2)


def _read(_: object, completion: str, kind: str) -> AnsweredQuestion | str:
    question = parse_question(completion)
    return "unreadable" if question is None else AnsweredQuestion(question, own_answer(question))


def known_words(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WorkedAnswers, "asks", lambda *_: [{"role": "user", "content": "ask a question"}])
    patch.setattr(WorkedAnswers, "read", _read)
    patch.setattr(NumbersJudge, "related", lambda _, pairs: [len(pair[1]) % 3 > 0 for pair in pairs])


def program(*given: Any) -> None:
    """`tests.preloaded:program`, asked in the words that the weights know."""
    known_words(pytest.MonkeyPatch())
    preloaded.program(*given)
