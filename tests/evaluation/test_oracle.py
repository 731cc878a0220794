import csv
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from diagevo.answers.equivalence import AnswerChecker
from diagevo.errors import ConfigError
from diagevo.evaluation.answer_scoring import read_answer, right_by_rule
from diagevo.evaluation.oracle import Oracle, self_play_questions
from diagevo.memory.history import History, open_history
from tests.memory import play


@pytest.fixture(scope="module")
def checker() -> Iterator[AnswerChecker]:
    with AnswerChecker(workers=1) as checker:
        yield checker


def scored(folder: Path, *, truth: bool) -> None:
    """One open round with four labelled questions "0 + 1?" … (pseudo-label 1) and an invalid one."""
    with play.opened(folder) as memory:
        memory.open_round(1)
        events = []
        for i in range(5):
            event = play.candidate(f"r1.q{i}", invalid=i == 4)
            known = {"truth": str(i), "label_true": None if event.label is None else i == 1} if truth else {}
            digest = memory.artifacts.put(f"{i} + 0?")
            events.append(replace(event, **known, question=digest))
        memory.score(events)


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    scored(tmp_path, truth=False)
    history = open_history(str(tmp_path / "log.db"), "a", root=tmp_path)
    yield history
    history.close()


def drawn(history: History) -> Oracle:
    oracle = Oracle(history.database, history.run_id)
    oracle.sample(history, 1, 200, seed=0)
    return oracle


def test_only_readable_labelled_questions_are_drawn_and_once(history: History) -> None:
    oracle = drawn(history)
    assert [item.question_id for item in oracle.items(1)] == [f"r1.q{i}" for i in range(4)]
    assert oracle.sample(history, 1, 2, seed=5) == oracle.items(1)


def test_a_human_answers_and_refuses_without_seeing_the_pseudo_label(
    history: History, checker: AnswerChecker, tmp_path: Path
) -> None:
    oracle = drawn(history)
    file = tmp_path / "check.csv"
    assert oracle.export(file, [1]) == 4
    rows = list(csv.DictReader(file.open(encoding="utf-8")))
    assert "label" not in rows[0]
    for row, said in zip(
        rows, ["1", "1", "none", ""], strict=True
    ):  # 0 is answered by 1, as the label has it
        row["answer"] = said
    with file.open("w", encoding="utf-8", newline="") as target:
        writer = csv.DictWriter(target, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    assert oracle.import_(file) == (3, 1)
    [accuracy] = oracle.accuracy(checker)
    assert (accuracy.sampled, accuracy.checked, accuracy.source) == (4, 3, "human")
    assert accuracy.accuracy is not None
    assert accuracy.accuracy.value == pytest.approx(2 / 3)  # right, right, and a question without an answer
    assert oracle.export(tmp_path / "rest.csv", [1]) == 1
    checked = self_play_questions(history, 1, size=9)
    assert sorted(q.reference for q in checked.questions) == ["", "1", "1"]  # the one without an answer too
    [unanswerable] = [q for q in checked.questions if q.reference == ""]
    assert read_answer(unanswerable, r"\boxed{3}, \boxed{5}") == "5"  # as votes are read
    assert right_by_rule([unanswerable], [["5", None]], checker) == [[False, False]]


def test_a_bad_row_takes_nothing_in(history: History, checker: AnswerChecker, tmp_path: Path) -> None:
    oracle = drawn(history)
    file = tmp_path / "check.csv"
    oracle.export(file, [1])
    text = file.read_text(encoding="utf-8").splitlines()
    text[1] = "a,1,r1.q0,0 + 0?,7,"
    text[2] = "a,1,r1.q9,1 + 0?,1,"  # no such question
    file.write_text("\n".join(text), encoding="utf-8")
    with pytest.raises(ConfigError, match="line 3"):
        oracle.import_(file)
    assert all(item.answer is None for item in oracle.items())


def test_a_world_that_knows_the_truth_needs_no_human(tmp_path: Path, checker: AnswerChecker) -> None:
    scored(tmp_path, truth=True)
    history = open_history(str(tmp_path / "log.db"), "a", root=tmp_path)
    [accuracy] = drawn(history).accuracy(checker)
    assert (accuracy.checked, accuracy.source) == (4, "world")
    assert accuracy.accuracy is not None
    assert accuracy.accuracy.value == 0.25  # of 0, 1, 2, 3 only 1 is the label
    questions = self_play_questions(history, 1, size=200).questions
    assert {(q.text, q.reference) for q in questions} == {(f"{i} + 0?", str(i)) for i in range(4)}
    two = self_play_questions(history, 1, size=2)
    assert len(two.questions) == 2  # also where the oracle drew more
    assert set(two.questions) < set(questions)
    history.close()


def test_a_valid_question_without_a_pseudo_label_is_drawn_and_its_label_is_wrong(
    tmp_path: Path, checker: AnswerChecker
) -> None:
    with play.opened(tmp_path) as memory:
        memory.open_round(1)
        silent = {"label": None, "votes": [], "first": 0, "second": 0, "verdict": "no_label"}
        labelled = replace(play.candidate("r1.q0"), truth="1")
        unlabelled = replace(play.candidate("r1.q1"), **silent, reference=None, truth="2")
        memory.score([labelled, unlabelled])
    history = open_history(str(tmp_path / "log.db"), "a", root=tmp_path)
    [accuracy] = drawn(history).accuracy(checker)
    assert accuracy.accuracy is not None
    assert (accuracy.sampled, accuracy.accuracy.value) == (2, 0.5)
    history.close()
