"""`diagevo train` as a program of its own, watched through its JSON lines, and where its run ended."""

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import structs

from diagevo.memory.audit.verify import verify
from diagevo.memory.events import catalogue as events
from diagevo.memory.history import History, open_history
from diagevo.progress import VALIDATION
from tests.forked import Forked
from tests.run.small import small_config
from tests.run.test_round import of, placements
from tests.sampling.processes import state

Line = dict[str, Any]
Act = Callable[[Forked], object]


@dataclass(frozen=True)
class Moment:
    """What is done to the program where it tells of this event of this stage; it stands still there."""

    stage: str
    event: str
    act: Act


@dataclass(frozen=True)
class Told:
    """All lines that a program printed, its exit code, and its stderr."""

    lines: list[Line]
    code: int
    stderr: str

    def steps(self, stage: str) -> list[int]:
        """The optimizer steps of a stage that were played, in order."""
        return [n["done"] for n in self.lines if n["event"] == "stage_progress" and n["stage"] == stage]

    def stages(self) -> list[str]:
        """Those of rounds that began, in order."""
        began = [line["stage"] for line in self.lines if line["event"] == "stage_started"]
        return [stage for stage in began if stage != VALIDATION]

    def messages(self) -> str:
        return "\n".join(line["text"] for line in self.lines if line["event"] == "message")

    def error(self) -> dict[str, str]:
        """What the program ended with."""
        assert self.lines[-1]["event"] == "error", self.lines[-1]
        return self.lines[-1]


def first(home: Path, **changes: Mapping[str, object]) -> list[str]:
    """The arguments that start the small run, of one round."""
    config = small_config(**changes).model_dump(mode="json", exclude_unset=True)
    (home / "small.yaml").write_text(json.dumps(config), encoding="utf-8")
    return ["-c", str(home / "small.yaml"), "--rounds", "1"]


RESUMED = ["--resume", "--rounds", "1"]


PROGRAM = "tests.preloaded:program"
WITH_FORKED_RANKS = "tests.training.forked_ranks:program"


def start(home: Path, *arguments: str, main: str = PROGRAM, **told: str) -> Forked:
    """The program over `home`, in a process of its own; `told`: its environment (tests/preloaded.py)."""
    return Forked(main, arguments, env={**os.environ, "DIAGEVO_HOME": str(home), **told})


def stood_still(process: Forked) -> None:
    """Wait until it has stopped itself."""
    while state(process.pid) != "T":
        time.sleep(0.001)


def played(
    home: Path,
    arguments: Sequence[str],
    *moments: Moment,
    database: str = "",
    main: str = PROGRAM,
    **told: str,
) -> Told:
    """Play run `a` of `home` in a process of its own, to its end; each moment is met at most once."""
    where = ["--db", database] if database else []
    lines: list[Line] = []
    waiting = list(moments)
    command = ["train", "--run", "a", *where, *arguments, "--display", "json"]
    still = " ".join(f"{moment.stage}:{moment.event}" for moment in moments)
    with start(home, *command, main=main, STANDS_STILL=still, **told) as process:
        reader = ThreadPoolExecutor(1)
        errors = reader.submit(process.stderr.read)  # all the while: a full pipe would stop the program
        try:
            for text in process.stdout:
                line = json.loads(text)
                lines.append({"event": "error", **line["error"]} if "error" in line else line)
                met = [m for m in waiting if (m.event, m.stage) == (line.get("event"), line.get("stage"))]
                for moment in met[:1]:
                    waiting.remove(moment)
                    stood_still(process)
                    moment.act(process)
                    process.send_signal(signal.SIGCONT)
            return Told(lines, process.wait(timeout=60), errors.result())
        finally:
            process.kill()
            reader.shutdown()


def killed(process: Forked) -> None:
    process.send_signal(signal.SIGKILL)


def terminated(process: Forked) -> None:
    process.send_signal(signal.SIGTERM)


def assert_same_end(home: Path, unbroken: Path, database: str = "") -> History:
    """The run of `home` ends where the unbroken one does, each failure counted once. Open, to ask more."""
    a = open_history(f"sqlite:///{unbroken / 'diagevo.db'}", "a", root=unbroken)
    b = open_history(database or f"sqlite:///{home / 'diagevo.db'}", "a", root=home)
    try:
        assert b.commit(1).event.state_hash == a.commit(1).event.state_hash
        assert b.commit(1).event.failures == a.commit(1).event.failures
        assert _valid_failures(b) == _valid_failures(a)
        assert _valid_steps(b) == _valid_steps(a)
        assert _rewards(b) == _rewards(a)
        placed = [event.failure_id for event in placements(b)]
        assert max(Counter(placed).values()) == 1, "no failure is counted twice"
        for history in (a, b):
            assert history.root is not None
            report = verify(history.log, history.run_id, history.root / "a", deep=True)
            assert report.ok, report.faults
    finally:
        a.close()
    for role in ("challenger", "solver"):
        weights = f"a/rounds/001/{role}/model.safetensors"
        assert (home / weights).read_bytes() == (unbroken / weights).read_bytes(), role
    return b


def _valid_failures(history: History) -> dict[str, str]:
    """Observed failures that no abandonment voided, with their trajectory: read from the events by hand."""
    after = {(event.stage, event.attempt): event.after_step for event in of(history, events.StageAbandoned)}
    observed = of(history, events.FailureObserved)
    return {f.failure_id: f.trajectory for f in observed if f.step <= after.get((f.stage, f.attempt), f.step)}


def _valid_steps(history: History) -> dict[tuple[str, int], events.StepTrained]:
    """The steps of training that no abandonment voided, whatever attempt played them."""
    given_up = of(history, events.StageAbandoned)
    return {
        (one.stage, one.step): structs.replace(one, attempt=0)
        for one in of(history, events.StepTrained)
        if all(
            one.step <= end.after_step
            for end in given_up
            if (end.stage, end.attempt) == (one.stage, one.attempt)
        )
    }


def _rewards(history: History) -> dict[str, float | None]:
    return {done.stage: done.reward for done in of(history, events.StageCompleted)}
