"""The results on the study's page, its figure, and a few lines of it in the README."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import correlation, mean
from typing import Any

from diagevo.evaluation.ablation import VariantDifference, compare
from studies.comparison import (
    APART,
    BASE_COLD,
    CLAIMS,
    SCORE,
    against_base,
    against_full,
    against_paper,
    at_equal_practice,
    carries,
    exact,
    interval,
    practised,
    report_line,
    scores,
    verdict,
    volume,
)
from studies.results import COURSES, PLANNED, arm_of, plan_of

ROOT = Path(__file__).parents[1]
PAGE, PICTURE = ROOT / "docs" / "reference" / "study.md", ROOT / "docs" / "pictures" / "study.svg"
README = ROOT / "README.md"
BEGIN = "## Results\n"
MARKS = "<!-- study -->\n", "<!-- end of study -->\n"
ARMS_IN_WORDS = {
    "free-only": "Free exploration alone",
    "free-800": "Free exploration with 2.5 times the candidates",
    "placebo": "The full method with causes drawn at random",
    "no-filter": "The full method without its filter",
}
"""What the README tells, where it was played."""


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.3f}"


def _chance(p: float | None) -> str:
    return "–" if p is None else "< 0.0001" if p < 0.0001 else f"{p:.4f}"


def _figures(line: VariantDifference) -> str:
    bounds = "–" if line.low is None else f"{_signed(line.low)} to {_signed(line.high)}"
    effect = "–" if line.effect is None else f"{line.effect:+.1f}"
    p, holm = (_chance(p) for p in (line.p, line.p_holm))
    return f"{_signed(line.difference)} | {bounds} | {effect} | {line.seeds} | {p} | {holm}"


def claim_rows(runs: list[dict[str, Any]]) -> Iterator[str]:
    """The table by claim."""
    heads = "variant | metric | expected | paper | here | difference | t 95% interval | d | seeds | p | Holm"
    yield f"| | {heads} | exact | command |"
    yield "|---" * 14 + "|"
    for name, variant, metric, expected, paper in CLAIMS:
        line = against_full(runs, metric)[variant]
        said = verdict(line, expected, 5 if plan_of(variant) == "study" else 3)
        told = f"{name} | `{variant}` | {metric} | {expected} | {paper} | **{said}** | {_figures(line)}"
        told += f" | {_chance(exact(runs, variant, metric))}"
        yield f"| {told} | `{_command(variant, metric)}` |"


def _command(variant: str, metric: str) -> str:
    if metric == APART:
        return "python -m studies --again"
    return f"diagevo ablate compare {plan_of(variant)}" + ("" if metric == SCORE else f" --metric {metric}")


def arm_rows(runs: list[dict[str, Any]]) -> Iterator[str]:
    """The means of each arm's runs that were played to the end."""
    metrics = (SCORE, f"{SCORE}/head", f"{SCORE}/middle", f"{SCORE}/tail", "greedy")
    yield "| arm | runs | kept | mean@8 | head | middle | tail | greedy |"
    yield "|---|---|---|---|---|---|---|---|"
    by_metric = {metric: scores(runs, metric) for metric in metrics}
    yield from _base_rows(runs)
    for name, of_seed in by_metric[SCORE].items():
        kept = [r["kept"] for r in runs if r["rounds"] == r["of"] and arm_of(r) == name]
        means = [_mean(by_metric[metric].get(name, {})) for metric in metrics]
        yield f"| `{name}` | {len(of_seed)} | {mean(kept):.0f} | {' | '.join(means)} |"


def _base_rows(runs: list[dict[str, Any]]) -> Iterator[str]:
    """The untouched models at every temperature of round 0: of the seeds of `full`, which all arms share."""
    for arm, name in (("full", "base"), ("full, other weights", "base, other weights")):
        before = [run["scores"]["0"] for run in runs if arm_of(run) == arm]
        for heat in ("", "_T0.77", "_T0.5"):
            parts = [f"{SCORE}{heat}{part}" for part in ("", "/head", "/middle", "/tail")]
            of = [scored for scored in before if {*parts, "greedy"} <= scored.keys()]
            if of:
                means = " | ".join(
                    f"{mean(scored[part] for scored in of):.3f}" for part in [*parts, "greedy"]
                )
                yield f"| `{name}`, T = {heat.removeprefix('_T') or '1'} | – | – | {means} |"


