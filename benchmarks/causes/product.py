"""The product's own way: `ingest jsonl`, `diagnose`, and the causes as the log has them."""

import importlib
import json
import multiprocessing
import os
import sqlite3
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.causes.rows import LabelledRow, write
from benchmarks.rows import PEAK, PROGRAM, peak_of

LOADED = importlib.import_module("diagevo.cli.main")  # in a checkout the package `cli`
NOT_FOUND = 3
"""Exit code where nothing can be said of the failures."""


@dataclass(frozen=True, slots=True)
class Diagnosed:
    """What the product says of a set."""

    causes: dict[str, str]
    """Description of each cause that has a failure, by id, the largest first."""
    by_row: list[str | None]
    """The cause of each row; None where it has none, or passed."""
    pairs: list[dict[str, Any] | None]
    """The place that is marked in each failed row, beside a response that passed."""
    lines: list[int | None]
    """The line of each failed row that is named as where it goes wrong, from 0."""
    printed: str
    """What `diagnose` printed."""
    seconds: float
    """CPU seconds of `diagnose`."""
    peak: int
    """Bytes that it held at most."""


def diagnosed(
    rows: Sequence[LabelledRow], model: str | None = None, base_url: str | None = None
) -> Diagnosed:
    """Raises CalledProcessError, with what the command said, where one of the two fails."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(rows, folder / "rows.jsonl", labelled=False)
        database = folder / "diagevo.db"
        of_run = ["--run", "causes", "--db", f"sqlite:///{database}"]
        _played(["ingest", "jsonl", str(folder / "rows.jsonl"), *of_run], folder)
        who = (
            ["--local"]
            if model is None
            else ["--model", model, *(["--base-url", base_url] if base_url else [])]
        )
        printed, seconds, peak = _played(["diagnose", *who, *of_run], folder)
        return _read(database, rows, printed, seconds, peak)


def _played(arguments: Sequence[str], folder: Path) -> tuple[str, float, int]:
    """Output, CPU seconds and peak memory of a command."""
    said = folder / "said"
    with said.open("w") as out:
        environment = {
            **os.environ,
            "DIAGEVO_HOME": str(folder),
            "COLUMNS": "100",
            PEAK: str(folder / "status"),
        }
        child = subprocess.Popen([*PROGRAM, *arguments], stdout=out, stderr=out, env=environment, cwd=folder)
        _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    text = said.read_text()
    if child.returncode not in (0, NOT_FOUND):
        raise subprocess.CalledProcessError(child.returncode, ["diagevo", *arguments], text)
    return text, used.ru_utime + used.ru_stime, peak_of(folder / "status")


def found(rows: Sequence[LabelledRow]) -> Diagnosed:
    """As `diagnosed`, in a child that has the program loaded: without its seconds and its peak."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(rows, folder / "rows.jsonl", labelled=False)
        of_run = ["--run", "causes", "--db", f"sqlite:///{folder / 'diagevo.db'}"]
        for words in (["ingest", "jsonl", str(folder / "rows.jsonl")], ["diagnose", "--local"]):
            child = multiprocessing.get_context("fork").Process(
                target=_forked, args=([*words, *of_run], folder)
            )
            child.start()
            child.join()
            if child.exitcode not in (0, NOT_FOUND):
                text = (folder / "said").read_text()
                raise subprocess.CalledProcessError(child.exitcode or 1, ["diagevo", *words], text)
        return _read(folder / "diagevo.db", rows, (folder / "said").read_text(), 0.0, 0)


def _forked(arguments: Sequence[str], folder: Path) -> None:
    os.environ.update(DIAGEVO_HOME=str(folder), COLUMNS="100")
    os.chdir(folder)
    with (folder / "said").open("w") as out:
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
    LOADED.app(list(arguments))


def _read(database: Path, rows: Sequence[LabelledRow], printed: str, seconds: float, peak: int) -> Diagnosed:
    log = sqlite3.connect(database)
    try:
        questions = dict(log.execute("SELECT question_id, question FROM v_candidate"))
        counted = dict(log.execute("SELECT failure_id, cause_id FROM v_match"))
        created = (
            "SELECT json_extract(payload, '$.failure_id'), cause_id FROM v_event WHERE type = 'CauseCreated'"
        )
        counted |= dict(log.execute(created))
        texts = {
            digest: str(text, "utf-8") for digest, text in log.execute("SELECT digest, content FROM artifact")
        }
        observed: dict[tuple[str, str], tuple[str | None, dict[str, Any] | None, int | None]] = {}
        diagnosed = "SELECT payload FROM v_event WHERE type = 'FailureDiagnosed'"
        said = {one["failure_id"]: one for (text,) in log.execute(diagnosed) if (one := json.loads(text))}
        steps = {failure: one["step"]["line"] for failure, one in said.items() if one.get("step")}
        query = "SELECT failure_id, question_id, trajectory FROM v_failure"
        for failure, question, trajectory in log.execute(query):
            known = counted.get(failure), said.get(failure, {}).get("pair"), steps.get(failure)
            observed[texts[questions[question]], texts[trajectory]] = known
        named = dict(log.execute("SELECT cause_id, description FROM v_cause"))
    finally:
        log.close()
    by_row: list[str | None] = []
    pairs: list[dict[str, Any] | None] = []
    lines: list[int | None] = []
    for row in rows:
        key = row.question, row.text
        cause, pair, line = observed.get(key, (None, None, None)) if row.failed else (None, None, None)
        by_row.append(cause)
        pairs.append(pair)
        lines.append(line)
    sizes = {cause: by_row.count(cause) for cause in named}
    largest = sorted((cause for cause in named if sizes[cause]), key=lambda cause: -sizes[cause])
    return Diagnosed({cause: named[cause] for cause in largest}, by_row, pairs, lines, printed, seconds, peak)
