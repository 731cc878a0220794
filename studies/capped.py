"""Thirty more pairs of the study of content at equal practice: `python -m studies.capped play`, then `page`.
Plan, power and forecast stand in docs/reference/study-capped.md, committed before the first run."""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from diagevo.text.numbers import count
from studies import content
from studies.comparison import BASE, Rows, exact_interval, exactly, paired, row_of_contrast
from studies.content import CAP, play_each
from studies.results import HERE, read

PLAN, RESULTS = HERE / "study-capped.json", HERE / "results-capped.jsonl"
PAGE, BEGIN = HERE.parent / "docs" / "reference" / "study-capped.md", "## Results\n"
FULL, UNIFORM = ARMS = ("full-capped", "uniform-capped")
SAMPLED, GREEDY = "at_0.5", "broken_greedy"
METRICS = {SAMPLED: "mean@8 at T = 0.5", GREEDY: "greedy"}
HEATS = {"1": "mean@8 at T = 1", "0.5": METRICS[SAMPLED], "0.25": "mean@8 at T = 0.25", "0": METRICS[GREEDY]}


def planned() -> list[tuple[str, int]]:
    """A seed of both arms after the other, so that whole pairs are there whenever it ends."""
    plan = json.loads(PLAN.read_bytes())
    return [(arm, seed) for seed in plan["seeds"] for arm in plan["arms"]]


def results() -> list[dict[str, Any]]:
    """The new rows, with mean@8 at T = 0.5 under a name of its own."""
    return [row | {SAMPLED: row["broken_by_temperature"]["0.5"]} for row in _read() if row["arm"] != BASE]


def untouched() -> list[dict[str, Any]]:
    """A row a base weights, before any round."""
    return [row for row in _read() if row["arm"] == BASE]


def _read() -> list[dict[str, Any]]:
    return read(RESULTS) if RESULTS.exists() else []


def first_ten() -> list[dict[str, Any]]:
    """Those of the study of content, whose best temperature was 0.5."""
    rows = [row for row in content.results() if row["arm"] in ARMS]
    assert all(row["best_temperature"] == 0.5 for row in rows)
    return [row | {SAMPLED: row["broken"]} for row in rows]


def page(rows: Rows, base: Rows, before: Rows) -> str:
    """The section of results."""
    pairs = len(paired(rows, FULL, UNIFORM, SAMPLED))
    lines = [BEGIN, f"{pairs} of the {len(planned()) // 2} planned pairs were played."]
    if not pairs:
        return "\n".join(lines) + "\n"
    digests = sorted({row["weights_sha256"][:8] for row in rows})
    lines += [
        f"The first run began {min(row['started'] for row in rows)}; together they took"
        f" {sum(row['cpu_seconds'] for row in rows) / 60:.0f} CPU minutes.",
        f"The digests of their base weights begin with {' and '.join(f'`{each}`' for each in digests)}.",
        "",
        *_verdict(rows, before),
        "",
        "On the broken families:",
        "",
        f"| arm | runs | kept a round | practised | {' | '.join(HEATS.values())} |",
        "|---" * (4 + len(HEATS)) + "|",
        *([f"| `{BASE}` | – | – | – | {_by_temperature(base)} |"] if base else []),
        *(_arm_row(rows, arm) for arm in ARMS),
        "",
        f"`{FULL}` less `{UNIFORM}`, paired by seed. No p is corrected for the number of contrasts.",
        "",
        "| pairs | metric | difference | exact 95% | exact p | seeds |",
        "|---|---|---|---|---|---|",
    ]
    for name, of in (("new", rows), ("the first ten", before), ("all", [*before, *rows])):
        lines += [row_of_contrast(name, shown, paired(of, FULL, UNIFORM, m)) for m, shown in METRICS.items()]
    return "\n".join(lines) + "\n"


def findings(rows: Rows, before: Rows) -> Iterator[str]:
    """What each metric carries, of the new pairs alone and of all."""
    margin = json.loads(PLAN.read_bytes())["margin"]
    for metric, name in METRICS.items():
        new, all_ = (paired(of, FULL, UNIFORM, metric) for of in (rows, [*before, *rows]))
        yield f"{name}: {exactly(new, margin)}.\nWith the first ten pairs: {exactly(all_, margin)}."


def sentence(rows: Rows, before: Rows) -> Iterator[str]:
    """What the README says of it: nothing before there are enough pairs for an exact interval."""
    new = paired(rows, FULL, UNIFORM, SAMPLED)
    if exact_interval(new) is None:
        return
    yield ""
    yield f"[At most {CAP} questions a round](docs/reference/study-capped.md), `{FULL}` against"
    yield f"`{UNIFORM}` once more, {len(new)} of {len(planned()) // 2} planned pairs:"
    yield ""
    yield from ("- " + each.replace("\n", "\n  ") for each in findings(rows, before))


def _verdict(rows: Rows, before: Rows) -> Iterator[str]:
    """By the rule of the plan; nothing before all its pairs are there."""
    margin, new = json.loads(PLAN.read_bytes())["margin"], paired(rows, FULL, UNIFORM, SAMPLED)
    if len(new) < len(planned()) // 2:
        yield f"The rule is for all {len(planned()) // 2} pairs. So far, on the broken families:"
    else:
        low, high = exact_interval(new) or (-1.0, 1.0)
        shown = "" if -margin <= low and high <= margin else "not "
        yield f"**By the rule equivalence within ±{margin:g} is {shown}shown.** On the broken families:"
    yield ""
    yield from ("- " + each.replace("\n", "\n  ") for each in findings(rows, before))


def _arm_row(rows: Rows, arm: str) -> str:
    of = [row for row in rows if row["arm"] == arm]
    kept = [counted.get("kept", 0) for row in of for counted in row["by_round"].values()]
    practised = fmean(min(n, CAP) for n in kept)
    return f"| `{arm}` | {len(of)} | {fmean(kept):.0f} | {practised:.0f} | {_by_temperature(of)} |"


def _by_temperature(rows: Rows) -> str:
    return " | ".join(f"{fmean(row['broken_by_temperature'][heat] for row in rows):.3f}" for heat in HEATS)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("play", "page"))
    parser.add_argument("--home", type=Path, default=Path("runs/content"), help="folder of weights and runs")
    parser.add_argument("--most", type=int, help="play so many runs and stop")
    args = parser.parse_args()
    if args.what == "play":
        done = {(row["arm"], row["seed"]) for row in results()}
        left = [run for run in planned() if run not in done]
        play_each("studies.content", left[: args.most], args.home, RESULTS)
    before = PAGE.read_text(encoding="utf-8").partition(BEGIN)[0]
    found = page(results(), untouched(), first_ten())
    PAGE.write_text(before.rstrip("\n") + "\n" + (f"\n{found}" if found else ""), encoding="utf-8")
    print(f"{count(len(results()), 'run')}: {PAGE}")


if __name__ == "__main__":
    main()
