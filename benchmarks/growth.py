"""`python -m benchmarks growth`: what each command costs on 10,000, 100,000 and a million rollouts.

The same commands at each size, a process each: CPU seconds, peak memory and bytes written, and between two
sizes the exponent of the CPU time over that of a bare start (1 grows with the data, 2 with its square).
Rollouts are of about 800 bytes, no two alike; a quarter fails, in one of five ways. A command over its time
ends its row.
"""

import argparse
import contextlib
import json
import math
import os
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.rows import PEAK, PROGRAM, peak_of

SIZES = (10_000, 100_000, 1_000_000)
GROUP, STEP = 8, 1024
"""Responses to a prompt, and rollouts of a step."""
LONGEST = 1800
"""Seconds that a command may take."""
STEEP = 1.15
"""An exponent that n log n does not explain: between ten and a hundred thousand it has 1.10."""
SMALL = 0.5
"""CPU seconds over a bare start below which an exponent says nothing."""
WAYS = (
    "so we add the two instead of multiplying them",
    "there is no need to convert the hours",
    "we can leave the last part out",
    "rounding down at once gives",
    "the percentage is taken off as it stands",
)
WORDS = re.findall(
    r"\w+",
    "first the amount per day is known then it follows that each of them holds what remains after the cut "
    "we compute it by taking half of all boxes and check this against the number given above because "
    "every train leaves twice an hour while rest goes on by road where speed is lower than before",
)


@dataclass(frozen=True, slots=True)
class Used:
    """What a command took; `note` says why there is nothing."""

    seconds: float | None
    peak: int = 0
    written: int = 0
    note: str = ""


def main(arguments: Sequence[str]) -> int:
    """Exit code 1 where a cost grows worse than n log n."""
    parser = argparse.ArgumentParser("python -m benchmarks growth", description=__doc__)
    parser.add_argument(
        "--most", type=int, default=SIZES[-1], metavar="N", help="rollouts of the largest size"
    )
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where files and databases are kept")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the figures as JSON, too")
    asked = parser.parse_args(arguments)
    sizes = [size for size in SIZES if size <= asked.most] or [asked.most]
    found: dict[int, dict[str, Used]] = {}
    with tempfile.TemporaryDirectory() as own:
        for size in sizes:
            found[size] = dict(_measured(size, (asked.folder or Path(own)) / f"of-{size}"))
    table, steep = shown(found)
    Console(width=None if sys.stdout.isatty() else 40 + 44 * len(sizes)).print(table)
    if asked.json is not None:
        plain = {size: {name: asdict(used) for name, used in each.items()} for size, each in found.items()}
        asked.json.write_text(json.dumps(plain, indent=1) + "\n")
    if steep:
        print(f"worse than n log n: {', '.join(steep)}")
    return 1 if steep else 0


def exponent(few: int, many: int, before: float, after: float, start: float) -> float | None:
    """Of the CPU time over `start`; None where there is too little of it to say."""
    if after - start < SMALL:
        return None
    return math.log((after - start) / max(before - start, 0.02)) / math.log(many / few)


def shown(found: dict[int, dict[str, Used]]) -> tuple[Table, list[str]]:
    """The table, and the commands whose cost grows worse than n log n."""
    sizes = list(found)
    table = Table()
    table.add_column("command", no_wrap=True)
    for title in (*(f"{size:,}: CPU s" for size in sizes), *(f"{size:,}: MiB" for size in sizes)):
        table.add_column(title, justify="right")
    for size in sizes:
        table.add_column(f"{size:,}: written MiB", justify="right")
    table.add_column("exponent")
    table.add_column("")
    steep = []
    for name in found[sizes[0]]:
        used = [found[size].get(name, Used(None)) for size in sizes]
        exponents = []
        for place in range(1, len(sizes)):
            few, many = used[place - 1].seconds, used[place].seconds
            if few is not None and many is not None:
                start = found[sizes[place]]["--version"].seconds or 0.0
                grows = exponent(sizes[place - 1], sizes[place], few, many, start)
                exponents.append("–" if grows is None else f"{grows:.2f}")
                if grows is not None and grows > STEEP:
                    steep.append(name)
        cells = [
            *("–" if each.seconds is None else f"{each.seconds:.2f}" for each in used),
            *("–" if each.seconds is None else f"{each.peak / 2**20:,.0f}" for each in used),
            *("–" if each.seconds is None else f"{each.written / 2**20:,.1f}" for each in used),
        ]
        table.add_row(name, *cells, " ".join(exponents), next((each.note for each in used if each.note), ""))
    return table, sorted(set(steep))


