"""What the solver believes wrongly, and how it does a question with it: by hand, and counted."""

from collections import Counter
from random import Random

import pytest

from diagevo.arithmetic import held_out
from diagevo.arithmetic.doing import do, do_all
from diagevo.arithmetic.families import FREE_WEIGHTS, GROUPS, group
from diagevo.arithmetic.grammar import FAMILIES, Part, Step, draw_part, parse, solve
from diagevo.arithmetic.misconceptions import MISCONCEPTIONS, STRONG, misconception, strength
from diagevo.arithmetic.slips import Kind, recognise
from diagevo.arithmetic.truth import value


@pytest.mark.parametrize(
    ("family", "step", "right", "believed"),
    [
        # The nineteenth after the first: digit 5 of the right operand, 3 * 19 places on: place 62, weak.
        ("lift", "fall", Step(7, "-", 25, -18), (Step(25, "-", 7, 18), 0.1)),
        # The second: 6 + 3 are place 9, middling; in the head an eighth is left, about.
        ("boxes", "first", Step(7, "*", 6, 42), (Step(7, "*", 6, 49), 0.33 * 0.12)),
        # The digits of the left operand count where nothing is on the right: 7 + 3 * 15 = 52, weak.
        ("mirror", "turn", Step(47, "r", 0, 74), (Step(47, "r", 0, 44), 0.1 * 0.12)),
        # 20 at the last of 27: 0 + 3 * 26 = 78, middling: the step is left out.
        ("doubling", "again", Step(20, "*", 2, 40), (None, 0.33)),
        # The first: place 9, middling, and less because jumps repeat.
        ("jumps", "add", Step(17, "+", 9, 26), (Step(17, "+", 9, 16), 0.33 * 0.75)),
        ("fence", "half", Step(12, "+", 13, 25), None),  # nothing is carried
        ("boxes", "second", Step(7, "*", 6, 42), None),
    ],
)
def test_a_misconception_is_one_wrong_step_with_a_chance_by_digit(
    family: str, step: str, right: Step, believed: tuple[Step | None, float] | None
) -> None:
    assert misconception(family, step, right) == (believed and (believed[0], pytest.approx(believed[1])))


@pytest.mark.parametrize(("family", "step"), MISCONCEPTIONS, ids="-".join)
def test_a_misconception_is_recognised_as_its_kind(family: str, step: str) -> None:
    """So that its failures are diagnosed as one cause."""
    rng = Random(2)
    kind = Kind(family, step, MISCONCEPTIONS[family, step][0])
    found = 0
    while found < 20:
        part = draw_part(rng, family)
        for instruction, right in zip(FAMILIES[family].procedure(part.numbers), solve(part), strict=True):
            held = misconception(family, step, right) if instruction.name == step else None
            if held is not None:
                assert held[0] != right
                assert recognise(family, step, right, held[0]) == kind
                found += 1


def test_the_wrong_answer_has_the_majority_in_33_of_the_held_out_questions_and_none_of_the_head() -> None:
    strong: Counter[str] = Counter()
    for question, _ in held_out():
        parts = parse(question)
        assert parts is not None
        [part] = parts
        steps = zip(FAMILIES[part.family].procedure(part.numbers), solve(part), strict=True)
        strong[part.family] += any(
            misconception(part.family, instruction.name, right) is not None
            and strength(part.family, instruction.name, right) == STRONG
            for instruction, right in steps
        )
    assert +strong == Counter(compare=7, lift=6, share=5, minutes=5, doubling=5, square=3, quotient=2)


def test_without_mistakes_the_procedure_is_right() -> None:
    rng = Random(3)
    for family in FAMILIES:
        part = draw_part(rng, family)
        assert do(rng, part, scale=0.0) == solve(part)
    parts = (Part("doubling", (9, 4)), Part("mirror", (47, 15)))
    steps, answer = do_all(rng, parts, scale=0.0)
    assert answer == 44 + 89
    assert steps[-1] == Step(44, "+", 89, 133)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_head_is_nearly_known_and_elsewhere_every_second_answer_is_wrong(family: str) -> None:
    rng = Random(4)
    parts = [draw_part(rng, family) for _ in range(100)]
    right = sum(do_all(rng, (part,), scale=1.0)[1] == value(part) for part in parts for _ in range(20)) / 2000
    if family in GROUPS["head"]:
        assert 0.85 < right < 0.95
    else:
        assert 0.4 < right < 0.72


def test_free_exploration_writes_the_first_family_116_times_as_often_as_the_last() -> None:
    assert set(FREE_WEIGHTS) == set(FAMILIES)
    assert FREE_WEIGHTS["boxes"] / FREE_WEIGHTS["window"] == pytest.approx(14**1.8)
    whole = sum(FREE_WEIGHTS.values())
    shares = {name: sum(FREE_WEIGHTS[f] for f in names) / whole for name, names in GROUPS.items()}
    assert shares == pytest.approx({"head": 0.901, "middle": 0.065, "tail": 0.034}, abs=0.0005)


def test_a_question_is_in_the_group_of_its_first_family() -> None:
    assert group("write 47 backwards , then add 15") == "head"
    joined = "first double 9 , add 4 and double again ; second write 47 backwards , then add 15 ; add both"
    assert group(joined) == "middle"
    assert group("turn 2 hours 5 minutes into minutes") == "tail"
    assert group("how many are seven") is None
