"""Writes the results of the study into its page: `python docs/study_results.py`, with DIAGEVO_HOME or
DIAGEVO_DB where its runs are.

First the runs become `reference/study-results.json`: each round's scores, the hash of the memory after its
last commit, the head of its chain. Runs of that file that this database does not have stay, so that the study
can be played in parts; a run that is played again must come to the same memory. From that file alone come the
tables and the figure, so that anybody can work them out again without the runs: `python
docs/study_results.py --again`. Three sentences of it stand in the README, between two marks.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from statistics import correlation, mean
from typing import TYPE_CHECKING, Any

from diagevo.evaluation.ablation import VARIANTS, Plan
from diagevo.evaluation.study import Compared, compare

if TYPE_CHECKING:
    from diagevo.memory.audit.history import History

HERE = Path(__file__).parent
PAGE, DATA = HERE / "reference" / "study.md", HERE / "reference" / "study-results.json"
PICTURE = HERE / "pictures" / "study.svg"
README = HERE.parent / "README.md"
MARKS = "<!-- study -->\n", "<!-- end of study -->\n"
BEGIN = "## Results\n"
SCORE, APART = "mean_at_k", "tail less head"
Claim = tuple[str, str, str, str, str]
H14 = ("r-zero", "no-stitching", "random-stitching", "absolute-only", "frozen-challenger")
H14 += ("fixed-7-3", "fixed-5-5", "fixed-3-7", "k-0.2", "k-1.0", "k-2.0", "tau-1.2", "tau-2.0")
SAID, NEW = "the same", "not measured"
CLAIMS: tuple[Claim, ...] = (
    ("H1", "free-only", SCORE, "below", SAID),
    ("H2", "free-only", APART, "below", NEW),
    ("H3", "free-640", SCORE, "not below", NEW),
    ("H4", "targeted-only", SCORE, "not below", "below"),
    ("H5", "no-filter", SCORE, "above", "below"),
    ("H5", "no-filter-4-steps", SCORE, "not above", NEW),
    ("H6", "no-state-updates", SCORE, "below", SAID),
    ("H7", "free-only", "greedy", "no difference", NEW),
    ("H8", "placebo", SCORE, "below", NEW),
    ("H9", "true-labels", SCORE, "above", NEW),
    ("H9", "true-labels", "greedy", "above", NEW),
    ("H10", "free-800", SCORE, "not below", NEW),
    *(("H11", name, SCORE, "no difference", NEW) for name in ("learnability", "bandit")),
    *(("H12", name, SCORE, "no difference", NEW) for name in ("promotion-3", "promotion-5")),
    ("H13", "free-only, ten rounds", SCORE, "below", NEW),
    ("H15", "free-only, other weights", SCORE, "below", NEW),
    ("H15", "free-only, other weights", "greedy", "below", NEW),
    *(("H14", name, SCORE, "below", SAID) for name in H14),
)
"""Hypothesis, variant, metric, what is expected of it against the full method, and what the paper says."""
FIRST = {
    "free-only": "Free exploration alone",
    "free-640": "Free exploration with twice the candidates",
    "no-filter": "The full method without its filter",
    "targeted-only": "Targeting without free exploration",
    "placebo": "The full method with causes drawn by lot",
}
"""What the README tells, the first three of them that were played."""
BESIDE = {"study-long": ", ten rounds", "study-weights": ", other weights"}
"""What the arms of the two smaller plans, of three seeds, are called beside those of the study."""
COURSES = ("full, ten rounds", "free-only, ten rounds", "free-absolute")
"""The arms whose rounds are told one by one."""
PLANNED = 5 * len(VARIANTS) + 12


def collect(plan: Plan, url: str) -> list[dict[str, Any]]:
    """Every run of a plan that has begun: its scores by round, and what a replay is known by."""
    from diagevo.evaluation.ablation import states
    from diagevo.memory.audit.history import open_history
    from diagevo.memory.audit.timeline.measured import measured
    from diagevo.memory.log.database import Database

    found: list[dict[str, Any]] = []
    database = Database(url)
    begun = [state for state in states(database, plan) if state.committed]
    database.close()
    for state in begun:
        history = open_history(url, state.planned.run)
        rounds = measured(history, candidates=False)
        last = history.commit(state.committed)
        kept = [line.verdicts["kept"] for _, line in sorted(measured(history, failures=False).items())]
        found.append(
            {
                "run": state.planned.run,
                "variant": state.planned.variant,
                "seed": state.planned.seed,
                "rounds": state.committed,
                "of": plan.rounds,
                "version": history.configuration().version,
                "state_hash": last.event.state_hash,
                "chain_head": last.recorded.hash,
                "committed_at": last.recorded.recorded_at,
                "kept": sum(kept),
                "scores": {str(n): dict(line.validation) for n, line in sorted(rounds.items())},
            }
        )
        if _arm(found[-1]) in COURSES:
            found[-1]["course"] = course(history)
        history.close()
    return found


def course(history: "History") -> dict[str, dict[str, Any]]:
    """What moved ε in each round, and what was asked: candidates, kept questions and true labels of those by
    mode, failures, promotions and reactivations, F and the next ε after the commit, and how many of the
    valid free questions are of the head."""
    from diagevo.arithmetic.families import GROUPS
    from diagevo.memory.audit.history import expect
    from diagevo.memory.audit.timeline.measured import measured
    from diagevo.memory.events import CandidateScored, CausePromoted, CauseReactivated
    from diagevo.view.scores import free_questions

    free, rounds = free_questions(history), measured(history)
    promoted = Counter(recorded.round for recorded in history.events(CausePromoted))
    reactivated = Counter(recorded.round for recorded in history.events(CauseReactivated))
    asked: dict[tuple[int, str], list[CandidateScored]] = {}
    for recorded in history.events(CandidateScored):
        scored = expect(recorded, CandidateScored)
        asked.setdefault((recorded.round, scored.mode), []).append(scored)
    found: dict[str, dict[str, Any]] = {}
    for commit in history.commits:
        families = free.get(commit.round, Counter[str]())
        modes = {mode: of for (round, mode), of in sorted(asked.items()) if round == commit.round}
        kept = {mode: [each for each in of if each.verdict == "kept"] for mode, of in modes.items()}
        found[str(commit.round)] = {
            "asked": {mode: len(of) for mode, of in modes.items()},
            "kept": {mode: len(of) for mode, of in kept.items()},
            "true": {mode: sum(each.label_true is True for each in of) for mode, of in kept.items()},
            "failures": rounds[commit.round].failures,
            "promoted": promoted[commit.round],
            "reactivated": reactivated[commit.round],
            "F": commit.event.failures,
            "epsilon_next": float(Fraction(commit.event.epsilon_next)),
            "free_valid": families.total(),
            "free_head": sum(families[name] for name in GROUPS["head"]),
        }
    return found


def joined(
    before: list[dict[str, Any]], now: list[dict[str, Any]], planned: Sequence[str]
) -> list[dict[str, Any]]:
    """The runs of both, in the plans' order; of one in both the one that is further. Raises ValueError where
    a run that was played again has come to another memory."""
    found = {run["run"]: run for run in before}
    for run in now:
        other = found.get(run["run"])
        if other is None or run["rounds"] > other["rounds"]:
            found[run["run"]] = run
        elif run["rounds"] == other["rounds"] and run["state_hash"] != other["state_hash"]:
            raise ValueError(f"{run['run']} was played again and has come to another memory than before")
    return [found[name] for name in planned if name in found]


def scores(runs: list[dict[str, Any]], metric: str) -> dict[str, dict[int, float]]:
    """After the last round, by variant and seed; a run that is under way has none."""
    found: dict[str, dict[int, float]] = {}
    for run in runs:
        last = run["scores"].get(str(run["of"]), {})
        if metric == APART and f"{SCORE}/tail" in last:
            value = last[f"{SCORE}/tail"] - last[f"{SCORE}/head"]
        elif metric in last:
            value = last[metric]
        else:
            continue
        found.setdefault(_arm(run), {})[run["seed"]] = value
    return found


def against_full(runs: list[dict[str, Any]], metric: str) -> dict[str, Compared]:
    """Every variant of the three plans, played or not; Holm counts those of each plan."""
    by_name = scores(runs, metric)
    smaller = tuple(BESIDE.values())
    main = {name: of for name, of in by_name.items() if not name.endswith(smaller)}
    found = {line.variant: line for line in compare(main, "full", [v.name for v in VARIANTS])}
    for suffix in smaller:
        arms = {name.removesuffix(suffix): of for name, of in by_name.items() if name.endswith(suffix)}
        found |= {line.variant + suffix: line for line in compare(arms, "full", ["full", "free-only"])}
    return found


def verdict(line: Compared, expected: str, planned: int) -> str:
    """By the rule of the page. Of fewer seeds than were planned it says so."""
    if line.difference is None:
        return "not played"
    if line.p_holm is None:
        return f"open: {line.seeds} of {planned} seeds"
    clear = line.p_holm < 0.05
    up = line.difference > 0
    if expected in ("below", "above"):
        said = "not shown" if not clear else "shown" if up == (expected == "above") else "opposite"
    elif expected == "no difference":
        said = "contradicted" if clear else "not contradicted"
    else:
        said = "contradicted" if clear and up == (expected == "not above") else "not contradicted"
    return said if line.seeds == planned else f"{said}, on {line.seeds} of {planned} seeds"


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.3f}"


def _chance(p: float | None) -> str:
    return "–" if p is None else "< 0.0001" if p < 0.0001 else f"{p:.4f}"


def _figures(line: Compared) -> str:
    bounds = "–" if line.low is None else f"{_signed(line.low)} to {_signed(line.high)}"
    effect = "–" if line.effect is None else f"{line.effect:+.1f}"
    p, holm = (_chance(p) for p in (line.p, line.p_holm))
    return f"{_signed(line.difference)} | {bounds} | {effect} | {line.seeds} | {p} | {holm}"


def claim_rows(runs: list[dict[str, Any]]) -> Iterator[str]:
    """The table by claim."""
    heads = "variant | metric | expected | paper | here | difference | 95% interval | d | seeds | p | Holm"
    yield f"| | {heads} | command |"
    yield "|---" * 13 + "|"
    for name, variant, metric, expected, paper in CLAIMS:
        line = against_full(runs, metric)[variant]
        said = verdict(line, expected, 5 if _plan(variant) == "study" else 3)
        told = f"{name} | `{variant}` | {metric} | {expected} | {paper} | **{said}** | {_figures(line)}"
        yield f"| {told} | `{_command(variant, metric)}` |"


def _command(variant: str, metric: str) -> str:
    if metric == APART:
        return "python docs/study_results.py --again"
    return f"diagevo ablate compare {_plan(variant)}" + ("" if metric == SCORE else f" --metric {metric}")


def arm_rows(runs: list[dict[str, Any]]) -> Iterator[str]:
    """The means of each arm's runs that were played to the end."""
    metrics = (SCORE, f"{SCORE}/head", f"{SCORE}/middle", f"{SCORE}/tail", "greedy")
    yield "| arm | runs | kept | mean@8 | head | middle | tail | greedy |"
    yield "|---|---|---|---|---|---|---|---|"
    by_metric = {metric: scores(runs, metric) for metric in metrics}
    for name, of_seed in by_metric[SCORE].items():
        kept = [r["kept"] for r in runs if r["rounds"] == r["of"] and _arm(r) == name]
        means = [_mean(by_metric[metric].get(name, {})) for metric in metrics]
        yield f"| `{name}` | {len(of_seed)} | {sum(kept) // len(kept)} | {' | '.join(means)} |"