def _measured(size: int, folder: Path) -> Iterator[tuple[str, Used]]:
    folder.mkdir(parents=True, exist_ok=True)
    print(f"{size:,} rollouts", file=sys.stderr, flush=True)
    write(size, folder)
    url = f"sqlite:///{folder}/diagevo.db"
    for name, arguments in _commands(folder, url):
        used = _run(arguments, folder)
        print(f"  {name}: {used.seconds} s {used.note}", file=sys.stderr, flush=True)
        yield name, used
    if find_spec("inspect_ai") is None:
        yield "ingest inspect", Used(None, note="inspect_ai is not installed")
    database = folder / "diagevo.db"
    for view in _views(database):
        query = [
            "memory",
            "query",
            f"SELECT * FROM {view}",
            "--format",
            "jsonl",
            "-o",
            str(folder / f"{view}.jsonl"),
        ]
        used = _run([*query, "--run", "verl", "--db", url], folder)
        (folder / f"{view}.jsonl").unlink(missing_ok=True)
        print(f"  {view}: {used.seconds} s {used.note}", file=sys.stderr, flush=True)
        yield view, used
    for name, page in (("first page", "verl/index.html"), ("page of a cause", "verl/causes/c1.html")):
        yield name, _page(url, page, folder)


def _commands(folder: Path, url: str) -> Iterator[tuple[str, list[str]]]:
    on, bundle = ["--run", "verl", "--db", url], folder / "run.bundle"
    bundle.unlink(missing_ok=True)
    for left in (*folder.glob("diagevo.db*"), *folder.glob("imported.db*")):
        left.unlink()
    for run in ("verl", "jsonl", "inspect"):
        shutil.rmtree(folder / run, ignore_errors=True)
    yield "--version", ["--version"]
    yield "ingest verl", ["ingest", "verl", str(folder / "steps"), *on]
    yield "ingest verl, again", ["ingest", "verl", str(folder / "steps"), *on]
    yield "ingest jsonl", ["ingest", "jsonl", str(folder / "rows.jsonl"), "--run", "jsonl", "--db", url]
    if find_spec("inspect_ai") is not None:
        _inspect_log(folder)
        yield (
            "ingest inspect",
            ["ingest", "inspect", str(folder / "log.eval"), "--run", "inspect", "--db", url],
        )
    yield "diagnose --local", ["diagnose", "--local", *on]
    yield "memory show", ["memory", "show", *on]
    yield "memory why c1", ["memory", "why", "c1", *on]
    yield "memory log -n 3", ["memory", "log", "-n", "3", *on]
    yield "runs list", ["runs", "list", "--db", url]
    yield "runs show", ["runs", "show", "verl", "--db", url]
    yield "memory verify", ["memory", "verify", *on]
    yield "runs export", ["runs", "export", "verl", "-o", str(bundle), "--db", url]
    yield "runs import", ["runs", "import", str(bundle), "--db", f"sqlite:///{folder}/imported.db"]


def _run(arguments: Sequence[str], folder: Path) -> Used:
    (folder / "status").unlink(missing_ok=True)
    with (folder / "said").open("w") as said:
        child = subprocess.Popen(
            [*PROGRAM, *arguments], stdout=said, stderr=said, cwd=folder, env=_environment(folder)
        )
        begun, status, used = time.monotonic(), None, None
        while status is None:
            pid, code, used = os.wait4(child.pid, os.WNOHANG)
            if pid:
                status = code
            elif time.monotonic() - begun > LONGEST:
                child.kill()
                child.returncode = os.waitstatus_to_exitcode(os.wait4(child.pid, 0)[1])
                return Used(None, note=f"longer than {LONGEST} s")
            else:
                time.sleep(0.02)
    child.returncode = os.waitstatus_to_exitcode(status)
    note = f"exit code {child.returncode}" if child.returncode else ""
    assert used is not None
    return Used(used.ru_utime + used.ru_stime, peak_of(folder / "status"), used.ru_oublock * 512, note)


