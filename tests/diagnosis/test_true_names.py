"""What is printed of a cause is true of its failures, counted again here by a search in the texts."""

import re
from collections import defaultdict
from functools import cache

import pytest

from benchmarks.causes.planted import planted
from benchmarks.causes.rows import LabelledRow
from benchmarks.causes.true_names import COUNTED, HEADING, WORDS, searched
from diagevo.diagnosis.levels.aligned_pairs import AlignedPair
from diagevo.diagnosis.levels.cause_levels import Explained, Levels
from diagevo.diagnosis.levels.inputs import Failure, Prompt, Response

DOMAINS = ("sql", "code", "judge", "german")


EXAMPLE = re.compile(r"; (?:as in|a pass says) “[^”]*”$")
"""A sentence after the clauses: of a cause that is known by several words."""


@cache
def played(domain: str) -> tuple[dict[str, list[LabelledRow]], dict[str, list[tuple[str, Explained]]]]:
    """The rows by question, and by description of a cause its failures: question, text, what is known."""
    by_question: dict[str, list[LabelledRow]] = defaultdict(list)
    for row in planted(domain, 0):
        by_question[str(row.question)].append(row)
    prompts = [
        Prompt(
            question,
            question,
            None,
            [Response(row.text) for row in rows if not row.failed],
            [Failure(f"{question} {n}", Response(row.text)) for n, row in enumerate(rows) if row.failed],
        )
        for question, rows in by_question.items()
    ]
    levels = Levels([p for p in prompts if p.failed], [p for p in prompts if not p.failed])
    found: dict[str, list[tuple[str, Explained]]] = defaultdict(list)
    for prompt in prompts:
        for failure, known in zip(prompt.failed, levels.of(prompt), strict=True):
            if known.cause is not None and known.cause.level > 1:
                found[known.cause.description].append((f"{prompt.key}\0{failure.response.text}", known))
    return by_question, found


@pytest.mark.parametrize("domain", DOMAINS)
def test_each_clause_holds_for_nine_of_ten_and_stands_beside_its_share_of_passes(domain: str) -> None:
    by_question, found = played(domain)
    passes = {q: [row.text for row in rows if not row.failed] for q, rows in by_question.items()}
    looked_up = 0
    for description, failures in found.items():
        rest = EXAMPLE.sub("", HEADING.sub("", description, count=1))
        clauses = COUNTED.findall(rest)
        if not clauses:
            assert description == "has a step that does not hold when it is computed"
            continue
        assert "".join(f"{c} ({a} of {b} failures, {d} of {e} passes)" for c, a, b, d, e in clauses) == (
            rest.replace(" at diagnosis)", ")").replace("); ", ")")
        )
        for clause, held, of, passing, of_passes in clauses:
            assert int(of) == len(failures)
            assert int(held) >= 0.9 * len(failures)
            assert int(of_passes) == sum(map(len, passes.values()))
            words = WORDS.findall(clause)
            if not words or not clause.startswith(("has `", "has any of", "leaves out")):
                continue
            looked_up += 1
            has = searched(words)
            if clause.startswith("has"):
                true = [has(key.partition("\0")[2]) for key, _ in failures]
                shown = sum(has(text) for texts in passes.values() for text in texts)
            else:
                true = [
                    not has(text) and 2 * sum(map(has, passes[question])) > len(passes[question])
                    for question, _, text in (key.partition("\0") for key, _ in failures)
                ]
                shown = sum(
                    not has(text) and 2 * sum(map(has, texts)) > len(texts) - 1
                    for texts in passes.values()
                    for text in texts
                    if len(texts) > 1
                )
            assert (sum(true), shown) == (int(held), int(passing)), clause
    assert looked_up >= 4


