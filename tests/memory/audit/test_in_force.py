"""A round is judged by the configuration that it was played with, whatever a fork set later.

The twin below reads the raw events once, with its own arithmetic: it shares no code with the equations, the
fold or the rows of rounds.
"""

import random
from collections import defaultdict
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from diagevo.cli.screens import why as why_text  # pyright: ignore[reportMissingImports]  (cli/, as installed)
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from diagevo.memory.compare.memory_diff import diff_memory
from diagevo.memory.compare.replay import describe, next_schedule, steps
from diagevo.memory.compare.whatif import Changes, retention, what_if
from diagevo.memory.events import (
    CandidateScored,
    CausePromoted,
    FailureObserved,
    RoundCommitted,
    RoundOpened,
    RunConfigured,
)
from diagevo.memory.history import History, open_history
from diagevo.memory.memory import Memory
from diagevo.memory.read.opened_rounds import observations
from diagevo.memory.read.runs import list_runs, run_story
from diagevo.memory.stories.cause_story import Promoted, Sampled
from diagevo.memory.stories.failures import failure_story, question_story
from diagevo.memory.stories.references import Reference
from diagevo.memory.stories.why import why_cause
from diagevo.memory.transfer.fork import fork
from diagevo.report.report_data import gather
from tests.contracts.databases import SQLiteStores
from tests.memory.audit.played import CONFIG, Player, play
from tests.memory.audit.random_play import play_on, play_randomly


@dataclass
class Twin:
    """What was in force, by round, from the payloads alone."""

    config: dict[int, dict[str, Any]] = field(default_factory=dict)
    epsilon: dict[int, Fraction] = field(default_factory=dict)
    """That the round was drawn with, and of the round that comes next, what it would be."""
    p1: dict[tuple[int, str], list[Fraction]] = field(default_factory=lambda: defaultdict(list))
    candidates: list[tuple[int, CandidateScored]] = field(default_factory=list)
    failures: list[tuple[int, str]] = field(default_factory=list)
    promoted: set[tuple[int, str]] = field(default_factory=set)

    @classmethod
    def of(cls, history: History) -> "Twin":
        twin, now, f, f1 = cls(), dict[str, Any](), 0, None
        for recorded in history.log.read(history.run_id):
            number, event = recorded.round, recorded.event
            match event:
                case RunConfigured():
                    now = event.config
                    if f1:
                        twin.epsilon[number + 1] = _epsilon(f, f1, now)
                case RoundOpened():
                    twin.config[number] = now
                    assert Fraction(event.epsilon) == twin.epsilon.get(number, 1)
                    twin.epsilon[number] = Fraction(event.epsilon)
                case CandidateScored():
                    twin.candidates.append((number, event))
                    if event.cause_id is not None and event.verdict != "invalid":
                        twin.p1[number, event.cause_id].append(Fraction(event.first, event.responses))
                case CausePromoted():
                    twin.promoted.add((number, event.cause_id))
                case FailureObserved():
                    twin.failures.append((number, event.failure_id))
                case RoundCommitted():
                    f, f1 = event.failures, event.reference_failures
                    twin.epsilon[number + 1] = _epsilon(f, f1, now)
                case _:
                    pass
        return twin

    def theta(self, number: int) -> Fraction:
        return Fraction(self.config[number]["memory"]["theta_up"])

    def inequality(self, number: int, c: CandidateScored) -> tuple[str, str]:
        """The verdict, and what must stand in its reason."""
        of = {name: Fraction(self.config[number]["filter"][name]) for name in ("p_low", "p_high", "tau")}
        if c.label is None:
            return "no_label", "no response has a boxed answer"
        c1, c2, n = Fraction(c.first), Fraction(c.second), c.responses
        if c1 < of["p_low"] * n:
            return "too_hard", f"p₁ = {c1 / n} < p_low = {of['p_low']}"
        if c1 > of["p_high"] * n:
            return "too_easy", f"p₁ = {c1 / n} > p_high = {of['p_high']}"
        if c1 < of["tau"] * c2:
            return "contested", f"p₁ = {c1 / n} < τ·p₂ = {of['tau']}·{c2 / n} = {of['tau'] * c2 / n}"
        return "kept", f"{of['p_low']} ≤ p₁ = {c1 / n} ≤ {of['p_high']} and p₁ ≥ τ·p₂ = {of['tau']}·{c2 / n}"


def _epsilon(f: int, f1: int | None, config: dict[str, Any]) -> Fraction:
    if not f or not f1:
        return Fraction(1)
    k = Fraction(config["schedule"]["k"])
    return k * f1 / (k * f1 + f)


