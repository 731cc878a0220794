"""The experiment on what causes say: what an arm changes of a draw, what is measured, its statistics."""

from fractions import Fraction
from itertools import islice
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from diagevo.arithmetic import heldout
from diagevo.arithmetic.families import family
from diagevo.arithmetic.grammar import FAMILIES, draw_part, parse, read_steps, solve, word, write_solution
from diagevo.arithmetic.rule_diagnostician import RuleDiagnostician
from diagevo.arithmetic.slips import Kind, offers
from diagevo.arithmetic.truth import answer, value
from diagevo.arithmetic.wordings import kind_of
from diagevo.equations.policy import ScheduledCause
from diagevo.memory.events import FailureObserved
from diagevo.memory.state.projected_schedule import Draw, Schedule
from studies import content, content_page
from studies.content import (
    BROKEN,
    REPLAYS,
    _kinds_of_groups,
    broken_documents,
    choice_set,
    planned,
    results,
    shuffled,
    uniform,
    untouched,
)
from studies.content_page import exact_interval, paired
from studies.results import read

CAUSES = tuple(ScheduledCause(f"c{n}", f"words {n}", "n1", f"label {n}", n == 3, n) for n in range(1, 5))
SCHEDULE = Schedule(2, Fraction(1, 2), CAUSES)
DRAWS = [
    Draw(0, "free"),
    Draw(1, "targeted", "c1", "words 1", "label 1"),
    Draw(2, "stitched", "c2", "words 2", "label 2", "c3", "words 3", "label 3"),
]


def test_shuffled_words_are_another_causes_and_nothing_else_changes() -> None:
    free, targeted, stitched = shuffled(SCHEDULE, DRAWS, 7)
    assert free == DRAWS[0]
    assert (targeted.mode, targeted.cause_id) == ("targeted", "c1")
    assert targeted.cause in {"words 2", "words 3", "words 4"}
    assert targeted.node == f"label {targeted.cause[-1]}"
    assert (stitched.cause_id, stitched.stitched_cause_id) == ("c2", "c3")
    assert stitched.cause != "words 2"
    assert stitched.stitched_cause != "words 3"


def test_uniform_words_are_of_all_families_alike() -> None:
    draws = [Draw(index, "targeted", "c1", "words 1", "label 1") for index in range(1400)]
    kinds = [kind_of(draw.cause or "") for draw in uniform(SCHEDULE, draws, 7)]
    shares = [sum(kind is not None and kind.family == name for kind in kinds) / 1400 for name in BROKEN]
    assert all(1 / 14 - 0.03 < share < 1 / 14 + 0.03 for share in shares)  # four standard errors
    assert {draw.cause_id for draw in uniform(SCHEDULE, draws, 7)} == {"c1"}


def test_what_is_measured_is_new_and_of_the_broken_families() -> None:
    chosen, tested = dict(choice_set()), dict(content.test_set())
    assert (len(chosen), len(tested)) == (120, 420)
    parts = [{part for question in of for part in parse(question) or ()} for of in (chosen, tested)]
    shipped = {part for question, _ in heldout.held_out() for part in parse(question) or ()}
    assert not parts[0] & parts[1]
    assert not (parts[0] | parts[1]) & shipped
    assert {family(question) for question in tested} == set(BROKEN)
    assert all(str(answer(question)) == right for question, right in tested.items())


def test_the_broken_world_is_taught_wrong_steps_in_its_families_alone() -> None:
    wrong: dict[bool, list[bool]] = {True: [], False: []}
    for prompt, text in islice(broken_documents(3), 600):
        question = prompt[-1]["content"]
        if (parts := parse(question)) and read_steps(text):
            broken = any(part.family in BROKEN for part in parts)
            wrong[broken].append(f"\\boxed{{{answer(question)}}}" not in text)
    assert not any(wrong[False])
    assert 0.1 < sum(wrong[True]) / len(wrong[True]) < 0.6


def test_an_exact_interval_holds_the_shifts_that_are_not_refused() -> None:
    # Of six pairs only the two assignments without a change of sign are refused at .05 (2/64): a shift is
    # refused once it is beyond all of them.
    found = exact_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    assert found is not None
    assert found == (pytest.approx(1.0, abs=1e-6), pytest.approx(6.0, abs=1e-6))
    assert exact_interval([1.0] * 5) is None  # 2/32 refuses nothing


