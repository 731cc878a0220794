"""Random histories of every kind that is shown: played, forked, ingested, superseded, resumed, renamed, with
attempts that were given up, measurements, and tags."""

import random
from dataclasses import replace

from msgspec import structs

from diagevo.config.models import IngestConfig
from diagevo.ingest.recording import IngestSummary, Recorder
from diagevo.ingest.rollout_steps import RolloutStep
from diagevo.ingest.rounds import Rounds
from diagevo.memory.events import CheckpointEvaluated, FailureObserved
from diagevo.memory.history import History
from diagevo.memory.log.database import Database
from diagevo.memory.memory import Memory
from diagevo.memory.transfer.fork import fork
from tests.contracts.databases import Store
from tests.ingest.conftest import CONFIGURED, step
from tests.ingest.test_recording import diagnose
from tests.memory.audit.played import Player
from tests.memory.audit.random_play import play_on
from tests.memory.play import candidate, other
from tests.memory.play import failure as observation
from tests.memory.play import text as put

PROMPTS = "abcdef"
OWN = ("gsm8k/17", "c1", "Ünïcode 問 ", "r1.q0.x")
TAGS = {"a": ("vowel",), "e": ("vowel", "late"), "f": ("late",)}
SETTINGS = IngestConfig(steps_per_round=2, all_failed=True)


def histories(store: Store, seed: int, *, again: bool = True, assign: bool = True) -> list[str]:
    """Runs of all kinds in one database, from a seed; without `again` nothing is superseded or resumed,
    without `assign` no failure is said to be of another cause."""
    rng = random.Random(seed)
    with store.open("played") as memory:
        Player(memory).configure()
        _measure(memory)
        play_on(memory, rng, rounds=rng.randint(2, 3), pool=6, lossy=again)
        if again:
            _rename(memory, rng)
            _assign(memory, rng, assign)
            memory.supersede(rng.randint(2, memory.state.round), "once more")
            _measure(memory)
            _dismiss(memory, rng)
            _assign(memory, rng, assign)
            play_on(memory, rng, rounds=1, pool=6, lossy=True)
            _dismiss(memory, rng)
            _assign(memory, rng, assign)
            _measure(memory)
            _rename(memory, rng)
            play_on(memory, rng, rounds=1, pool=6, commit=rng.random() < 0.5)
    database = Database(store.url)
    history = History(database, "played", store.root)
    fork(history, rng.choice(history.commits).round, "forked", root=store.root)
    database.close()
    with store.open("forked") as memory:
        config = {**memory.config, "schedule": {"k": rng.choice(["1/5", "2"])}}
        memory.reconfigure(config)
        play_on(memory, rng, rounds=1, pool=6, lossy=again)
        if again:
            _rename(memory, rng)
    with store.open("ingested") as memory:
        memory.configure(CONFIGURED)
        ingest_randomly(memory, rng, again=again, assign=assign)
    with store.open("named") as memory:
        Player(memory).configure()
        play_by_own_ids(memory, rng, again)
        if again:
            memory.supersede(2, "once more")
            play_by_own_ids(memory, rng, again)
    return ["played", "forked", "ingested", "named"]


def play_by_own_ids(memory: Memory, rng: random.Random, again: bool) -> None:
    """Two rounds of a trainer that has ids of its own, the same in each round; with `again` it gives an
    attempt up."""
    attempts = (1, 2) if again else (1,)
    for number in range(memory.state.round + 1, memory.state.round + 3):
        memory.open_round(number)
        asked = [candidate(f"r{number}.q0", question=put(f"question {own}")) for own in OWN]
        memory.score([structs.replace(one, question_id=own) for one, own in zip(asked, OWN, strict=True)])
        memory.start_stage("solver")
        failed = [f"{own}: {place}" for own in OWN for place in range(rng.randint(1, 3))]
        for attempt in attempts:
            for place, own in enumerate(failed):
                observed = observation(f"r{number}.q0.a0", attempt=attempt, step=1 + place % 2)
                question = own.rpartition(": ")[0]
                memory.observe([structs.replace(observed, failure_id=own, question_id=question)])
            if attempt < attempts[-1]:
                memory.abandon_stage("solver", after_step=0)
                memory.start_stage("solver")
        memory.complete_stage("solver")
        memory.diagnosed([other(own, "slip", attempt=attempts[-1]) for own in failed])
        memory.commit()


