"""Kinds of mistake: rates, that what a kind does is recognised as it, and wordings of kinds and skills."""

from collections import defaultdict
from itertools import product
from random import Random

import pytest

from diagevo.arithmetic.grammar import FAMILIES, JOIN, Step, draw_part, solve
from diagevo.arithmetic.slips import KINDS, RATES, Kind, alternatives, applies, offers, recognise
from diagevo.arithmetic.wordings import CAUSES, LABELS, kind_of, skill, skill_of
from diagevo.diagnosis.embedder import HashingEmbedder


def _results(type_: str, step: Step) -> list[int]:
    return [wrong.result for wrong in alternatives(type_, step) if wrong]


def test_there_are_a_hundred_kinds_and_more() -> None:
    assert len(KINDS) >= 100
    assert {kind.family for kind in KINDS} == {*FAMILIES, JOIN}


def test_the_rates_of_a_step_sum_to_between_9_and_24_percent() -> None:
    steps: defaultdict[tuple[str, str], float] = defaultdict(float)
    for kind, rate in RATES.items():
        steps[kind.family, kind.step] += rate
    assert all(0.09 <= round(rate, 6) <= 0.24 for rate in steps.values())
    assert set(steps) - {(JOIN, "total")} == {
        (family.name, instruction.name)
        for family in FAMILIES.values()
        for instruction in family.procedure(family.draw(Random(0)))
    }


@pytest.mark.parametrize(
    ("type_", "step", "wrong"),
    [
        ("near", Step(7, "*", 6, 42), [38, 39, 40, 41, 43, 44, 45, 46]),
        ("near", Step(3, "-", 1, 2), [0, 1, 3, 4, 5, 6]),
        ("ten", Step(7, "*", 6, 42), [52, 32]),
        ("swap", Step(7, "*", 6, 42), [24]),
        ("swap", Step(7, "*", 11, 77), []),
        ("carry", Step(47, "+", 25, 72), [62]),
        ("carry", Step(42, "+", 25, 67), []),
        ("carry", Step(87, "+", 25, 112), [102, 12]),
        ("carry", Step(36, "*", 2, 72), [62]),
        ("borrow", Step(52, "-", 38, 14), [24]),
        ("borrow", Step(58, "-", 32, 26), []),
        ("flip", Step(52, "-", 38, 14), [26]),
        ("row", Step(7, "*", 6, 42), [49, 48, 35, 36]),
        ("place", Step(18, "*", 10, 180), [1800, 18]),
        ("sign", Step(3, "-", 8, -5), [5]),
        ("sign", Step(8, "-", 3, 5), []),
        ("sign", Step(-5, "+", 2, -3), [3, 7]),
        ("twin", Step(47, "r", 0, 74), [44, 77]),
        ("order", Step(47, "r", 0, 74), [47]),
        ("order", Step(3, "-", 8, -5), [5]),
        ("operation", Step(7, "*", 6, 42), [13]),
        ("operation", Step(20, "+", 7, 27), [13]),
        ("count", Step(8, "-", 1, 7), [8, 6]),
        ("count", Step(3, "*", 9, 27), [18, 36]),
    ],
)
def test_a_type_of_slip_makes_these_results(type_: str, step: Step, wrong: list[int]) -> None:
    assert _results(type_, step) == wrong


def test_leaving_out_a_step_is_an_alternative_of_its_own() -> None:
    assert alternatives("stop", Step(44, "*", 2, 88)) == [None]
    assert recognise("doubling", "again", Step(44, "*", 2, 88), None) == Kind("doubling", "again", "stop")


def test_a_misread_number_is_recognised_whatever_its_result() -> None:
    right = Step(9, "*", 2, 18)
    assert recognise("doubling", "first", right, Step(8, "*", 2, 16)) == Kind("doubling", "first", "copy")
    assert recognise("doubling", "first", right, Step(8, "*", 2, 15)) == Kind("doubling", "first", "copy")
    assert recognise("doubling", "first", right, Step(9, "*", 2, 29)) is None


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.family != JOIN], ids=str)
def test_every_kind_can_happen_and_what_it_offers_is_its_own(kind: Kind) -> None:
    rng = Random(2)
    for _ in range(300):
        part = draw_part(rng, kind.family)
        steps = solve(part)
        if applies(kind, steps, part):
            names = [instruction.name for instruction in FAMILIES[kind.family].procedure(part.numbers)]
            named = [step for name, step in zip(names, steps, strict=True) if name == kind.step]
            assert any(offers(kind, step) for step in named)
            assert all(wrong != step for step in named for wrong in offers(kind, step))
            return
    pytest.fail(f"{kind} never applies")


@pytest.mark.parametrize("op", ["+", "-", "*", "r"])
def test_every_type_of_slip_can_be_asked_of_every_step_that_a_model_can_write(op: str) -> None:
    """A majority may have agreed on a step that its place does not ask for."""
    numbers = (0, 1, 9, 10, 34, 99, 123, 1000, -1, -45)
    for type_ in {kind.type for kind in KINDS}:
        for left, right, result in product(numbers, repeat=3):
            assert Step(left, op, right, result) not in alternatives(type_, Step(left, op, right, result))


EMBEDDER = HashingEmbedder(1024)


def _least_similar(texts: tuple[str, ...]) -> float:
    rows = EMBEDDER.embed(texts)
    return float((rows @ rows.T).min())


def test_every_kind_has_three_wordings_of_10_to_20_words_and_none_is_shared() -> None:
    phrases = [phrase for kind in KINDS for phrase in CAUSES[kind]]
    assert all(len(CAUSES[kind]) == 3 for kind in KINDS)
    assert len(set(phrases)) == len(phrases)
    assert all(10 <= len(phrase.split()) <= 20 for phrase in phrases)
    assert not any(character.isdigit() for phrase in phrases for character in phrase)
    assert all(kind_of(phrase) == kind for kind in KINDS for phrase in CAUSES[kind])


def test_wordings_of_one_kind_lie_above_the_threshold_of_deduplication() -> None:
    assert min(_least_similar(CAUSES[kind]) for kind in KINDS) > 0.5


def test_every_skill_has_wordings_that_consolidation_can_find() -> None:
    assert {skill(kind) for kind in KINDS} == set(LABELS)
    for name, labels in LABELS.items():
        assert len(set(labels)) == len(labels) >= 2
        assert all(10 <= len(label.split()) <= 20 for label in labels)
        assert all(skill_of(label) == name for label in labels)
        assert _least_similar(labels) > 0.7


def test_other_texts_mean_no_kind_and_no_skill() -> None:
    assert kind_of("misapplies the triangle inequality to side lengths") is None
    assert skill_of("geometry") is None
