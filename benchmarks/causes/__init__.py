"""`python -m benchmarks causes`: are the causes that `diagnose` names true of failures whose cause is known?

Planted modes whose wording varies as a model's does (`planted`), labels of others (`--others FOLDER`), or
any labelled rows (`--rows FILE`); with `--null`, sets whose rewards say nothing. Each set goes the product's
own way; plain baselines stand beside it, from the same run. With `--model` and `--base-url` a language model
is measured in place of `--local`.
"""

import argparse
import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.causes import scores, true_names
from benchmarks.causes.baselines import MINILM, baselines, lines
from benchmarks.causes.null import SHAPES, sets_of
from benchmarks.causes.others import sets as labelled_by_others
from benchmarks.causes.product import Diagnosed, diagnosed
from benchmarks.causes.product import found as found_in
from benchmarks.causes.rows import LabelledRow, one_each, read, shuffled, write
from diagevo.errors import ConfigError

SHUFFLED, ALLOWED = 20, 1
"""Sets with shuffled rewards, and in how many of them causes may be printed."""
SHOWN = 10
NAMED = ("true of members", "passes beside", "pair shows it")

BY_CHANCE = 0.05
"""Share of sets whose rewards say nothing in which causes may be found, and of a set's failures."""


@dataclass(frozen=True, slots=True)
class Null:
    """What was found where rewards say nothing."""

    name: str
    failures: int
    causes: int
    explained: int

    @property
    def share(self) -> float:
        return self.explained / max(self.failures, 1)


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of one set."""

    name: str
    failures: int
    causes: int
    with_a_cause: int
    modes: int
    recovered: int
    ari: float | None
    baselines: dict[str, float | None]
    baselines_recovered: dict[str, int]
    located: dict[str, float]
    located_plainly: dict[str, dict[str, float]]
    style_only: int
    true_of_members: float | None
    passes_beside: float | None
    pair_shows: float | None
    seconds: float
    peak: int


def measure(name: str, rows: Sequence[LabelledRow], found: Diagnosed, minilm: Path) -> Measured:
    plain = baselines(rows, minilm) if scores.modes(rows) else {}
    where = scores.located(rows, found.lines)
    true, beside = true_names.true_of_members(rows, found.causes, found.by_row)
    return Measured(
        name,
        failures=sum(row.failed for row in rows),
        causes=len(found.causes),
        with_a_cause=sum(cause is not None for cause in found.by_row),
        modes=len(scores.modes(rows)),
        recovered=len(scores.recovered(rows, found.by_row)),
        ari=scores.index(rows, found.by_row),
        baselines={each: scores.index(rows, labels) for each, labels in plain.items()},
        baselines_recovered={each: len(scores.recovered(rows, labels)) for each, labels in plain.items()},
        located=where,
        located_plainly={each: scores.located(rows, places) for each, places in lines(rows).items()}
        if where["n"]
        else {},
        style_only=len(scores.style_only(rows, found.by_row)),
        true_of_members=true,
        passes_beside=beside,
        pair_shows=true_names.pair_shows(found.causes, found.by_row, found.pairs),
        seconds=found.seconds,
        peak=found.peak,
    )


def main(arguments: Sequence[str]) -> int:
    """Exit code 2 for bad input, 70 where the product itself fails, 1 where shuffled labels gave causes."""
    asked = _asked(arguments)
    try:
        return _answered(asked)
    except ConfigError as error:
        print(f"error: {error.message}" + (f"\n{error.hint}" if error.hint else ""), file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as error:
        print(f"{' '.join(error.cmd[:3])} ended with exit code {error.returncode}:", file=sys.stderr)
        print(error.output, file=sys.stderr)
        return 70


def _asked(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m benchmarks causes", description=__doc__)
    parser.add_argument(
        "--rows", type=Path, metavar="FILE", help="JSON lines: prompt, response, reward, label…"
    )
    parser.add_argument("--json", action="store_true", help="figures as JSON, nothing else on stdout")
    parser.add_argument("--others", type=Path, metavar="FOLDER", help="a folder with EIC and MR-GSM8K")
    parser.add_argument(
        "--set", action="append", metavar="WORD", help="only sets with this word in their name"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the planted sets")
    parser.add_argument(
        "--shuffled", type=int, default=SHUFFLED, metavar="N", help="sets with shuffled rewards"
    )
    parser.add_argument(
        "--null", action="store_true", help="only sets whose rewards say nothing: nothing may be found"
    )
    parser.add_argument("--model", help="a served language model in place of --local")
    parser.add_argument("--base-url", help="its endpoint, ending in /v1")
    parser.add_argument("--minilm", type=Path, default=MINILM, metavar="FOLDER", help="made by make lm")
    parser.add_argument(
        "--write", type=Path, metavar="FOLDER", help="write the sets as rows, and measure nothing"
    )
    return parser.parse_args(arguments)


def _answered(asked: argparse.Namespace) -> int:
    if asked.base_url and not asked.model:
        raise ConfigError("--base-url has no model", hint="add --model M")
    if asked.rows is not None:
        rows = read(asked.rows)
        found = diagnosed(rows, asked.model, asked.base_url)
        measured = measure(asked.rows.name, rows, found, asked.minilm)
        if asked.json:
            print(json.dumps(_published(measured)))
        else:
            _show([measured], {measured.name: (rows, found)}, asked.minilm)
        return 0
    if asked.null:
        return _nothing(asked)
    every = [(name, rows) for name, rows in _sets(asked) if _wanted(name, asked.set)]
    if not every:
        raise ConfigError(f"no set has {' or '.join(asked.set or [])} in its name")
    if asked.write is not None:
        asked.write.mkdir(parents=True, exist_ok=True)
        for name, rows in every:
            write(rows, asked.write / f"{name.replace(',', '').replace(' ', '-')}.jsonl", labelled=True)
        return 0
    measured, told, failed = [], {}, 0
    for name, rows in every:
        print(f"{name}: {sum(row.failed for row in rows)} failures", file=sys.stderr, flush=True)
        try:
            told[name] = rows, diagnosed(rows, asked.model, asked.base_url)
        except subprocess.CalledProcessError as error:
            print(f"{name}: exit code {error.returncode}\n{error.output}", file=sys.stderr, flush=True)
            failed += 1
            continue
        measured.append(measure(name, rows, told[name][1], asked.minilm))
    by_chance = [] if asked.model else list(_by_chance(every, asked.shuffled))
    if asked.json:
        print(json.dumps({"sets": [asdict(each) for each in measured], "causes_by_chance": by_chance}))
    else:
        _show(measured, told, asked.minilm)
        if by_chance:
            silent = sum(not causes for causes in by_chance)
            print(f"rewards shuffled: no pattern found in {silent} of {len(by_chance)} sets")
    if failed:
        print(f"the product failed on {failed} of {len(every)} sets: see above")
        return 70
    return 1 if sum(map(bool, by_chance)) > ALLOWED else 0


def _nothing(asked: argparse.Namespace) -> int:
    """1 where causes are found in more sets, or for more of a set's failures, than chance may."""
    shapes = {name: each for name, each in SHAPES.items() if _wanted(name, asked.set)}
    if not shapes:
        raise ConfigError(f"no shape has {' or '.join(asked.set or [])} in its name")
    found: list[Null] = []
    for name, each in shapes.items():
        print(name, file=sys.stderr, flush=True)
        for place in range(sets_of(name)):
            rows = each(random.Random(f"{name} {asked.seed + place}"))
            told = found_in(rows)
            failures = sum(row.failed for row in rows)
            explained = sum(cause is not None for cause in told.by_row)
            found.append(Null(name, failures, len(told.causes), explained))
    if asked.json:
        print(json.dumps([asdict(each) for each in found]))
    else:
        table = Table("rewards say nothing", "sets", "failures", "sets with causes", "failures with a cause")
        for name in shapes:
            of = [each for each in found if each.name == name]
            low, high = min(each.failures for each in of), max(each.failures for each in of)
            table.add_row(
                name,
                str(len(of)),
                f"{low:,}" if low == high else f"{low:,} to {high:,}",
                str(sum(each.causes > 0 for each in of)),
                f"at most {max(each.share for each in of):.0%}",
            )
        Console(width=None if sys.stdout.isatty() else 120).print(table)
    some = sum(each.causes > 0 for each in found)
    most = max(each.share for each in found)
    print(
        f"causes in {some} of {len(found)} sets, for {most:.0%} of a set's failures at most", file=sys.stderr
    )
    return 1 if some > BY_CHANCE * len(found) or most > BY_CHANCE else 0


