"""The draw: pure, seeded, and in the schedule's proportions."""

from collections import Counter
from fractions import Fraction

from diagevo.memory.state.projected_schedule import Schedule, ScheduledCause, Stitching


def _schedule(epsilon: Fraction, stitching: Stitching = "node") -> Schedule:
    def cause(number: int, node: int, mastered: bool, frequency: int) -> ScheduledCause:
        return ScheduledCause(
            f"c{number}", f"cause {number}", f"n{node}", f"node {node}", mastered, frequency
        )

    causes = (cause(1, 1, False, 3), cause(2, 1, True, 0), cause(3, 2, False, 1), cause(4, 1, True, 0))
    return Schedule(5, epsilon, causes, stitching)


def test_the_same_seed_draws_the_same_and_a_longer_draw_begins_with_the_shorter_one() -> None:
    schedule = _schedule(Fraction(1, 3))
    assert schedule.draw(50, seed=3) == schedule.draw(80, seed=3)[:50]
    assert schedule.draw(50, seed=3) != schedule.draw(50, seed=4)


def test_modes_and_causes_come_in_proportion() -> None:
    draws = _schedule(Fraction(1, 4)).draw(20_000, seed=0)
    modes = Counter(d.mode for d in draws)
    assert abs(modes["free"] / 20_000 - 0.25) < 0.015
    targeted = Counter(d.cause_id for d in draws if d.cause_id)
    assert abs(targeted["c1"] / sum(targeted.values()) - 0.75) < 0.015
    partners = Counter(d.stitched_cause_id for d in draws if d.cause_id == "c1")
    assert set(partners) == {"c2", "c4"}
    assert abs(partners["c2"] / targeted["c1"] - 0.5) < 0.02


def test_a_cause_without_a_mastered_sibling_is_targeted_alone() -> None:
    draws = [d for d in _schedule(Fraction(0)).draw(200, seed=1) if d.cause_id == "c3"]
    assert {(d.mode, d.stitched_cause_id) for d in draws} == {("targeted", None)}


def test_stitching_may_come_from_anywhere_or_nowhere() -> None:
    anywhere = [d for d in _schedule(Fraction(0), "random").draw(200, seed=1) if d.cause_id == "c3"]
    assert {d.stitched_cause_id for d in anywhere} == {"c2", "c4"}
    assert {(d.node, d.stitched_node) for d in anywhere} == {("node 2", "node 1")}
    nowhere = _schedule(Fraction(0), "off").draw(200, seed=1)
    assert {d.mode for d in nowhere} == {"targeted"}


def test_a_draw_carries_the_texts_for_its_prompt() -> None:
    draw = next(d for d in _schedule(Fraction(0)).draw(50, seed=1) if d.stitched_cause_id == "c4")
    assert (draw.cause, draw.node, draw.stitched_cause) == ("cause 1", "node 1", "cause 4")


def test_an_empty_memory_draws_freely_whatever_epsilon_says() -> None:
    assert {d.mode for d in Schedule(2, Fraction(0), ()).draw(20, seed=1)} == {"free"}
