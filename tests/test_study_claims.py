"""No sentence over a study says more than its interval carries.

Recomputed from the rows alone, by other means than the pages' generators: t by its textbook formula, the
exact sign-flip interval from subset means. Hartigan (1969): a shift is refused by the sign-flip test once too
few means of subsets of the differences lie beyond it, so its bounds are order statistics of these means.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import permutations
from math import floor
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import pytest
from scipy import stats

ROOT = Path(__file__).parents[1]
STUDIES = ROOT / "studies"
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs" / "reference").glob("study*.md")), ROOT / "CHANGELOG.md"]

NUMBER = r"[+-]0\.\d{3}"
FIGURE = re.compile(
    rf"(?P<difference>{NUMBER}) \((?:(?P<kind>exact|t) )?95%: (?P<low>{NUMBER}) to (?P<high>{NUMBER})"
    r"(?:, (?P<seeds>\d+) seeds)?\)(?:: (?P<verdict>[a-z][^.;|]*))?"
)
"""A difference with its interval, as it stands in a sentence, and the verdict right after it."""
ROW = re.compile(rf"\| ({NUMBER}) \| ({NUMBER}) to ({NUMBER}) \|")
"""The same in two columns of a table."""
GAIN = re.compile(
    r"\b(gains?|matters|improves?|better|beats?|helps?|wins|raises|outperforms)\b", re.IGNORECASE
)
LOSS = re.compile(r"\b(loses?|harms?|worse|hurts?|lowers)\b", re.IGNORECASE)
OPEN = ("no difference shown", "equivalen", "open", "not shown")
"""How a verdict begins that claims neither."""

Pairs = tuple[float, ...]


def rows(name: str) -> list[dict]:
    return [json.loads(line) for line in (STUDIES / name).read_text(encoding="utf-8").splitlines()]


def t_interval(pairs: Pairs) -> tuple[float, float]:
    half = float(stats.t.ppf(0.975, len(pairs) - 1)) * stdev(pairs) / len(pairs) ** 0.5
    return fmean(pairs) - half, fmean(pairs) + half


@cache
def exact_interval(pairs: Pairs) -> tuple[float, float]:
    n = len(pairs)
    if n > 16:
        return _exact_by_counts(pairs)
    chosen = np.arange(1, 2**n)[:, None] >> np.arange(n) & 1
    means = np.sort(chosen @ np.array(pairs) / chosen.sum(axis=1))
    # Below the k-th smallest mean a shift leaves fewer than k of them on its far side: p is 2k/2ⁿ at most.
    beyond = floor(0.05 * 2 ** len(pairs) / 2)
    return float(means[beyond - 1]), float(means[-beyond])


def _exact_by_counts(pairs: Pairs, answers: int = 420 * 8) -> tuple[float, float]:
    """The same for many pairs, whose subsets are too many to list: they are counted by size and sum, which
    is a whole number of answers."""
    units = [round(each * answers) for each in pairs]
    assert units == pytest.approx([each * answers for each in pairs], abs=1e-6)
    zero = sum(map(abs, units))
    counts = np.zeros((len(units) + 1, 2 * zero + 1), np.int64)
    counts[0, zero] = 1
    for each in units:
        counts[1:] += np.roll(counts[:-1], each, axis=1)  # no sum goes beyond the absolute ones'
    sizes, sums = np.nonzero(counts[1:])
    means = (sums - zero) / (sizes + 1) / answers
    order, beyond = np.argsort(means), floor(0.05 * 2 ** len(pairs) / 2)
    means, below = means[order], np.cumsum(counts[1:][sizes, sums][order])
    low, high = np.searchsorted(below, [beyond, 2 ** len(pairs) - beyond])
    return float(means[low]), float(means[high])


@cache
def contrasts() -> dict[str, list[tuple[str, Pairs]]]:
    """Every difference that a page may give, by the kind of its interval: a name and its pairs."""
    content, sampled = rows("results-content.jsonl"), ("broken", "broken_greedy", "elsewhere", "overall")
    of: dict[str, dict[tuple[str, int], dict]] = {"content": {}, "study": {}, "lm": {}}
    base = {row["weights"]: row for row in content if row["arm"] == "base"}
    for row in content:
        if row["arm"] != "base":
            of["content"][row["arm"], row["seed"]] = row
            of["content"]["base", row["seed"]] = base.get(row["weights"], {})
    exact = list(
        _pairs(of["content"], [(metric, metric) for metric in sampled] + [("broken", "broken_greedy")])
    )
    exact += [*_practice(), *_capped(content)]
    for name, file in (("study", "results.jsonl"), ("lm", "results-lm.jsonl")):
        for row in rows(file):
            plan = row["run"].partition(".")[0].removeprefix("study")
            for scored in row["scores"].values():
                if "mean_at_k/tail" in scored:
                    scored["apart"] = scored["mean_at_k/tail"] - scored["mean_at_k/head"]
            if row["rounds"] == row["of"]:
                of[name][row["variant"] + plan, row["seed"]] = row["scores"][str(row["of"])]
                of[name].setdefault(("base" + plan, row["seed"]), row["scores"]["0"])
    metrics = [("mean_at_k", "mean_at_k"), ("greedy", "greedy"), ("apart", "apart")]
    metrics.append(("mean_at_k", "mean_at_k_T0.5"))
    return {"exact": exact, "t": [each for name in ("study", "lm") for each in _pairs(of[name], metrics)]}


def _practice() -> list[tuple[str, Pairs]]:
    """Those of the study of equal practice, whose base has no seed of its own."""
    of: dict[tuple[str, int], dict] = {}
    base: dict[str, dict] = {}
    for row in rows("results-practice.jsonl"):
        flat = row | {f"broken_at_{heat}": score for heat, score in row["broken_by_temperature"].items()}
        if row["arm"] == "base":
            base[row["weights"]] = flat
        else:
            of[row["arm"], row["seed"]] = flat
            of["base", row["seed"]] = base[row["weights"]]
    metrics = [f"broken_at_{heat}" for heat in ("1", "0.5", "0.25")]
    metrics += [f"{which}_greedy" for which in ("broken", "noisy", "right", "all")]
    return [(f"practice: {name}", pairs) for name, pairs in _pairs(of, [(each, each) for each in metrics])]


def _capped(content: Sequence[dict]) -> Iterator[tuple[str, Pairs]]:
    """Those of the thirty capped pairs, of the first ten, and of both; at the temperature of that page."""
    names = ("full-capped", "uniform-capped")
    first = {(row["arm"], row["seed"]): row for row in content if row["arm"] in names}
    new = {
        (row["arm"], row["seed"]): row | {"broken": row["broken_by_temperature"]["0.5"]}
        for row in (rows("results-capped.jsonl") if (STUDIES / "results-capped.jsonl").exists() else [])
        if row["arm"] in names
    }
    for name, of in (("new", new), ("all", first | new)):
        for each, pairs in _pairs(of, [(metric, metric) for metric in ("broken", "broken_greedy")]):
            yield f"{name} {each}", pairs


def _pairs(of: Mapping[tuple[str, int], dict], metrics: list[tuple[str, str]]) -> Iterator[tuple[str, Pairs]]:
    seeds = {arm: sorted(seed for name, seed in of if name == arm) for arm, _ in of}
    for one, other in permutations(seeds, 2):
        shared = [seed for seed in seeds[one] if (other, seed) in of]
        for mine, its in metrics:
            both = [(of[one, seed], of[other, seed]) for seed in shared]
            found = tuple(a[mine] - b[its] for a, b in both if mine in a and its in b)
            if len(found) > 2:
                yield f"{one} less {other}, {mine}" + ("" if mine == its else f" less {its}"), found


@cache
def known(kind: str) -> list[tuple[float, float, float, int]]:
    """Difference, bounds and pairs of every contrast."""
    interval = exact_interval if kind == "exact" else t_interval
    enough = 6 if kind == "exact" else 3  # of five pairs 2/2ⁿ is above .05
    return [
        (fmean(pairs), *interval(pairs), len(pairs)) for _, pairs in contrasts()[kind] if len(pairs) >= enough
    ]


def given(kind: str, figures: Sequence[str], seeds: int | None = None) -> bool:
    """Whether some contrast of the results has these figures, rounded."""
    return any(
        all(abs(float(each) - value) < 0.0005 + 1e-9 for each, value in zip(figures, found, strict=False))
        and seeds in (None, found[3])
        for found in known(kind)
    )


def units(text: str) -> Iterator[str]:
    """What is read as one claim: a sentence, or an item of a list after the sentence that heads the list."""
    head = ""
    for block in re.split(r"\n\s*\n", re.sub(r"<!--.*?-->", "", text)):
        for item in re.split(r"\n(?=\s*- )|\n(?=\|)", "\n" + block):
            words = " ".join(item.split())
            sentences = re.split(r"(?<=[.!?])[)*]*\s+(?=[A-Z`*\[])", words)
            listed = words.startswith("- ")
            yield from ([f"{head} {each}" for each in sentences] if listed and head else sentences)
            if words and not listed:
                head = sentences[-1] if sentences[-1].rstrip().endswith((":", "that sees")) else ""
            if not listed and words and not words.endswith((".", ":", "|")):
                head = sentences[-1]  # a sentence that goes on in each item of the list below


def faults(text: str) -> list[str]:
    """Each claim of the text that its own interval does not carry."""
    found: list[str] = []
    for unit in units(text):
        for figure in FIGURE.finditer(unit):
            low, high = (float(figure[name]) + float(figure[name][0] + "1e-9") for name in ("low", "high"))
            verdict, before = figure["verdict"] or "", unit[: figure.start()]
            if verdict.startswith(OPEN):
                margin = re.match(r"equivalent within ±(0\.\d+)", verdict)
                if margin and not -float(margin[1]) <= low <= high <= float(margin[1]):
                    found.append(f"not equivalent: {unit}")
                if verdict.startswith("no difference") and "Holm" not in verdict and not low <= 0 <= high:
                    found.append(f"a difference is shown: {unit}")
                continue
            gains, loses = GAIN.search(verdict), LOSS.search(verdict)
            if not gains and not loses:
                gains, loses = GAIN.search(before), LOSS.search(before)
            if low <= 0 <= high and (gains or loses):
                word = (gains or loses or [""])[0]
                found.append(f"claims {word!r} over an interval that holds 0: {unit}")
            if (verdict.startswith("gains") and low <= 0) or (verdict.startswith("loses") and high >= 0):
                found.append(f"{verdict!r} is not what the interval carries: {unit}")
            if not verdict and unit.lstrip()[:1] != "|" and low <= 0 <= high and "95%" in unit:
                found.append(f"an interval that holds 0 without a word on it: {unit}")
    return found


def bare(readme: str) -> list[str]:
    """Sentences of the README's parts on studies that claim something and give no interval."""
    blocks = re.findall(r"<!-- (study[\w-]*) -->(.*?)<!-- end of \1 -->", readme, re.DOTALL)
    return [
        unit
        for _, block in blocks
        for unit in units(block)
        if (GAIN.search(unit) or LOSS.search(unit)) and not FIGURE.search(unit) and "not shown" not in unit
    ]