def _mean(of_seed: Mapping[int, float]) -> str:
    return f"{sum(of_seed.values()) / len(of_seed):.3f}" if of_seed else "–"


def page(runs: list[dict[str, Any]]) -> str:
    """The section of results."""
    ended = [run for run in runs if run["rounds"] == run["of"]]
    days = sorted({run["committed_at"][:10] for run in ended})
    when = f", played {' to '.join(dict.fromkeys((days[0], days[-1])))}" if days else ""
    more = len(runs) - len(ended)
    under_way = f"; {more} under way, which count nowhere" if more else ""
    lines = [
        BEGIN,
        f"{len(ended)} of the {PLANNED} runs of the three plans{when}{under_way}.",
        *sharpening(runs),
        "",
        "Each line says on how many seeds it rests, and holds for these 560 questions and these starting",
        "weights. This is the arithmetic world: its premise makes the effect of H1 possible. *exact*: the",
        "sign-flip test of the same differences, uncorrected; of five seeds it cannot be below .0625, of",
        "three not below .25.\n",
        *claim_rows(runs),
        "",
        "![Each arm minus the full method](../pictures/study.svg)\n",
        "Means after the last round of the runs that were played to the end; *kept*: questions practised in",
        "all rounds.\n",
        *arm_rows(runs),
        "",
        "Made by `python -m studies` from the runs, or with `--again` from `studies/results.jsonl`.",
        "That file has every run's scores by round and the head of its chain. It also has the hash of the",
        "memory after the last commit, which a run of the same seed must come to.",
        *against_the_method(runs),
    ]
    return "\n".join(lines) + "\n"


COLD = ("full", "placebo", "free-only", "full, ten rounds", "full, other weights")
"""The arms that are held against the base model at a lower temperature."""


def sharpening(runs: list[dict[str, Any]]) -> Iterator[str]:
    """What is left of the gains above the base model sampled colder, before anything else."""
    found, greedy = against_base(runs), against_base(runs, "greedy", "greedy")
    if any(arm not in found or found[arm].low is None for arm in COLD):
        return
    warm = against_base(runs, SCORE, SCORE)["full"]
    base, cold = (
        mean(r["scores"]["0"][metric] for r in runs if arm_of(r) == "full") for metric in (SCORE, BASE_COLD)
    )
    yield f"**The untouched model first.** It has mean@8 {base:.3f} at T = 1 and {cold:.3f} at T = 0.5."
    yield f"`full` at T = 1 against it at T = 1: {report_line(warm)}."
    yield f"`full` at T = 1 against it at T = 0.5: {report_line(found['full'])}."
    yield f"One greedy answer, which sharpening cannot improve, of both: {report_line(greedy['full'])}."
    yield "The trained models were measured at T = 1 and greedily alone: what they would have at T = 0.5 is"
    yield "not known. That is the edge of the grid, the lowest temperature that the untouched model was"
    yield "sampled at: a lower one may give it more.\n"
    yield "| arm at T = 1, after its last round | less the base at T = 0.5 | t 95% | seeds | carries |"
    yield "|---|---|---|---|---|"
    for arm in COLD:
        line = found[arm]
        yield (
            f"| `{arm}` | {_signed(line.difference)} | {_signed(line.low)} to {_signed(line.high)}"
            f" | {line.seeds} | {carries(line)} |"
        )


