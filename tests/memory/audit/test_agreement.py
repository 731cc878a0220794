"""One function a number: every reader of a log shows the same p and ε, by whatever weight p is given."""

from fractions import Fraction
from itertools import pairwise
from math import isqrt
from pathlib import Path

import pytest
from sqlalchemy import text

from diagevo.equations.policy import Frequency
from diagevo.memory.compare.replay import describe, next_schedule
from diagevo.memory.compare.whatif import Changes, what_if
from diagevo.memory.events import CandidateScored, RoundOpened
from diagevo.memory.history import History, open_history, point_of
from diagevo.memory.read.opened_rounds import observations
from diagevo.memory.stories.cause_story import Sampled
from diagevo.memory.stories.failures import question_story
from diagevo.memory.stories.references import Reference
from diagevo.memory.stories.why import why_cause
from tests.contracts.databases import SQLiteStores
from tests.memory.audit.random_play import play_randomly

WEIGHTS = {"f": lambda f: f, "the root of f": lambda f: isqrt(f * 10**6)}


def by_hand(history: History, weigh) -> dict[int, dict[str, Fraction]]:
    """p of each round from the recorded schedules alone: each weight over their sum."""
    found = {}
    for opened in history.events(RoundOpened):
        weights = {w.cause_id: weigh(w.frequency) for w in opened.event.weights}
        found[opened.round] = {cause: Fraction(w, sum(weights.values())) for cause, w in weights.items()}
    return found


@pytest.mark.parametrize("weighting", WEIGHTS)
@pytest.mark.parametrize("seed", [7, 4711])
def test_every_reader_of_a_random_log_shows_the_same_p(
    weighting: str, seed: int, sqlite_stores: SQLiteStores, tmp_path: Path
) -> None:
    weigh = WEIGHTS[weighting]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Frequency, "weight", lambda self, frequency: weigh(frequency))
        store = sqlite_stores.new(tmp_path)
        play_randomly(store.url, "a", seed, root=store.root, rounds=4, pool=10)
        history = open_history(store.url, "a")
        expected = by_hand(history, weigh)
        played = dict(
            zip(expected, what_if(observations(history, history.end), Changes()).rounds, strict=True)
        )
        with history.log.database.read() as connection:
            rows = connection.execute(
                text("SELECT round, cause_id, probability_committed AS p FROM v_cause_history")
            ).all()
        stored = {(row.round, row.cause_id): row.p for row in rows}
        for commit in history.commits:
            after = commit.round
            state = history.state(point_of(commit))
            schedule, memory = state.schedule(), describe(state)
            p = {cause: share.p for cause, share in schedule.shares.items()}
            assert p == expected.get(after + 1, p)
            assert sum(p.values()) == (1 if p else 0)
            edges = [0, *schedule.known.edges]
            assert [Fraction(b - a, edges[-1]) for a, b in pairwise(edges)] == list(p.values())
            shown = {c.id: c.probability for c in memory.causes if c.probability is not None}
            assert shown == p == {c.cause: c.probability for c in next_schedule(memory).causes}
            assert {c.id: Fraction(c.sum) for c in memory.causes if c.sum} == p
            assert {c: share.p for c, share in played[after].shares.items()} == p
            assert played[after].epsilon_next == memory.epsilon_next == schedule.epsilon
            assert {c.id: stored[after, c.id] for c in memory.causes} == {
                c.id: str(p[c.id]) if c.id in p else None for c in memory.causes
            }
        for cause_id in history.state(history.end).causes:
            story = why_cause(history, cause_id, history.end)
            for turn in story.turns:
                if isinstance(turn, Sampled):
                    assert turn.probability == Fraction(turn.sum) == expected[turn.round].get(cause_id, 0)
        for scored in history.events(CandidateScored):
            if scored.event.cause_id is not None:
                question = Reference("question", scored.event.question_id)
                story = question_story(history, question, history.end)
                assert story.probability == expected[scored.round][scored.event.cause_id]
        history.close()