NAMED = {
    "both at T = 1": ("t", "full less base, mean_at_k"),
    "At T = 1 against the untouched model at T = 0.5": ("t", "full less base, mean_at_k less mean_at_k_T0.5"),
    "One greedy answer of both": ("t", "full less base, greedy"),
    "Free exploration alone": ("t", "free-only less full, mean_at_k"),
    "Free exploration with 2.5 times the candidates": ("t", "free-800 less full, mean_at_k"),
    "The full method with causes drawn at random": ("t", "placebo less full, mean_at_k"),
    "The full method without its filter": ("t", "no-filter less full, mean_at_k"),
    "`full` against it": ("exact", "full less base, broken"),
    "against the greedy accuracy of the untouched model": (
        "exact",
        "full less base, broken less broken_greedy",
    ),
    "**Against no causes** (`free`), `full`": ("exact", "full less free, broken"),
    "drawn at random (`uniform`), `full`": ("exact", "full less uniform, broken"),
    "No causes (`free`), against those drawn at random": ("exact", "free less uniform, broken"),
    "(`full-capped`, `uniform-capped`)": ("exact", "full-capped less uniform-capped, broken"),
    "(`shuffled`), `full`": ("exact", "full less shuffled, broken"),
    "(`local`), `full`": ("exact", "full less local, broken"),
}
"""What the README calls a contrast, the kind of its interval, and which it is."""

