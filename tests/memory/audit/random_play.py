"""Random histories through the memory's own verbs, from a seed."""

import random
from pathlib import Path
from typing import Any

import diagevo
from diagevo.answers.votes import Votes
from diagevo.equations.filter import verdict
from diagevo.memory.events import GroupRewards, PhaseFinding, PhaseMeasured, StepTrained
from diagevo.memory.memory import Memory
from diagevo.memory.state.projected_schedule import Draw
from diagevo.memory.state.stored_config import filter_of
from tests.memory.audit.played import CONFIG, Player


def play_randomly(
    url: str,
    run: str,
    seed: int,
    *,
    root: Path,
    rounds: int = 4,
    pool: int = 10,
    config: dict[str, Any] | None = None,
) -> None:
    """`rounds` rounds of `pool` candidates each, drawn from the memory's own schedule."""
    rng = random.Random(seed)
    chosen = {
        **CONFIG,
        "memory": {**CONFIG["memory"], "theta_up": rng.choice(["3/5", "7/10", "17/24"])},
        "schedule": {"k": rng.choice(["1/5", "1/2", "2"])},
    }
    with diagevo.open(url, run, root=root) as memory:
        Player(memory).configure(chosen if config is None else config)
        play_on(memory, rng, rounds=rounds, pool=pool)


def play_on(
    memory: Memory, rng: random.Random, *, rounds: int, pool: int, commit: bool = True, lossy: bool = False
) -> None:
    """Play on as the run is configured now. Without `commit` the last round stays open; `lossy`: attempts of
    training are given up, and training is measured."""
    player = Player(memory)
    last = memory.state.round + rounds
    for number in range(memory.state.round + 1, last + 1):
        player.open(number)
        draws = memory.schedule(number).draw(pool, seed=rng.randrange(1000))
        kept = _score(player, rng, draws)
        valid = _lose(player, rng, kept) if lossy and rng.random() < 0.7 else None
        _fail(player, rng, kept, valid)
        if len(memory.state.nodes) > 1 and rng.random() < 0.5:
            a, b = sorted(rng.sample(sorted(memory.state.nodes), 2), key=lambda n: int(n[1:]))
            player.merge(a, b, 0.6, rng.choice([None, f"joined in round {number}"]))
        if commit or number < last:
            for failed in memory.undiagnosed():
                player.diagnose(failed.failure_id, "unresolved", attempt=failed.attempt)
            player.commit()


def _score(player: Player, rng: random.Random, draws: list[Draw]) -> list[str]:
    candidates = []
    judged_by = filter_of(player.memory.state.config or {})
    for draw in draws:
        counts, left = [], 12
        while left > 0 and len(counts) < 4:
            counts.append(rng.randint(1, left))
            left -= counts[-1]
        votes = Votes(12, tuple((str(i), c) for i, c in enumerate(counts)), ())
        judged = verdict(votes.first, votes.second, 12, votes.label is not None, judged_by)
        said = "invalid" if rng.random() < 0.1 else judged
        given = [] if said == "invalid" else list(votes.votes)
        candidates.append(player.question(draw.index, given, said, draw.cause_id, draw.stitched_cause_id))
    player.score(*candidates)
    return [c.question_id for c in candidates if c.verdict == "kept"]


def _lose(player: Player, rng: random.Random, kept: list[str]) -> set[str]:
    """An attempt of training that is given up; what it observed and still counts."""
    memory, steps = player.memory, dict[str, int]()
    for question in kept:
        for sample in rng.sample(range(8), rng.randint(0, 2)):
            failure = f"{question}.a{sample}"
            steps[failure] = rng.randint(1, 3)
            player.fail(failure, step=steps[failure], right=rng.choice([None, True, False]))
            if rng.random() < 0.3:
                player.diagnose(failure, rng.choice(["slip", "unresolved"]))
    for number in range(1, 4):
        rewards = [rng.choice([0.0, 1.0]) for _ in range(4)]
        groups = [GroupRewards(prompt=question, rewards=rewards) for question in kept]
        measured = StepTrained("solver", 1, number, groups, rng.random(), 1.5, None, 0.125)
        memory.step_trained(measured)
    findings: list[PhaseFinding] = ["cut_off"]
    memory.phase_measured(
        PhaseMeasured("solver", 1, 3, 0.0, None, -1.0, 1.0, 8, 1, attention="sdpa", findings=findings)
    )
    after = rng.randint(0, 3)
    memory.abandon_stage("solver", after_step=after, seconds=3.5, reason="the node was lost")
    memory.start_stage("solver")
    return {failure for failure, step in steps.items() if step <= after}


def _fail(player: Player, rng: random.Random, kept: list[str], valid: set[str] | None) -> None:
    """`valid`: failures of an attempt that was given up, where there was one."""
    memory, attempt = player.memory, 1 if valid is None else 2
    waiting: list[tuple[str, str]] = []
    for question in kept:
        for sample in sorted(rng.sample(range(8), rng.randint(0, 3))):
            failure = f"{question}.a{sample}"
            if failure in (valid or ()):
                continue
            player.fail(failure, attempt=attempt)
            known = memory.supplied(question)
            kind = rng.choice(["recurrence", "new", "new", "slip"])
            if kind == "recurrence" and known:
                player.recurs(failure, rng.choice(known).cause_id, attempt=attempt)
            elif kind == "slip":
                player.diagnose(failure, "slip", attempt=attempt)
                continue
            else:
                words = f"the way of {failure}"
                player.diagnose(failure, "new_cause", description=words, attempt=attempt)
                kind = "new"
            waiting.append((failure, kind))
    player.trained()
    for failure, kind in waiting:
        if kind == "recurrence":
            player.settle_recurrence(failure)
        elif memory.state.causes and rng.random() < 0.6:
            player.settle_duplicate(failure, rng.choice(sorted(memory.state.causes)), 0.75)
        elif memory.state.nodes and rng.random() < 0.5:
            player.settle_new(failure, node=rng.choice(sorted(memory.state.nodes)))
        else:
            player.settle_new(failure, label=f"the skill of {failure}")
