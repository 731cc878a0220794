"""What the study of equal practice found: its page's results, its figure, and a sentence of the README, from
`results-practice.jsonl` alone."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import Any

from diagevo.text.numbers import count
from studies.comparison import (
    BASE,
    Rows,
    digest_of,
    exact_interval,
    exactly,
    paired,
    row_of_contrast,
)
from studies.page import README, forest
from studies.practice import ARMS, HERE, KEPT, PLAN, TEMPERATURES, planned, results, untouched

PAGE, BEGIN = HERE.parent / "docs" / "reference" / "study-practice.md", "## Results\n"
PICTURE = HERE.parent / "docs" / "pictures" / "study-practice.svg"
MARKS = "<!-- study-practice -->\n", "<!-- end of study-practice -->\n"
SAMPLED = {f"broken_at_{heat:g}": f"mean@8 at T = {heat:g}" for heat in TEMPERATURES}
GREEDY = "broken_greedy"
METRICS = {
    GREEDY: "greedy",
    **SAMPLED,
    "noisy_greedy": "noisy families, greedy",
    "right_greedy": "right families, greedy",
    "all_greedy": "all families, greedy",
}
COMMITTED = "the plan above is commit 0e5723b9 of 2026-11-27T02:46:37+00:00"
AGAINST = {
    "difficulty": "a curriculum by difficulty",
    "free": "no causes",
    "uniform": "causes of families drawn at random",
    "shuffled": "another cause of the same memory",
    "local": "the groups of `diagnose --local`",
}


def write() -> None:
    """The page, the figure and the README made anew."""
    rows, base = flat(results()), flat(untouched())
    before = PAGE.read_text(encoding="utf-8").partition(BEGIN)[0]
    PAGE.write_text(before.rstrip("\n") + "\n\n" + page(rows, base), encoding="utf-8")
    if compared(rows):
        PICTURE.write_text(draw(rows), encoding="utf-8")
    README.write_text(with_sentence(README.read_text(encoding="utf-8"), rows, base), encoding="utf-8")


def flat(rows: Rows) -> list[dict[str, Any]]:
    """Rows with mean@8 of each temperature under a name of its own."""
    return [
        {**row, **{f"broken_at_{heat}": score for heat, score in row["broken_by_temperature"].items()}}
        for row in rows
    ]


def compared(rows: Rows) -> list[str]:
    """The arms that have enough pairs with `full` for an exact interval."""
    return [arm for arm in ARMS if arm != "full" and exact_interval(paired(rows, "full", arm, GREEDY) or [0])]


def complete(rows: Rows) -> bool:
    """Whether the runs that the rule is about are all there."""
    return len(paired(rows, "full", "difficulty", GREEDY)) == len(json.loads(PLAN.read_bytes())["seeds"])


def page(rows: Rows, base: Rows) -> str:
    """The section of results."""
    lines = [BEGIN, f"{len(rows)} of the {len(planned())} planned runs were played{_missing(rows)}."]
    if not rows:
        return "\n".join(lines) + "\n"
    lines += [
        f"The first began {min(row['started'] for row in rows)}, {COMMITTED}.",
        f"Together they took {sum(row['cpu_seconds'] for row in rows) / 60:.0f} CPU minutes.",
        *_remade(rows),
        "",
        *_rule(rows),
        "",
    ]
    if arms := compared(rows):
        lines += ["On the broken families, `full` against", ""]
        lines += ["- " + each.replace("\n", "\n  ") for each in findings(rows, base)]
        lines += ["", "![Each arm minus full, greedy](../pictures/study-practice.svg)", ""]
        lines += ["What the plan predicted, and what came:", ""]
        lines += ["| predicted | came | verdict |", "|---|---|---|"]
        lines += [f"| {' | '.join(line)} |" for line in _predictions(rows)]
        lines += [""]
    lines += [*_practice_rows(rows), "", *_score_rows(rows, base), ""]
    if arms:
        lines += [
            "Each arm minus `full`, paired by seed. The exact interval holds every shift that the two-sided",
            "sign-flip test does not reject at .05. No p is corrected for the number of contrasts.",
            "",
            "| contrast | metric | difference | exact 95% | exact p | seeds |",
            "|---|---|---|---|---|---|",
            *(
                row_of_contrast(f"`{arm}`", name, paired(rows, arm, "full", metric))
                for arm in arms
                for metric, name in METRICS.items()
            ),
        ]
    return "\n".join(lines).rstrip("\n") + "\n"


def _missing(rows: Rows) -> str:
    """Which were not, by arm."""
    played = {(row["arm"], row["seed"]) for row in rows}
    left = Counter(arm for arm, seed in planned() if (arm, seed) not in played)
    return "; not " + ", ".join(f"{number} of `{arm}`" for arm, number in left.items()) if left else ""


def _remade(rows: Rows) -> Iterator[str]:
    """Base weights that came out otherwise where they were made again: a pair is of one digest."""
    digests: dict[str, dict[str, set[int]]] = {}
    for row in rows:
        digests.setdefault(row["weights"], {}).setdefault(digest_of(row)[:8], set()).add(row["seed"])
    several = {name: found for name, found in sorted(digests.items()) if len(found) > 1}
    if several:
        yield ""
        yield "The same commands gave other base weights where the study went on. A pair is of one digest:"
        yield ""
    for name, found in several.items():
        yield f"- `{name}`: " + ", ".join(
            f"`{digest}` for {'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, sorted(seeds)))}"
            for digest, seeds in found.items()
        )


def _rule(rows: Rows) -> Iterator[str]:
    """The rule of the plan, once the pairs that it is about are there."""
    plan = json.loads(PLAN.read_bytes())
    found = paired(rows, "full", "difficulty", GREEDY)
    if not complete(rows):
        yield f"The rule of the plan is for {len(plan['seeds'])} pairs of `full` and `difficulty`, of which"
        yield f"{len(found)} were played. It is not applied before."
        return
    yield f"**By the plan's rule: {verdict(rows)}.** `full` less `difficulty`, greedy: {exactly(found)}."


def verdict(rows: Rows) -> str:
    """What the rule says: the difference is at least what matters and its interval is above 0, or not."""
    found = paired(rows, "full", "difficulty", GREEDY)
    low, _ = exact_interval(found) or (-1.0, 1.0)
    matters = json.loads(PLAN.read_bytes())["matters"]
    learning = fmean(found) >= matters and low > 0
    return "causes buy learning, not candidates alone" if learning else "causes buy candidates, not learning"


def findings(rows: Rows, base: Rows, heats: Sequence[float] = TEMPERATURES) -> Iterator[str]:
    """Each contrast with what its own interval carries: greedy, and sampled at some temperatures."""
    greedy, cold = (fmean(row[metric] for row in base) for metric in (GREEDY, "broken_at_0.25"))
    untouched = f"the untouched model (greedy {greedy:.3f}, mean@8 {cold:.3f} at T = 0.25)"
    yield f"{untouched}: {_each([*rows, *base], BASE, heats)}."
    for arm in compared(rows):
        yield f"{AGAINST[arm]} (`{arm}`): {_each(rows, arm, heats)}.\n{_drawn(rows, arm)}."


def _each(rows: Rows, against: str, heats: Sequence[float]) -> str:
    """Greedy and mean@8 of `full` less those of an arm."""
    greedy = exactly(paired(rows, "full", against, GREEDY))
    sampled = (
        f"Sampled at T = {heat:g}: {exactly(paired(rows, 'full', against, f'broken_at_{heat:g}'))}"
        for heat in heats
    )
    return f"greedy {greedy}.\n" + ".\n".join(sampled)


def _drawn(rows: Rows, against: str) -> str:
    """How many candidates a round drew for the same practice, less those of an arm."""
    drawn = [{**row, "drawn": fmean(of["candidates"] for of in row["by_round"].values())} for row in rows]
    found = paired(drawn, "full", against, "drawn")
    low, high = exact_interval(found) or (0.0, 0.0)
    return f"Candidates a round: {fmean(found):+.1f} (exact 95%: {low:+.1f} to {high:+.1f})"


def _shares(rows: Rows, arm: str, rounds: Sequence[int] | None = None) -> dict[str, float]:
    """Of the rounds of an arm: candidates a round, valid and kept ones by kind of family, as means."""
    of = [
        counted
        for row in rows
        if row["arm"] == arm
        for number, counted in row["by_round"].items()
        if rounds is None or int(number) in rounds
    ]
    names = ("candidates", *(f"{what}_{kind}" for what in ("valid", "kept") for kind in KINDS), "true")
    return {name: fmean(counted.get(name, 0) for counted in of) for name in names}


KINDS = ("broken", "noisy", "right")


def _kept(shares: Mapping[str, float]) -> float:
    return sum(shares[f"kept_{kind}"] for kind in KINDS)


def _predictions(rows: Rows) -> Iterator[tuple[str, str, str]]:
    """Those of the plan whose arms were played, each with what came and a verdict."""
    plan, arms = json.loads(PLAN.read_bytes()), compared(rows)
    if "difficulty" in arms:
        found, foretold = paired(rows, "full", "difficulty", GREEDY), plan["predicted"]
        low, high = exact_interval(found) or (-1.0, 1.0)
        yield (
            f"`full` less `difficulty`, greedy: {foretold:+.3f}",
            exactly(found),
            "not excluded" if low <= foretold <= high else "missed: the interval excludes it",
        )
        full, by_difficulty = (_shares(rows, arm, (3, 4)) for arm in ("full", "difficulty"))
        most, half = full["kept_broken"] / _kept(full), by_difficulty["kept_noisy"] / _kept(by_difficulty)
        yield (
            "`full` keeps most of its questions from the broken families from round 3 on",
            f"{most:.0%}",
            "came" if most > 0.5 else "missed",
        )
        yield (
            "`difficulty` keeps about half of its from the noisy ones",
            f"{half:.0%}",
            "came" if 0.4 <= half <= 0.6 else "missed",
        )
    if {"difficulty", "uniform"} <= set(arms):
        found = paired(rows, "difficulty", "uniform", GREEDY)
        low, high = exact_interval(found) or (-1.0, 1.0)
        yield (
            "`full` less `uniform` is more than `full` less `difficulty`",
            f"`difficulty` less `uniform`, greedy: {exactly(found)}",
            "shown" if low > 0 else "missed: the interval excludes it" if high < 0 else "not shown",
        )
    if "shuffled" in arms:
        found = paired(rows, "shuffled", "full", GREEDY)
        low, high = exact_interval(found) or (-1.0, 1.0)
        within = low >= -0.02 and high <= 0.02
        missed = high < -0.02 or low > 0.02
        yield (
            "`shuffled` is within 0.02 of `full`, greedy",
            exactly(found),
            "the interval is within"
            if within
            else "missed: the interval excludes it"
            if missed
            else "not shown",
        )
    if "free" in arms:
        drawn = {arm: _shares(rows, arm)["candidates"] for arm in ("full", *arms)}
        most_drawn = max(drawn, key=lambda arm: drawn[arm])
        yield (
            "`free` needs the most candidates",
            f"{drawn['free']:.0f} a round; the most: `{most_drawn}` with {drawn[most_drawn]:.0f}",
            "came" if most_drawn == "free" else "missed",
        )


def _practice_rows(rows: Rows) -> Iterator[str]:
    """What each arm drew and kept."""
    yield f"What a round drew until {KEPT} were kept, and of which families these are, as means:"
    yield ""
    yield "| arm | runs | candidates | kept: broken | noisy | right | with a true label | CPU s a run |"
    yield "|---|---|---|---|---|---|---|---|"
    for arm in ARMS:
        if of := [row for row in rows if row["arm"] == arm]:
            shares = _shares(rows, arm)
            kept = " | ".join(f"{shares[f'kept_{kind}']:.1f}" for kind in KINDS)
            cpu = fmean(row["cpu_seconds"] for row in of)
            drawn, true = shares["candidates"], shares["true"]
            yield f"| `{arm}` | {len(of)} | {drawn:.0f} | {kept} | {true:.1f} | {cpu:.0f} |"


def _score_rows(rows: Rows, base: Rows) -> Iterator[str]:
    """What each arm's last solver is worth, the untouched weights first."""
    yield "Accuracy after the last round, on the broken families where none are named:"
    yield ""
    heads = ["arm", "runs", *METRICS.values()]
    yield f"| {' | '.join(heads)} |"
    yield "|---" * len(heads) + "|"
    for arm in (BASE, *ARMS):
        if of := [row for row in (*base, *rows) if row["arm"] == arm]:
            means = " | ".join(f"{fmean(row[metric] for row in of):.3f}" for metric in METRICS)
            yield f"| `{arm}` | {len(of)} | {means} |"