def against_the_method(runs: list[dict[str, Any]]) -> Iterator[str]:
    """What the paper would not lead one to expect, and what may explain it, as far as it was played."""
    found = against_full(runs, SCORE)
    controls = ("free-800", "placebo", "no-filter-4-steps", "promotion-3", "promotion-5")
    if any(found[arm].low is None for arm in controls):
        return
    against = against_paper(found)
    arms, agree = kept_and_scores(runs)
    yield "\n## What goes against the method\n"
    yield "The paper has each of these arms below the full method. Here their uncorrected 95% interval is"
    yield "above 0, or has 0 within it:\n"
    yield "| arm | here | t 95% interval |"
    yield "|---|---|---|"
    for which, lines in against.items():
        for line in lines:
            where = {"above": "above 0", "within": "0 within"}[which]
            yield f"| `{line.variant}` | {where} | {_signed(line.low)} to {_signed(line.high)} |"
    yield ""
    yield "What the paper does not compare, and what may explain some of these:\n"
    yield f"- `free-800` is {interval(found['free-800'])}. It was meant to take as much CPU time as"
    yield "  `full`, by a calibration on a prototype; the CPU time of these runs was not measured. The"
    yield "  lead of H1 is one per candidate. That it is one per second is not shown."
    arms_fit, slope, explained, predicted = volume(runs)
    yield f"- `placebo` is {interval(found['placebo'])}, before Holm's correction. With it p is"
    yield f"  {_chance(found['placebo'].p_holm)}. So it is not shown that what the causes say matters. Nor is"
    yield "  `placebo` a null: it draws from all kinds of mistake alike, which is a balanced curriculum. To"
    yield "  leave the head may be most of the effect of H1, and `placebo` leaves it too. Against `free-only`"
    yield f"  alone: {report_line(placebo_over_free(runs))}."
    yield f"- The score follows how much is practised. Over the means of {arms_fit} arms (all with"
    yield "  five rounds and seeds but `full`, `placebo` and `no-filter-4-steps`) mean@8 is"
    yield f"  a + {slope:.4f} ln(kept), with R² {explained:.3f}. The line predicts placebo less full"
    yield f"  as {predicted:+.4f}; it is {found['placebo'].difference:+.4f}."
    yield "  At an equal number of practised questions, by that line, as point estimates without intervals:"
    yield ""
    yield "| contrast | as played | at equal practice |"
    yield "|---|---|---|"
    for arm in ("free-only", "free-640", "free-800", "placebo", "no-filter", "absolute-only", "tau-1.2"):
        seen = found[arm].difference
        yield f"| `{arm}` less `full` | {_signed(seen)} | {_signed(at_equal_practice(runs, arm, 'full'))} |"
    yield ""
    yield "- The rules name the family of the failed question in each cause. So a cause nearly picks the"
    yield "  family that the challenger writes next. Causes in free words may steer less."
    yield f"- Over the {arms} arms of five rounds and five seeds, mean@8 goes with the number of questions"
    yield f"  kept: Spearman's correlation is {agree:.2f}. `no-filter-4-steps` is left out, as it practises"
    yield "  only a part of what it keeps. So an arm may gain here mostly because more of its questions"
    yield "  are worth practising."
    yield "- `no-filter` practises what the filter throws away, in a world whose labels are mostly true."
    yield "  With the steps that the filter leaves, `no-filter-4-steps` is"
    yield f"  {interval(found['no-filter-4-steps'])}."
    yield "- `targeted-only`. A guess: the causes of the first round cover all families of this small"
    yield "  world, so that nothing is left for free exploration to find."
    yield "- `no-state-updates`. That one to three questions promote a cause, by luck, need not explain it:"
    yield "  no gain of asking for three or five is shown."
    yield f"  `promotion-3` is {interval(found['promotion-3'])},"
    yield f"  and `promotion-5` {interval(found['promotion-5'])}."
    yield from long_run(runs)


def placebo_over_free(runs: list[dict[str, Any]]) -> VariantDifference:
    """mean@8 of placebo less that of free exploration alone."""
    return compare(scores(runs, SCORE), "free-only", ["placebo"])[0]


