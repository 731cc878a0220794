"""The world and the arms of the study of equal practice, without its runs."""

from collections import Counter
from itertools import islice
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from diagevo.arithmetic.families import family
from diagevo.arithmetic.grammar import FAMILIES, draw_part, read_steps, solve
from diagevo.arithmetic.slips import recognise
from diagevo.arithmetic.truth import value
from diagevo.arithmetic.wordings import kind_of
from diagevo.loop.round import Round
from diagevo.memory.state.projected_schedule import Draw
from studies import practice, practice_page
from studies.comparison import paired
from studies.content import BROKEN

DOUBLING = "double 3 , add 4 and double again"


def test_slips_of_a_noisy_family_are_of_no_kind_and_agree_with_none() -> None:
    rng, wrong = Random(0), Counter[int]()
    for _ in range(300):
        part = draw_part(rng, rng.choice(practice.NOISY))
        steps, right = practice._noisily(rng, part), solve(part)
        for instruction, was, now in zip(
            FAMILIES[part.family].procedure(part.numbers), right, steps, strict=True
        ):
            if (was.left, was.op, was.right) == (now.left, now.op, now.right) and was != now:
                wrong[now.result - was.result] += 1
                assert recognise(part.family, instruction.name, was, now) is None
    assert wrong.total() > 100
    assert max(wrong.values()) < wrong.total() / 10


def test_documents_are_wrong_in_three_families_by_rule_and_in_three_by_chance() -> None:
    right, all_ = Counter[str](), Counter[str]()
    for prompt, completion in islice(practice.world_documents(1), 6000):
        question = prompt[-1]["content"]
        parts = practice.parse(question) or ()
        if len(parts) == 1 and read_steps(completion):
            name = str(family(question))
            all_[name] += 1
            right[name] += completion.endswith(f"\\boxed{{{value(parts[0])}}}")
    share = {name: right[name] / number for name, number in all_.items()}
    assert set(share) == set(FAMILIES)
    for name, found in share.items():
        if name in practice.NOISY or name in BROKEN:
            assert 0.3 < found < 0.85, name
        else:
            assert found == 1, name


def test_difficulty_draws_families_by_learnability() -> None:
    arm = practice.Difficulty()
    names = list(FAMILIES)
    arm.saw([(practice.word(draw_part(Random(n), name)), 0.99) for n, name in enumerate(names)])
    arm.saw([(practice.word(draw_part(Random(0), "lift")), 0.5)])
    schedule: Any = SimpleNamespace(round=2)
    draws = arm(schedule, [Draw(n, "targeted", "c1", "cause", "node") for n in range(400)], 7)
    lift = sum(kind_of(draw.cause or "").family == "lift" for draw in draws)  # pyright: ignore
    expected = 0.25 / (0.25 + 13 * 0.01)
    assert lift / 400 == pytest.approx(expected, abs=0.08)


