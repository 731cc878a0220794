"""The corpus: shares, forms, and that a cause's question is one at which the cause can happen."""

from collections import Counter
from itertools import islice
from random import Random

import pytest

from diagevo.arithmetic import answer
from diagevo.arithmetic.corpus import ALIKE, challenger_draw, documents, question_for
from diagevo.arithmetic.families import FREE_WEIGHTS, GROUPS, group
from diagevo.arithmetic.grammar import JOIN, outcome, parse, solve
from diagevo.arithmetic.slips import KINDS, Kind, applies
from diagevo.selfplay.questions import parse_question


def test_a_fifth_of_the_documents_are_the_challengers_and_all_questions_are_sentences() -> None:
    docs = list(islice(documents(3, 1.0), 2000))
    questions = [question for _, text in docs if (question := parse_question(text))]
    assert 0.17 < len(questions) / len(docs) < 0.23
    assert all(answer(question) is not None for question in questions)
    solver = [(prompt[-1]["content"], text) for prompt, text in docs if parse_question(text) is None]
    assert all(answer(question) is not None for question, _ in solver)
    assert all(text.endswith("}") and "\\boxed{" in text for _, text in solver)


def test_slips_follow_the_scale() -> None:
    right = {}
    for scale in (0.0, 0.35, 1.0):
        solver = [
            (p[-1]["content"], t) for p, t in islice(documents(4, scale), 1200) if parse_question(t) is None
        ]
        right[scale] = sum(t.endswith(f"{{{answer(q)}}}") for q, t in solver) / len(solver)
    assert right[0.0] == 1.0
    assert 0.8 < right[0.35] < 0.93
    assert 0.5 < right[1.0] < 0.75


def test_weights_shift_the_families_of_single_questions() -> None:
    def share(weights: dict[str, float]) -> float:
        single = [
            parts[0].family
            for prompt, text in islice(documents(5, 1.0, weights), 1500)
            if parse_question(text) is None and (parts := parse(prompt[-1]["content"])) and len(parts) == 1
        ]
        return single.count("lift") / len(single)

    assert share({**ALIKE, "lift": 4.0}) > 2.5 * share(ALIKE)


def test_the_three_modes_of_the_challenger_are_all_taught() -> None:
    rng = Random(6)
    draws = [challenger_draw(rng, index, FREE_WEIGHTS) for index in range(1000)]
    modes = Counter(draw.mode for draw, _ in draws)
    assert min(modes.values()) > 200
    assert set(modes) == {"free", "targeted", "stitched"}
    for draw, question in draws:
        parts = parse(question) or ()
        assert len(parts) == 2 or draw.mode != "stitched"


def test_only_free_exploration_has_a_heavy_tail() -> None:
    """Nine tenths of it are of the five families of the head; targeted, every family is asked for."""
    rng = Random(6)
    draws = [challenger_draw(rng, index, FREE_WEIGHTS) for index in range(3000)]
    free = Counter(group(question) for draw, question in draws if draw.mode == "free")
    assert 0.87 < free["head"] / free.total() < 0.93
    aimed = Counter(group(question) for draw, question in draws if draw.mode != "free")
    assert min(aimed[name] for name in GROUPS) > 0.25 * aimed.total()


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_question_for_a_kind_is_one_at_which_it_can_happen(kind: Kind) -> None:
    rng = Random(7)
    parts = parse(question_for(rng, kind))
    assert parts
    if kind.family == JOIN:
        assert len(parts) == 2
        assert sum(outcome(part, solve(part)) for part in parts)
    else:
        assert applies(kind, solve(parts[0]), parts[0])


def test_the_same_seed_gives_the_same_corpus() -> None:
    assert list(islice(documents(8, 1.0), 50)) == list(islice(documents(8, 1.0), 50))
    assert list(islice(documents(8, 1.0), 50)) != list(islice(documents(9, 1.0), 50))
