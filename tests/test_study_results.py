"""The study's page of results, from runs made up by hand."""

import json
import lzma
import re
import sqlite3
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime
from itertools import islice, product
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest

from diagevo.answers.extraction import extract_boxed
from diagevo.arithmetic import answer
from diagevo.arithmetic.families import family
from diagevo.config.former import in_todays_names
from diagevo.config.loading import of_run, resolve
from diagevo.evaluation.ablation import VARIANTS, Plan, VariantDifference, variant
from diagevo.memory.transfer.bundle import check_bundle
from studies import lm
from studies.comparison import (
    CLAIMS,
    against_base,
    against_full,
    against_paper,
    at_equal_practice,
    finding,
    power_of_equivalence,
    power_of_gain,
    scores,
    sign_flip,
    verdict,
    volume,
)
from studies.content import BASE
from studies.narrow import NARROW, QUESTIONS, RIGHT, narrow_documents, narrow_questions
from studies.page import (
    MARKS,
    PAGE,
    README,
    claim_rows,
    draw,
    kept_and_scores,
    long_run,
    page,
    with_sentences,
)
from studies.results import HERE, PLANNED, PROVENANCE, commit_before, joined, planned_runs, read


def _run(
    variant: str, seed: int, score: float, *, rounds: int = 5, of: int = 5, plan: str = "study"
) -> dict[str, Any]:
    measured = {"mean_at_k": score, "mean_at_k/head": 0.9, "mean_at_k/tail": score - 0.1, "greedy": 0.9}
    return {
        "run": f"{plan}.{variant}.s{seed}",
        "variant": variant,
        "seed": seed,
        "rounds": rounds,
        "of": of,
        "version": "1",
        "state_hash": "a" * 64,
        "chain_head": "b" * 64,
        "weights_sha256": "d" * 64,
        "commit": "e" * 40,
        "committed_at": "2026-11-23T01:00:00Z",
        "kept": 500 + seed,
        "scores": {"0": {"mean_at_k": 0.5}, str(rounds): measured},
    }


# full − free: 4, 5, 6, 5 and 5 points: mean 5, standard error 0.316, t = 15.8 of 4.
FULL = [0.84, 0.85, 0.86, 0.85, 0.85]
RUNS = [_run("full", seed, score) for seed, score in enumerate(FULL, 3)] + [
    _run("free-only", seed, 0.8) for seed in range(3, 8)
]


def _line(difference: float | None, p_holm: float | None, seeds: int = 5) -> VariantDifference:
    bounds = (None, None) if difference is None else (difference - 0.02, difference + 0.02)
    return VariantDifference("x", seeds, 0.8, difference, *bounds, None, p_holm, p_holm)


@pytest.mark.parametrize(
    ("difference", "p", "expected", "said"),
    [
        (-0.05, 0.01, "below", "shown"),
        (+0.05, 0.01, "below", "opposite"),
        (-0.05, 0.06, "below", "not shown"),
        (+0.05, 0.01, "above", "shown"),
        (-0.05, 0.01, "above", "opposite"),
        (-0.05, 0.01, "not below", "below, by 0.030 to 0.070"),
        (+0.05, 0.01, "not below", "above, by 0.030 to 0.070"),
        (+0.05, 0.01, "not above", "above, by 0.030 to 0.070"),
        (-0.05, 0.20, "not below", "below, by 0.030 to 0.070"),
        (-0.01, 0.20, "not below", "within -0.030 to +0.010"),
        (-0.05, 0.06, "no difference", "below, by 0.030 to 0.070"),
        (+0.01, 1.00, "no difference", "within -0.010 to +0.030"),
        (-0.05, None, "below", "open: 5 of 5 seeds"),
        (None, None, "below", "not played"),
    ],
)
def test_a_verdict_follows_the_rule_of_the_page(
    difference: float | None, p: float | None, expected: str, said: str
) -> None:
    assert verdict(_line(difference, p), expected, 5) == said


def test_a_verdict_on_fewer_seeds_than_planned_says_so() -> None:
    assert verdict(_line(-0.05, 0.01, 3), "below", 5) == "open: below, by 0.030 to 0.070 on 3 seeds"
    assert verdict(_line(-0.05, None, 1), "below", 5) == "open: 1 of 5 seeds"


