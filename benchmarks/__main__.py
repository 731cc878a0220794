"""Measure everything, print one table, write bench.json.

`python -m benchmarks [WORD ...]` measures only the modules `bench_WORD.py`. Each module has a function
`rows() -> list[Row]`. `python -m benchmarks causes`, `growth` and `gpu` have options and output of their own.
"""

import json
import os
import platform
import sys
import time
from dataclasses import asdict
from importlib import import_module
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.rows import Row

HERE = Path(__file__).parent
ALONE = ("causes", "growth", "gpu")
"""Benchmarks with options and a table of their own."""


def _figure(value: float | None, unit: str) -> str:
    return "–" if value is None else f"{value:,.3g} {unit}"


def _times() -> tuple[int, int]:
    """Of all cores, in ticks: what the host took away, and all; zeros where the system does not tell."""
    try:
        ticks = [int(tick) for tick in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except OSError:
        return 0, 0
    return ticks[7], sum(ticks)


def table(rows: list[Row]) -> Table:
    found = Table("what", "measured", "reference", "of", "ratio", "target", "", "note")
    for row in rows:
        mark = {True: "yes", False: "NO", None: ""}[row.met]
        ratio = "–" if row.ratio is None else f"{row.ratio:,.3g} ×"
        figures = (_figure(row.measured, row.unit), _figure(row.reference, row.unit))
        found.add_row(row.name, *figures, row.reference_name, ratio, row.target, mark, row.note)
    return found


def main(words: list[str]) -> int:
    """Exit code 1 where a target was missed."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if words and words[0] in ALONE:
        return import_module(f"benchmarks.{words[0]}").main(words[1:])
    modules = sorted(path.stem for path in HERE.glob("bench_*.py"))
    if words:
        known, modules = modules, [name for name in modules if any(word in name for word in words)]
        if not modules:
            print(f"no benchmark has {' or '.join(words)} in its name; there are: {', '.join(known)}")
            return 2
    rows: list[Row] = []
    stolen: dict[str, float] = {}
    for name in modules:
        began, (taken, ticks) = time.monotonic(), _times()
        rows += import_module(f"benchmarks.{name}").rows()
        taken, ticks = (now - then for now, then in zip(_times(), (taken, ticks), strict=True))
        stolen[name] = taken / max(ticks, 1)
        seconds = f"{time.monotonic() - began:.0f} s"
        print(f"{name}: {seconds}, {stolen[name]:.0%} taken by the host", file=sys.stderr)
    console = Console(width=None if sys.stdout.isatty() else 200)
    console.print(table(rows))
    machine = {"python": platform.python_version(), "machine": platform.machine(), "cpus": os.cpu_count()}
    said = {"machine": machine, "taken_by_host": stolen, "rows": [asdict(row) for row in rows]}
    Path("bench.json").write_text(json.dumps(said, indent=1) + "\n")
    return 1 if any(row.met is False for row in rows) else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