def _wanted(name: str, words: Sequence[str] | None) -> bool:
    return not words or any(word in name for word in words)


def _sets(asked: argparse.Namespace) -> Iterator[tuple[str, list[LabelledRow]]]:
    from benchmarks.causes.planted import DOMAINS, planted

    for domain in DOMAINS:
        rows = planted(domain, asked.seed)
        yield domain, rows
        yield (
            f"{domain}, one answer",
            one_each(planted(domain, asked.seed + 1, many=True), random.Random(asked.seed)),
        )
    if asked.others is not None:
        found = list(labelled_by_others(asked.others))
        if not found:
            raise ConfigError(
                f"{asked.others} has neither EIC/data nor MR-GSM8K/eval_results/gpt4-grading",
                hint="put clones of LittleCirc1e/EIC and dvlab-research/MR-GSM8K there",
            )
        yield from found


def _by_chance(every: Sequence[tuple[str, Sequence[LabelledRow]]], number: int) -> Iterator[int]:
    """Causes that are printed where the rewards of a set are shuffled."""
    for place in range(number):
        name, rows = every[place % len(every)]
        found = diagnosed(shuffled(rows, random.Random(place)))
        print(f"{name}, rewards shuffled: {len(found.causes)} causes", file=sys.stderr, flush=True)
        yield len(found.causes)


