"""What an auditor asks of a long run, by the real commands, a process each: CPU time and memory.

Memory is the process's own high-water mark (`VmHWM`); getrusage's would begin at the parent's. The promise is
that it does not grow with the log. `python -m benchmarks.bench_audit 1000000 [FOLDER]` asks a longer
run, and keeps it in the folder.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.rows import Row
from tests.memory.audit.long_run import LongRun

EVENTS = 100_000
"""A minute or two; a million takes half an hour: `python -m benchmarks.bench_audit 1000000`."""
MOST = 400
"""MiB that a command may hold, however long the log is."""

_CHILD = """
import json, resource, sys
from diagevo.cli.main import app
try:
    app()
except SystemExit as ended:
    code = ended.code
used = resource.getrusage(resource.RUSAGE_SELF)
[peak] = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(json.dumps([code, used.ru_utime + used.ru_stime, int(peak) / 1024]), file=sys.stderr)
"""


def questions(folder: Path) -> dict[str, list[str]]:
    """What is asked, in an order in which each finds what it needs."""
    return {
        "memory show": ["memory", "show"],
        "memory why": ["memory", "why", "c1"],
        "memory replay": ["memory", "replay"],
        "memory log | head": ["memory", "log"],
        "memory log to a file": ["memory", "log", "--format", "jsonl", "-o", str(folder / "log.jsonl")],
        "memory query to a file": [
            *("memory", "query", "SELECT * FROM v_event", "--format", "csv", "-o", str(folder / "events.csv"))
        ],
        "memory verify": ["memory", "verify"],
        "memory verify --deep": ["memory", "verify", "--deep"],
        "memory what-if": ["memory", "what-if", "--theta-up", "0.8"],
        "runs export": ["runs", "export", "-o", str(folder / "bundle.db")],
        "runs import": ["runs", "import", str(folder / "bundle.db"), "--name", "back"],
        "memory rebuild": ["memory", "rebuild"],
        "runs fork": ["runs", "fork", "1", "--name", "forked"],
        "db backup": ["db", "backup", str(folder / "backup.db")],
    }


def line(folder: Path, arguments: list[str]) -> list[str]:
    """A question with the database and the run that it is asked of."""
    where = ["--db", f"sqlite:///{folder / ('imported.db' if 'import' in arguments else 'long.db')}"]
    if "import" not in arguments and "backup" not in arguments:
        where += ["--run", "long"]
    return [*arguments, *where]


def ask(folder: Path, name: str, arguments: list[str]) -> tuple[float, float]:
    """CPU seconds and peak MiB of one command. Raises AssertionError where it does not end well."""
    head = name.endswith("| head")
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD, *line(folder, arguments)],
        stdout=subprocess.PIPE if head else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    if head and child.stdout is not None:
        for _ in range(10):
            child.stdout.readline()
        child.stdout.close()
    _, said = child.communicate()
    lines = said.strip().splitlines()
    code, seconds, peak = json.loads(lines[-1])
    assert code in (0, None), (name, said)
    return seconds, peak


def measured(folder: Path, events: int) -> list[Row]:
    if not (folder / "long.db").exists():
        LongRun(folder, events, texts=True).close()
    for left in ("bundle.db", "imported.db", "backup.db"):
        (folder / left).unlink(missing_ok=True)
    rows = []
    for name, arguments in questions(folder).items():
        seconds, peak = ask(folder, name, arguments)
        note = f"{seconds:.2f} CPU s over {events:,} events and more"
        rows.append(Row(name, peak, "MiB", None, "", None, f"≤ {MOST} MiB", peak <= MOST, note))
        print(f"{name:<26} {seconds:8.2f} CPU s {peak:6.0f} MiB", file=sys.stderr, flush=True)
    return rows


def rows() -> list[Row]:
    with tempfile.TemporaryDirectory() as folder:
        return measured(Path(folder), EVENTS)


if __name__ == "__main__":
    wanted = int(sys.argv[1]) if len(sys.argv) > 1 else EVENTS
    with tempfile.TemporaryDirectory() as own:
        measured(Path(sys.argv[2]) if len(sys.argv) > 2 else Path(own), wanted)