def _plan(arm: str) -> str:
    return next((plan for plan, suffix in BESIDE.items() if arm.endswith(suffix)), "study")


def _arm(run: Mapping[str, Any]) -> str:
    plan, _, _ = run["run"].partition(".")
    return run["variant"] + BESIDE.get(plan, "")


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
        "Each line says on how many seeds it rests. This is the arithmetic world: its premise makes",
        "the effect of H1 possible.\n",
        *claim_rows(runs),
        "",
        "![Each arm less the full method](../pictures/study.svg)\n",
        "Means after the last round of the runs that were played to the end; *kept*: questions practised in",
        "all rounds.\n",
        *arm_rows(runs),
        "",
        "Made by `python docs/study_results.py` from the runs, or with `--again` from",
        "`docs/reference/study-results.json`: every run's scores by round, the hash of its memory after the",
        "last commit, which a run of the same seed must come to, and the head of its chain.",
        *against_the_method(runs),
    ]
    return "\n".join(lines) + "\n"


def against_the_method(runs: list[dict[str, Any]]) -> Iterator[str]:
    """What the paper would not lead one to expect, and what may explain it, as far as it was played."""
    found = against_full(runs, SCORE)
    told = (
        "free-800",
        "targeted-only",
        "no-state-updates",
        "no-filter",
        "tau-1.2",
        "promotion-3",
        "promotion-5",
    )
    if any(found[arm].low is None for arm in told):
        return

    def apart(arm: str) -> str:
        return (
            f"{_signed(found[arm].difference)}, 95%: {_signed(found[arm].low)} to {_signed(found[arm].high)}"
        )

    arms, agree = kept_and_scores(runs)
    yield "\n## What goes against the method\n"
    yield f"- `free-800`, as much CPU time as `full`, is level ({apart('free-800')}). The lead of"
    yield "  H1 is one per candidate, not per second."
    yield f"- Over the {arms} arms of five rounds and five seeds, mean@8 goes with the number of questions"
    yield f"  kept: Spearman's correlation is {agree:.2f}. `no-filter-4-steps` is left out, as it practises"
    yield "  only a part of what it keeps. So most of what an arm gains here can be that more of its"
    yield "  questions are worth practising."
    yield f"- `no-filter` is above ({apart('no-filter')}): in a world whose labels are mostly"
    yield "  true, what the filter throws away is practice. With the steps that the filter leaves it is"
    yield f"  not above ({apart('no-filter-4-steps')}; p {_chance(found['no-filter-4-steps'].p)}, by Holm"
    yield f"  {_chance(found['no-filter-4-steps'].p_holm)}): where steps are scarce it loses, before"
    yield "  the correction."
    yield f"- `tau-1.2`, which asks less of a majority, is above too ({apart('tau-1.2')}); the paper has it"
    yield "  below."
    yield f"- `targeted-only` is not below ({apart('targeted-only')}). A guess: the causes of the"
    yield "  first round cover all families of this small world, so that nothing is left for free"
    yield "  exploration to find."
    yield f"- `no-state-updates` is not below ({apart('no-state-updates')}). That one to three"
    yield "  questions promote a cause, by luck, does not explain it: to ask for three or five gains nothing"
    yield f"  (`promotion-3` {apart('promotion-3')}; `promotion-5` {apart('promotion-5')})."
    yield from long_run(runs)