def _published(measured: Measured) -> dict[str, Any]:
    """What `--rows FILE --json` prints."""
    names = ("failures", "causes", "with_a_cause", "modes", "recovered", "ari", "baselines", "located")
    return {name: getattr(measured, name) for name in names}


def _show(
    measured: Sequence[Measured], told: dict[str, tuple[Sequence[LabelledRow], Diagnosed]], minilm: Path
) -> None:
    console = Console(width=None if sys.stdout.isatty() else 180)
    names = list(dict.fromkeys(name for each in measured for name in each.baselines))
    table = Table(
        "set",
        "failures",
        "with a cause",
        "causes",
        "only style",
        "modes",
        "index",
        *names,
        *NAMED,
        "CPU s",
        "MiB",
    )
    for each in measured:
        plain = [_with_modes(each.baselines.get(name), each.baselines_recovered.get(name)) for name in names]
        modes = f"{each.recovered} of {each.modes}" if each.modes else "–"
        counts = [str(n) for n in (each.failures, each.with_a_cause, each.causes, each.style_only)]
        used = f"{each.seconds:.1f}", f"{each.peak / 2**20:.0f}"
        named = map(_share, (each.true_of_members, each.passes_beside, each.pair_shows))
        table.add_row(each.name, *counts, modes, _share(each.ari), *plain, *named, *used)
    console.print(table)
    if not minilm.exists():
        print(
            f"MiniLM + HDBSCAN is left out: there is no {minilm} (make lm makes it; --minilm names another)"
        )
    _show_lines(console, [each for each in measured if each.located["n"]])
    for name, (rows, found) in told.items():
        console.print(f"\n[bold]{name}[/bold]")
        held = scores.groups(rows, found.by_row)
        for cause in list(found.causes)[:SHOWN]:
            labels = Counter(row.label or "unplanned" for row in held[cause]).most_common(2)
            true = ", ".join(f"{label} {number}" for label, number in labels)
            console.print(f"  {len(held[cause]):4}  {found.causes[cause][:160]}  ({true})", markup=False)


def _show_lines(console: Console, measured: Sequence[Measured]) -> None:
    if not measured:
        return
    names = list(measured[0].located_plainly)
    table = Table("wrong line, exact", "n", "ours", "within 1", *names)
    for each in measured:
        plain = [_share(each.located_plainly[name]["exact"]) for name in names]
        ours = _share(each.located["exact"]), _share(each.located["within_1"])
        table.add_row(each.name, f"{each.located['n']:.0f}", *ours, *plain)
    console.print(table)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _with_modes(value: float | None, recovered: int | None) -> str:
    return "–" if value is None else f"{value:.3f} ({recovered})"
