"""Thirty more pairs at equal practice: the rule, what is told before it, and the page."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from studies import capped
from studies.content import planned as planned_before
from studies.results import HERE

SPREAD = (-0.012, -0.004, 0.004, 0.012)
"""Of deviation .009: thirty pairs have an interval of about ±.004."""


def rows(difference: float, pairs: int, first: int = 20, spread: float = 1.0) -> Iterator[dict[str, Any]]:
    for n in range(pairs):
        for arm, score in (
            ("full-capped", 0.8 + difference + spread * SPREAD[n % 4]),
            ("uniform-capped", 0.8),
        ):
            heats = {"1": score - 0.2, "0.5": score, "0.25": score, "0": score}
            yield {
                "arm": arm,
                "seed": first + n,
                "weights_sha256": "abcdefgh" if n % 2 else "12345678",
                "started": f"2026-11-27T18:{n:02}:00+00:00",
                "cpu_seconds": 60,
                "by_round": {"1": {"kept": 40}, "2": {"kept": 20}},
                "broken_by_temperature": heats,
                "broken_greedy": score,
                capped.SAMPLED: score,
            }


BEFORE = list(rows(0.005, 2, 10))
"""Few, as the exact test takes long with many."""


def test_new_seeds_are_played_in_whole_pairs() -> None:
    runs = capped.planned()
    assert runs[:3] == [("full-capped", 20), ("uniform-capped", 20), ("full-capped", 21)]
    assert len(runs) == 60
    assert not {seed for _, seed in runs} & {run["seed"] for run in planned_before()}


@pytest.mark.parametrize(
    ("difference", "spread", "said"),
    [
        (0.0, 1.0, "is shown"),
        (0.012, 1.0, "is shown"),  # above 0 and within the margin: by the rule that is equivalent
        (0.018, 1.0, "is not shown"),
        (-0.018, 1.0, "is not shown"),
        (0.0, 6.0, "is not shown"),
    ],
)
def test_the_rule_is_the_whole_interval_within_the_margin(
    difference: float, spread: float, said: str
) -> None:
    told = capped.page(list(rows(difference, 30, spread=spread)), [], BEFORE)
    assert f"**By the rule equivalence within ±0.02 {said}.**" in told


def test_the_rule_waits_for_every_pair_and_an_unpaired_run_counts_in_none() -> None:
    some = list(rows(0.0, 30))[:-1]
    told = capped.page(some, [], BEFORE)
    assert "29 of the 30 planned pairs were played." in told
    assert "By the rule" not in told
    assert "The rule is for all 30 pairs." in told
    other = [row | {"weights_sha256": "other"} if row["seed"] == 20 else row for row in some[:1]] + some[1:]
    assert "28 of the 30 planned pairs" in capped.page(other, [], BEFORE)


def test_a_capped_arm_practises_24_or_all_that_it_keeps() -> None:
    told = capped.page(list(rows(0.0, 30)), [], BEFORE)
    assert "| `uniform-capped` | 30 | 30 | 22 | 0.600 | 0.800 | 0.800 | 0.800 |" in told
    assert "took 60 CPU minutes" in told
    assert "`12345678` and `abcdefgh`" in told


def test_the_readme_says_nothing_before_an_exact_interval_is_possible() -> None:
    assert list(capped.sentence([], BEFORE)) == []
    assert list(capped.sentence(list(rows(0.0, 5)), BEFORE)) == []
    told = "\n".join(capped.sentence(list(rows(0.0, 6)), BEFORE))
    assert "6 of 30 planned pairs" in told
    assert "6 seeds)" in told
    assert "8 seeds)" in told


def test_the_first_ten_are_those_of_the_study_of_content() -> None:
    ten = capped.first_ten()
    assert sorted({row["seed"] for row in ten}) == list(range(10, 20))
    assert len(ten) == 20
    assert all(row[capped.SAMPLED] == row["broken"] for row in ten)


def test_the_page_of_the_capped_pairs_is_made_from_the_results() -> None:
    told = capped.PAGE.read_text(encoding="utf-8")
    if capped.BEGIN in told:
        assert told.endswith(capped.page(capped.results(), capped.untouched(), capped.first_ten()))
    else:
        assert capped.results() == []  # a plan that nobody has played yet
    plan = json.loads((HERE / "study-capped.json").read_bytes())
    assert (plan["seeds"], plan["margin"]) == (list(range(20, 50)), 0.02)
