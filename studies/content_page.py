"""What the experiment on what causes say found: its page's results, its figure, and a sentence of the README,
from `results-content.jsonl` alone."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

from diagevo.text.numbers import count
from studies.comparison import sign_flip
from studies.content import ARMS, CAP, HERE, PLAN, planned, results
from studies.page import README, forest

PAGE, BEGIN = HERE.parent / "docs" / "reference" / "study-content.md", "## Results\n"
PICTURE = HERE.parent / "docs" / "pictures" / "study-content.svg"
MARKS = "<!-- study-content -->\n", "<!-- end of study-content -->\n"


def write() -> None:
    """The page, the figure and the README made anew."""
    rows = results()
    PAGE.write_text(PAGE.read_text(encoding="utf-8").partition(BEGIN)[0] + page(rows), encoding="utf-8")
    PICTURE.write_text(draw(rows), encoding="utf-8")
    README.write_text(with_sentence(README.read_text(encoding="utf-8"), rows), encoding="utf-8")


def paired(rows: Sequence[Mapping[str, Any]], arm: str, against: str, metric: str) -> list[float]:
    """Differences by seed, of the seeds that both arms were played with."""
    of = {(row["arm"], row["seed"]): row[metric] for row in rows}
    return [
        of[arm, seed] - of[against, seed]
        for name, seed in sorted(of)
        if name == arm and (against, seed) in of
    ]


def exact_interval(differences: Sequence[float], level: float = 0.05) -> tuple[float, float] | None:
    """The shifts that the exact sign-flip test does not refuse at this level; None where it can refuse none:
    of n pairs its p is 2/2ⁿ at least."""
    if 2 / 2 ** len(differences) > level:
        return None
    centre, far = fmean(differences), max(map(abs, differences)) * 2 + 1e-9

    def bound(refused: float) -> float:
        kept = centre
        for _ in range(40):
            middle = (kept + refused) / 2
            p = sign_flip([each - middle for each in differences])
            kept, refused = (middle, refused) if p is not None and p > level else (kept, middle)
        return kept

    return bound(centre - far), bound(centre + far)


def page(rows: Sequence[Mapping[str, Any]]) -> str:
    """The section of results."""
    ended = Counter(row["arm"] for row in rows)
    lines = [BEGIN, f"{len(rows)} of the {len(planned())} planned runs were played."]
    if not rows:
        return "\n".join(lines) + "\n"
    lines += [
        f"The first began {min(row['started'] for row in rows)}; together they took"
        f" {sum(row['cpu_seconds'] for row in rows) / 60:.0f} CPU minutes.",
        "",
        *_verdict(rows),
        "",
        "![Each arm minus full on the broken families](../pictures/study-content.svg)",
        "",
        "What the plan predicted, and what came:",
        "",
        "| predicted | came |",
        "|---|---|",
        *(f"| {predicted} | {came} |" for predicted, came in _predictions(rows)),
        "",
        "| arm | runs | valid questions of the broken families | kept a round | practised | broken, mean@8 |"
        " greedy | elsewhere | overall | CPU s |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [_arm_row(arm, [row for row in rows if row["arm"] == arm]) for arm in ARMS if ended[arm]]
    lines += [
        "",
        "Shares of questions are pooled over rounds and runs; all else are means. A capped arm practises"
        f" {CAP} of what it keeps, or all. CPU s are those of a whole run, on a machine with other work.",
        f"The best temperature was {_temperatures(rows)}.",
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
                lines.append(_contrast(arm, metric, found))
    return "\n".join(lines) + "\n"


def _temperatures(rows: Sequence[Mapping[str, Any]]) -> str:
    counted = Counter(row["best_temperature"] for row in rows).most_common()
    return ", ".join(f"{temperature:g} in {count(number, 'run')}" for temperature, number in counted)


def _against(arm: str) -> str:
    return "full-capped" if arm == "uniform-capped" else "full"


def _arm_row(arm: str, rows: Sequence[Mapping[str, Any]]) -> str:
    rounds = [counted for row in rows for counted in row["by_round"].values()]
    aimed = sum(c.get("broken", 0) for c in rounds) / sum(c["valid"] for c in rounds)
    number = [c.get("kept", 0) for c in rounds]
    kept, practised = fmean(number), fmean(min(n, CAP) if arm.endswith("-capped") else n for n in number)
    means = (fmean(row[name] for row in rows) for name in ("broken", "broken_greedy", "elsewhere", "overall"))
    figures = " | ".join(f"{each:.3f}" for each in means)
    cpu = fmean(row["cpu_seconds"] for row in rows)
    return f"| `{arm}` | {len(rows)} | {aimed:.2f} | {kept:.0f} | {practised:.0f} | {figures} | {cpu:.0f} |"


def _contrast(arm: str, metric: str, differences: Sequence[float]) -> str:
    p, bounds = sign_flip(differences), exact_interval(differences)
    interval = "–" if bounds is None else f"{bounds[0]:+.3f} to {bounds[1]:+.3f}"
    shown = "–" if p is None else f"{p:.4f}"
    return f"| `{arm}` | {metric} | {fmean(differences):+.3f} | {interval} | {shown} | {len(differences)} |"


def _bounds(differences: Sequence[float]) -> str:
    """A mean difference with its exact interval, where there is one."""
    bounds, seeds = exact_interval(differences), count(len(differences), "seed")
    interval = "" if bounds is None else f"95%: {bounds[0]:+.3f} to {bounds[1]:+.3f}, "
    return f"{fmean(differences):+.3f} ({interval}{seeds})"


def _verdict(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """By the rule of the plan; nothing before all its seeds are there."""
    plan = json.loads(PLAN.read_bytes())
    found = paired(rows, "full", "uniform", "broken")
    if len(found) < len(plan["seeds"]):
        wanted = len(plan["seeds"])
        yield f"The rule of the plan is for {wanted} seeds of both arms; seeds played so far: {len(found)}."
        return
    does = "does not matter" if fmean(found) < plan["matters"] else "matters"
    yield f"**What causes say {does} here.** On the broken families `full` less `uniform` is"
    yield f"{_bounds(found)}; the plan's bound is {plan['matters']:+.2f}."
    for against, other, alike in (
        ("full-capped", "uniform-capped", "With equally many practised questions no difference is shown"),
        ("full", "shuffled", "Against the words of another cause of the same memory none is shown"),
    ):
        bounds = exact_interval(differences := paired(rows, against, other, "broken"))
        if bounds is not None and bounds[0] <= 0 <= bounds[1]:
            yield f"{alike}: {_bounds(differences)}."
    if (bounds := exact_interval(lost := paired(rows, "local", "full", "broken"))) and bounds[1] < 0:
        yield f"**Groups of `diagnose --local` lose it**: `local` less `full` is {_bounds(lost)},"
        yield f"and less `uniform` {_bounds(paired(rows, 'local', 'uniform', 'broken'))}."


def _predictions(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Those of the plan whose arms were played, each with what came."""
    plan = json.loads(PLAN.read_bytes())
    margin, matters = plan["margin"], plan["matters"]

    def difference(arm: str, against: str) -> Sequence[float]:
        return paired(rows, arm, against, "broken")

    if found := difference("full", "uniform"):
        aimed, kept = (
            fmean(of[name] for of in _counts(rows, "full"))
            / fmean(of[name] for of in _counts(rows, "uniform"))
            for name in ("broken", "kept")
        )
        yield "`full` aims three to four times as often at the broken families", f"{aimed:.1f} times"
        yield "and keeps as many times more questions", f"{kept:.1f} times"
        yield f"`full` less `uniform`: {plan['predicted']:+.2f}", _bounds(found)
        overall = paired(rows, "full", "uniform", "overall")
        yield "the same over all families: +0.02", _bounds(overall)
    if found := difference("full-capped", "uniform-capped"):
        bounds = exact_interval(found)
        inside = bounds is not None and -margin <= bounds[0] and bounds[1] <= margin
        shown = "equivalent" if inside else "equivalence not shown"
        yield f"with equal practice equivalent within {margin:.2f}", f"{_bounds(found)}: {shown}"
    if found := difference("shuffled", "full"):
        yield "`shuffled` is near `full`", _bounds(found)
    if found := difference("wrong-100", "uniform"):
        yield "`wrong-100` is near `uniform`", _bounds(found)
        arms = ("full", "wrong-25", "wrong-50", "wrong-100")
        seeds = set.intersection(*({row["seed"] for row in rows if row["arm"] == arm} for arm in arms))
        means = [
            fmean(row["broken"] for row in rows if row["arm"] == arm and row["seed"] in seeds) for arm in arms
        ]
        falls = "falls" if all(a > b for a, b in pairwise(means)) else "does not fall at each step"
        steps = ", ".join(f"{mean:.3f}" for mean in means)
        yield "the score falls from `full` over `wrong-25` and `wrong-50` to it", f"{steps}: it {falls}"
    if found := difference("local", "full"):
        near = "it is" if abs(fmean(found)) <= matters else "it is not"
        yield f"`local` is within {matters:.2f} of `full`", f"{_bounds(found)}: {near}"
    if found := difference("local", "wrong-100"):
        p = sign_flip(found)
        shown = "" if p is not None and p <= 0.05 and fmean(found) > 0 else f", p {p:.2f}: not shown"
        yield "`local` is above `wrong-100`", _bounds(found) + shown