def long_run(runs: list[dict[str, Any]]) -> Iterator[str]:
    """What the arms of ten rounds show of ε, of free exploration and of the labels, and what may explain it;
    nothing where they were not played."""
    ended = [run for run in runs if "course" in run and run["rounds"] == run["of"]]
    full, free, loose = ([run["course"] for run in ended if arm_of(run) == arm] for arm in COURSES)
    if not (full and free and loose):
        return
    late = range(6, 11)
    grown = mean(c["10"]["F"] / c["1"]["F"] for c in full)
    share = [mean(c[n]["epsilon_next"] for c in full) for n in ("1", "10")]
    kept = [mean(sum(c[n]["kept"].values()) for c in full) for n in ("1", "10")]
    fails = [_ratio(full, rounds, "failures", "kept") for rounds in ([1], late, [10])]
    moved = [
        mean(c[str(n)][what] for c in full for n in range(2, 11)) for what in ("promoted", "reactivated")
    ]
    yield "- ε does not come back up: over ten rounds of `full` the next ε goes from"
    yield f"  {share[0]:.2f} to {share[1]:.2f}, and F to {grown:.1f} times F₁. What may explain it: F₁ is of"
    yield f"  {kept[0]:.0f} free questions, and {kept[1]:.0f} are kept in round 10, most of them aimed. The"
    yield f"  filter keeps middling questions. After round 5 these fail {_more(fails[1], fails[0])} than in"
    yield f"  round 1 ({fails[1]:.2f} failures a question for {fails[0]:.2f}), and have {fails[2]:.2f}"
    yield "  in round 10."
    yield f"  And {moved[0]:.0f} promotions a round stand against {moved[1]:.0f} reactivations."
    head = [_ratio(free, [n], "free_head", "free_valid") for n in (1, 10)]
    alone, aimed = ([_ratio(of, [n], "true", "kept") for n in (1, 10)] for of in (free, full))
    absolute = [_ratio(loose, [n], "true", "kept") for n in (1, 5)]
    yield "- Free exploration does not collapse: the score of `free-only` rises in each of ten rounds of"
    yield "  every run, where the paper's is best in round 3. The head's share of its valid questions goes"
    yield f"  from {head[0]:.2f} to {head[1]:.2f}: uncertainty is rewarded, and there is more in the tail."
    yield f"  The true share of the kept labels is {alone[0]:.2f} in round 1 and {alone[1]:.2f} in round 10."
    yield f"  `free-absolute` has {absolute[0]:.2f} and, in round 5, {absolute[1]:.2f}. The paper has"
    yield "  0.83 and 0.65, of other questions. A guess: what a grammar can write grows neither longer"
    yield "  nor harder, so that free questions stay within the solver's reach."
    asked = [[c[n]["asked"] for c in full] for n in ("3", "10")]
    mixed = [sum(a["stitched"] for a in of) / sum(sum(a.values()) for a in of) for of in asked]
    by_mode = [_ratio(full, late, "true", "kept", mode) for mode in ("stitched", "targeted")]
    yield f"- The labels of `full` do decay: {aimed[0]:.2f} of those kept are true in round 1, and"
    yield f"  {aimed[1]:.2f} in round 10. What may explain it: stitched are {mixed[0]:.2f} of the"
    yield f"  candidates in round 3 and {mixed[1]:.2f} in round 10, as more nodes have a Mastered cause."
    yield f"  Either part of such a question can be wrong: after round 5 {by_mode[0]:.2f} of its kept"
    yield f"  labels are true, against {by_mode[1]:.2f} where one cause is aimed at. The score rises all the"
    yield "  same."


def _more(now: float, before: float) -> str:
    """ "12% more", "3% less"."""
    return f"{abs(now / before - 1):.0%} {'more' if now > before else 'less'}"


def _ratio(
    courses: list[dict[str, Any]], rounds: Iterable[int], part: str, of: str, mode: str | None = None
) -> float:
    """Of these rounds of all the runs together; of one mode, if one is named."""

    def total(count: int | dict[str, int]) -> int:
        if isinstance(count, int):
            return count
        return sum(count.values()) if mode is None else count.get(mode, 0)

    lines = [course[str(n)] for course in courses for n in rounds]
    return sum(total(line[part]) for line in lines) / sum(total(line[of]) for line in lines)