def long_run(runs: list[dict[str, Any]]) -> Iterator[str]:
    """What the arms of ten rounds show of ε, of free exploration and of the labels, and what may explain it;
    nothing where they were not played."""
    ended = [run for run in runs if "course" in run and run["rounds"] == run["of"]]
    full, free, loose = ([run["course"] for run in ended if _arm(run) == arm] for arm in COURSES)
    if not (full and free and loose):
        return
    late = range(6, 11)
    grown = mean(c["10"]["F"] / c["1"]["F"] for c in full)
    share = [mean(c[n]["epsilon_next"] for c in full) for n in ("1", "10")]
    kept = [mean(sum(c[n]["kept"].values()) for c in full) for n in ("1", "10")]
    fails = [_ratio(full, rounds, "failures", "kept") for rounds in ([1], late)]
    moved = [
        mean(c[str(n)][what] for c in full for n in range(2, 11)) for what in ("promoted", "reactivated")
    ]
    yield "- ε does not come back up: over ten rounds of `full` the next ε goes from"
    yield f"  {share[0]:.2f} to {share[1]:.2f}, and F to {grown:.1f} times F₁. What may explain it: F₁ is of"
    yield f"  {kept[0]:.0f} free questions, and {kept[1]:.0f} are kept in round 10, most of them aimed; the"
    yield "  filter keeps middling questions, which fail as often after round 5"
    yield f"  ({fails[1]:.1f} failures a question) as in round 1 ({fails[0]:.1f}), whatever was learnt in"
    yield f"  between; and {moved[0]:.0f} promotions a round stand against {moved[1]:.0f} reactivations."
    head = [_ratio(free, [n], "free_head", "free_valid") for n in (1, 10)]
    alone, aimed = ([_ratio(of, [n], "true", "kept") for n in (1, 10)] for of in (free, full))
    absolute = [_ratio(loose, [n], "true", "kept") for n in (1, 5)]
    yield "- Free exploration does not collapse: `free-only` gains in each of ten rounds, where the"
    yield "  paper's is best in round 3. The head's share of its valid questions goes from"
    yield f"  {head[0]:.2f} to {head[1]:.2f}: uncertainty is rewarded, and there is more in the tail."
    yield f"  The true share of the kept labels is {alone[0]:.2f} in round 1 and {alone[1]:.2f} in round 10;"
    yield f"  of `free-absolute` {absolute[0]:.2f} and, in round 5, {absolute[1]:.2f}, where the paper has"
    yield "  0.83 and 0.65, of other questions. A guess: what a grammar can write grows neither longer"
    yield "  nor harder, so that free questions stay within the solver's reach."
    asked = [[c[n]["asked"] for c in full] for n in ("3", "10")]
    mixed = [sum(a["stitched"] for a in of) / sum(sum(a.values()) for a in of) for of in asked]
    by_mode = [_ratio(full, late, "true", "kept", mode) for mode in ("stitched", "targeted")]
    yield f"- The labels of `full` do decay: {aimed[0]:.2f} of those kept are true in round 1, and"
    yield f"  {aimed[1]:.2f} in round 10. What may explain it: stitched are {mixed[0]:.2f} of the"
    yield f"  candidates in round 3 and {mixed[1]:.2f} in round 10, as more nodes have a Mastered cause."
    yield f"  Either part of such a question can be wrong: after round 5 {by_mode[0]:.2f} of its kept"
    yield f"  labels are true, against {by_mode[1]:.2f} where one cause is aimed at. mean@8 rises all the"
    yield "  same."


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
    kept: dict[str, list[int]] = {}
    for run in runs:
        if run["rounds"] == run["of"] and _plan(_arm(run)) == "study":
            kept.setdefault(_arm(run), []).append(run["kept"])
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
    expected = {variant: which for _, variant, metric, which, _ in CLAIMS if metric == SCORE}
    lines = ["What was seen there after five rounds, as mean@8 less that of the full method:", ""]
    for variant, name in FIRST.items():
        line = found[variant]
        if line.difference is None or line.low is None or len(lines) == 5:
            continue
        said = verdict(line, expected[variant], 5)
        bounds = f"95%: {_signed(line.low)} to {_signed(line.high)}"
        lines.append(
            f"- {name}: {_signed(line.difference)} ({bounds}; {line.seeds} seeds). Expected: "
            f"{expected[variant]}; {said}."
        )
    return "\n".join([*lines, "", "![Each arm less the full method](docs/pictures/study.svg)"]) + "\n"


