"""Runs of six kinds in one database: trained, forked, ingested, running, empty and broken."""

import json
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import diagevo
from diagevo.memory.events import CheckpointEvaluated
from diagevo.memory.history import open_history
from diagevo.memory.log import heads
from diagevo.memory.memory import Memory
from diagevo.memory.transfer.fork import fork
from tests.ingest.conftest import CONFIGURED, step
from tests.ingest.test_recording import diagnose, record
from tests.memory.audit.played import Player, play

KINDS = ("trained", "forked", "ingested", "running", "empty", "broken")


def make(home: Path) -> None:
    """All of them, in `home`/diagevo.db."""
    url = f"sqlite:///{home / 'diagevo.db'}"
    with diagevo.open(url, "empty", root=home) as memory:
        Player(memory).configure()
    with diagevo.open(url, "trained", root=home) as memory:
        Player(memory).configure()
        measure(memory, 0, 0.5, {"T0.77": 0.55, "T0.5": 0.625})
    play_on(url, "trained", home, 4)
    with diagevo.open(url, "trained", root=home) as memory:
        measure(memory, 4, 0.7, {"T0.77": 0.73, "T0.5": 0.71})
    with closing(open_history(str(home / "diagevo.db"), "trained", root=home)) as history:
        fork(history, 2, "forked", root=home)
    play_on(url, "forked", home, 3, since=2)
    with diagevo.open(url, "forked", root=home) as memory:
        measure(memory, 3, 0.51)
    for run in ("running", "broken"):
        play(url, run, root=home, rounds=2)
        with diagevo.open(url, run, root=home) as memory:
            _under_way(Player(memory), killed=run == "broken")
    file = home / "broken" / heads.NAME
    found = [json.loads(line) for line in file.read_text().splitlines()]
    found[-1]["hash"] = "0" * 64
    file.write_text("".join(f"{json.dumps(line)}\n" for line in found))
    with diagevo.open(url, "ingested", root=home) as memory:
        memory.configure(CONFIGURED)
        record(memory, step(1, a="+---", b="++--", c="++"), step(2, b="+---", d="----"))
        diagnose(memory, {"a": "drops the sign", "b": "forgets the carry"})
        record(memory, step(3, a="++--", b="+-", d="++--"), step(4, a="+++-", b="--+-"))
        diagnose(memory, {"a": "drops the sign", "b": "forgets the carry", "d": "drops the sign"})


def play_on(url: str, run: str, home: Path, last: int, since: int = 0) -> None:
    """The rounds of `tests.memory.audit.played` after `since`, into a configured run."""
    from tests.memory.audit import played

    rounds = (played._first, played._second, played._third, played._fourth)
    with diagevo.open(url, run, root=home) as memory:
        player = Player(memory)
        memory.vectors([played.C1, played.C2, played.C3, played.C4, *played.NODES.values()], played.embed)
        for one in rounds[since:last]:
            one(player)


def measure(memory: Memory, number: int, mean: float, colder: Mapping[str, float] | None = None) -> None:
    metrics = {"mean_at_k": mean, "mean_at_k_se": 0.02, "greedy": 0.8, "greedy_se": 0.03}
    for heat, value in (colder or {}).items():
        metrics |= {f"mean_at_k_{heat}": value, f"mean_at_k_{heat}_se": 0.02}
        metrics |= {"mean_at_k_best": value, "mean_at_k_best_se": 0.025}
    event = CheckpointEvaluated(
        role="solver",
        checkpoint=f"rounds/{number}",
        benchmark="validation",
        questions=140,
        conditions={},
        metrics=metrics,
    )
    memory.evaluated(event, number)


def _under_way(p: Player, *, killed: bool) -> None:
    """Round 3 with two failures, one of them with a cause; `killed` while it trained, and begun again."""
    p.open(3)
    p.score(
        p.question(0, [("1", 9), ("2", 2)], "kept", "c3", "c1"),
        p.question(1, [("3", 5), ("4", 1)], "kept", "c2"),
        p.question(2, [("3", 6), ("4", 5)], "contested"),
    )
    if killed:
        p.fail("r3.q0.a1", step=2)
        p.memory.abandon_stage("solver", after_step=1)
        p.memory.start_stage("solver")
    attempt = 2 if killed else 1
    p.fail("r3.q0.a0", attempt=attempt)
    p.fail("r3.q1.a2", attempt=attempt)
    p.recurs("r3.q1.a2", "c2", attempt=attempt)
    p.memory.complete_stage("solver", seconds=3.0, reward=0.3)
    p.memory.start_stage("diagnosis")
    p.settle_recurrence("r3.q1.a2")