def test_the_table_has_a_line_for_every_claim_and_those_that_were_not_played_say_so() -> None:
    lines = list(claim_rows(RUNS))[2:]
    assert len(lines) == len(CLAIMS)
    first = next(line for line in lines if "H1 |" in line)
    assert "**shown** | -0.050 | -0.059 to -0.041 | -7.1 | 5 | < 0.0001 |" in first
    assert (
        sum("**not played**" in line for line in lines) == len(CLAIMS) - 3
    )  # H1, H2 and H7 are of free-only
    assert next(line for line in lines if "H7" in line).count("0.000") == 1  # alike in each greedy answer


def test_further_below_in_the_tail_is_the_difference_of_differences() -> None:
    apart = scores(RUNS, "tail less head")
    assert apart["full"][3] == pytest.approx(0.84 - 0.1 - 0.9)
    assert against_full(RUNS, "tail less head")["free-only"].difference == pytest.approx(-0.05)


def test_a_run_that_is_under_way_counts_nowhere_and_is_told() -> None:
    runs = [*RUNS, _run("free-640", 3, 0.9, rounds=2)]
    assert "free-640" not in scores(runs, "mean_at_k")
    told = page(runs)
    assert "10 of the 157 runs of the three plans, played 2026-11-23; 1 under way" in told
    assert "| `full` | 5 | 505 | 0.850 | 0.900 | – | 0.750 | 0.900 |" in told


def test_the_runs_of_a_smaller_plan_are_held_against_its_own() -> None:
    runs = [*RUNS, *(_run("full", s, 0.9, rounds=10, of=10, plan="study-long") for s in (3, 4))]
    for seed, value in ((3, 0.88), (4, 0.87)):
        runs.append(_run("free-only", seed, value, rounds=10, of=10, plan="study-long"))
    runs += [_run(v, 3, score, plan="study-weights") for v, score in (("full", 0.7), ("free-only", 0.6))]
    found = against_full(runs, "mean_at_k")
    assert found["free-only, ten rounds"].difference == pytest.approx(-0.025)
    assert found["free-only, other weights"].difference == pytest.approx(-0.1)
    assert list(scores(runs, "mean_at_k"))[-2:] == ["full, other weights", "free-only, other weights"]
    assert found["free-only"].difference == pytest.approx(-0.05)


def test_every_claim_names_an_arm_of_a_plan_and_every_arm_but_three_has_a_claim() -> None:
    named = {variant for _, variant, *_ in CLAIMS}
    known = {v.name for v in VARIANTS}
    assert named - known == {"free-only, ten rounds", "free-only, other weights"}
    assert known - named == {"full", "full-160", "free-absolute"}


def test_the_page_is_what_its_data_give() -> None:
    runs = read()
    assert PAGE.read_text(encoding="utf-8").endswith(page(runs))
    readme = README.read_text(encoding="utf-8")
    assert readme == with_sentences(readme, runs)
    assert readme.count("docs/pictures/study.svg") == 1


def test_every_arm_that_the_paper_has_below_stands_in_the_list_unless_it_is_clearly_below_here() -> None:
    """From the signs and the intervals of the page's own table."""
    against = against_paper(against_full(read(), "mean_at_k"))
    rows = [line.split("|") for line in page(read()).splitlines() if line.startswith(("| H", "| | "))]
    table = {row[2].strip(" `"): row for row in rows if row[3].strip() == "mean_at_k"}
    below = {
        arm for arm, row in table.items() if "below" in (row[5].strip(), row[4].strip() * ("same" in row[5]))
    }
    bounds = {arm: [float(b) for b in table[arm][8].split(" to ")] for arm in below}
    assert {line.variant for line in against["above"]} == {a for a, (low, _) in bounds.items() if low > 0}
    assert {line.variant for line in against["above"]} == {"no-filter", "absolute-only", "tau-1.2"}
    assert {line.variant for line in against["within"]} == {
        a for a, (low, up) in bounds.items() if low <= 0 <= up
    }
    assert {"no-stitching", "frozen-challenger", "targeted-only"} <= {x.variant for x in against["within"]}