def with_sentences(readme: str, runs: list[dict[str, Any]]) -> str:
    """The README with what stands between its marks made anew."""
    before, _, rest = readme.partition(MARKS[0])
    return before + MARKS[0] + sentences(runs) + MARKS[1] + rest.partition(MARKS[1])[2]


def draw(runs: list[dict[str, Any]]) -> str:
    """Differences of mean@8 with their intervals, as SVG."""
    from diagevo.report.figure import Figure, data, sized
    from diagevo.report.files import svg
    from diagevo.report.style import altair

    alt = altair()
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
    order = [row["arm"] for row in sorted(rows, key=lambda row: row["difference"])]
    arms = alt.Y("arm:N", sort=order, title=None, axis=alt.Axis(labelLimit=260))
    base = alt.Chart(data(rows)).encode(y=arms)
    title = "mean@8 after the last round, less that of full (95%); in brackets: seeds"
    layers = [
        alt.Chart(data([{"zero": 0}])).mark_rule(strokeDash=[4, 3]).encode(x="zero:Q"),
        base.mark_rule().encode(x=alt.X("low:Q", title=title, axis=alt.Axis(tickCount=7)), x2="high:Q"),
        base.mark_point(filled=True, size=60, opacity=1).encode(x="difference:Q"),
    ]
    chart = sized(alt.layer(*layers), height=18 * len(rows) + 20).properties(
        padding={"left": 56, "top": 16, "right": 16, "bottom": 16}
    )  # fonts differ in width
    return svg(Figure(chart, rows, ""))


