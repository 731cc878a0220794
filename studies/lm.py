"""Writes the results of the study with a pre-trained policy into its page: `python -m studies.lm`, with
DIAGEVO_HOME where its runs are, or `--again` from `results-lm.jsonl` alone.

The hypotheses L1 to L4 are those of docs/reference/study-lm.md. One sentence of it stands in the README,
between two marks.
"""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from diagevo.evaluation.ablation import VariantDifference, compare
from studies.comparison import interval, report_line
from studies.narrow import NARROW
from studies.page import README, ROOT
from studies.results import HERE, collect, joined, read, write

PAGE, PICTURE = ROOT / "docs/reference/study-lm.md", ROOT / "docs/pictures/study-lm.svg"
RESULTS, PLAN = HERE / "results-lm.jsonl", HERE / "study-lm.json"
BEGIN, MARKS = "## Results\n", ("<!-- study-lm -->\n", "<!-- end of study-lm -->\n")
ARMS = ("full", "placebo", "free-only")
THERE, GREEDY = "mean_at_k", "greedy"
MARGIN, CPU_APART = 0.05, 0.05


def main() -> None:
    if "--again" not in sys.argv:
        from diagevo.evaluation.ablation import load_plan

        home = Path(os.environ.get("DIAGEVO_HOME", "runs"))
        url = f"sqlite:///{home / 'diagevo.db'}"
        plan = load_plan(home, "study-lm")
        found = [run | measured(url, run["run"]) for run in collect(plan, url)]
        write(joined(read(RESULTS), found, [run.run for run in plan.runs]), RESULTS)
    runs = read(RESULTS)
    PICTURE.write_text(draw(runs), encoding="utf-8")
    before = PAGE.read_text(encoding="utf-8").partition(BEGIN)[0]
    PAGE.write_text(before + BEGIN + "\n".join(page(runs)) + "\n", encoding="utf-8")
    before, _, rest = README.read_text(encoding="utf-8").partition(MARKS[0])
    README.write_text(
        before + MARKS[0] + sentence(runs) + MARKS[1] + rest.partition(MARKS[1])[2], encoding="utf-8"
    )
    print(f"{len(runs)} runs: {PAGE}, {RESULTS}, {PICTURE}")


def measured(url: str, run: str) -> dict[str, Any]:
    """CPU seconds by stage, and by round what was asked and kept of the two families, and the labels."""
    from diagevo.arithmetic.families import family
    from diagevo.memory.events import CandidateScored, StageCompleted
    from diagevo.memory.history import open_history

    history = open_history(url, run)
    cpu: dict[str, float] = {}
    for completed in history.events(StageCompleted):
        stage = completed.event
        cpu[stage.stage] = cpu.get(stage.stage, 0.0) + stage.parts.get("cpu", 0.0)
    rounds: dict[str, Counter[str]] = {}
    for fact in history.events(CandidateScored):
        scored = fact.event
        of = rounds.setdefault(str(fact.round), Counter())
        text = None if scored.question is None else history.text(scored.question)
        there = text is not None and family(text) in NARROW
        kept = scored.verdict == "kept"
        of.update(
            {"asked": 1, "asked_there": there, "kept": kept, "kept_there": kept and there}
            | {"true": kept and scored.label_true is True}
        )
    history.close()
    return {"cpu": {stage: round(seconds, 1) for stage, seconds in cpu.items()}, "asked": rounds}


