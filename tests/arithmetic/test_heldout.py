"""Held-out questions: shipped, answered, and out of the corpus."""

from collections import Counter
from itertools import islice
from random import Random

from diagevo.arithmetic import answer, held_out, is_held_out
from diagevo.arithmetic.corpus import documents
from diagevo.arithmetic.grammar import FAMILIES, draw_part, parse, word, word_joined
from diagevo.arithmetic.heldout import draw_held_out, draw_seen, in_zone
from diagevo.selfplay.questions import parse_question


def test_every_family_has_forty_held_out_questions_with_true_answers() -> None:
    rows = held_out()
    parts = [parsed[0] for question, _ in rows if (parsed := parse(question))]
    assert Counter(part.family for part in parts) == dict.fromkeys(FAMILIES, 40)
    assert len(set(parts)) == len(rows)
    assert all(answer(question) == expected for question, expected in rows)


def test_the_shipped_file_is_what_its_seed_draws() -> None:
    assert [(row["question"], row["answer"]) for row in draw_held_out()] == held_out()


def test_the_zone_holds_every_held_out_part_and_the_corpus_none() -> None:
    assert all(in_zone(part) for question, _ in held_out() for part in parse(question) or ())
    for prompt, completion in islice(documents(7, 1.0), 3000):
        question = parse_question(completion) or prompt[-1]["content"]
        parts = parse(question)
        assert parts, question
        assert not any(in_zone(part) for part in parts)


def test_another_wording_or_a_join_of_a_held_out_question_is_held_out() -> None:
    part = next(part for question, _ in held_out() for part in parse(question) or ())
    other = word(draw_seen(Random(0), "mirror"))
    assert is_held_out(word(part, 0))
    assert is_held_out(word(part, 1))
    assert is_held_out(word_joined(other, word(part)))
    assert not is_held_out(other)
    assert not is_held_out("what is love")


def test_about_an_eighth_of_the_parts_lies_in_the_zone() -> None:
    rng = Random(1)
    shares = [in_zone(draw_part(rng, "boxes")) for _ in range(4000)]
    assert 0.10 < sum(shares) / 4000 < 0.15