OLD = """
In a world broken in three of its fourteen families,
[what causes say](docs/reference/study-content.md) matters. On these families a challenger that
sees the memory's causes gains, over one that sees

- causes of families drawn at random: mean@8 +0.058 (95%: +0.038 to +0.073, 10 seeds), greedy accuracy
  +0.016 (95%: -0.010 to +0.036, 10 seeds).
- the same, where both practise equally many questions: mean@8 +0.005 (95%: -0.019 to +0.028, 10 seeds).
- another cause of the same memory: mean@8 +0.008 (95%: -0.010 to +0.027, 10 seeds).
- the groups of `diagnose --local`: mean@8 +0.053 (95%: +0.036 to +0.071, 10 seeds).
"""
"""What the README once had: one verdict over four contrasts."""


def test_subsets_that_are_counted_give_the_bounds_of_those_that_are_listed() -> None:
    for seed in range(5):
        drawn = np.random.default_rng(seed).normal(0.005, 0.03, 12)
        pairs = tuple(round(each * 3360) / 3360 for each in drawn)
        assert _exact_by_counts(pairs) == pytest.approx(exact_interval(pairs), abs=1e-12)


def test_one_verdict_over_a_list_is_held_against_each_interval() -> None:
    found = faults(OLD)
    assert len([each for each in found if "'gains'" in each]) == 3
    assert not faults(
        OLD.replace("gains", "was measured").partition("- the same")[0].replace(", greedy", "")
    )[1:]