def draw(rows: Rows) -> str:
    """Differences of greedy accuracy on the broken families with their exact intervals, as SVG."""
    lines: list[dict[str, Any]] = []
    for arm in compared(rows):
        found = paired(rows, arm, "full", GREEDY)
        low, high = exact_interval(found) or (0.0, 0.0)
        lines.append({"arm": f"{arm} ({len(found)})", "difference": fmean(found), "low": low, "high": high})
    return forest(
        lines, "greedy accuracy on the broken families, minus that of full (exact 95%); in brackets: seeds"
    )


def sentence(rows: Rows, base: Rows) -> str:
    """What the README says of it, first of all it says of causes: nothing before all pairs of the rule are
    there."""
    if not complete(rows) or not base:
        return ""
    lines = [
        f"At equal practice [{verdict(rows)}](docs/reference/study-practice.md). So reads the rule of a plan",
        "that was committed before its first run. It reads otherwise where the difference from a curriculum",
        "by difficulty is 0.01 or more and its interval above 0. Of that world's fourteen families three are",
        "broken, three noisy and eight right. Each arm practises as much, from four base weights. No p is",
        "corrected. On the broken families `full` against",
        "",
        *("- " + each.replace("\n", "\n  ") for each in findings(rows, base, TEMPERATURES[:1])),
        "",
        "The page has the other temperatures, and what was not played.",
    ]
    return "\n".join(lines) + "\n"


def with_sentence(readme: str, rows: Rows, base: Rows) -> str:
    """The README with what stands between its marks made anew."""
    before, _, rest = readme.partition(MARKS[0])
    return before + MARKS[0] + sentence(rows, base) + MARKS[1] + rest.partition(MARKS[1])[2]


if __name__ == "__main__":
    print(f"{count(len(results()), 'run')}: {PAGE}")
    write()