@pytest.mark.parametrize("domain", DOMAINS)
def test_no_cause_is_named_by_shape_alone(domain: str) -> None:
    texts = [row.text.lower() for row in planted(domain, 0)]
    for description in played(domain)[1]:
        assert not re.search(r"\blines\b|…|`[^`]*\bN\b[^`]*`", description)
        for words in WORDS.findall(description):
            assert re.search(r"\w", words) or words in {"+", "*", "/", "%", "//", "**", "==", "!="}
            if "has `" in description and f"has `{words}`" in description:
                assert sum(searched([words])(text) for text in texts) <= 0.5 * len(texts)


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_pair_marks_the_words_of_its_clause_where_the_texts_differ(domain: str) -> None:
    marked = 0
    for description, failures in played(domain)[1].items():
        clauses = COUNTED.findall(HEADING.sub("", description, count=1))
        for key, known in failures:
            if (pair := known.pair) is None:
                continue
            text = key.partition("\0")[2]
            assert _there(text, pair.wrote.line, pair.wrote.start).startswith(pair.wrote.text)
            assert _there(pair.sibling.text, pair.should.line, pair.should.start).startswith(pair.should.text)
            assert pair.wrote.text.lower() != pair.should.text.lower()
            first, words = clauses[0][0], WORDS.findall(clauses[0][0])
            if words and first.startswith(("has `", "has any of", "leaves out")):
                side = pair.wrote if first.startswith("has") else pair.should
                ends = [word.strip(": ") for word in words if word[0] == ":"]  # a clause over two lines
                assert searched(ends or words)(side.text), (first, pair)
                marked += 1
    assert marked > 20


def _there(text: str, line: int, start: int) -> str:
    return text.split("\n")[line][start:]


def test_two_mistakes_are_two_causes() -> None:
    """A third of the failures leave out the limit and a third the order, both before the same words."""
    prompts: list[Prompt] = []
    for place in range(36):
        table, n = f"t{place}", place + 3
        right = f"select name from {table} order by score desc limit {n}"
        wrong = right.replace(" desc", "") if place % 2 else right.replace(f"limit {n}", "")
        passed = [Response(right), Response(right.upper())]
        failure = Failure(f"f{place}", Response(wrong))
        prompts.append(Prompt(f"q{place}", f"The best {n} of {table}?", None, passed, [failure]))
    levels = Levels(prompts, [])
    causes = [known.cause.description for prompt in prompts for known in levels.of(prompt) if known.cause]
    assert [each.partition("; ")[0] for each in sorted(set(causes))] == [
        "leaves out `desc`, which passes have (18 of 18 failures, 0 of 72 passes at diagnosis)",
        "leaves out `limit`, which passes have (18 of 18 failures, 0 of 72 passes)",
    ]


def test_which_letter_stands_for_a_table_is_no_difference() -> None:
    right = "SELECT l.name FROM loans AS l ORDER BY l.sum DESC LIMIT 3"
    wrong = "SELECT m.name FROM loans AS m ORDER BY m.sum ASC LIMIT 3"
    prompts = [
        Prompt(f"q{n}", f"The {n} largest?", None, [Response(right)] * 2, [Failure(f"f{n}", Response(wrong))])
        for n in range(30)
    ]
    levels = Levels(prompts, [])
    [known] = levels.of(prompts[0])
    pair: AlignedPair | None = known.pair
    assert pair is not None
    assert (pair.wrote.text, pair.should.text) == ("ASC", "DESC")
    assert known.cause is not None
    assert known.cause.description.startswith('wrote "asc" where a pass has "desc" (30 of 30); ')
    assert known.evidence[0].text.endswith("«ASC» LIMIT 3")


def test_names_that_begin_alike_are_one_cause_where_their_first_word_is_true_of_both() -> None:
    """In a third of the prompts passes have `having sum`, in a third `having max`; failures have neither."""
    prompts: list[Prompt] = []
    for place in range(36):
        kind, table = ("sum", "max", "")[place % 3], f"t{place}"
        right = f"select name from {table} group by name" + (f" having {kind} ( x ) > 3" if kind else "")
        wrong = f"select name from {table} where x > 3 group by name" if kind else right
        passed = [Response(right), Response(right.upper())]
        failed = [Failure(f"f{place}", Response(wrong))] if kind else []
        prompts.append(Prompt(f"q{place}", f"Which names of {table}?", None, passed, failed))
    levels = Levels([each for each in prompts if each.failed], [each for each in prompts if not each.failed])
    known = [each for prompt in prompts for each in levels.of(prompt)]
    assert len(known) == 24
    assert len({each.cause.key if each.cause else "" for each in known}) == 1
    assert known[0].cause is not None
    assert " sum" not in known[0].cause.key
    assert " max" not in known[0].cause.key