def test_the_readme_tells_the_arms_that_were_played_and_leaves_the_rest_as_it_is() -> None:
    readme = f"before\n{MARKS[0]}old\n{MARKS[1]}after\n"
    told = with_sentences(readme, RUNS)
    assert told.startswith(f"before\n{MARKS[0]}Each arm against the full method")
    assert told.endswith(f"{MARKS[1]}after\n")
    assert with_sentences(told, RUNS) == told
    assert "- Free exploration alone: -0.0" in told
    assert told.count("\n- ") == 1


def test_the_figure_has_a_row_for_each_arm_that_was_played() -> None:
    pytest.importorskip("altair", reason="needs the extra report: altair is not installed")
    beside = [{**run, "run": run["run"].replace("study.", "study-weights.")} for run in RUNS]
    picture = draw(RUNS + beside)
    assert picture.startswith("<svg")
    assert "free-only (5)" in picture
    assert "free-only, other weights (5)" in picture


def test_runs_of_several_databases_are_joined_in_the_order_of_the_plans() -> None:
    far, near = _run("full", 3, 0.84), _run("full", 3, 0.7, rounds=2)
    other = _run("free-only", 3, 0.8)
    names = [run["run"] for run in (far, other, _run("full", 4, 0.85))]
    assert joined([other, near], [far], names) == [far, other]
    assert joined([other, far], [near], names) == [far, other]
    assert joined([far], [far | {"committed_at": "later"}], names) == [far]


def test_a_run_that_comes_to_another_memory_when_it_is_played_again_is_refused() -> None:
    run = _run("full", 3, 0.84)
    with pytest.raises(ValueError, match=r"study\.full\.s3 was played again"):
        joined([run], [run | {"state_hash": "c" * 64}], [run["run"]])


def test_a_new_row_names_commit_weights_and_chain_and_one_that_does_not_is_refused() -> None:
    for name in PROVENANCE:
        run: dict[str, Any] = _run("full", 3, 0.84) | {name: None}
        with pytest.raises(ValueError, match=rf"study\.full\.s3 has no {name}: collect it from the commit"):
            joined([], [run], [run["run"]])
        assert joined([run], [run], [run["run"]]) == [run], "an earlier row stays as it is"


@pytest.mark.skipif(not (HERE.parent / ".git").exists(), reason="needs a checkout: an archive has no commits")
def test_a_run_that_is_older_than_what_is_checked_out_was_played_from_another_commit() -> None:
    assert commit_before(datetime(2020, 1, 1, tzinfo=UTC)) is None
    assert re.fullmatch(r"[0-9a-f]{40}(-dirty)?", commit_before(datetime.now(UTC)) or "")


def test_every_row_played_from_now_on_names_its_commit_its_weights_and_its_chain() -> None:
    """Rows have carried it since 2026-11-27; the base rows, which no run is behind, have no chain."""
    for path in HERE.glob("results*.jsonl"):
        for row in read(path):
            if row.get("arm") == BASE:
                assert row["commit"]
                assert row["weights_sha256"]
            elif (row.get("started") or row["committed_at"]) >= "2026-11-27":
                assert all(row[name] for name in PROVENANCE), row["run"]


def test_the_plans_hold_as_many_runs_as_the_page_says() -> None:
    names = planned_runs()
    assert len(names) == len(set(names)) == PLANNED
    assert names[0] == "study.full.s3"
    assert names[-1].startswith("study-weights.")


def test_kept_questions_and_scores_are_compared_by_rank_over_whole_arms() -> None:
    """By hand: kept ranks 1, 2, 3, 4 and mean@8 ranks 1, 3, 2, 4: 1 - 6·2 / (4·15) = 0.8."""
    arms = (("full", 100, 0.7), ("free-only", 200, 0.9), ("placebo", 300, 0.8), ("bandit", 400, 0.95))
    runs = [_run(arm, s, score) | {"kept": kept} for arm, kept, score in arms for s in range(3, 8)]
    left_out = [_run("no-filter-4-steps", s, 0.1) | {"kept": 999} for s in range(3, 8)]
    left_out += [_run("r-zero", 3, 0.1), _run("full", 3, 0.1, plan="study-weights")]
    assert kept_and_scores([*runs, *left_out]) == (4, pytest.approx(0.8))


def _courses(variant: str, plan: str, of: int, rounds: dict[int, dict[str, Any]]) -> dict[str, Any]:
    return _run(variant, 3, 0.8, rounds=of, of=of, plan=plan) | {
        "course": {str(n): c for n, c in rounds.items()}
    }


