"""Every published view on 100,000 ingested and diagnosed rollouts, beside reading and decoding the log.

That each grows no worse than n log n: `python -m benchmarks growth`.
"""

import json
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

from benchmarks.growth import write
from benchmarks.rows import Row, cpu_seconds
from diagevo.memory.read.views import ABOUT

ROLLOUTS = 100_000
MOST = 3.0
"""How many times the time of reading and decoding the run's events a view may take, all its rows fetched."""


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        return measured(ROLLOUTS, Path(folder))


def measured(rollouts: int, folder: Path) -> list[Row]:
    write(rollouts, folder)
    database = folder / "diagevo.db"
    on = ["--run", "verl", "--db", f"sqlite:///{database}"]
    for command in (["ingest", "verl", str(folder / "steps")], ["diagnose", "--local"]):
        subprocess.run([sys.executable, "-m", "diagevo", *command, *on], check=True, capture_output=True)
    with closing(sqlite3.connect(database)) as log:

        def decoded() -> None:
            for (payload,) in log.execute("SELECT payload FROM event WHERE run_id = 'verl'"):
                json.loads(payload)

        reading = cpu_seconds(decoded, repeat=3)
        return [_row(log, view, rollouts, reading) for view in ABOUT]


def _row(log: sqlite3.Connection, view: str, rollouts: int, reading: float) -> Row:
    found: list[tuple[object, ...]] = []

    def ask() -> None:
        found[:] = log.execute(f"SELECT * FROM {view} WHERE run_id = 'verl'").fetchall()

    seconds = cpu_seconds(ask, repeat=3)
    ratio = seconds / reading
    return Row(
        f"{view} of {rollouts:,} rollouts",
        seconds,
        "s CPU",
        reading,
        "json.loads of the run's events",
        ratio,
        f"≤ {MOST:g} ×",
        ratio <= MOST,
        f"{len(found):,} rows",
    )
