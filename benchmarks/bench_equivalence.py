"""Rows 5 and 6 of the promises: answer grouping; and the accuracy of answer agreement by source.

The votes are made here, seeded, from the answers of MATH-500: the right answer in several spellings, and
wrong ones that a solver could give (other digits, the answer of another question of its subject). Twelve
votes a question. "Real" has about 1.3 different answers a question, "hard" about 6.3, as was measured on
solvers. Each way groups them in a fresh process; its CPU time counts whole, imports and worker processes too.
"""

import json
import logging
import random
import re
import resource
import subprocess
import sys
from pathlib import Path

from benchmarks.rows import Row, faster
from diagevo.answers.equivalence import AnswerChecker

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
VOTES = 12


def _spelled(answer: str, chance: random.Random) -> str:
    """One of the ways a solver writes the same answer."""
    return chance.choice(
        [
            answer,
            answer.replace("\\frac", "\\dfrac"),
            answer.replace(" ", ""),
            f"{answer}.0" if re.fullmatch(r"\d+", answer) else f" {answer} ",
            f"x = {answer}"
            if re.fullmatch(r"-?\d+", answer)
            else answer.replace("(", "\\left(").replace(")", "\\right)"),
            f"{answer}\\text{{ units}}" if re.fullmatch(r"\d+", answer) else answer,
        ]
    )


def _wrong(answer: str, others: list[str], chance: random.Random) -> str:
    """An answer that is near, or that belongs to another question."""
    digits = [match.span() for match in re.finditer(r"\d+", answer)]
    if not digits or chance.random() < 0.2:
        return chance.choice(others)
    start, end = chance.choice(digits)
    return f"{answer[:start]}{int(answer[start:end]) + chance.choice([-2, -1, 1, 2, 3, 10])}{answer[end:]}"


def votes(questions: int, wrong_answers: float, seed: int) -> list[list[str]]:
    """`wrong_answers`: how many different wrong answers a question gets on average."""
    chance = random.Random(seed)
    problems = [
        json.loads(line) for line in (DATA / "math500_test.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    by_subject: dict[str, list[str]] = {}
    for problem in problems:
        by_subject.setdefault(problem["subject"], []).append(problem["answer"])
    made = []
    for problem in chance.sample(problems, questions):
        whole = int(wrong_answers) + (chance.random() < wrong_answers % 1)
        wrong = {_wrong(problem["answer"], by_subject[problem["subject"]], chance) for _ in range(whole)}
        answers = sorted(wrong)
        answers += [
            _spelled(problem["answer"], chance) if chance.random() < 0.4 else problem["answer"]
            for _ in range(VOTES - len(answers))
        ]
        chance.shuffle(answers)
        made.append(answers)
    return made


def _grouped(way: list[str], questions: list[list[str]]) -> tuple[float, dict]:
    """CPU seconds of the process and all it started, and what it printed."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.grouping", *way],
        input=json.dumps(questions),
        capture_output=True,
        text=True,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, json.loads(done.stdout)


def _grouping(name: str, questions: int, wrong_answers: float, target: float) -> Row:
    made = votes(questions, wrong_answers, seed=0)
    reference, theirs = _grouped(["mathruler"], made)
    measured, ours = _grouped(["ours", "1"], made)
    _, many = _grouped(["ours", "4"], made)
    distinct = sum(max(members) + 1 for members in ours["members"]) / questions
    agreed = sum(a == b for a, b in zip(ours["members"], theirs["members"], strict=True))
    note = (
        f"{questions} questions × {VOTES}, {distinct:.1f} different; {ours['timeouts']} over the limit; "
        f"{'the same' if ours['members'] == many['members'] else 'ANOTHER PARTITION'} with 4 workers; "
        f"mathruler's partition on {agreed}"
    )
    return faster(name, measured, reference, "mathruler, two ways", target, "s", note)


def _by_mathruler(pred: str, gold: str) -> bool:
    from mathruler.grader import extract_boxed_content, grade_answer

    sides = [extract_boxed_content(text) if "\\boxed" in text else text for text in (pred, gold)]
    return bool(grade_answer(sides[0], sides[1]) or grade_answer(sides[1], sides[0]))


def _by_math_verify(pred: str, gold: str) -> bool:
    from math_verify import parse, verify

    return bool(verify(parse(gold), parse(pred)))


def accuracy() -> list[Row]:
    """Cases with one right answer, by source: ours beside mathruler's and plain math-verify's, in percent."""
    lines = (DATA / "equivalence_cases.jsonl").read_text(encoding="utf-8").splitlines()
    cases = [case for case in map(json.loads, lines) if not case["note"]]
    logging.disable(logging.WARNING)
    right: dict[str, list[tuple[bool, bool, bool]]] = {}
    with AnswerChecker(workers=1) as checker:
        for case in cases:
            pair, expected = (case["pred"], case["gold"]), case["expected"]
            verdicts = (checker.agree(*pair), _by_mathruler(*pair), _by_math_verify(*pair))
            source = case["source"].partition("@")[0]
            first, second, third = (v == expected for v in verdicts)
            right.setdefault(source, []).append((first, second, third))
    rows = []
    for source, results in {**right, "all": [r for part in right.values() for r in part]}.items():
        ours, mathruler, math_verify = (
            100 * sum(column) / len(results) for column in zip(*results, strict=True)
        )
        name = f"answers right, {source} ({len(results)})"
        note = f"math-verify {math_verify:.1f} %"
        rows.append(Row(name, ours, "%", mathruler, "mathruler", None, "100 %", ours == 100, note))
    return rows


def rows() -> list[Row]:
    if not DATA.exists():
        return []
    return [
        _grouping("answer grouping, real votes", 400, 0.3, 5),
        _grouping("answer grouping, hard votes", 150, 6.7, 4),
        *accuracy(),
    ]