def _counts(rows: Sequence[Mapping[str, Any]], arm: str) -> list[Mapping[str, float]]:
    """Of each round of an arm: kept questions, and the share of broken families among the valid ones."""
    rounds = [counted for row in rows if row["arm"] == arm for counted in row["by_round"].values()]
    return [{"kept": c.get("kept", 0), "broken": c.get("broken", 0) / c["valid"]} for c in rounds]


def draw(rows: Sequence[Mapping[str, Any]]) -> str:
    """Differences on the broken families with their exact intervals, as SVG."""
    lines: list[dict[str, Any]] = []
    for arm in ARMS:
        if arm != "full" and (found := paired(rows, arm, _against(arm), "broken")):
            middle = fmean(found)
            low, high = exact_interval(found) or (middle, middle)
            name = f"{arm} - {_against(arm)}" if arm.startswith("uniform-") else arm
            lines.append({"arm": f"{name} ({len(found)})", "difference": middle, "low": low, "high": high})
    return forest(lines, "mean@8 on the broken families, minus that of full (exact 95%); in brackets: seeds")


def sentence(rows: Sequence[Mapping[str, Any]]) -> str:
    """What the README says of it: nothing before all seeds of the rule are there."""
    plan = json.loads(PLAN.read_bytes())
    found, greedy = (paired(rows, "full", "uniform", metric) for metric in ("broken", "broken_greedy"))
    equal = paired(rows, "full-capped", "uniform-capped", "broken")
    others = paired(rows, "full", "shuffled", "broken")
    local = paired(rows, "full", "local", "broken")
    if min(map(len, (found, equal, others, local))) < len(plan["seeds"]):
        return ""
    does = "does not matter" if fmean(found) < plan["matters"] else "matters"
    return (
        "In a world broken in three of its fourteen families,\n"
        f"[what causes say](docs/reference/study-content.md) {does}. On these families a challenger that\n"
        "sees the memory's causes gains, over one that sees\n\n"
        f"- causes of families drawn at random: mean@8 {_bounds(found)}, greedy accuracy {_bounds(greedy)}.\n"
        f"- the same, where both practise equally many questions: mean@8 {_bounds(equal)}.\n"
        f"- another cause of the same memory: mean@8 {_bounds(others)}.\n"
        f"- the groups of `diagnose --local`: mean@8 {_bounds(local)}.\n"
    )


def with_sentence(readme: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """The README with what stands between its marks made anew."""
    before, _, rest = readme.partition(MARKS[0])
    return before + MARKS[0] + sentence(rows) + MARKS[1] + rest.partition(MARKS[1])[2]
