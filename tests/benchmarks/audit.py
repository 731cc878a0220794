"""What an auditor asks of a long run, each question in a process of its own: CPU seconds and peak memory.

python -m tests.benchmarks.audit [EVENTS] [FOLDER]

Peak memory is the process's resident maximum; the first row, which only opens the run, is what imports cost.
"""

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from diagevo.memory.backup import backup
from diagevo.memory.bundle import check_bundle, export_bundle, import_bundle
from diagevo.memory.database import Database
from diagevo.memory.fork import fork
from diagevo.memory.history import History, open_history
from diagevo.memory.migrate import prepare
from diagevo.memory.replay import rebuild
from diagevo.memory.trail import Trail, trail
from diagevo.memory.verify import verify
from diagevo.memory.whatif import Changes, observations, what_if
from diagevo.memory.why import why_cause
from tests.benchmarks.long_run import LongRun


def _opened(history: History, folder: Path) -> object:
    return history.end.position


def _why(history: History, folder: Path) -> object:
    """The cause with the most to tell: the first."""
    return len(why_cause(history, "c1", history.end).turns)


def _log(history: History, folder: Path) -> object:
    return sum(1 for _ in trail(history, Trail(), history.end))


def _replay(history: History, folder: Path) -> object:
    return rebuild(history, history.end).failures


def _verify(history: History, folder: Path) -> object:
    report = verify(history.log, history.run_id, folder / history.run_id)
    return "ok" if report.ok else report.faults[0].message


def _what_if(history: History, folder: Path) -> object:
    return what_if(observations(history, history.end), Changes(theta_up=None)).diverges


def _export_jsonl(history: History, folder: Path) -> object:
    return export_bundle(history, history.end, folder / "jsonl", "jsonl").events


def _export_parquet(history: History, folder: Path) -> object:
    return export_bundle(history, history.end, folder / "parquet", "parquet").events


def _check(history: History, folder: Path) -> object:
    return check_bundle(folder / "jsonl").events


def _import(history: History, folder: Path) -> object:
    target = Database(str(folder / "imported.db"))
    prepare(target, create=True)
    return import_bundle(folder / "parquet", target).events


def _fork(history: History, folder: Path) -> object:
    return fork(history, history.commits[-1].round, "forked").written.events


def _backup(history: History, folder: Path) -> object:
    return backup(history.database, folder / "backup.db").position


QUESTIONS: dict[str, Callable[[History, Path], object]] = {
    "open": _opened,
    "why": _why,
    "log": _log,
    "replay": _replay,
    "verify": _verify,
    "what-if": _what_if,
    "export jsonl": _export_jsonl,
    "export parquet": _export_parquet,
    "check bundle": _check,
    "import": _import,
    "backup": _backup,
    "fork": _fork,
}


def ask(name: str, folder: Path) -> None:
    """Answer one question in this process, and print what it took."""
    history = open_history(str(folder / "long.db"), "long")
    began = time.process_time()
    answer = QUESTIONS[name](history, folder)
    took = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"question": name, "answer": answer, "cpu_seconds": took, "peak_mib": peak}))
    history.close()


def main(events: int, folder: Path) -> list[dict]:
    began = time.process_time()
    if not (folder / "long.db").exists():
        LongRun(folder, events, per_round=events // 10).close()
    print(f"{events} events written in {time.process_time() - began:.1f} CPU s", flush=True)
    rows = []
    for name in QUESTIONS:
        command = [sys.executable, "-m", "tests.benchmarks.audit", "--ask", name, str(folder)]
        out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        rows.append(json.loads(out))
        row = rows[-1]
        print(
            f"{name:<16} {row['cpu_seconds']:8.2f} CPU s {row['peak_mib']:8.0f} MiB   {row['answer']}",
            flush=True,
        )
    return rows


if __name__ == "__main__":
    if sys.argv[1:2] == ["--ask"]:
        ask(sys.argv[2], Path(sys.argv[3]))
    else:
        wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
        with TemporaryDirectory() as own:
            main(wanted, Path(sys.argv[2]) if len(sys.argv) > 2 else Path(own))