def _settings(rng: random.Random) -> dict[str, Any]:
    return {
        **CONFIG,
        "filter": {
            "variant": "double",
            "p_low": rng.choice(["1/12", "1/4", "1/3"]),
            "p_high": rng.choice(["2/3", "3/4", "1"]),
            "tau": rng.choice(["1", "8/5", "3"]),
        },
        "memory": {
            **CONFIG["memory"],
            "theta_up": rng.choice(["1/2", "7/10", "11/12"]),
            "theta_dup": rng.choice([0.4, 0.5, 0.7]),
        },
        "schedule": {"k": rng.choice(["1/5", "1/2", "1", "3"])},
    }


def _play(stores: SQLiteStores, folder: Path, seed: int) -> History:
    """A run, a fork of it and a fork of the fork, each with settings of its own; the last may be inside a
    round, or not go on at all."""
    rng = random.Random(seed)
    store = stores.new(folder)
    play_randomly(store.url, "a", seed, root=store.root, rounds=2, pool=8, config=_settings(rng))
    name = "a"
    for following in ("b", "c"):
        origin = open_history(store.url, name)
        fork(origin, origin.end.round, following, _settings(rng), root=store.root)
        origin.close()
        with store.open(following) as memory:
            left = rng.choice(["open", "committed", "untouched"]) if following == "c" else "committed"
            if left != "untouched":
                play_on(memory, rng, rounds=1, pool=8, commit=left == "committed")
        name = following
    return open_history(store.url, name)