def main() -> None:
    if "--again" not in sys.argv:
        from diagevo.evaluation.ablation import load_plan

        home = Path(os.environ.get("DIAGEVO_HOME", "runs"))
        url = os.environ.get("DIAGEVO_DB", f"sqlite:///{home / 'diagevo.db'}")
        plans = [load_plan(home, name) for name in ("study", *BESIDE) if _has(home, name)]
        played = [run for plan in plans for run in collect(plan, url)]
        runs = joined(json.loads(DATA.read_text(encoding="utf-8")), played, planned_runs())
        DATA.write_text(json.dumps(runs, indent=1) + "\n", encoding="utf-8")
    runs = json.loads(DATA.read_text(encoding="utf-8"))
    PICTURE.write_text(draw(runs), encoding="utf-8")
    before = PAGE.read_text(encoding="utf-8").partition(BEGIN)[0]
    PAGE.write_text(before + page(runs), encoding="utf-8")
    README.write_text(with_sentences(README.read_text(encoding="utf-8"), runs), encoding="utf-8")
    print(f"{len(runs)} runs: {PAGE}, {DATA}, {PICTURE}")


def planned_runs() -> list[str]:
    """The names of the runs of the three plans, as they were committed."""
    plans = (json.loads((DATA.parent / f"{name}.json").read_bytes()) for name in ("study", *BESIDE))
    return [run["run"] for plan in plans for run in plan["runs"]]


def _has(home: Path, name: str) -> bool:
    return (home / "ablations" / name / "plan.json").exists()


if __name__ == "__main__":
    main()