@pytest.mark.parametrize("every", [2, 20])
def test_a_round_records_candidates_until_enough_are_kept(
    every: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Each second candidate is kept: 96 are recorded. Each twentieth: all 640, with 32 kept."""
    monkeypatch.setattr(Round, "vote", Round.vote)
    scored: list[Any] = []
    arm = practice.Difficulty()
    practice._practise_alike(arm)

    def one(place: int) -> Any:
        kept = place % every == every - 1
        return SimpleNamespace(
            verdict="kept" if kept else "too_easy", question=str(place), first=3, responses=6
        )

    fake: Any = SimpleNamespace(
        folder=tmp_path,
        number=1,
        solver=SimpleNamespace(answer=lambda portion, *_: portion),
        memory=SimpleNamespace(
            score=scored.extend,
            artifacts=SimpleNamespace(
                get_many=lambda keys: dict.fromkeys(keys, "double 3 , add 4 and double again")
            ),
        ),
        stages=SimpleNamespace(play=lambda _name, work, total: work().record()),
        _scored=one,
        _answered=lambda _: None,
    )
    Round.vote(fake, range(practice.CANDIDATES))  # pyright: ignore[reportArgumentType]
    assert len(scored) == (96 if every == 2 else 640)
    assert sum(each.verdict == "kept" for each in scored) == (48 if every == 2 else 32)
    assert arm.shares == {"doubling": 0.5}


def test_the_plan_has_sixteen_pairs_of_six_arms_with_local_last() -> None:
    runs = practice.planned()
    assert len(runs) == len(set(runs)) == 96
    assert {arm for arm, _ in runs} == set(practice.ARMS)
    assert [arm for arm, _ in runs[-16:]] == ["local"] * 16


def played(difference: float, seeds: int = 16, spread: float = 0.02) -> tuple[list[dict], list[dict]]:
    """Rows of every arm and of the base weights: `full` scores so much more than each other arm, and a bit
    more or less by seed."""
    counted = {"candidates": 100, "valid_broken": 50, "kept_broken": 30, "kept_noisy": 18, "true": 40}
    scores = {"noisy_greedy": 1.0, "right_greedy": 1.0, "all_greedy": 0.97}

    def row(arm: str, seed: int) -> dict[str, Any]:
        score = 0.85 + (difference if arm == "full" else spread * (-1) ** seed * (seed % 3))
        heats = dict.fromkeys(("1", "0.5", "0.25"), score)
        found = {"arm": arm, "seed": seed, "weights": f"weights-{seed % 4}", "cpu_seconds": 60}
        found |= {"by_round": dict.fromkeys("1234", counted), "started": "2026-11-27T06:35:28+00:00"}
        return found | scores | {"broken_greedy": score, "broken_by_temperature": heats}

    rows = [row(arm, seed) for arm in practice.ARMS for seed in range(20, 20 + seeds)]
    return practice_page.flat(rows), practice_page.flat([row("base", seed) for seed in range(4)])


@pytest.mark.parametrize(
    ("difference", "said"),
    [
        (0.03, "causes buy learning, not candidates alone"),
        (0.0, "causes buy candidates, not learning"),
        (-0.05, "causes buy candidates, not learning"),
        (0.006, "causes buy candidates, not learning"),
    ],
)
def test_the_rule_of_the_plan_decides_what_the_readme_says_first(difference: float, said: str) -> None:
    rows, base = played(difference, spread=0.02 if difference != 0.006 else 0.0)
    assert f"By the plan's rule: {said}." in practice_page.page(rows, base)
    told = practice_page.with_sentence(
        "a\n<!-- study-practice -->\n<!-- end of study-practice -->\nb", rows, base
    )
    assert told.startswith(f"a\n<!-- study-practice -->\nAt equal practice [{said}]")
    assert told.endswith("<!-- end of study-practice -->\nb")


def test_the_rule_is_not_applied_before_every_pair_is_there() -> None:
    rows, base = played(0.03, seeds=15)
    assert "15 were played. It is not applied before." in practice_page.page(rows, base)
    assert practice_page.sentence(rows, base) == ""


def test_a_forecast_is_missed_only_where_the_interval_excludes_it() -> None:
    rows, _ = played(0.03)
    lines = {what: verdict for what, _, verdict in practice_page._predictions(rows)}
    assert lines["`full` less `difficulty`, greedy: +0.025"] == "not excluded"
    assert lines["`full` keeps most of its questions from the broken families from round 3 on"] == "came"
    assert lines["`difficulty` keeps about half of its from the noisy ones"] == "missed"
    rows, _ = played(0.1)
    lines = {what: verdict for what, _, verdict in practice_page._predictions(rows)}
    assert lines["`full` less `difficulty`, greedy: +0.025"] == "missed: the interval excludes it"
    assert lines["`shuffled` is within 0.02 of `full`, greedy"] == "missed: the interval excludes it"


def test_the_page_is_made_from_the_results() -> None:
    rows = practice_page.flat(practice.results())
    base = practice_page.flat(practice.untouched())
    assert practice_page.PAGE.read_text(encoding="utf-8").endswith(practice_page.page(rows, base))
    if practice_page.compared(rows):
        assert practice_page.PICTURE.read_text(encoding="utf-8") == practice_page.draw(rows)
    readme = practice_page.README.read_text(encoding="utf-8")
    assert readme == practice_page.with_sentence(readme, rows, base)


def test_a_pair_is_of_one_digest_of_the_base_weights() -> None:
    def row(arm: str, seed: int | None, digest: str, score: float) -> dict[str, Any]:
        return {"arm": arm, "seed": seed, "weights": "w", "weights_sha256": digest, "score": score}

    rows = [
        row("full", 1, "a", 0.5),
        row("free", 1, "b", 0.25),
        row("full", 2, "b", 0.75),
        row("free", 2, "b", 0.5),
    ]
    assert paired(rows, "full", "free", "score") == [0.25]
    base = [row("base", None, "a", 0.25), row("base", None, "b", 0.125)]
    assert paired([*rows, *base], "full", "base", "score") == [0.25, 0.625]