def test_no_sentence_of_the_readme_claims_something_without_an_interval() -> None:
    assert bare(f"<!-- study -->{OLD}<!-- end of study -->"), "it claims that what causes say matters"
    assert bare(README.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_claim_goes_beyond_its_interval(page: Path) -> None:
    assert faults(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_interval_names_its_kind_and_is_what_the_rows_give(page: Path) -> None:
    for figure in FIGURE.finditer(" ".join(page.read_text(encoding="utf-8").split())):
        if figure["seeds"] is None:
            continue  # of one run, paired over its questions
        assert figure["kind"], f"of which kind is {figure[0]}?"
        printed = figure.group("difference", "low", "high")
        assert given(figure["kind"], printed, int(figure["seeds"])), (
            f"no contrast of the results has {figure[0]}"
        )


@pytest.mark.parametrize("page", PAGES[1:], ids=lambda page: page.name)
def test_every_row_of_a_table_is_what_the_rows_give(page: Path) -> None:
    kind = "exact" if page.name in ("study-content.md", "study-capped.md", "study-practice.md") else "t"
    text = page.read_text(encoding="utf-8")
    printed = ROW.findall(text)
    assert [row for row in printed if not given(kind, row)] == []
    assert printed or page.name == "CHANGELOG.md" or "## Results" not in text  # a plan has none yet


@pytest.mark.parametrize("words", NAMED)
def test_the_readme_gives_each_contrast_the_figures_of_its_own_arms(words: str) -> None:
    kind, name = NAMED[words]
    [pairs] = {pairs for each, pairs in contrasts()[kind] if each == name}
    figure = FIGURE.search(" ".join(README.read_text(encoding="utf-8").split()).partition(f"{words}:")[2])
    assert figure is not None
    low, high = (exact_interval if kind == "exact" else t_interval)(pairs)
    printed = [float(each) for each in figure.group("difference", "low", "high")]
    assert printed == pytest.approx([fmean(pairs), low, high], abs=0.0005 + 1e-9)
