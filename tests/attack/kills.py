"""Writers of the library, killed at random moments: python -m tests.attack.kills --kills 1000.

One process forks a writer at a time, which plays rounds and tells each verb that returned: the run's head
after it. Every tenth is killed between a commit and its chain head. At the end everything that was told must
be in the log, and the log as it was written. Prints what it found as JSON; exit 1 where something is lost or
wrong.
"""

import argparse
import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import diagevo
from diagevo.memory.audit.verify import verify
from diagevo.memory.log import heads
from diagevo.memory.log.database import Database
from diagevo.memory.log.log import Log
from diagevo.memory.memory import Memory
from tests.memory.play import candidate, failure, new_cause, settle_duplicate, settle_new

RUN = "a"
VERBS = 25
"""A writer tells up to so many verbs before it is killed: about two rounds."""
AFTER = 0.004
"""And is killed up to so many seconds after the last of them, which is about what a verb takes."""


@dataclass(frozen=True)
class Outcome:
    """What the kills left. `acknowledged`: heads that a writer told after a verb; `lost`: those of them that
    are not in the log."""

    kills: int
    acknowledged: int
    lost: int
    events: int
    rounds: int
    heads_missing: int
    """Commits that no head speaks of: the kill came between the two."""
    uncovered: int
    """Of them those after the last head."""
    faults: list[str]

    @property
    def well(self) -> bool:
        return self.lost == self.uncovered == 0 and not self.faults


def a_round(memory: Memory) -> Iterator[None]:
    """The next round, or what is left of the open one: each verb that is done already says so and goes on."""
    number = memory.state.open.number if memory.state.open else memory.state.round + 1
    memory.open_round(number)
    yield
    questions = [f"r{number}.q{i}" for i in range(3)]
    memory.score([candidate(q) for q in questions])
    yield
    if memory.stage("solver").status != "completed":
        memory.start_stage("solver")
        yield
    failures = [f"{q}.a0" for q in questions]
    for failure_id in failures:
        memory.observe([failure(failure_id)])
        yield
    memory.complete_stage("solver")
    yield
    memory.diagnosed([new_cause(f.failure_id, "drops a carry") for f in memory.undiagnosed()])
    yield
    for diagnosed in memory.unsettled():
        if memory.state.causes:
            settle_duplicate(memory, diagnosed.failure_id, "c1")
        else:
            settle_new(memory, diagnosed.failure_id, label="add")
        yield
    memory.commit()
    yield


def _killing(memory: Memory) -> Callable[[Path, heads.ChainHead], None]:
    """In place of `heads.append`: a kill where the head is that of a commit."""
    append = heads.append

    def instead(folder: Path, head: heads.ChainHead) -> None:
        if memory.state.open is None:
            os.kill(os.getpid(), signal.SIGKILL)
        append(folder, head)

    return instead


def write(url: str, root: Path, told: int, *, until_commit: bool) -> None:
    """Play rounds for ever, and tell the head after each verb."""
    with diagevo.open(url, run=RUN, root=root) as memory:
        if until_commit:
            heads.append = _killing(memory)
        while True:
            for _ in a_round(memory):
                head = memory.log.head(RUN)
                os.write(told, f"{head.sequence} {head.hash}\n".encode())


def killed(url: str, root: Path, chance: random.Random, *, until_commit: bool) -> set[str]:
    """One writer, killed; the heads that it told."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reads)
        try:
            write(url, root, writes, until_commit=until_commit)
        except BaseException as error:
            os.write(writes, f"failed {error!r}\n".encode().replace(b"\n", b" "))
        finally:
            os._exit(1)
    os.close(writes)
    with open(reads, encoding="utf-8") as lines:
        told = [] if until_commit else [lines.readline() for _ in range(chance.randint(0, VERBS))]
        if not until_commit:
            time.sleep(chance.uniform(0, AFTER if told else 20 * AFTER))
            os.kill(child, signal.SIGKILL)
        told += lines.readlines()
    os.waitpid(child, 0)
    if failed := [line for line in told if line.startswith("failed")]:
        raise RuntimeError(failed[0])
    return {line for line in told if line.endswith("\n")}


def attack(url: str, root: Path, kills: int, seed: int) -> Outcome:
    """Kill `kills` writers of one run, then look at what is there."""
    chance = random.Random(seed)
    told: set[str] = set()
    for number in range(1, kills + 1):
        told |= killed(url, root, chance, until_commit=number % 10 == 0)
    with diagevo.open(url, run=RUN, root=root) as memory:
        for _ in a_round(memory):
            pass
    database = Database(url)
    log = Log(database)
    report = verify(log, RUN, root / RUN)
    there = {f"{record.sequence} {record.hash}\n" for record in log.read(RUN)}
    commits = {record.sequence for record in log.read(RUN, types=["RoundCommitted"])}
    database.close()
    kept = heads.read(root / RUN / heads.NAME).heads
    return Outcome(
        kills=kills,
        acknowledged=len(told),
        lost=len(told - there),
        events=report.events,
        rounds=report.rounds,
        heads_missing=len(commits - {head.sequence for head in kept}),
        uncovered=sum(commit > max(head.sequence for head in kept) for commit in commits),
        faults=[fault.message for fault in report.faults],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--db", help="an empty, migrated database (default: a new SQLite file)")
    asked = parser.parse_args()
    with TemporaryDirectory() as folder:
        url = asked.db or f"sqlite:///{folder}/log.db"
        outcome = attack(url, Path(folder), asked.kills, asked.seed)
    print(json.dumps(asdict(outcome)))
    sys.exit(0 if outcome.well else 1)


if __name__ == "__main__":
    main()
