import json
import random
import subprocess
import sys
import threading
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from diagevo.answers import equivalence, reading
from diagevo.answers.algebra import AlgebraOutcome, AlgebraPool, AlgebraWorker, Ended
from diagevo.answers.comparison import decide, expressions
from diagevo.answers.equivalence import QUESTION, AnswerChecker, agree
from diagevo.answers.terms import equal_values, parse
from diagevo.errors import StoppedSafely
from diagevo.progress import StopFlag
from tests.answers.answer_pairs import DIFFERENT, SAME

CASES = Path(__file__).resolve().parents[3] / "shared" / "data" / "equivalence_cases.jsonl"

POLICY = {
    28: True, 29: True, 30: True, 31: True,  # line breaks between delimiters do not matter
    120: True, 121: True, 122: True, 123: True, 124: True, 125: True, 126: True, 128: True,  # six places
    129: False, 130: False, 131: False, 132: False, 134: False,
    127: False, 133: False, 303: False, 306: False, 307: False, 308: False, 309: False,  # one row's tolerance
    178: True, 179: True, 180: True, 181: True,  # an inequality is its interval, whichever side it stands on
    257: False, 258: False,  # unknowns keep their names
    260: True, 267: True,  # a bare list has no order
    269: True,  # 10% is 10
    315: True,  # 3245/5 is 649
}  # fmt: skip
"""Rows of the shared cases that are a matter of policy, by id: the rules at the head of `equivalence`."""


@pytest.fixture(scope="module")
def checker():
    with AnswerChecker(workers=1) as shared:
        yield shared


@pytest.fixture(scope="module")
def cases():
    if not CASES.exists():
        pytest.skip("../shared/data is not here")
    return [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]


@pytest.mark.slow
def test_every_case_with_one_right_answer_is_right(cases, checker):
    plain = [case for case in cases if not case["note"]]
    wrong = [case for case in plain if checker.agree(case["pred"], case["gold"]) != case["expected"]]
    assert len(plain) > 100
    assert wrong == []


def test_every_case_of_policy_follows_the_written_rules(cases, checker):
    policy = [case for case in cases if case["note"]]
    verdicts = {case["id"]: checker.agree(case["pred"], case["gold"]) for case in policy}
    assert verdicts == {case["id"]: POLICY[case["id"]] for case in policy}


def test_the_cases_agree_in_both_directions(cases, checker):
    for case in cases:
        assert checker.agree(case["pred"], case["gold"]) == checker.agree(case["gold"], case["pred"])


@pytest.mark.parametrize(("a", "b"), SAME)
def test_the_same_answer_in_another_spelling_agrees(a, b, checker):
    assert checker.agree(a, b)
    assert checker.agree(b, a)


@pytest.mark.parametrize(("a", "b"), DIFFERENT)
def test_another_answer_does_not_agree(a, b, checker):
    assert not checker.agree(a, b)
    assert not checker.agree(b, a)


def spellings(value: Fraction):
    top, bottom = value.numerator, value.denominator
    yield f"{top}/{bottom}"
    yield rf"\frac{{{top}}}{{{bottom}}}"
    yield rf"-\dfrac{{{-top}}}{{{bottom}}}"
    yield rf"$\frac{{{2 * top}}}{{{2 * bottom}}}$"
    yield rf"x = \tfrac{{{top}}}{{{bottom}}}"
    yield rf"\left( {top}/{bottom} \right)\text{{ cm}}"
    if bottom == 1:
        yield f"{top:,}"
        yield f"{top}.0"
        yield f"{top}."
    if bottom in (2, 4, 5, 8, 10):
        yield str(float(value))


FRACTIONS = st.builds(Fraction, st.integers(-9999, 9999), st.sampled_from([1, 1, 2, 3, 4, 5, 7, 8, 10, 12]))


@settings(max_examples=150)
@given(FRACTIONS, FRACTIONS)
def test_numbers_agree_exactly_when_they_are_equal(x, y):
    assume(abs(x - y) >= Fraction(1, 1000) or x == y)
    for a in spellings(x):
        for b in spellings(y):
            assert decide(a, b) is (x == y), (a, b)


TERMS = st.recursive(
    st.sampled_from(["x", "y", "2", "3", "7"]),
    lambda inner: st.one_of(
        st.builds("({}+{})".format, inner, inner),
        st.builds("({}-{})".format, inner, inner),
        st.builds("{}*{}".format, inner, inner),
        st.builds("({})^2".format, inner),
    ),
    max_leaves=6,
)


