"""The grammar: which sentences are questions, and the procedures that answer them."""

from random import Random

import pytest

from diagevo.arithmetic.grammar import (
    FAMILIES,
    Part,
    Step,
    draw_part,
    outcome,
    parse,
    read_steps,
    solve,
    word,
    word_joined,
    write_solution,
)
from diagevo.arithmetic.truth import FORMULAS, answer, value

# Worked by hand, one a wording.
WORKED = [
    ("start at 7 and make 3 jumps of 5", "22"),
    ("begin with 60 , then 2 times add 9", "78"),
    ("how many pens are in 7 boxes of 6 and 4 packs of 6", "66"),
    ("add 3 times 4 to 2 times 5", "22"),
    ("solve (x-7)/4=5", "27"),
    ("find x if (x-10)/2=3", "16"),
    ("solve x/4-6=5", "44"),
    ("find x if x/2-1=9", "20"),
    ("what is the perimeter of a 12 by 30 rectangle", "84"),
    ("how long is a fence around a 5 by 6 field", "22"),
    ("a 8 by 9 wall has a 2 by 3 window , what area is left", "66"),
    ("cut 2 by 3 from a 8 by 9 sheet , what area is left", "66"),
    ("you have 50 coins and buy 3 pens at 9 each , how many are left", "23"),
    ("pay for 3 books at 9 each from 50 coins , how many are left", "23"),
    ("how many minutes are 3 hours and 25 minutes", "205"),
    ("turn 2 hours 5 minutes into minutes", "125"),
    ("swap the digits of 47 and add 15", "89"),
    ("write 47 backwards , then add 15", "89"),
    ("a list starts at 4 and grows by 3 , what is entry 5", "16"),
    ("find term 5 if term 1 is 4 and each next is 3 more", "16"),
    ("it is 3 degrees , falls by 8 and rises by 2 , how warm is it", "-3"),
    ("a lift at floor 3 goes down 8 and up 10 , where is it", "5"),
    ("how much more is 6 times 7 than 12 plus 9", "21"),
    ("by how much is 6 times 7 above 12 plus 9", "21"),
    ("square 8 , add 5 and take away 20", "49"),
    ("take 8 times itself , then 5 more , then 20 less", "49"),
    ("double 9 , add 4 and double again", "44"),
    ("twice 9 , plus 4 , then all of it twice", "44"),
    ("first solve (x-7)/4=5 ; second double 9 , add 4 and double again ; add both", "71"),
    ("first square 2 , add 1 and take away 0 ; second solve (x-7)/4=5 ; add both", "32"),
]  # fmt: skip


@pytest.mark.parametrize(("question", "expected"), WORKED)
def test_a_sentence_of_the_grammar_has_its_answer(question: str, expected: str) -> None:
    assert answer(question) == expected


def test_every_wording_is_worked_by_hand_above() -> None:
    worked = {parts[0].family for question, _ in WORKED if (parts := parse(question))}
    assert worked == set(FAMILIES) == set(FORMULAS)
    assert len(FAMILIES) >= 12


@pytest.mark.parametrize("family", FAMILIES)
def test_any_numbers_give_an_answer_and_the_procedure_reaches_it(family: str) -> None:
    rng = Random(1)
    places = len(FAMILIES[family].draw(rng))
    for trial in range(200):
        # Far outside the corpus every other time; a divisor of 0 is the one number that no sentence holds.
        wild = Part(family, tuple(rng.randint(0, 999) for _ in range(places)))
        part = wild if trial % 2 and FAMILIES[family].divisor is None else draw_part(rng, family)
        for wording in range(len(FAMILIES[family].wordings)):
            assert parse(word(part, wording)) == (part,)
            assert answer(word(part, wording)) == str(value(part))
        assert outcome(part, solve(part)) == value(part)


@pytest.mark.parametrize("family", [name for name, f in FAMILIES.items() if f.divisor is not None])
def test_a_divisor_of_zero_is_no_sentence(family: str) -> None:
    numbers = [3, 3, 3]
    numbers[FAMILIES[family].divisor or 0] = 0
    assert answer(word(Part(family, tuple(numbers)))) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "what is love",
        "solve (x-7)/0=5",
        "double 9 , add 4",
        "double 1234 , add 4 and double again",
        "double -9 , add 4 and double again",
        "double 09 , add 4 and double again",
        "double 9 , add 4 and double again and again",
        "first double 9 , add 4 and double again ; second what ; add both",
        "first solve (x-7)/4=5 ; second solve (x-7)/4=5 ; add both ; add both",
    ],
)
def test_other_texts_are_outside_the_grammar(text: str) -> None:
    assert answer(text) is None


def test_case_spaces_and_a_closing_mark_are_forgiven() -> None:
    assert answer("  Double 9 ,  add 4 and double again. ") == "44"


def test_a_solution_is_written_in_atomic_steps_and_read_back() -> None:
    part = Part("boxes", (7, 6, 4, 6))
    text = write_solution(solve(part), value(part))
    assert text == "7*6=42;4*6=24;42+24=66;\\boxed{66}"
    assert read_steps(text) == [Step(7, "*", 6, 42), Step(4, "*", 6, 24), Step(42, "+", 24, 66)]
    mirror = Part("mirror", (47, 15))
    assert write_solution(solve(mirror), value(mirror)) == "r47=74;74+15=89;\\boxed{89}"
    assert read_steps("r47=74; 74+15=89;\\boxed{89}") == solve(mirror)
    assert read_steps("3-8=-5;-5+2=-3;\\boxed{-3}")[1] == Step(-5, "+", 2, -3)
    assert read_steps("7*6=42;then") == [Step(7, "*", 6, 42)]
    assert read_steps("no steps") == []


def test_joined_questions_are_two_parts() -> None:
    joined = word_joined("solve (x-7)/4=5", "write 47 backwards , then add 15")
    assert parse(joined) == (Part("quotient", (7, 4, 5)), Part("mirror", (47, 15)))
