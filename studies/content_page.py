"""What the experiment on what causes say found: its page's results, its figure, and a sentence of the README,
from `results-content.jsonl` alone."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean, stdev
from typing import Any

from diagevo.text.numbers import count
from studies import capped
from studies.comparison import (
    BASE,
    Rows,
    base_of,
    exact_interval,
    exactly,
    finding,
    paired,
    power_of_equivalence,
    power_of_gain,
    row_of_contrast,
    sign_flip,
)
from studies.content import ARMS, CAP, HERE, PLAN, planned, results, untouched
from studies.page import README, forest

PAGE, BEGIN = HERE.parent / "docs" / "reference" / "study-content.md", "## Results\n"
PICTURE = HERE.parent / "docs" / "pictures" / "study-content.svg"
MARKS = "<!-- study-content -->\n", "<!-- end of study-content -->\n"


def write() -> None:
    """The page, the figure and the README made anew."""
    rows, base = results(), untouched()
    before = PAGE.read_text(encoding="utf-8").partition(BEGIN)[0]
    PAGE.write_text(before + page(rows, base), encoding="utf-8")
    PICTURE.write_text(draw(rows), encoding="utf-8")
    README.write_text(with_sentence(README.read_text(encoding="utf-8"), rows, base), encoding="utf-8")


def page(rows: Rows, base: Rows) -> str:
    """The section of results."""
    lines = [BEGIN, f"{len(rows)} of the {len(planned())} planned runs were played."]
    if not rows:
        return "\n".join(lines) + "\n"
    lines += [
        f"The first began {min(row['started'] for row in rows)}; together they took"
        f" {sum(row['cpu_seconds'] for row in rows) / 60:.0f} CPU minutes.",
        "",
        *_verdict(rows, base),
        "",
        "![Each arm minus full on the broken families](../pictures/study-content.svg)",
        "",
        "What the plan predicted, and what came; differences are of mean@8 at each model's best temperature,",
        "on the broken families where none are named:",
        "",
        "| predicted | came | verdict |",
        "|---|---|---|",
        *(f"| {' | '.join(line)} |" for line in _predictions(rows)),
        "",
        *_arm_rows(rows, base),
        "",
        "Shares of questions are pooled over rounds and runs; all else are means. A capped arm practises",
        f"{CAP} of what it keeps, or all. CPU s are those of a whole run, on a machine with other work.",
        f"The best temperature was {_temperatures(rows)}.",
        *_base_notes(base),
        "",
        "Each arm minus `full` (`uniform-capped` minus `full-capped`), paired by seed. The exact interval",
        "holds every shift that the two-sided sign-flip test does not reject at .05. Five pairs have none,",
        "as their least p is .0625. No p is corrected for the number of contrasts.",
        "",
    ]
    lines += ["| contrast | metric | difference | exact 95% | exact p | seeds |", "|---|---|---|---|---|---|"]
    for arm in ARMS:
        for metric in ("broken", "broken_greedy", "overall") if arm != "full" else ():
            if found := paired(rows, arm, _against(arm), metric):
                lines.append(row_of_contrast(f"`{arm}`", metric, found))
    return "\n".join(lines) + "\n"


def _arm_rows(rows: Rows, base: Rows) -> Iterator[str]:
    """The untouched model first, at every temperature that the arms were measured at."""
    heads = ["arm", "runs", "valid questions of the broken families", "kept a round", "practised"]
    heads += [f"broken, mean@8 at T = {heat}" for heat in ("1", _best(rows))]
    heads += ["greedy", "elsewhere", "overall", "CPU s"]
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    if base:
        yield f"| `{BASE}` | – | – | – | – | {_means(base)} | – |"
    for arm in ARMS:
        if of := [row for row in rows if row["arm"] == arm]:
            yield _arm_row(arm, of)


def _means(rows: Rows) -> str:
    names = ("broken_at_1", "broken", "broken_greedy", "elsewhere", "overall")
    return " | ".join(f"{fmean(row[name] for row in rows):.3f}" for name in names)


def _base_notes(base: Rows) -> Iterator[str]:
    """The untouched model at the temperatures that the arms lack, and what its weights are known by."""
    if not base:
        return
    heats = sorted({heat for row in base for heat in row["broken_by_temperature"]}, key=float, reverse=True)
    sampled = (f"{fmean(row['broken_by_temperature'][heat] for row in base):.3f} at {heat}" for heat in heats)
    yield f"`{BASE}` on the broken families by temperature: {', '.join(sampled)}."
    yield "Its weights were made anew by the commands above; their digests begin with"
    yield " and ".join(f"`{row['weights_sha256'][:16]}`" for row in base) + "."


def _temperatures(rows: Rows) -> str:
    counted = Counter(row["best_temperature"] for row in rows).most_common()
    return ", ".join(f"{temperature:g} in {count(number, 'run')}" for temperature, number in counted)


def _against(arm: str) -> str:
    return "full-capped" if arm == "uniform-capped" else "full"


def _arm_row(arm: str, rows: Rows) -> str:
    rounds = [counted for row in rows for counted in row["by_round"].values()]
    aimed = sum(c.get("broken", 0) for c in rounds) / sum(c["valid"] for c in rounds)
    number = [c.get("kept", 0) for c in rounds]
    kept, practised = fmean(number), fmean(min(n, CAP) if arm.endswith("-capped") else n for n in number)
    cpu = fmean(row["cpu_seconds"] for row in rows)
    counts = f"{len(rows)} | {aimed:.2f} | {kept:.0f} | {practised:.0f}"
    return f"| `{arm}` | {counts} | {_means(rows)} | {cpu:.0f} |"


def _both(rows: Rows, arm: str, against: str, margin: float | None = None) -> str:
    sampled, greedy = (paired(rows, arm, against, metric) for metric in ("broken", "broken_greedy"))
    return f"mean@8 {exactly(sampled, margin)}.\nGreedy: {exactly(greedy)}"


def findings(rows: Rows, base: Rows) -> Iterator[str]:
    """What the page and the README say of each contrast, the untouched model first and no causes second.
    Each says what its own interval carries, and no more."""
    margin = json.loads(PLAN.read_bytes())["margin"]
    heat, all_ = _best(rows), [*rows, *base]
    sampled = fmean(row["broken_by_temperature"][heat] for row in base)
    greedy = fmean(row["broken_greedy"] for row in base)
    crossed = [row["broken"] - base_of(base, row)["broken_greedy"] for row in rows if row["arm"] == "full"]
    yield (
        f"**The untouched model** has mean@8 {sampled:.3f} at T = {heat} and greedy accuracy {greedy:.3f}.\n"
        f"`full` against it: {_both(all_, 'full', BASE)}.\n"
        f"mean@8 of `full` against the greedy accuracy of the untouched model: {exactly(crossed)}."
    )
    yield f"**Against no causes** (`free`), `full`: {_both(rows, 'full', 'free')}."
    yield f"Against causes of families drawn at random (`uniform`), `full`: {_both(rows, 'full', 'uniform')}."
    yield (
        "The same, where both practise at most 24 questions a round (`full-capped`, `uniform-capped`):"
        f" {_both(rows, 'full-capped', 'uniform-capped', margin)}."
    )
    yield f"No causes (`free`), against those drawn at random: {_both(rows, 'free', 'uniform')}."
    yield f"Against another cause of the same memory (`shuffled`), `full`: {_both(rows, 'full', 'shuffled')}."
    yield f"Against the groups of `diagnose --local` (`local`), `full`: {_both(rows, 'full', 'local')}."


def _interval(rows: Rows, arm: str, against: str, metric: str = "broken") -> tuple[float, float]:
    """With too few pairs for any, one that excludes nothing."""
    return exact_interval(paired(rows, arm, against, metric)) or (-1.0, 1.0)


def _best(rows: Rows) -> str:
    """The temperature that was best in most runs."""
    [(heat, _)] = Counter(row["best_temperature"] for row in rows).most_common(1)
    return f"{heat:g}"


def _edge(rows: Rows) -> str:
    """Whether the best temperature may lie beyond the grid."""
    at_edge = sum(row["best_temperature"] == min(map(float, row["choosing"])) > 0 for row in rows)
    grid = ", ".join(rows[0]["choosing"])
    where = f"the lowest of the grid ({grid}) in {at_edge} of {count(len(rows), 'run')}"
    beyond = (
        ": it lies at the edge, and a lower one may score higher.\nSo a greedy answer stands beside mean@8."
    )
    return f"The best temperature is {where}{beyond if at_edge else '.'}"


def _verdict(rows: Rows, base: Rows) -> Iterator[str]:
    """By the rule of the plan, after each contrast; nothing before all its seeds are there."""
    plan = json.loads(PLAN.read_bytes())
    found = paired(rows, "full", "uniform", "broken")
    if min(len(found), len(paired(rows, "local", "full", "broken"))) < len(plan["seeds"]):
        yield f"The rule of the plan is for {len(plan['seeds'])} seeds of every arm; of `full` and `uniform`"
        yield f"as many were played: {len(found)}."
        return
    yield "On the broken families, at each model's best temperature (mean@8) and by one greedy answer:"
    yield ""
    for each in findings(rows, base):
        yield "- " + each.replace("\n", "\n  ")
    yield ""
    yield _edge(rows)
    by_heat = ", ".join(
        f"{fmean(paired(rows, 'full', 'uniform', metric)):+.3f} {where}"
        for metric, where in (
            ("broken_at_1", "at T = 1"),
            ("broken", f"at T = {_best(rows)}"),
            ("broken_greedy", "greedy"),
        )
    )
    yield f"`full` less `uniform` shrinks with it: {by_heat}."
    yield ""
    does = "does not matter" if fmean(found) < plan["matters"] else "matters"
    yield f"**By the plan's rule what causes say {does} here**: the bound was {plan['matters']:+.2f}."
    yield f"`full` against `uniform`, mean@8 at T = {_best(rows)}: {exactly(found)}."
    yield "That control is not neutral, as the list says."
    others = paired(rows, "shuffled", "uniform", "broken")
    yield f"`shuffled` against `uniform`: {exactly(others)}."
    share = fmean(others) / fmean(found)
    yield f"By these means, without an interval, another cause's words give {share:.0%}"
    yield f"of that difference. In the eleven families that were right, mean@8 at T = {_best(rows)}:"
    for against in ("free", "uniform"):
        found = paired(rows, "full", against, "elsewhere")
        yield f"`full` against `{against}` {exactly(found)} (p {sign_flip(found):.3f})."
    yield ""
    yield from _near_equal_practice(rows)
    yield ""
    yield from _power(rows)


def _near_equal_practice(rows: Rows) -> Iterator[str]:
    """What `local` says in favour of words: it practises nearly what `full` does."""
    (kept, shares) = (
        [fmean(of[name] for of in _counts(rows, arm)) for arm in ("local", "full")]
        for name in ("kept", "broken")
    )
    yield f"`local` keeps {kept[0]:.0f} questions a round and `full` {kept[1]:.0f}. Of the valid ones"
    yield f"{shares[0]:.2f} and {shares[1]:.2f} are of the broken families."
    yield f"So near equal practice `local` against `full`: {_both(rows, 'local', 'full')}."
    both = [_interval(rows, "local", "full", metric) for metric in ("broken", "broken_greedy")]
    p = sign_flip(paired(rows, "local", "full", "broken_greedy"))
    shows = all(finding(*each) == "loses" for each in both)
    yield f"The greedy p is {p:.3f}. " + ("There content shows." if shows else "Content does not show there.")


def _power(rows: Rows) -> Iterator[str]:
    """What the capped pair could have shown."""
    margin = json.loads(PLAN.read_bytes())["margin"]
    pairs = paired(rows, "full-capped", "uniform-capped", "broken")
    one, shares = stdev(pairs), list[float]()
    for arm in ("full-capped", "uniform-capped"):
        rounds = [counted for row in rows if row["arm"] == arm for counted in row["by_round"].values()]
        shares.append(sum(c.get("kept_broken", 0) for c in rounds) / sum(c.get("kept", 0) for c in rounds))
    now, more = (power_of_equivalence(one, n, margin) for n in (len(pairs), 40))
    gain = power_of_gain(one, len(pairs), 0.03)
    yield f"*Power*, worked out after the runs: the capped pairs deviate by {one:.3f}."
    yield f"With {len(pairs)} pairs equivalence within ±{margin:.2f} is shown at a true 0 in {now:.0%}"
    yield f"of such studies, with 40 in {more:.0%}."
    yield f"A true +0.03 is found with {len(pairs)} in {gain:.0%}. Nor could the cap change much:"
    yield f"of the kept questions {shares[0]:.0%} and {shares[1]:.0%} are of the broken families already."
    yield "[Thirty pairs more](study-capped.md) have a plan and a page of their own."


def _predictions(rows: Rows) -> Iterator[tuple[str, str, str]]:
    """Those of the plan whose arms were played, each with what came and a verdict."""
    plan = json.loads(PLAN.read_bytes())
    margin, matters = plan["margin"], plan["matters"]

    def difference(arm: str, against: str) -> Sequence[float]:
        return paired(rows, arm, against, "broken")

    def number(differences: Sequence[float], foretold: float) -> str:
        """A number is missed where the exact interval excludes it."""
        low, high = exact_interval(differences) or (-1.0, 1.0)
        return "not excluded" if low <= foretold <= high else "missed: the interval excludes it"

    if found := difference("full", "uniform"):
        aimed, kept = (
            fmean(of[name] for of in _counts(rows, "full"))
            / fmean(of[name] for of in _counts(rows, "uniform"))
            for name in ("broken", "kept")
        )
        for what, times in (
            ("aims three to four times as often at the broken families", aimed),
            ("keeps as many times more questions", kept),
        ):
            yield f"`full` {what}", f"{times:.1f} times", "kept" if 3 <= round(times, 1) <= 4 else "missed"
        foretold = plan["predicted"]
        yield f"`full` less `uniform`: {foretold:+.2f}", exactly(found), number(found, foretold)
        overall = paired(rows, "full", "uniform", "overall")
        yield "the same over all families: +0.02", exactly(overall), number(overall, 0.02)
    if found := difference("full-capped", "uniform-capped"):
        shown = finding(*_interval(rows, "full-capped", "uniform-capped"), margin).startswith("equivalent")
        verdict = "shown" if shown else "not shown"
        yield f"with equal practice equivalent within {margin:.2f}", exactly(found, margin), verdict
    if found := difference("shuffled", "full"):
        yield "`shuffled` is near `full`", exactly(found), "open: no margin was stated"
    if found := difference("wrong-100", "uniform"):
        yield (
            "`wrong-100` is near `uniform`",
            exactly(found),
            "open: no margin was stated, and too few pairs",
        )
        arms = ("full", "wrong-25", "wrong-50", "wrong-100")
        seeds = set.intersection(*({row["seed"] for row in rows if row["arm"] == arm} for arm in arms))
        means = [
            fmean(row["broken"] for row in rows if row["arm"] == arm and row["seed"] in seeds) for arm in arms
        ]
        falls = all(a > b for a, b in pairwise(means))
        steps = ", ".join(f"{mean:.3f}" for mean in means)
        yield (
            "the score falls from `full` over `wrong-25` and `wrong-50` to it",
            f"{steps} ({count(len(seeds), 'seed')})",
            "the means do, no step is tested: five pairs cannot reach .05" if falls else "missed",
        )
    if found := difference("local", "full"):
        low, high = _interval(rows, "local", "full")
        verdict = "shown" if -matters <= low and high <= matters else "not shown"
        verdict = "missed: the interval excludes it" if high < -matters or low > matters else verdict
        yield f"`local` is within {matters:.2f} of `full`", exactly(found), verdict
    if found := difference("local", "wrong-100"):
        p = sign_flip(found)
        shown = "shown" if p is not None and p <= 0.05 and fmean(found) > 0 else f"not shown: p {p:.2f}"
        yield "`local` is above `wrong-100`", exactly(found), shown


def _counts(rows: Rows, arm: str) -> list[Mapping[str, float]]:
    """Of each round of an arm: kept questions, and the share of broken families among the valid ones."""
    rounds = [counted for row in rows if row["arm"] == arm for counted in row["by_round"].values()]
    return [{"kept": c.get("kept", 0), "broken": c.get("broken", 0) / c["valid"]} for c in rounds]


def draw(rows: Rows) -> str:
    """Differences on the broken families with their exact intervals, as SVG."""
    lines: list[dict[str, Any]] = []
    for arm in ARMS:
        if arm != "full" and (found := paired(rows, arm, _against(arm), "broken")):
            middle = fmean(found)
            low, high = exact_interval(found) or (middle, middle)
            name = f"{arm} - {_against(arm)}" if arm.startswith("uniform-") else arm
            lines.append({"arm": f"{name} ({len(found)})", "difference": middle, "low": low, "high": high})
    return forest(lines, "mean@8 on the broken families, minus that of full (exact 95%); in brackets: seeds")


def sentence(rows: Rows, base: Rows) -> str:
    """What the README says of it: nothing before all seeds of the rule are there."""
    seeds = len(json.loads(PLAN.read_bytes())["seeds"])
    pairs = [paired(rows, "full", arm, "broken") for arm in ("free", "uniform", "shuffled", "local")]
    pairs.append(paired(rows, "full-capped", "uniform-capped", "broken"))
    if min(map(len, pairs)) < seeds or not base:
        return ""
    lines = [
        "[What causes say](docs/reference/study-content.md), in a world broken in three of its fourteen"
        " families.",
        "On these: mean@8 at each model's best temperature, and one greedy answer, with exact sign-flip"
        " intervals.",
        "",
        *("- " + each.replace("\n", "\n  ") for each in findings(rows, base)),
        "",
        _edge(rows),
        *capped.sentence(capped.results(), capped.first_ten()),
    ]
    return "\n".join(lines) + "\n"


def with_sentence(readme: str, rows: Rows, base: Rows) -> str:
    """The README with what stands between its marks made anew."""
    before, _, rest = readme.partition(MARKS[0])
    return before + MARKS[0] + sentence(rows, base) + MARKS[1] + rest.partition(MARKS[1])[2]


if __name__ == "__main__":
    write()
