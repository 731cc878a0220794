"""The two policies from the literature in `examples/`, with figures by hand."""

import runpy
from collections import Counter
from fractions import Fraction
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from diagevo.equations.policy import Frequency, Known, Policy, ScheduledCause
from diagevo.equations.states import Tally

EXAMPLES = Path(__file__).parents[2] / "examples"
bandit, learnability = (
    SimpleNamespace(**runpy.run_path(str(EXAMPLES / f"{name}.py"))) for name in ("bandit", "learnability")
)
Bandit, Learnability = bandit.Bandit, learnability.Learnability


def _cause(number: int, node: str, frequency: int) -> ScheduledCause:
    return ScheduledCause(f"c{number}", f"cause {number}", node, f"node {node}", False, frequency)


ACTIVE = (_cause(1, "n1", 3), _cause(2, "n1", 1), _cause(3, "n2", 8))
# Of 12 answers each: c1 was agreed on in 6 and then in 9 of 12; c3 in 24 of 24, and never again.
VOTES = ({"c1": Tally(1, 6, 12), "c3": Tally(2, 24, 12)}, {"c1": Tally(1, 9, 12)})
KNOWN = Known(4, 12, 10, Fraction(1, 2), ACTIVE, VOTES)


def _shares(policy: Policy, epsilon: Fraction, n: int = 20_000) -> dict[str | None, float]:
    rng = Random("7.4")
    drawn = Counter(policy.draw(rng, epsilon, KNOWN) for _ in range(n))
    return {None if cause is None else cause.cause_id: count / n for cause, count in drawn.items()}


def test_learnability_is_p_times_one_minus_p_of_the_last_round_that_aimed_at_the_cause() -> None:
    assert learnability.weight("c1", VOTES) == 187_500  # 3/4 · 1/4
    assert learnability.weight("c2", VOTES) == 250_000  # never aimed at: 1/2 · 1/2
    assert learnability.weight("c3", VOTES) == 1  # 1 · 0, and not nothing


def test_learnability_draws_in_proportion_to_it() -> None:
    shares = _shares(Learnability(), Fraction(1, 5))
    assert shares[None] == pytest.approx(1 / 5, abs=0.01)
    assert shares["c1"] == pytest.approx(4 / 5 * 187.5 / 437.5, abs=0.01)
    assert shares["c2"] == pytest.approx(4 / 5 * 250 / 437.5, abs=0.01)
    assert "c3" not in shares


def test_an_arm_is_worth_one_until_it_was_tried_twice_and_then_its_progress() -> None:
    assert bandit.weight([ACTIVE[2]], VOTES) == 1  # tried once
    assert bandit.weight([ACTIVE[1]], VOTES) == 1  # never
    assert bandit.weight(list(ACTIVE[:2]), VOTES) == Fraction(5, 8)  # 1 + ½·(|¾ − ½| − 1)
    still = (*VOTES, *({"c1": Tally(1, 9, 12)} for _ in range(9)))
    assert bandit.weight([ACTIVE[0]], still) == Fraction(1, 20)  # 5/8 halved nine times is below the floor


def test_the_score_of_an_arm_is_the_mean_over_its_questions() -> None:
    votes = ({"c1": Tally(3, 18, 12), "c2": Tally(1, 12, 12)}, {"c2": Tally(1, 6, 12)})
    # (3 · 1/2 + 1) / 4 = 5/8, then 1/2: 1 + ½·(1/8 − 1)
    assert bandit.weight(list(ACTIVE[:2]), votes) == Fraction(9, 16)


def test_the_bandit_draws_a_node_by_progress_and_in_it_a_cause_by_its_failures() -> None:
    shares = _shares(Bandit(), Fraction(0))
    of_n1 = Fraction(5, 8) / (Fraction(5, 8) + 1)
    assert shares["c3"] == pytest.approx(float(1 - of_n1), abs=0.01)
    assert shares["c1"] == pytest.approx(float(of_n1 * Fraction(3, 4)), abs=0.01)
    assert shares["c2"] == pytest.approx(float(of_n1 * Fraction(1, 4)), abs=0.01)


@pytest.mark.parametrize("policy", [Frequency(), Learnability(), Bandit()], ids=lambda p: type(p).__name__)
def test_the_same_seed_draws_the_same_and_epsilon_is_the_papers(policy: Policy) -> None:
    one, other = Random("7.4"), Random("7.4")
    half = Fraction(1, 2)
    assert [policy.draw(one, half, KNOWN) for _ in range(50)] == [
        policy.draw(other, half, KNOWN) for _ in range(50)
    ]
    assert policy.epsilon(KNOWN) == Fraction(5, 17)  # 1 / (1 + 12/10 / ½)
