"""How a near copy of a response that passed differs from it, and what failures are grouped by so."""

import random

import numpy as np
import pytest

from diagevo.diagnosis.levels import contrast
from diagevo.diagnosis.levels.cause_levels import Levels
from diagevo.diagnosis.levels.clustering import grouped
from diagevo.diagnosis.levels.features import Vocabulary
from diagevo.diagnosis.levels.inputs import Failure, Prompt, Response
from diagevo.diagnosis.levels.step_location import change

QUESTION = "Ann has 7 boxes of 12 pens and gives 9 away. How many are left?"
PASSED = ("7 * 12 = 84 pens in all", "84 - 9 = 75 pens are left", "#### 75")


def against(*lines: str) -> str | None:
    prompt = Prompt("q", QUESTION, None, [Response("\n".join(PASSED))], [])
    return change(prompt, Response("\n".join(lines)))


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        (PASSED, None),
        (("Pens are things to write with.", "It is about 9 of them."), None),
        (("7 + 12 = 19 pens in all", "19 - 9 = 10 pens are left", "#### 10"), "another operation"),
        (("7 * 12 = 83 pens in all", "83 - 9 = 74 pens are left", "#### 74"), "another result of a step"),
        (("7 * 12 = 84 pens in all", "#### 84"), "a step less"),
        ((PASSED[0], "Each box is blue", *PASSED[1:]), "a step more"),
        (("7 * 12 + 7 = 91 pens in all", "91 - 9 = 82 pens are left", "#### 82"), "more numbers in a step"),
        (
            ("7 * 13 = 91 pens in all", "91 - 9 = 82 pens are left", "#### 82"),
            "another number in place of a given number",
        ),
        (
            (PASSED[0], "12 - 9 = 3 pens are left", "#### 3"),
            "a given number in place of a result",
        ),
        (("7 * 12 = 84 pens in total", *PASSED[1:]), None),
        ((*PASSED[:2], "that is 75"), "other words in a step"),
    ],
)
def test_a_near_copy_differs_in_one_of_these_ways(lines: tuple[str, ...], kind: str | None) -> None:
    assert against(*lines) == kind


def solution(op: str, number: int, b: int, c: int) -> Response:
    value = {"+": number + b, "*": number * b, "-": number - b, "/": number // b}[op]
    return Response(f"{number} {op} {b} = {value} in all\n{value} - {c} = {value - c} are left")


def copies(exchanged: random.Random | None, *, added: bool = False) -> list[Prompt]:
    """Each failure takes another number in place of one that its question gives, or a sum in place of a
    product; or labels are exchanged."""
    rng, prompts = random.Random(3), list[Prompt]()
    for place in range(40):
        b = rng.randint(3, 9)
        a, c = b * rng.randint(12, 40), rng.randint(41, 90)
        op = "+*-/"[place % 4]
        pair = [solution(op, a, b, c), solution(op, a + b, b, c)]
        if added:
            pair = [solution(op, a, b, c) for op in "*+"]
        if exchanged is not None:
            exchanged.shuffle(pair)
        question = f"There are {a} and {b} and {c} of kind {place}."
        failure = Failure(f"f{place}", pair[1])
        prompts.append(Prompt(f"q{place}", question, None, pair[:1], [failure]))
    return prompts


def causes(prompts: list[Prompt]) -> list[str]:
    levels = Levels(prompts, [])
    found = (levels.of(prompt)[0].cause for prompt in prompts)
    return [each.description for each in found if each is not None]


def test_failures_that_were_changed_alike_have_one_cause_whatever_the_numbers() -> None:
    found = causes(copies(None))
    kind = "another number where the nearest passing response has a number of the prompt"
    assert sum(kind in each for each in found) >= 36
    assert set(causes(copies(None, added=True))) == {
        "adds where a pass multiplies (40 of 40); adds two numbers of the prompt"
        " (40 of 40 failures, 0 of 40 passes);"
        " leaves out `*`, which passes have (40 of 40 failures, 0 of 40 passes at diagnosis)"
    }


@pytest.mark.parametrize("seed", range(4))
def test_a_change_alone_is_no_cause_where_labels_are_exchanged(seed: int) -> None:
    assert causes(copies(random.Random(seed))) == []


def test_what_passing_responses_differ_in_too_is_no_change() -> None:
    """The last step is worded in ever other words, and failures have their own for it."""
    words = ("the total is", "the sum is", "the end is")
    prompts = [
        Prompt(
            f"q{place}",
            f"How many of kind {place}?",
            None,
            [Response(f"{place} * 3 = {place * 3} in all\n{each} {place * 3}") for each in words[:2]],
            [Failure(f"f{place}", Response(f"{place} * 3 = {place * 3} in all\n{words[2]} {place * 3}"))],
        )
        for place in range(20, 50)
    ]
    assert change(prompts[0], prompts[0].failed[0].response) == "other words in a step"
    found = causes(prompts)
    assert found
    assert not any("other words" in each for each in found)


@pytest.mark.parametrize(("beside", "grouped_alone"), [(8, False), (9, True)])
def test_a_failure_that_nothing_tested_sets_apart_is_in_a_group_where_most_with_its_change_are_tested(
    beside: int, grouped_alone: bool
) -> None:
    none = np.zeros(0, np.uint64)
    both, change_alone = np.array([1, 9], np.uint64), np.array([9], np.uint64)
    found = contrast.Tested(
        np.array([1], np.uint64), np.array([1], np.int8), np.array([8.0]), np.array([1.0])
    )
    rows = [(place, (both if place < beside else change_alone, none, none)) for place in range(16)]
    groups = grouped(found, rows, untested=frozenset([9]))
    assert groups.of(groups.row((both, none, none))) == 0
    assert (groups.of(groups.row((change_alone, none, none))) is not None) == grouped_alone


@pytest.mark.parametrize(
    ("end", "told"),
    [
        ("750", {"§ends 10 times too large"}),
        ("84", {"§ends with a result on the way", "§ends too large by a given number"}),
        ("76", {"§ends one off"}),
        ("75", set()),
    ],
)
def test_a_wrong_end_is_held_against_the_one_that_most_responses_have(end: str, told: set[str]) -> None:
    right = [Response("\n".join(PASSED)), Response("7 * 12 - 9 = 75")]
    wrong = Response(f"7 * 12 = 84 pens in all\nthat leaves {end}")
    prompt = Prompt("q", QUESTION, None, right, [Failure("f", wrong)])
    _, _, found = Vocabulary([prompt]).parts(prompt, wrong)
    assert {each for each in found if each.startswith("§ends ")} == told
