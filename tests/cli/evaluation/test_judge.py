"""A judge behind a real endpoint: what the rule refused, cached, named, failing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.diagnosis.server import Answer, Server
from tests.evaluation.published import write

from .conftest import Ask, question_of, rows

pytestmark = [pytest.mark.server, pytest.mark.slow]
QUESTIONS = [
    {"problem": f"What is ${n}+{n}$?", "solution": "", "answer": str(2 * n), "subject": "Algebra", "level": 1,
     "unique_id": str(n)}
    for n in range(1, 5)
]  # fmt: skip
SAID = {1: r"\boxed{2}", 2: r"\boxed{a pair of pairs}", 3: r"\boxed{seven}", 4: "I cannot say."}
"""Right by rule; right in words; wrong in words; no answer."""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write(tmp_path / "math500.jsonl", QUESTIONS)


@pytest.fixture
def solver() -> Iterator[Server]:
    with Server(lambda r, before: Answer(SAID[int(question_of(r).split("$")[1].split("+")[0])])) as server:
        yield server


def grades(request: dict[str, Any], before: int) -> Answer:
    return Answer("Yes." if "grade: a pair of pairs" in question_of(request) else "No")


def evaluate(
    ask: Ask, solver: Server, judge: Server, data: Path, *more: str, model: str = "m", name: str = "g"
):
    asked = ["--model", model, "--base-url", solver.url, "--data", str(data)]
    return ask("eval", "run", "math500", *asked, "--judge", name, "--judge-url", judge.url, *more, "--json")


def metrics(result: Any) -> dict[str, Any]:
    [line] = rows(result)
    return line["metrics"]


def test_the_judge_decides_only_what_the_rule_refused(ask: Ask, solver: Server, data: Path) -> None:
    with Server(grades) as judge:
        [line] = rows(evaluate(ask, solver, judge, data, name="gpt-4o"))
    assert sorted(question_of(r).split("grade: ")[1] for r in judge.requests) == ["a pair of pairs", "seven"]
    assert {(r["model"], r["temperature"]) for r in judge.requests} == {("gpt-4o", 0.0)}
    found = line["metrics"]
    assert (found["by_rule"], found["score"]) == (0.25, 0.5)
    assert (found["judge_asked"], found["judge_changed"], found["judge_unread"]) == (0.5, 0.25, 0.0)
    assert line["judge"] == "gpt-4o"
    shown = rows(ask("eval", "show", line["evaluation_id"], "--wrong", "9", "--json"))
    assert [(r["judge"], r["judged"]) for r in shown["wrong"]] == [
        ("gpt-4o", [False]),
        ("gpt-4o", [None]),
    ]


def test_a_verdict_is_asked_for_once_whoever_answered(ask: Ask, solver: Server, data: Path) -> None:
    with Server(grades) as judge:
        first = metrics(evaluate(ask, solver, judge, data))
        again = metrics(evaluate(ask, solver, judge, data, model="another"))
        assert again == first
        assert len(judge.requests) == 2
        metrics(evaluate(ask, solver, judge, data, name="another judge"))
        assert len(judge.requests) == 4


def test_a_failing_judge_exits_6_and_loses_neither_answers_nor_verdicts(
    ask: Ask, solver: Server, data: Path
) -> None:
    up = False

    def flaky(request: dict[str, Any], before: int) -> Answer:
        if "grade: seven" in question_of(request) and not up:
            return Answer("overloaded", status=400)
        return grades(request, before)

    with Server(flaky) as judge:
        failed = evaluate(ask, solver, judge, data, "--batch", "1")
        assert failed.exit_code == 6
        assert "answers so far are kept" in failed.stderr
        assert len(solver.requests) == 4
        up = True
        assert metrics(evaluate(ask, solver, judge, data, "--batch", "1"))["score"] == 0.5
        assert len(solver.requests) == 4
        assert [question_of(r).split("grade: ")[1] for r in judge.requests] == [
            "a pair of pairs",
            "seven",
            "seven",
        ]


@pytest.mark.parametrize("reply", ["Perhaps.", "", "The answers are the same: yes"])
def test_a_verdict_that_is_neither_yes_nor_no_is_counted_and_wrong(
    ask: Ask, solver: Server, data: Path, reply: str
) -> None:
    with Server(lambda request, before: Answer(reply)) as judge:
        found = metrics(evaluate(ask, solver, judge, data))
    assert (found["score"], found["judge_unread"], found["judge_changed"]) == (0.25, 0.5, 0.0)


@pytest.mark.parametrize("manner", ["html", "half", "drop"])
def test_a_reply_that_is_no_completion_is_the_judges_failure(
    ask: Ask, solver: Server, data: Path, manner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Server(lambda request, before: Answer("Yes", manner=manner)) as judge:
        result = evaluate(ask, solver, judge, data)
    assert result.exit_code == 6, result.output


def test_a_benchmark_of_choices_has_no_judge(ask: Ask, knowing: Server, folder: Path) -> None:
    with Server(grades) as judge:
        options = ["--model", "m", "--base-url", knowing.url, "--data", str(folder)]
        judged = ["--judge", "g", "--judge-url", judge.url, "--json"]
        [line] = rows(ask("eval", "run", "mmlu_pro", *options, *judged))
    assert judge.requests == []
    assert line["judge"] == "rule"