@settings(max_examples=80)
@given(TERMS, TERMS)
def test_terms_agree_exactly_when_sympy_says_so(a, b):
    import sympy

    zero = sympy.expand(sympy.sympify(f"({a})-({b})".replace("^", "**"))) == 0
    expanded = str(sympy.expand(sympy.sympify(a.replace("^", "**")))).replace("**", "^")
    left, right, other = parse(a), parse(b), parse(expanded)
    assert left is not None
    assert right is not None
    assert other is not None
    assert equal_values(left, right) in ((True, None) if zero else (False, None))
    assert equal_values(left, other) is not False


_PIECES = r"1 -2 3.5 x \frac { } ( ) , \sqrt ^ _ % = \pm $ and"
PIECES = [*_PIECES.split(), " cm"]


@settings(max_examples=200)
@given(st.lists(st.sampled_from(PIECES), max_size=12), st.lists(st.sampled_from(PIECES), max_size=12))
def test_any_two_texts_are_decided_alike_in_both_directions(a, b):
    a, b = "".join(a), "".join(b)
    assert decide(a, b) is decide(b, a)
    assert decide(a, a) in (True, False)


@pytest.mark.parametrize(
    "monster",
    ["9**9**9", "9^{9^9}", "2^{99999999}", "1000000!", "((5!)!)!", "(" * 490 + "1" + ")" * 490],
)
def test_a_monster_is_refused_before_it_is_parsed(monster):
    with AnswerChecker(workers=1) as fresh:
        assert not fresh.agree(monster, "\\mathbb{R}")
        assert equivalence.expressions(monster, "\\mathbb{R}") is None
        assert fresh.undecided(fresh.group([[monster, "\\mathbb{R}"]])) == 1
        assert fresh.agree(monster, f" {monster} ")


def test_a_hundred_kilobytes_of_braces_agree_with_nothing():
    braces = "\\boxed{" + "{" * 50_000 + "}" * 50_000 + "}"
    with AnswerChecker(workers=1) as fresh:
        assert not fresh.agree(braces, "\\mathbb{R}")
        assert equivalence.expressions(braces, "\\mathbb{R}") is None


@pytest.mark.slow
def test_a_comparison_over_its_time_is_killed_counted_and_not_equal(monkeypatch):
    monkeypatch.setattr(equivalence, "expressions", lambda a, b: ("$9^{9^9}$", "$1$"))
    with AnswerChecker(workers=1, seconds=1.5) as fresh:
        assert not fresh.agree("\\mathbb{Q}", "\\mathbb{R}")
        assert not fresh.agree("\\mathbb{R}", "\\mathbb{Q}")  # remembered, and counted once
        assert fresh.undecided(fresh.group([["\\mathbb{Q}", "\\mathbb{R}"]])) == 1
        monkeypatch.undo()
        assert fresh.agree("x+y=3", "2x+2y=6")  # a new process took over


def test_twelve_hostile_answers_cost_a_question_six_comparisons_and_not_66(monkeypatch):
    """Each of the 66 pairs would take its 5 seconds."""
    asked = []

    def out_of_time(self, a, b):
        asked.append((a, b))
        return AlgebraOutcome(Ended.TIMEOUT, self.seconds)

    monkeypatch.setattr(AlgebraWorker, "compare", out_of_time)
    hostile = [rf"\mathbb{{Q}}_{{{n}}}" for n in range(12)]
    with AnswerChecker(workers=1, seconds=5.0) as fresh:
        votes = fresh.group([hostile])
        assert len(votes[0].votes) == 12
        assert len(asked) == QUESTION == 6
        assert fresh.undecided(votes) == 66
        assert fresh.group([hostile]) == votes
        assert len(asked) == 6  # known pairs count as before
        fresh.group([hostile[3:5]])
        assert len(asked) == 7  # what one question had no time for, another may ask


@pytest.mark.slow
def test_long_texts_are_remembered_by_digest_and_few_of_them(monkeypatch):
    long = ["x" * 100_000 + str(n) for n in range(200)]
    reading.stated.cache_clear()
    with AnswerChecker(workers=1) as fresh:
        assert fresh.agree_many([(text, "y" * 300) for text in long]) == [False] * 200
        assert max(len(text) for pair in fresh._verdicts for text in pair) == 64
    assert (reading.stated.long.cache_info().currsize, reading.stated.brief.cache_info().currsize) == (128, 0)


def test_groups_apart_for_want_of_a_verdict_are_counted_by_question(monkeypatch):
    monkeypatch.setattr(equivalence, "expressions", lambda a, b: None)  # too large, all of them
    with AnswerChecker(workers=1) as fresh:
        first, second, third = fresh.group(
            [["\\mathbb{Q}", "\\mathbb{R}", None], ["\\mathbb{R}", "\\mathbb{Q}"], ["5", "6"]]
        )
        assert fresh.undecided([first, second, third]) == 2  # the same pair, in two questions
        assert fresh.undecided([second]) == 1
        assert fresh.undecided([third]) == 0  # 5 and 6 differ, and that is a verdict