def ended(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [run for run in runs if run["rounds"] == run["of"]]


def scores(runs: list[dict[str, Any]], metric: str = THERE) -> dict[str, dict[int, float]]:
    """After the last round, by variant and seed; `start` before the first of `full`."""
    found: dict[str, dict[int, float]] = {}
    for run in ended(runs):
        found.setdefault(run["variant"], {})[run["seed"]] = run["scores"][str(run["of"])][metric]
        if run["variant"] == "full":
            found.setdefault("start", {})[run["seed"]] = run["scores"]["0"][metric]
    return found


def lines(runs: list[dict[str, Any]]) -> dict[str, VariantDifference]:
    """The differences that L1 to L4 are about."""
    found = scores(runs)
    pairs = {"L1": ("start", "full"), "L2": ("full", "placebo"), "L3": ("full", "free-only")}
    pairs["L4"] = ("free-only", "placebo")
    return {name: compare(found, base, [other])[0] for name, (base, other) in pairs.items()}


def verdict(name: str, line: VariantDifference, runs: list[dict[str, Any]]) -> str:
    """By the rules of the page."""
    if line.difference is None:
        return "not played"
    if line.p is None or line.low is None or line.high is None:
        return f"open: {line.seeds} seed"
    if name == "L3" and abs(cpu_apart(runs)) > CPU_APART:
        return "not tested"
    if name != "L4":
        clear = line.p < 0.05
        up = line.difference > 0
        return "not shown" if not clear else "shown" if up == (name == "L1") else "opposite"
    from scipy import stats

    freedom = line.seeds - 1
    half = (line.high - line.low) / 2 * stats.t.ppf(0.95, freedom) / stats.t.ppf(0.975, freedom)
    return "shown" if line.difference - half > -MARGIN else interval(line) if line.high < 0 else "not shown"


def cpu_apart(runs: list[dict[str, Any]]) -> float:
    """How much more a run of `free-only` costs than one of `full` with the same seed, in the mean."""
    spent = {(run["variant"], run["seed"]): sum(run["cpu"].values()) for run in ended(runs)}
    pairs = [
        (spent["free-only", seed], of)
        for (arm, seed), of in spent.items()
        if arm == "full" and ("free-only", seed) in spent
    ]
    return sum(free for free, _ in pairs) / sum(full for _, full in pairs) - 1


def _seconds(runs: list[dict[str, Any]], variant: str) -> float:
    """Of all stages of a run, in the mean over those that ended."""
    found = [sum(run["cpu"].values()) for run in ended(runs) if run["variant"] == variant]
    return sum(found) / len(found)


def page(runs: list[dict[str, Any]]) -> Iterator[str]:
    """The section of results."""
    done, planned = ended(runs), json.loads(PLAN.read_bytes())["runs"]
    missing = [run["run"] for run in planned if run["run"] not in {each["run"] for each in done}]
    yield f"{len(done)} of the {len(planned)} runs" + (
        f"; the time did not allow {', '.join(f'`{name}`' for name in missing)}.\n" if missing else ".\n"
    )
    yield "| | is | against | here | difference | t 95% interval | d | seeds | p |"
    yield "|---" * 9 + "|"
    bases = {"L1": "its start", "L2": "`full`", "L3": "`full`", "L4": "`free-only`"}
    for name, line in lines(runs).items():
        bounds = "–" if line.low is None else f"{line.low:+.3f} to {line.high:+.3f}"
        effect = "–" if line.effect is None else f"{line.effect:+.1f}"
        p = "–" if line.p is None else f"{line.p:.4f}"
        gap = "–" if line.difference is None else f"{line.difference:+.3f}"
        said = f"| {name} | `{line.variant}` | {bases[name]} | **{verdict(name, line, runs)}**"
        yield f"{said} | {gap} | {bounds} | {effect} | {line.seeds} | {p} |"
    yield "\nL2 and L3 are lines of `diagevo ablate compare study-lm`.\n"
    yield "![The two families by round](../pictures/study-lm.svg)\n"
    yield from arm_rows(done)
    yield "\nMeans of the runs that were played to the end: mean@2 after each round from 0, greedy before"
    yield "the first and after the last. *Asked there*, *kept there*: questions of the two families"
    yield "among all candidates and among those practised, in rounds 2 and 3. *True*: its labels."
    yield "*CPU*: seconds of all stages of a run; validation is none of them.\n"
    if {"full", "free-only"} <= {run["variant"] for run in done}:
        yield f"A run of `free-only` takes {cpu_apart(runs):+.1%} CPU time against `full` of the same seed.\n"
    yield from premise(done)
    yield "Made by `python -m studies.lm`, or with `--again` from `studies/results-lm.jsonl`."


def premise(done: list[dict[str, Any]]) -> Iterator[str]:
    """Whether true causes pointed to the two families, as the plan has it."""
    share = {
        arm: [run["asked"][n] for run in done if run["variant"] == arm for n in ("2", "3")] for arm in ARMS
    }
    there = {
        arm: sum(of["asked_there"] for of in rounds) / sum(of["asked"] for of in rounds)
        for arm, rounds in share.items()
        if rounds
    }
    if set(there) >= {"full", "placebo"} and there["full"] <= there["placebo"]:
        yield "**The premise did not hold.** True causes asked for the two families no more often than"
        yield f"random ones: {there['full']:.0%} of the candidates of `full` in rounds 2 and 3,"
        yield f"{there['placebo']:.0%} of `placebo`. So L2 and L3 were hardly tested.\n"


def arm_rows(done: list[dict[str, Any]]) -> Iterator[str]:
    yield "| arm | runs | mean@2 at T = 0.7 | greedy | asked there | kept there | true | CPU |"
    yield "|---" * 8 + "|"
    if done:
        base = " | ".join(f"{_mean(done, '0', metric):.3f}" for metric in (THERE, GREEDY))
        yield f"| `base` | – | {base} | – | – | – | – |"
    for arm in ARMS:
        of = [run for run in done if run["variant"] == arm]
        if not of:
            continue
        rounds = [str(n) for n in range(of[0]["of"] + 1)]
        there = " → ".join(f"{_mean(of, n, THERE):.3f}" for n in rounds)
        first, last = (_mean(of, n, GREEDY) for n in (rounds[0], rounds[-1]))
        total: Counter[str] = Counter()
        for run in of:
            for n in rounds[2:]:
                total.update(run["asked"][n])
        asked, kept = (f"{total[f'{what}_there']} of {total[what]}" for what in ("asked", "kept"))
        yield (
            f"| `{arm}` | {len(of)} | {there} | {first:.3f} → {last:.3f} | {asked} | {kept} | {total['true']}"
            f" | {_seconds(done, arm):.0f} |"
        )


def _mean(of: list[dict[str, Any]], number: str, metric: str) -> float:
    return sum(run["scores"][number][metric] for run in of) / len(of)


def sentence(runs: list[dict[str, Any]]) -> str:
    """What the README tells."""
    line = lines(runs)["L2"]
    if line.low is None:
        return "[A study with SmolLM2-135M](docs/reference/study-lm.md) is planned.\n"
    start = lines(runs)["L1"]
    seldom = "\nTrue causes seldom were of those families." if any(premise(ended(runs))) else ""
    return (
        "[With SmolLM2-135M](docs/reference/study-lm.md), mean@2 at T = 0.7 in the two families that its"
        " solver errs in:\n\n"
        f"- **Against the untouched model**, three rounds of the full method: {report_line(start)}.\n"
        f"- Causes drawn at random, against true ones: {report_line(line)}.\n\n"
        f"That what causes say matters is {verdict('L2', line, runs)}.{seldom}\n"
    )


def draw(runs: list[dict[str, Any]]) -> str:
    """Accuracy in the two families by round: each run thin, the means of the arms thick, as SVG."""
    from diagevo.report.figure import altair, data, sized, themed
    from diagevo.report.files import svg

    alt = altair()
    done = ended(runs)
    count = Counter(run["variant"] for run in done)
    named = {arm: f"{arm} ({count[arm]})" for arm in ARMS}
    rows = [
        {"arm": named[run["variant"]], "run": run["run"], "round": int(number), "score": of[THERE]}
        for run in done
        for number, of in run["scores"].items()
    ]
    means: dict[tuple[str, int], list[float]] = {}
    for row in rows:
        means.setdefault((row["arm"], row["round"]), []).append(row["score"])
    middle = [{"arm": arm, "round": n, "score": sum(of) / len(of)} for (arm, n), of in means.items()]
    base = {
        "x": alt.X("round:Q", title="round", axis=alt.Axis(tickMinStep=1, format="d")),
        "y": alt.Y("score:Q", title="mean@2 in the two families", scale=alt.Scale(domain=[0, 0.5])),
        "color": alt.Color(
            "arm:N", sort=list(named.values()), title="arm (runs)", legend=alt.Legend(symbolOpacity=1)
        ),
    }
    thin = alt.Chart(data(rows)).mark_line(strokeWidth=1, opacity=0.35).encode(**base, detail="run:N")
    thick = alt.Chart(data(middle)).mark_line(strokeWidth=3, point=True).encode(**base)
    return svg(themed(sized(alt.layer(thin, thick), height=260)))


if __name__ == "__main__":
    main()