def _asked(free: int, targeted: int, stitched: int, **more: Any) -> dict[str, Any]:
    """Half of each are kept, of the stitched half and of the others all with a true label."""
    asked = {"free": 2 * free, "targeted": 2 * targeted, "stitched": 2 * stitched}
    return {
        "asked": asked,
        "kept": {mode: n // 2 for mode, n in asked.items()},
        "true": {"free": free, "targeted": targeted, "stitched": stitched // 2},
        "failures": 3 * (free + targeted + stitched),
        "promoted": 9,
        "reactivated": 7,
        "F": 100,
        "epsilon_next": 0.33,
        "free_valid": 10,
        "free_head": 8,
    } | more


def test_the_long_run_is_told_by_its_rounds() -> None:
    rounds = {n: _asked(10, 20, 60, F=450, epsilon_next=0.1) for n in range(1, 11)}
    rounds[1] = _asked(50, 0, 0)
    alone = {n: _asked(50, 0, 0, free_head=9 - n // 2) for n in range(1, 11)}
    loose = {n: _asked(50, 0, 0, true={"free": 45 - 5 * n}) for n in range(1, 6)}
    runs = [
        _courses("full", "study-long", 10, rounds),
        _courses("free-only", "study-long", 10, alone),
        _courses("free-absolute", "study", 5, loose),
    ]
    told = " ".join(" ".join(long_run(runs)).split())
    assert "goes from 0.33 to 0.10, and F to 4.5 times F₁" in told
    assert "F₁ is of 50 free questions, and 90 are kept in round 10" in told
    assert "fail 0% less than in round 1 (3.00 failures a question for 3.00), and have 3.00" in told
    assert "9 promotions a round stand against 7 reactivations" in told
    assert "goes from 0.90 to 0.40" in told
    assert "labels is 1.00 in round 1 and 1.00 in round 10" in told
    assert "`free-absolute` has 0.80 and, in round 5, 0.40" in told
    assert "do decay: 1.00 of those kept are true in round 1, and 0.67 in round 10" in told
    assert "stitched are 0.67 of the candidates in round 3" in told
    assert "after round 5 0.50 of its kept labels are true, against 1.00" in told
    assert not list(long_run(runs[:2]))
    for n in range(6, 11):
        rounds[n]["failures"] = 4 * sum(rounds[n]["kept"].values())
    assert "fail 33% more than in round 1 (4.00 failures a question for 3.00)" in " ".join(
        " ".join(long_run(runs)).split()
    )


def test_what_the_page_says_of_the_long_run_in_words_is_so() -> None:
    runs = read()
    long = [run for run in runs if run["run"].startswith("study-long.")]
    assert len(long) == 6
    for run in long:
        gained = [run["scores"][str(n)]["mean_at_k"] for n in range(11)]
        assert gained == sorted(gained)
        aimed = run["course"]["10"]["kept"]
        if run["variant"] == "full":
            assert 2 * aimed["free"] < sum(aimed.values())
            assert run["course"]["10"]["F"] > 4 * run["course"]["1"]["F"]


def test_the_narrow_start_errs_in_its_two_families_alone() -> None:
    wrong: Counter[str] = Counter()
    for turns in islice(narrow_documents(11), 300):
        question, reply = turns[-2]["content"], turns[-1]["content"]
        if (truth := answer(question)) is not None:
            assert family(question) in NARROW + RIGHT
            wrong[str(family(question))] += extract_boxed(reply) != truth
    assert {name for name, count in wrong.items() if count} == set(NARROW)
    asked = Counter(family(question) for question, _ in narrow_questions())
    assert asked == dict.fromkeys(NARROW, QUESTIONS)
    assert all(answer(question) == truth for question, truth in narrow_questions())


def test_the_plan_with_a_pre_trained_policy_names_known_variants_and_settings() -> None:
    plan = msgspec.json.decode((HERE / "study-lm.json").read_bytes(), type=Plan)
    assert (plan.name, plan.rounds, len(plan.runs)) == ("study-lm", 3, 13)
    given = [argument.removeprefix("--set=") for argument in plan.arguments if "--set=" in argument]
    for arm in {planned.variant for planned in plan.runs}:
        settings = [*given, *(f"{key}={value}" for key, value in variant(arm).settings.items())]
        config = resolve(profile="smollm2-135m", settings=settings).config
        assert config.warm_start.documents is None
        assert config.roles.solver == config.roles.challenger
        assert {"sampling.temperature=0.7", "solver_grpo.learning_rate=3e-5"} <= set(given)


def pre_trained(placebo: list[float], free: list[float], cpu: float = 200.0) -> list[dict[str, Any]]:
    """Three runs of each arm; `full` goes from 0.2 to 0.3 with a little noise."""
    ends = {"full": [0.30, 0.31, 0.29], "placebo": placebo, "free-only": free}
    return [
        {
            "run": f"study-lm.{arm}.s{seed}",
            "variant": arm,
            "seed": seed,
            "rounds": 1,
            "of": 1,
            "scores": {"0": {"mean_at_k": 0.2}, "1": {"mean_at_k": end}},
            "cpu": {"solver": cpu if arm == "free-only" else 200.0},
        }
        for arm, of in ends.items()
        for seed, end in enumerate(of, 3)
    ]


def test_the_pre_trained_study_judges_by_what_was_said_beforehand() -> None:
    """Placebo less free-only is 0, its deviation 0.01: the 90% interval begins at -2.92 * 0.0058."""
    runs = pre_trained([0.20, 0.21, 0.19], [0.20, 0.20, 0.20])
    judged = {name: lm.verdict(name, line, runs) for name, line in lm.lines(runs).items()}
    assert judged["L1"] == judged["L4"] == "shown"
    assert lm.lines(runs)["L2"].difference == pytest.approx(-0.1)
    assert judged["L3"] == "shown"
    wide = pre_trained([0.10, 0.20, 0.30], [0.20, 0.20, 0.20], cpu=211.0)
    judged = {name: lm.verdict(name, line, wide) for name, line in lm.lines(wide).items()}
    assert (judged["L2"], judged["L3"], judged["L4"]) == ("not shown", "not tested", "not shown")


def test_the_page_of_the_pre_trained_study_says_what_its_results_do() -> None:
    runs = [json.loads(line) for line in lm.RESULTS.read_text(encoding="utf-8").splitlines()]
    told = lm.BEGIN + "\n".join(lm.page(runs)) + "\n"
    assert lm.PAGE.read_text(encoding="utf-8").endswith(told)
    assert lm.sentence(runs) in lm.README.read_text(encoding="utf-8")


def test_the_runs_of_the_study_that_are_shipped_are_those_of_the_results(tmp_path: Path) -> None:
    """Played anew, they came to the same memory as the runs that the tables are made from."""
    results = {result["run"]: result for result in read()}
    bundles = sorted((HERE / "bundles").glob("*.db.xz"))
    assert len(bundles) == 2
    for file in bundles:
        plain = tmp_path / file.stem
        plain.write_bytes(lzma.decompress(file.read_bytes()))
        run = plain.stem
        check_bundle(plain)
        with closing(sqlite3.connect(plain)) as bundle:
            last = "SELECT payload ->> '$.state_hash' FROM event WHERE type = 'RoundCommitted'"
            last += " ORDER BY sequence DESC"
            assert bundle.execute(last).fetchone() == (results[run]["state_hash"],)
            [stored] = bundle.execute("SELECT payload FROM event WHERE type = 'RunConfigured'").fetchone()
        assert of_run(in_todays_names(json.loads(stored)["config"]), run), (
            "an older version's, and a fork can still be planned"
        )


def test_an_exact_test_counts_the_signs_that_come_as_far() -> None:
    # Sums of ±1 ±2 ±4: 7, 5, 3, 1 and their opposites; as far as 5 are 7, 5, -5 and -7.
    assert sign_flip([-1, 2, 4]) == 4 / 8
    assert sign_flip([1, 2, 4]) == 2 / 8
    assert sign_flip([0.1] * 5) == 2 / 32
    assert sign_flip([0.3]) is None
    assert sign_flip([1, -1]) == 1.0
    for seed in range(20):
        pairs = [round(Random(f"{seed} {n}").gauss(0.02, 0.03), 3) for n in range(11)]
        signed = (map(float.__mul__, pairs, signs) for signs in product((1.0, -1.0), repeat=11))
        sums = [abs(sum(each)) for each in signed]
        assert sign_flip(pairs) == sum(each >= abs(sum(pairs)) - 1e-12 for each in sums) / 2**11
    assert sign_flip([0.1] * 40) == 2 / 2**40


def test_nothing_is_shown_on_three_seeds() -> None:
    line = VariantDifference("free-only", 3, 0.8, -0.05, -0.06, -0.04, -15.0, 0.001, 0.001)
    assert verdict(line, "below", 3) == "open: below, by 0.040 to 0.060 on 3 seeds"


def test_power_is_the_share_of_simulated_studies_that_show_it() -> None:
    """20,000 studies of ten pairs, by the t interval: 1.5 standard errors of a share are .005."""
    rng, pairs, deviation = np.random.default_rng(5), 10, 0.032
    drawn = rng.normal(0.0, deviation, (20_000, pairs))
    half = 2.2622 * drawn.std(axis=1, ddof=1) / pairs**0.5
    inside = (np.abs(drawn.mean(axis=1)) + half <= 0.02).mean()
    assert power_of_equivalence(deviation, pairs, 0.02) == pytest.approx(inside, abs=0.01)
    found = (drawn.mean(axis=1) + 0.03 - half > 0).mean()
    assert power_of_gain(deviation, pairs, 0.03) == pytest.approx(found, abs=0.01)


def test_an_interval_carries_a_verdict_only_where_it_excludes_0_or_lies_within_a_margin() -> None:
    assert [finding(0.001, 0.1), finding(-0.1, -0.001)] == ["gains", "loses"]
    assert finding(-0.01, 0.019) == "no difference shown"
    assert finding(-0.01, 0.019, 0.02) == "equivalent within ±0.02"
    assert finding(-0.01, 0.021, 0.02) == "no difference shown"


def test_a_gain_is_held_against_the_base_sampled_colder() -> None:
    runs = [_run("full", seed, score) for seed, score in enumerate((0.84, 0.86), 3)]
    for run in runs:
        run["scores"]["0"]["mean_at_k_T0.5"] = 0.85
    line = against_base(runs)["full"]
    assert line.difference == pytest.approx(0.0)
    assert line.seeds == 2


def test_the_line_of_volume_takes_away_what_practice_alone_gives() -> None:
    # 0.5 + 0.05 log2(kept): a doubling is worth 0.05, whatever the arm.
    kept = {"free-only": 128, "k-0.2": 256, "tau-1.2": 512, "placebo": 256, "full": 512}
    runs = []
    for arm, number in kept.items():
        for seed in range(3, 8):
            score = 0.5 + 0.05 * (number.bit_length() - 1) + (0.01 if arm == "full" else 0)
            runs.append({**_run(arm, seed, score), "kept": number})
    arms, _, explained, predicted = volume(runs)
    assert (arms, explained, predicted) == (3, pytest.approx(1.0), pytest.approx(-0.05))
    assert at_equal_practice(runs, "placebo", "full") == pytest.approx(-0.01)


def test_the_page_says_what_the_rewards_of_its_runs_are_by_completion() -> None:
    """A reward is 1 or −1, and every −1 was observed as a failure."""
    said = (HERE.parent / "docs/reference/study.md").read_text(encoding="utf-8").replace("\n", " ")
    for name in ("full", "free-only"):
        content = lzma.decompress((HERE / f"bundles/study.{name}.s3.db.xz").read_bytes())
        failures, completions, recorded = Counter[int](), dict[int, int](), dict[int, float]()
        with closing(sqlite3.connect(":memory:")) as database:
            database.deserialize(content)
            for round_, type_, payload in database.execute("SELECT round, type, payload FROM event"):
                match type_, json.loads(payload):
                    case "FailureObserved", {"stage": "solver"}:
                        failures[round_] += 1
                    case "PhaseMeasured", {"stage": "solver", "completions": int(count)}:
                        completions[round_] = count
                    case "StageCompleted", {"stage": "solver", "reward": float(reward)}:
                        recorded[round_] = reward
                    case _:
                        pass
        told = [[1 - 2 * failures[n] / completions[n] for n in recorded], list(recorded.values())]
        right, before = (
            "{}, {}, {}, {} and {}".format(*(f"{value:.3f}"[1:] for value in values)) for values in told
        )
        assert f"{right} for {before}" in said, name
