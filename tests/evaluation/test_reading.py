import json
from pathlib import Path

import pytest

from diagevo.evaluation.answer_scoring import plain_text, read_answer, right_by_rule
from diagevo.evaluation.benchmarks import Question

from .scripted import SameText

DATA = Path(__file__).parents[2] / "../shared/data"
CHOICE = Question("Which?", "B", None, "choice", 4)
TEXT = Question("What?", "(C)", None, "text")


@pytest.mark.parametrize(
    ("response", "answer"),
    [(r"so \boxed{B}", "B"), ("The answer is (C).", "C"), ("I do not know.", None), (r"\boxed{F}", None)],
)
def test_a_choice_is_read_or_it_is_wrong(response: str, answer: str | None) -> None:
    assert read_answer(CHOICE, response) == answer


def test_a_text_answer_is_boxed_or_stated() -> None:
    assert read_answer(TEXT, r"\boxed{honeycomb}") == "honeycomb"
    assert read_answer(TEXT, "Thus.\nThe answer is: **honeycomb**") == "honeycomb"
    assert read_answer(TEXT, "honeycomb, I think") is None


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("(C)", r"\text{c}"),
        ("[friday, saturday]", "Friday,Saturday"),
        ("90.0", "90"),
        ("yes, unknown, yes", "Yes,  unknown, yes."),
        ("+1, 05:36", "+1,05:36"),
    ],
)
def test_a_text_answer_may_differ_in_dress(a: str, b: str) -> None:
    assert plain_text(a) == plain_text(b)


@pytest.mark.parametrize(
    ("a", "b"), [("90.5", "90"), ("B, C, A", "B, A, C"), ("no", "unknown"), ("10.0", "1")]
)
def test_a_text_answer_may_not_differ_in_content(a: str, b: str) -> None:
    assert plain_text(a) != plain_text(b)


def test_no_answer_is_wrong_and_is_not_compared() -> None:
    questions = [Question("1+1?", "2", None, "answer"), CHOICE]
    assert right_by_rule(questions, [[None, "2", "3"], ["B", None, "A"]], SameText()) == [
        [False, True, False],
        [True, False, False],
    ]


@pytest.mark.skipif(not DATA.is_dir(), reason="the benchmark files of ../shared/data are not here")
def test_a_scripted_text_answer_is_right_for_its_question_and_wrong_for_another() -> None:
    rows = [json.loads(line) for line in (DATA / "bbeh_sample.jsonl").read_text().splitlines()]
    targets = [row["target"] for row in rows]
    questions = [Question(row["input"], row["target"], row["task"], "text") for row in rows]
    own = [
        [read_answer(q, rf"thus \boxed{{{target}}}")] for q, target in zip(questions, targets, strict=True)
    ]
    assert all(v[0] for v in right_by_rule(questions, own, SameText()))
    moved = [*own[1:], own[0]]
    same = sum(a == b for a, b in zip(targets, [*targets[1:], targets[0]], strict=True))
    assert sum(v[0] for v in right_by_rule(questions, moved, SameText())) == same