@pytest.mark.slow
def test_no_process_outlives_the_block_that_asked_it():
    with AnswerChecker(workers=1) as fresh:
        assert fresh.agree("x+y=3", "2x+2y=6")
        [started] = [worker._process for worker in fresh._pool._all]
        assert started is not None
    assert started.poll() is not None


def test_no_process_is_started_for_numbers():
    with AnswerChecker(workers=2) as fresh:
        assert fresh.agree("0.5", "\\frac{1}{2}")
        assert not fresh.agree("1", "2")
        assert all(worker._process is None for worker in fresh._pool._all)


HARD = [
    ["x+y=3", "2x+2y=6", "x=3-y", None, "\\mathbb{R}", "(-\\infty,\\infty)", "3", "3.0", "x+y=3"],
    ["1<x<2", "(1,2)", "x\\in(1,2)", "[1,2]", "(2,1)", "1,2", "2,1", "\\{1,2\\}"],
    ["\\sum_{k=1}^n k", "\\frac{n(n+1)}{2}", "n", "\\frac{n^2+n}{2}", "5x-7y+4=0", "7y-5x-4=0"],
    ["\\lfloor 2.5\\rfloor", "2", "2.5", "\\mathbb{Q}", "\\mathbb{Z}"],
]


@pytest.mark.slow
def test_the_partition_is_the_same_with_one_worker_and_with_many(checker):
    votes = checker.group(HARD)
    with AnswerChecker(workers=2) as many:
        assert votes == many.group(HARD)
    assert votes == checker.group(HARD)  # and out of the cache
    assert votes[0].members == (0, 0, 0, None, 1, 1, 2, 2, 0)  # 3 is x+y=3, but not 2x+2y=6
    assert votes[0].label == "x+y=3"


@pytest.mark.slow
def test_the_partition_is_the_same_in_every_order_of_arrival(monkeypatch):
    """Replies of the workers arrive after random delays; each verdict is a function of its pair alone."""

    def delayed(self, a, b):
        threading.Event().wait(chance.random() / 200)
        return AlgebraOutcome(Ended.AGREE if (len(a) + len(b)) % 3 == 0 else Ended.DIFFER, 0.01)

    monkeypatch.setattr(AlgebraPool, "compare", delayed)
    answers = [
        [f"\\mathbb{{R}}_{{{i * j % 17}}}^{{{'x' * (j % 5 + 1)}}}" for j in range(10)] for i in range(30)
    ]
    assert expressions(answers[1][1], answers[1][2]) is not None
    partitions = []
    for seed, workers in [(1, 1), (2, 4), (3, 8), (4, 8)]:
        chance = random.Random(seed)
        with AnswerChecker(workers=workers) as fresh:
            partitions.append(fresh.group(answers))
    assert all(partition == partitions[0] for partition in partitions)
    assert 1 < len(partitions[0][1].votes) < 10


def test_many_pairs_come_back_in_order(checker):
    pairs = [
        ("x+y=3", "2x+2y=6"),
        ("1", "1.0"),
        ("x+y=3", "x+y=4"),
        ("1", "2"),
        ("\\mathbb{R}", "(-\\infty,\\infty)"),
    ]
    assert checker.agree_many(pairs) == [True, True, False, False, True]


def test_importing_self_play_loads_no_heavy_library():
    heavy = (
        "torch",
        "transformers",
        "trl",
        "vllm",
        "sympy",
        "math_verify",
        "numba",
        "polars",
        "scipy",
        "sacrebleu",
    )
    code = (
        "import sys, diagevo.answers.equivalence, diagevo.equations.repetition, diagevo.selfplay.questions,"
        "diagevo.equations.rewards, diagevo.equations.filter;"
        f"print([m for m in {heavy!r} if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"


def test_agree_needs_no_checker():
    assert agree("5 cm", "5")
    assert not agree("5 cm", "5 m")
    assert not agree("", "")


@pytest.mark.slow
def test_an_overdue_stop_begins_no_other_comparison_and_loses_no_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop = StopFlag()
    monkeypatch.setattr(equivalence, "decide", lambda a, b: None)  # a worker is asked about each pair
    with AnswerChecker(workers=2, stop=stop) as fresh:
        assert fresh.agree(r"(x+1)^2", "x^2+2x+1")
        stop.set_overdue()
        assert fresh.agree(r"(x+1)^2", "x^2+2x+1"), "known"
        for asked in ([["(x+2)^2", "x^2+4x+4"]], [["(x+2)^2", "x^2+4x+4"], ["(x+3)^2", "x^2+6x+9"]]):
            with pytest.raises(StoppedSafely):
                fresh.group(asked)
