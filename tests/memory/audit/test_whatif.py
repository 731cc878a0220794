"""Counterfactual replay: worked by hand on the played run, and against the log itself on random ones."""

from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diagevo.answers.votes import Votes
from diagevo.equations.filter import verdict
from diagevo.equations.settings import Filter
from diagevo.errors import ConfigError
from diagevo.memory.compare.whatif import Changes, first_changed, keeps, retention, what_if
from diagevo.memory.history import History, open_history, point_of
from diagevo.memory.read.opened_rounds import VoteKind, observations
from diagevo.memory.transfer.fork import fork
from tests.contracts.databases import SQLiteStores
from tests.memory.audit.played import CONFIG, Player, play
from tests.memory.audit.random_play import play_randomly


def answer(history: History, round_: int | None = None, **changes):
    return what_if(observations(history, history.as_of(round_)), Changes(**changes))


def test_a_higher_threshold_worked_by_hand(history: History) -> None:
    told = answer(history, theta_up=Fraction(9, 10))
    # Round 2: c1 (3/4) stays Active with 2, so F = 2 + 3 + 2 = 7 and ε₃ = 4/(4 + 14). Round 3 promotes
    # nothing: c1 3, c2 6, c3 2, c4 1. Round 4 promotes c2 (11/12): c1 3, c3 3, c4 1.
    assert [(r.failures, r.epsilon_next) for r in told.rounds] == [
        (4, Fraction(1, 3)),
        (7, Fraction(2, 9)),
        (12, Fraction(1, 7)),
        (7, Fraction(2, 9)),
    ]
    assert [r.promoted for r in told.rounds] == [(), (), (), ("c2",)]
    assert dict(told.rounds[2].frequencies) == {"c1": 3, "c2": 6, "c3": 2, "c4": 1}


def test_rows_are_exact_up_to_the_first_commit_that_differs(history: History) -> None:
    told = answer(history, theta_up=Fraction(9, 10))
    assert [r.status for r in told.rounds] == ["exact", "exact", "open-loop", "open-loop"]
    assert told.diverges == 3


def test_k_at_one_commit_is_exact(history: History) -> None:
    told = answer(history, 3, k=Fraction(1, 5), since=3)
    last = told.rounds[-1]
    assert (last.status, last.epsilon_next) == ("exact", Fraction(4, 4 + 5 * 5))
    assert [r.differs for r in told.rounds] == [False, False, True]


def test_k_over_several_rounds_is_open_loop_after_the_first(history: History) -> None:
    told = answer(history, k=Fraction(1))
    assert [(r.status, r.epsilon_next) for r in told.rounds] == [
        ("exact", Fraction(1, 2)),
        ("open-loop", Fraction(4, 9)),
        ("open-loop", Fraction(4, 9)),
        ("open-loop", Fraction(4, 7)),
    ]


def test_a_dropped_cause_counts_nothing_from_its_creation_on(history: History) -> None:
    told = answer(history, drop=frozenset({"c4"}))
    assert [(r.status, r.failures) for r in told.rounds] == [
        ("exact", 4),
        ("exact", 5),
        ("open-loop", 4),
        ("open-loop", 2),
    ]
    assert told.diverges == 4


def test_dropping_every_cause_leaves_free_exploration(history: History) -> None:
    told = answer(history, drop=frozenset({"c1", "c2", "c3", "c4"}))
    assert {(r.failures, r.epsilon_next, r.z) for r in told.rounds} == {(0, Fraction(1), None)}