def ingest_randomly(memory: Memory, rng: random.Random, *, again: bool, assign: bool = True) -> None:
    """Some steps, some of them diagnosed, a superseding, a training that was resumed."""
    steps: list[RolloutStep] = []

    def record(*new: RolloutStep, resumed: bool = False) -> None:
        Recorder(memory, SETTINGS, resumed=resumed).record(new, IngestSummary())

    def play_more(number: int) -> None:
        for _ in range(number):
            steps.append(_step(rng, 2 * len(steps) + 2))
            record(steps[-1])

    def diagnosed() -> None:
        diagnose(memory, {prompt: f"slip {rng.randint(1, 4)}" for prompt in PROMPTS})

    play_more(rng.randint(2, 5))
    diagnosed()
    play_more(rng.randint(1, 4))
    if again:
        _dismiss(memory, rng)
        _assign(memory, rng, assign)
        Rounds(memory).supersede(rng.choice([one.round for one in memory.state.began]), "once more")
        diagnosed()
        if rng.random() < 0.6:
            at = rng.randint(1, len(steps))
            del steps[at - 1 :]
            steps.append(_step(rng, 2 * at))
            record(steps[-1], resumed=True)
        if rng.random() < 0.5:
            diagnosed()
    play_more(rng.randint(0, 2))
    if again:  # files that came late: before all steps, and between two
        for late in (1, 2 * rng.randint(1, len(steps)) + 1):
            record(_step(rng, late))


def _step(rng: random.Random, number: int) -> RolloutStep:
    asked = rng.sample(PROMPTS, rng.randint(1, 4))
    made = step(number, **{prompt: "".join(rng.choices("+-", k=rng.randint(1, 6))) for prompt in asked})
    twice = rng.choice(asked) if rng.random() < 0.3 else None  # a prompt with two groups in the step
    rollouts = [
        structs.replace(one, tags=TAGS.get(one.prompt, ()), group=_group(one.prompt, twice, place))
        for place, one in enumerate(made.rollouts)
    ]
    return replace(made, rollouts=rollouts)


def _group(prompt: str, twice: str | None, place: int) -> str | None:
    return f"{prompt} {place % 2}" if prompt == twice else None


def _rename(memory: Memory, rng: random.Random) -> None:
    if memory.state.causes:
        cause = rng.choice(sorted(memory.state.causes))
        memory.rename(cause, f"in better words, after round {memory.state.round}")


def _dismiss(memory: Memory, rng: random.Random) -> None:
    """Some causes; one of those that are dismissed comes back."""
    for cause in list(memory.state.causes.values()):
        if cause.state == "dismissed":
            memory.reinstate(cause.cause_id, "an auditor")
        elif rng.random() < 0.4:
            memory.dismiss(cause.cause_id, "the label is wrong", "an auditor")


def _assign(memory: Memory, rng: random.Random, wanted: bool) -> None:
    """Some failures of rounds that count, to stored causes and to one in words of one's own; some of them go
    back."""
    counted = set(memory.state.counted())
    given_up = History(memory.database, memory.run_id, memory.root).abandoned
    there = dict.fromkeys(
        fact.event.failure_id
        for fact in memory.log.chosen(memory.run_id, [FailureObserved])
        if fact.round in counted and not given_up.void(fact.round, fact.event)
    )
    if not wanted or not there or memory.state.open is not None:
        return
    chosen = rng.sample(sorted(there), min(len(there), rng.randint(1, 8)))
    words = f"in words of one's own, {memory.state.sequence}"
    memory.add_cause(words, chosen[0], "a person")
    for failure in chosen:
        cause = rng.choice(sorted(memory.state.causes))
        memory.assign([failure], cause, "a person", rng.choice([None, "it is so"]))
    said = [failure for failure in chosen if rng.random() < 0.4]
    memory.unassign(said, "another person")


def _measure(memory: Memory) -> None:
    """The policy after the last round."""
    memory.evaluated(
        CheckpointEvaluated(
            role="solver",
            checkpoint=f"rounds/{memory.state.round:03}/solver",
            benchmark="validation",
            questions=8,
            conditions={"samples": 1, "temperature": 0.5},
            metrics={"accuracy": 0.625},
        ),
        memory.state.round,
    )