def test_differences_are_of_the_seeds_that_both_arms_have() -> None:
    rows = [
        {"arm": a, "seed": s, "broken": v}
        for a, s, v in (("full", 1, 0.9), ("full", 2, 0.8), ("free", 2, 0.5))
    ]
    assert paired(rows, "free", "full", "broken") == [pytest.approx(-0.3)]


def test_the_page_is_made_from_the_results() -> None:
    rows, base = results(), untouched()
    assert content_page.PAGE.read_text(encoding="utf-8").endswith(content_page.page(rows, base))
    assert content_page.PICTURE.read_text(encoding="utf-8") == content_page.draw(rows)
    readme = content_page.README.read_text(encoding="utf-8")
    assert readme == content_page.with_sentence(readme, rows, base)


def test_the_page_says_what_its_replays_came_to() -> None:
    told = " ".join(content_page.PAGE.read_text(encoding="utf-8").split())
    recorded = {row["run"]: row for row in results()}
    for played in read(REPLAYS):
        row = recorded[played["run"]]
        assert f"seed {row['seed']} | `{row['state_hash'][:8]}` | `{played['state_hash'][:8]}`" in told
        alike = [n for n in ("1", "2", "3", "4") if played["by_round"][n] == row["by_round"][n]]
        assert alike == {10: [], 16: ["1", "2"]}[row["seed"]]
        if "broken" in played:
            pairs = [(played[name], row[name]) for name in ("broken", "broken_greedy")]
            assert all(f"{mine:.3f} where" in told and f"has {its:.3f}" in told for mine, its in pairs)


def test_a_grid_whose_lowest_was_best_says_that_it_lies_at_its_edge() -> None:
    row = {"best_temperature": 0.5, "choosing": {"1": 0.1, "0.5": 0.9}}
    assert "1 of 1 run: it lies at the edge" in content_page._edge([row])
    greedy = {"best_temperature": 0.0, "choosing": {"1": 0.1, "0.5": 0.8, "0": 0.9}}
    assert "edge" not in content_page._edge([greedy])
    assert min(content.TEMPERATURES) == 0


def test_the_untouched_model_is_what_each_run_began_from() -> None:
    base = [{"arm": "base", "weights": f"weights-{n}", "broken": 0.5 + 0.1 * n} for n in (0, 1)]
    runs = [{"arm": "full", "seed": n, "weights": f"weights-{n}", "broken": 0.8} for n in (0, 1)]
    assert paired([*runs, *base], "full", "base", "broken") == [pytest.approx(0.3), pytest.approx(0.2)]


def test_every_seed_of_the_plan_comes_before_the_next() -> None:
    runs = planned()
    assert len(runs) == 85
    assert [run["seed"] for run in runs[:12]] == [10] * 6 + [11] * 6


def test_local_groups_are_told_in_the_words_of_the_kind_that_most_of_them_are() -> None:
    """Two kinds of slip over 24 questions each: a group that mixes them would name one for all."""
    rng, texts, failures, questions = Random(5), dict[str, str](), list[FailureObserved](), dict[str, Any]()
    wanted = [Kind("quotient", "restore", "operation"), Kind("lift", "fall", "order")]
    for number in range(48):
        kind = wanted[number % 2]
        part = draw_part(rng, kind.family)
        steps = solve(part)
        place = [each.name for each in FAMILIES[kind.family].procedure(part.numbers)].index(kind.step)
        slip = next(each for each in offers(kind, steps[place]) if each is not None)
        right, wrong = (
            write_solution(each, each[-1].result)
            for each in (steps, [*steps[:place], slip, *steps[place + 1 :]])
        )
        names = [f"{each}{number}" for each in ("q", "r", "w")]
        texts |= dict(zip(names, (word(part, number // 2 % 2), right, wrong), strict=True))
        questions[f"k{number}"] = SimpleNamespace(question=names[0], label=str(value(part)))
        failures.append(
            FailureObserved(
                failure_id=f"k{number}.a0",
                question_id=f"k{number}",
                stage="solver",
                attempt=1,
                step=1,
                trajectory=names[2],
                reference=names[1],
            )
        )
    memory: Any = SimpleNamespace(
        question=questions.__getitem__,
        artifacts=SimpleNamespace(get_many=lambda digests: {each: texts[each] for each in digests}),
    )
    named = _kinds_of_groups(memory, failures, RuleDiagnostician.kind)
    right = sum(named.get(f"k{n}.a0") == wanted[n % 2] for n in range(48))
    assert right > 0.8 * len(named) > 15