@pytest.mark.slow
@settings(
    max_examples=settings().max_examples // 25,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@example(seed=1738)  # a run whose every round had F = 0: there is no z to draw
@given(seed=st.integers(0, 10_000))
def test_every_verdict_and_comparison_is_the_one_in_force(
    sqlite_stores: SQLiteStores, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    history = _play(sqlite_stores, tmp_path_factory.mktemp("forks"), seed)
    try:
        twin = Twin.of(history)
        _questions(history, twin)
        _failures(history, twin)
        _causes(history, twin)
        _schedules(history, twin)
        _what_if(history, twin)
        _report(history, twin)
    finally:
        history.close()


def _questions(history: History, twin: Twin) -> None:
    for number, c in twin.candidates:
        told = question_story(history, Reference("question", c.question_id), history.end)
        assert told.epsilon == twin.epsilon[number]
        if c.verdict != "invalid":
            said, reason = twin.inequality(number, c)
            assert said == c.verdict
            assert told.reason.startswith(reason)
            assert f"{said.replace('_', ' ')}: {reason}" in why_text.question_screen(told, None, {}, {})


def _failures(history: History, twin: Twin) -> None:
    for number, failure_id in twin.failures:
        told = failure_story(history, Reference("failure", failure_id), history.end)
        assert told.theta_dup == twin.config[number]["memory"]["theta_dup"]


def _causes(history: History, twin: Twin) -> None:
    for cause in history.state(history.end).causes:
        story = why_cause(history, cause, history.end)
        for turn in story.turns:
            if isinstance(turn, Sampled):
                votes = twin.p1[turn.round, cause]
                assert turn.epsilon == twin.epsilon[turn.round]
                assert turn.threshold == twin.theta(turn.round)
                assert turn.consistency == (sum(votes) / len(votes) if votes else None)
                reached = bool(votes) and sum(votes) >= twin.theta(turn.round) * len(votes)
                assert turn.reached == reached == ((turn.round, cause) in twin.promoted)
            elif isinstance(turn, Promoted):
                assert turn.threshold == twin.theta(turn.round) <= turn.consistency
        if story.effect is not None:
            assert story.effect.epsilon == twin.epsilon[story.effect.round]


def _schedules(history: History, twin: Twin) -> None:
    with Memory(history.database, history.run_id, Path(), {}) as memory:
        for number in twin.config:
            assert memory.schedule(number).epsilon == twin.epsilon[number]
    rounds = [commit.round for commit in history.commits]
    for number in rounds:
        after = describe(history.state(history.as_of(number)))
        assert after.epsilon_next == twin.epsilon[number + 1]
        assert next_schedule(after).epsilon == twin.epsilon[number + 1]
        *_, last = steps(history, number, history.as_of(number))
        assert last.after == f"ε = {twin.epsilon[number + 1]}"
    diff = diff_memory(history, history.as_of(rounds[0]), history.as_of(rounds[-1]))
    assert diff.epsilon_next == (twin.epsilon[rounds[0] + 1], twin.epsilon[rounds[-1] + 1])
    story = run_story(history)
    assert {line.round: line.epsilon_next for line in story.rounds} == {
        r: twin.epsilon[r + 1] for r in rounds
    }
    for line in list_runs(history.database):
        if line.run_id == history.run_id:
            assert line.epsilon_next == twin.epsilon[rounds[-1] + 1]


def _what_if(history: History, twin: Twin) -> None:
    observed = observations(history, history.end)
    assert all(r.same for r in retention(observed, {}))
    told = what_if(observed, Changes())
    for row in told.rounds:
        assert row.epsilon_next == row.recorded_epsilon_next == twin.epsilon[row.round + 1]
        assert set(row.promoted) == {cause for number, cause in twin.promoted if number == row.round}


def _report(history: History, twin: Twin) -> None:
    material = gather(history)
    for facts in material.rounds:
        assert facts.epsilon_next == twin.epsilon[facts.round + 1]
        of, said = material.configured[facts.round], twin.config[facts.round]
        assert (str(of.filter.tau), str(of.filter.p_low)) == (said["filter"]["tau"], said["filter"]["p_low"])


def test_a_fork_is_told_with_its_own_k_before_and_inside_its_next_round(
    sqlite_stores: SQLiteStores, tmp_path: Path
) -> None:
    """F₁ = 4 and F = 5 after round 2: ε₃ is 4/(4 + 5/(1/2)) = 2/7 in the origin, 4/(4 + 5) = 4/9 in a fork
    with k = 1."""
    store = sqlite_stores.new(tmp_path)
    play(store.url, "a", root=store.root, rounds=2)
    origin = open_history(store.url, "a")
    fork(origin, 2, "b", {**CONFIG, "schedule": {"k": "1"}}, root=store.root)
    origin.close()

    def told() -> list[Fraction]:
        history = open_history(store.url, "b")
        effect = why_cause(history, "c2", history.end).effect
        assert effect is not None
        found = [
            describe(history.state(history.as_of(2))).epsilon_next,
            run_story(history).rounds[-1].epsilon_next,
            what_if(observations(history, history.end), Changes()).rounds[-1].recorded_epsilon_next,
            effect.epsilon,
        ]
        history.close()
        return found

    assert told() == [Fraction(4, 9)] * 4
    with store.open("b") as memory:
        player = Player(memory)
        player.open(3)
        player.score(player.question(0, [("1", 6)], "kept", "c2"))
        assert told() == [Fraction(4, 9)] * 4


def test_rounds_before_a_fork_are_judged_by_the_thresholds_of_then(
    sqlite_stores: SQLiteStores, tmp_path: Path
) -> None:
    """The fork asks for τ = 1, θ_up = 9/10 and θ_dup = 0.9; its first two rounds had 8/5, 7/10 and 0.5."""
    store = sqlite_stores.new(tmp_path)
    play(store.url, "a", root=store.root, rounds=2)
    origin = open_history(store.url, "a")
    looser = {
        **CONFIG,
        "filter": {**CONFIG["filter"], "tau": "1"},
        "memory": {**CONFIG["memory"], "theta_up": "9/10", "theta_dup": 0.9},
    }
    fork(origin, 2, "b", looser, root=store.root)
    origin.close()
    history = open_history(store.url, "b")
    contested = question_story(history, Reference("question", "r1.q2"), history.end)
    assert contested.reason == "p₁ = 1/3 < τ·p₂ = 8/5·1/3 = 8/15"
    [sampled] = [t for t in why_cause(history, "c1", history.end).turns if isinstance(t, Sampled)]
    assert (sampled.consistency, sampled.threshold, sampled.reached) == (
        Fraction(3, 4),
        Fraction(7, 10),
        True,
    )
    failed = failure_story(history, Reference("failure", "r1.q0.a1"), history.end)
    assert "cosine 0.80 > 0.50" in why_text.failure_screen(failed, None, None, None)
    history.close()


def test_a_member_that_came_by_two_merges_is_told(sqlite_stores: SQLiteStores, tmp_path: Path) -> None:
    """n3 goes into n2, and n2 into n1: the cause made under n3 is n1's now."""
    from diagevo.memory.stories.nodes import why_node

    store = sqlite_stores.new(tmp_path)
    play(store.url, "a", root=store.root, rounds=1)
    with store.open("a") as memory:
        player = Player(memory)
        player.open(2)
        player.score(player.question(0, [("1", 6)], "kept"))
        player.trained()
        player.merge("n2", "n3", 0.6, "both")
        player.merge("n1", "n2", 0.6, "all")
        player.commit()
        history = History(memory.database, "a")
        members = why_node(history, "n1", history.end).members
        assert [(m.cause_id, m.created_under) for m in members] == [("c1", "n1"), ("c2", "n2"), ("c3", "n3")]