def _environment(folder: Path) -> dict[str, str]:
    """Bytecode is kept, as it is where people install it: else each command compiles what it imports."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "DIAGEVO_HOME": str(folder), "NO_COLOR": "1", PEAK: str(folder / "status")}


def _views(database: Path) -> list[str]:
    with contextlib.closing(sqlite3.connect(database)) as log:
        names = log.execute(
            "SELECT name FROM sqlite_master WHERE type = 'view' AND name LIKE 'v\\_%' ESCAPE '\\'"
        )
        return sorted(name for (name,) in names)


def _page(url: str, page: str, folder: Path) -> Used:
    """CPU seconds of a request for a page, after one that opened it, and of a bare start."""
    command = [*PROGRAM, "view", "--port", "0", "--no-open", "--run", "verl", "--db", url]
    child = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=folder,
        env=_environment(folder),
    )
    try:
        assert child.stdout is not None
        at = child.stdout.readline().strip()
        base, _, token = at.partition("?token=")
        root = base.split("/verl/")[0]
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        opener.open(f"{root}/verl/index.html?token={token}", timeout=LONGEST).read()
        before = _ticks(child.pid)
        text = opener.open(f"{root}/{page}", timeout=LONGEST).read()
        took = (_ticks(child.pid) - before) / os.sysconf("SC_CLK_TCK")
        start = _run(["--version"], folder).seconds or 0.0
        return Used(took + start, note=f"a request, {len(text) // 1000} kB")
    except OSError as error:
        return Used(None, note=f"{page}: {error}")
    finally:
        child.send_signal(signal.SIGINT)
        child.wait()


def _ticks(process: int) -> int:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def write(size: int, folder: Path) -> None:
    """The same rollouts in the forms of verl and of plain rows. What is there already stays."""
    if (folder / "rows.jsonl").exists():
        return
    (folder / "steps").mkdir(exist_ok=True)
    rng = random.Random(size)
    with (folder / "rows.tmp").open("w") as plain:
        for step in range(1, -(-size // STEP) + 1):
            with (folder / "steps" / f"{step}.jsonl").open("w") as out:
                for prompt, response, reward in _rollouts(min(STEP, size - (step - 1) * STEP), rng):
                    row = {"input": prompt, "output": response, "gts": "7", "score": reward, "step": step}
                    out.write(json.dumps(row) + "\n")
                    row = {
                        "prompt": prompt,
                        "response": response,
                        "reward": reward,
                        "answer": "7",
                        "step": step,
                    }
                    plain.write(json.dumps(row) + "\n")
    (folder / "rows.tmp").rename(folder / "rows.jsonl")


def _rollouts(number: int, rng: random.Random) -> Iterator[tuple[str, str, float]]:
    for first in range(0, number, GROUP):
        prompt = f"Problem {rng.randrange(10**7)}: {' '.join(rng.choices(WORDS, k=22))}?"
        usual = rng.choice(WAYS)
        for _ in range(min(GROUP, number - first)):
            reward = float(rng.random() < 0.75)
            words = rng.choices(WORDS, k=100)
            for at in range(6, 100, 12):
                words[at] = f"{rng.randint(2, 999)} * {rng.randint(2, 99)}\n"
            if not reward:
                words.insert(rng.randrange(100), usual if rng.random() < 0.8 else rng.choice(WAYS))
            yield prompt, f"{' '.join(words)}\nThe answer is {7 if reward else rng.randint(8, 99)}.", reward


def _inspect_log(folder: Path) -> None:
    """The rollouts as an evaluation of Inspect: every group a sample, every response an epoch."""
    if (folder / "log.eval").exists():
        return
    logs, models, scorers = (import_module(f"inspect_ai.{name}") for name in ("log", "model", "scorer"))
    samples, places = [], {}
    with (folder / "rows.jsonl").open() as lines:
        for line in lines:
            row = json.loads(line)
            name, epoch = places.get(row["prompt"], (len(places), 0))
            places[row["prompt"]] = name, epoch + 1
            output = models.ModelOutput.from_content("m", row["response"])
            asked = models.ChatMessageUser(content=row["prompt"])
            samples.append(
                logs.EvalSample(
                    id=name,
                    epoch=epoch + 1,
                    input=row["prompt"],
                    target="7",
                    messages=[asked, output.choices[0].message],
                    output=output,
                    scores={"match": scorers.Score(value="C" if row["reward"] else "I")},
                )
            )
    spec = logs.EvalSpec(
        created="2025-01-01T00:00:00+00:00",
        task="t",
        dataset=logs.EvalDataset(),
        model="m",
        config=logs.EvalConfig(),
    )
    logs.write_eval_log(logs.EvalLog(status="success", eval=spec, samples=samples), str(folder / "log.eval"))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