def kept_and_scores(runs: list[dict[str, Any]]) -> tuple[int, float]:
    """How many arms of the study were played with all seeds, but for the one whose steps are fewer than its
    questions; and the rank correlation of their means of kept questions and of mean@8."""
    scored = scores(runs, SCORE)
    kept = practised(runs)
    arms = [arm for arm, of in kept.items() if len(of) == 5 and arm != "no-filter-4-steps"]
    ranked = [
        _ranks([mean(of[arm]) for arm in arms]) for of in (kept, {a: [*scored[a].values()] for a in arms})
    ]
    return len(arms), correlation(*ranked)


def _ranks(values: Sequence[float]) -> list[float]:
    """From 1; equal values share the mean of theirs."""
    return [sum(v < own for v in values) + (1 + sum(v == own for v in values)) / 2 for own in values]


def sentences(runs: list[dict[str, Any]]) -> str:
    """What the README tells."""
    found = against_full(runs, SCORE)
    lines: list[str] = []
    cold, warm = against_base(runs).get("full"), against_base(runs, SCORE, SCORE).get("full")
    greedy = against_base(runs, "greedy", "greedy").get("full")
    if cold and warm and greedy and None not in (cold.low, warm.low, greedy.low):
        lines += [
            "Five rounds of the full method, with t intervals, on 560 questions:",
            "",
            f"- **Against the untouched model**, both at T = 1: mean@8 {report_line(warm)}.",
            f"- At T = 1 against the untouched model at T = 0.5: mean@8 {report_line(cold)}.",
            f"- One greedy answer of both: {report_line(greedy)}.",
            "",
        ]
    lines += ["Each arm against the full method, mean@8 of both at T = 1 after five rounds:", ""]
    for variant, name in ARMS_IN_WORDS.items():
        if found[variant].low is not None:
            lines.append(f"- {name}: {report_line(found[variant])}.")
    return "\n".join([*lines, "", "![Each arm minus the full method](docs/pictures/study.svg)"]) + "\n"


def with_sentences(readme: str, runs: list[dict[str, Any]]) -> str:
    """The README with what stands between its marks made anew."""
    before, _, rest = readme.partition(MARKS[0])
    return before + MARKS[0] + sentences(runs) + MARKS[1] + rest.partition(MARKS[1])[2]


def draw(runs: list[dict[str, Any]]) -> str:
    """Differences of mean@8 with their intervals, as SVG."""
    rows = [
        {
            "arm": f"{arm} ({line.seeds})",
            "difference": line.difference,
            "low": line.difference if line.low is None else line.low,
            "high": line.difference if line.high is None else line.high,
        }
        for arm, line in against_full(runs, SCORE).items()
        if line.difference is not None
    ]
    return forest(rows, "mean@8 after the last round, minus that of full (t 95%); in brackets: seeds")


def forest(rows: list[dict[str, Any]], title: str) -> str:
    """A line an arm, as SVG: `arm`, its `difference`, and the interval from `low` to `high`."""
    from diagevo.report.figure import altair, data, sized, themed
    from diagevo.report.files import svg

    alt = altair()
    order = [row["arm"] for row in sorted(rows, key=lambda row: row["difference"])]
    arms = alt.Y("arm:N", sort=order, title=None, axis=alt.Axis(labelLimit=260))
    base = alt.Chart(data(rows)).encode(y=arms)
    layers = [
        alt.Chart(data([{"zero": 0}])).mark_rule(strokeDash=[4, 3]).encode(x="zero:Q"),
        base.mark_rule().encode(x=alt.X("low:Q", title=title, axis=alt.Axis(tickCount=7)), x2="high:Q"),
        base.mark_point(filled=True, size=60, opacity=1).encode(x="difference:Q"),
    ]
    chart = sized(alt.layer(*layers), height=18 * len(rows) + 20).properties(
        padding={"left": 56, "top": 16, "right": 16, "bottom": 16}
    )  # fonts differ in width
    return svg(themed(chart))