@pytest.mark.slow
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 10_000))
def test_nothing_changed_equals_the_log(sqlite_stores: SQLiteStores, tmp_path_factory, seed: int) -> None:
    store = sqlite_stores.new(tmp_path_factory.mktemp("random"))
    play_randomly(store.url, "a", seed, root=store.root, rounds=3, pool=8)
    history = open_history(store.url, "a")
    observed = observations(history, history.end)
    told = what_if(observed, Changes())
    assert [r.status for r in told.rounds] == ["exact"] * 3
    assert not any(r.differs for r in told.rounds)
    for outcome, commit in zip(told.rounds, history.commits, strict=True):
        state = history.state(point_of(commit))
        assert dict(outcome.frequencies) == {c.cause_id: c.frequency for c in state.active()}
    assert all(r.same for r in retention(observed, {}))
    history.close()


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    votes=st.lists(st.integers(1, 6), min_size=0, max_size=4),
    low=st.builds(Fraction, st.integers(0, 6), st.just(12)),
    high=st.builds(Fraction, st.integers(6, 12), st.just(12)),
    tau=st.builds(Fraction, st.integers(5, 20), st.just(5)),
    variant=st.sampled_from(["double", "absolute", "none"]),
)
def test_the_filter_is_that_of_self_play(
    votes: list[int], low: Fraction, high: Fraction, tau, variant
) -> None:
    cast = Votes(max(sum(votes), 12), tuple((str(i), c) for i, c in enumerate(votes)), ())
    played = Filter(low, high, tau, variant)
    kind = VoteKind(cast.responses, cast.first, cast.second, cast.label is not None, True, "", None, False)
    assert keeps(played, kind) == (
        verdict(cast.first, cast.second, cast.responses, cast.label is not None, played) == "kept"
    )


def test_a_stricter_filter_is_exact_in_what_it_keeps_and_names_the_first_round_to_run_again(
    history: History,
) -> None:
    observed = observations(history, history.end)
    kept = retention(observed, {"tau": Fraction(2)})
    assert [(r.kept, r.recorded) for r in kept] == [(2, 2), (3, 3), (4, 4), (1, 2)]  # 5 of 3 fails in round 4
    assert first_changed(kept) == 4


@pytest.fixture
def forked(sqlite_stores: SQLiteStores, tmp_path: Path):
    """Two rounds under the paper's values, and from round 3 on k = 2, τ = 3 and p_low = 1/2."""
    store = sqlite_stores.new(tmp_path)
    play(store.url, "a", root=store.root, rounds=2)
    origin = open_history(store.url, "a")
    stricter = {**CONFIG["filter"], "p_low": "1/2", "tau": "3"}
    fork(origin, 2, "b", {**CONFIG, "schedule": {"k": "2"}, "filter": stricter})
    origin.close()
    with store.open("b") as memory:
        player = Player(memory)
        player.open(3)
        player.score(
            player.question(0, [("1", 6)], "kept", "c2"),
            player.question(1, [("1", 8), ("2", 4)], "contested"),
        )
        player.trained()
        player.commit()
    found = open_history(store.url, "b")
    yield found
    found.close()


def test_a_fork_with_another_threshold_is_replayed_under_both(forked: History) -> None:
    told = what_if(observations(forked, forked.end), Changes())
    assert [r.epsilon_next for r in told.rounds] == [Fraction(1, 3), Fraction(8, 13), Fraction(8, 13)]
    assert not any(r.differs for r in told.rounds)


def test_a_k_that_the_fork_gave_up_draws_its_first_round_in_another_way(forked: History) -> None:
    told = what_if(observations(forked, forked.end), Changes(k=Fraction(1, 2)))
    # ε₃ would have been 2/7, and was 4/(4 + 5/2) = 8/13: the fork's k, and not that of the commit of round 2.
    assert [(r.status, r.epsilon_next) for r in told.rounds] == [
        ("exact", Fraction(1, 3)),
        ("exact", Fraction(2, 7)),
        ("open-loop", Fraction(2, 7)),
    ]
    assert [r.recorded_epsilon_next for r in told.rounds[1:]] == [Fraction(8, 13)] * 2
    assert told.diverges == 3


def test_each_round_is_judged_by_the_filter_that_it_had(forked: History) -> None:
    observed = observations(forked, forked.end)
    assert all(r.same for r in retention(observed, {}))
    low = retention(observed, {"p_low": Fraction(1, 4)})  # as recorded before the fork; 6:0 and 8:4 after it
    assert [(r.kept, r.recorded) for r in low] == [(2, 2), (3, 3), (1, 1)]
    kept = retention(observed, {"tau": Fraction(8, 5)})
    assert [(r.kept, r.recorded) for r in kept] == [(2, 2), (3, 3), (2, 1)]
    assert first_changed(kept) == 3


def test_a_band_that_is_empty_in_some_round_is_refused(forked: History) -> None:
    with pytest.raises(ConfigError, match="p_low 4/5 is above p_high 3/4 in round 1"):
        retention(observations(forked, forked.end), {"p_low": Fraction(4, 5)})
