"""The stories of causes, failures, questions and nodes, told from evidence; figures worked by hand in
played.py."""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest

import diagevo
from diagevo.memory.history import History
from diagevo.memory.stories.cause_story import Counted, Created, Merged, Promoted, Reactivated, Sampled, Turn
from diagevo.memory.stories.failures import failure_story, question_story
from diagevo.memory.stories.nodes import why_node
from diagevo.memory.stories.references import Reference
from diagevo.memory.stories.story_wording import question_lines
from diagevo.memory.stories.why import why_cause
from tests.contracts.databases import Store
from tests.memory.audit.played import C1, C2, Player


def of_kind(turns: Sequence[Turn], event: str) -> list[Any]:
    return [turn for turn in turns if turn.event == event]


def story(history: History, cause: str, round_: int | None = None, **more):
    return why_cause(history, cause, history.as_of(round_), **more)


def test_a_story_tells_every_turn_in_order(history: History) -> None:
    told = [(turn.event, turn.round) for turn in story(history, "c2").turns]
    assert told == [
        ("created", 1),
        ("sampled", 2),
        ("counted", 2),
        ("sampled", 3),
        ("promoted", 3),
        ("reactivated", 3),
        ("sampled", 4),
        ("promoted", 4),
    ]


@pytest.mark.parametrize(
    ("question", "drawn"),
    [
        ("r1.q0", "free exploration, ε₁ = 1.000"),
        ("r2.q0", "aimed at c1, 1 − ε₂ = 0.667, p₂ = 50.0%"),
        ("r3.q0", "aimed at c3 + c1 (Mastered, same node), 1 − ε₃ = 0.714, p₃ = 40.0%"),
    ],
)
def test_a_question_says_how_it_came_to_be_drawn(history: History, question: str, drawn: str) -> None:
    asked = question_story(history, Reference("question", question), history.end)
    assert question_lines(asked)[0].text == drawn


def test_creation_names_failure_node_and_nearest_cause(history: History) -> None:
    [created] = of_kind(story(history, "c3").turns, "created")
    assert isinstance(created, Created)
    assert (created.evidence.failure_id, created.node_id, created.new_node) == ("r1.q3.a4", "n3", True)
    assert created.evidence.nearest is not None
    assert (created.evidence.nearest.cause_id, created.evidence.nearest.similarity) == ("c1", 0.44)
    assert not created.evidence.judged


def test_a_promotion_shows_the_votes_it_was_made_of(history: History) -> None:
    promoted = of_kind(story(history, "c2").turns, "promoted")
    figures = [
        (p.round, p.questions, p.agreeing, p.responses, p.consistency, p.closed_frequency)
        for p in promoted
        if isinstance(p, Promoted)
    ]
    assert figures == [(3, 2, 17, 24, Fraction(17, 24), 3), (4, 1, 11, 12, Fraction(11, 12), 3)]


def test_a_reactivation_tells_recurrence_from_deduplication(history: History) -> None:
    [turn] = of_kind(story(history, "c2").turns, "reactivated")
    assert isinstance(turn, Reactivated)
    assert (turn.round, turn.promoted_round, turn.failures, turn.frequency) == (3, 3, 3, 3)
    assert [(e.failure_id, e.outcome, e.similarity) for e in turn.evidence] == [
        ("r3.q1.a2", "recurrence", None),
        ("r3.q2.a5", "recurrence", None),
        ("r3.q3.a0", "deduplication", 0.71),
    ]


def test_a_recurrence_of_a_stitched_question_names_both_causes_and_the_chosen_one(history: History) -> None:
    [turn] = of_kind(story(history, "c1").turns, "reactivated")
    assert isinstance(turn, Reactivated)
    [evidence] = turn.evidence
    assert (evidence.mode, evidence.target, evidence.stitched, evidence.chosen) == (
        "stitched",
        "c3",
        "c1",
        "c1",
    )
    assert [one.state for one in evidence.supplied if one.cause_id == evidence.chosen] == ["mastered"]
    assert (turn.promoted_round, turn.frequency) == (2, 1)


def test_failures_of_an_active_cause_are_counted_not_reactivated(history: History) -> None:
    counted = [t for t in story(history, "c1").turns if isinstance(t, Counted)]
    assert [(t.round, t.failures, t.recurrences, t.deduplications, t.frequency) for t in counted] == [
        (1, 1, 0, 1, 2)
    ]


def test_a_merge_moves_the_cause_and_keeps_its_frequency(history: History) -> None:
    told = story(history, "c3", 2)
    [merged] = of_kind(told.turns, "merged")
    assert isinstance(merged, Merged)
    assert (merged.absorbed, merged.survivor, merged.similarity, merged.moved) == ("n3", "n1", 0.66, True)
    assert (told.node_id, told.node_label, told.frequency) == ("n1", "Column arithmetic", 2)


def test_sampling_shows_the_share_of_the_schedule_and_what_came_of_it(history: History) -> None:
    [_, third] = of_kind(story(history, "c3").turns, "sampled")
    assert isinstance(third, Sampled)
    assert (third.round, third.epsilon, third.probability) == (3, Fraction(2, 7), Fraction(2, 5))
    assert (third.questions, third.stitched, third.verdicts) == (1, 1, {"kept": 1})
    assert third.consistency == Fraction(9, 12)


def test_the_effect_is_the_schedule_with_and_without_the_cause(history: History) -> None:
    effect = story(history, "c2", 3).effect
    assert effect is not None
    assert (effect.round, effect.epsilon, effect.probability) == (4, Fraction(2, 7), Fraction(3, 5))
    assert effect.epsilon_without == Fraction(4, 4 + 2 * 2)  # F = 5 − 3


def test_in_the_reference_round_a_cause_moves_no_epsilon(history: History) -> None:
    effect = story(history, "c1", 1).effect
    assert effect is not None
    assert effect.epsilon == effect.epsilon_without == Fraction(1, 3)  # z = 1 whatever F₁ is


def test_a_story_as_of_a_round_knows_nothing_of_later_ones(history: History) -> None:
    told = story(history, "c2", 2)
    assert (told.state, told.frequency, told.how, told.since) == ("active", 3, "created", 1)
    assert max(turn.round for turn in told.turns) == 2


def test_evidence_is_cut_to_the_number_asked_for(history: History) -> None:
    [turn] = of_kind(story(history, "c2", evidence=1).turns, "reactivated")
    assert isinstance(turn, Reactivated)
    assert (turn.failures, len(turn.evidence)) == (3, 1)


def test_the_full_story_has_trajectories_prompts_and_replies(history: History) -> None:
    [created] = of_kind(story(history, "c4", full=True).turns, "created")
    assert isinstance(created, Created)
    texts = created.evidence.texts
    assert texts is not None
    assert texts.trajectory == "The wrong way of r3.q3.a1, attempt 1"
    assert texts.reference == "A reference of r3.q3"
    assert texts.question == "Question 3 of round 3: what is it?"
    assert [(c.purpose, c.request) for c in texts.calls] == [
        ("extraction (Prompt 1)", "What about r3.q3.a1?"),
        ("node assignment (Prompt 3)", "What about the node of r3.q3.a1?"),
    ]


@pytest.mark.parametrize(
    ("failure", "outcome", "cause", "verdict"),
    [
        ("r1.q0.a0", "created", "c1", "new_cause"),
        ("r1.q0.a1", "deduplication", "c1", "new_cause"),
        ("r1.q3.a5", None, None, "slip"),
        ("r1.q3.a6", None, None, "unresolved"),
        ("r2.q2.a0", "recurrence", "c2", "recurrence"),
    ],
)
def test_a_failure_is_followed_to_its_count(
    history: History, failure: str, outcome: str | None, cause: str | None, verdict: str
) -> None:
    told = failure_story(history, Reference("failure", failure), history.end)
    assert (told.outcome, told.cause_id, told.verdict) == (outcome, cause, verdict)


def test_an_observation_of_an_abandoned_attempt_is_void(history: History) -> None:
    lost = failure_story(history, Reference("failure", "r2.q2.a7"), history.end)
    again = failure_story(history, Reference("failure", "r2.q3.a1"), history.end)
    assert (lost.void, lost.verdict) == (True, None)
    assert (again.void, again.attempt, again.cause_id) == (False, 2, "c3")


def test_a_question_tells_its_draw_its_votes_and_the_inequality_that_decided(history: History) -> None:
    told = question_story(history, Reference("question", "r3.q0"), history.end)
    assert (told.mode, told.cause_id, told.stitched_cause_id) == ("stitched", "c3", "c1")
    assert (told.epsilon, told.probability, told.p1, told.p2) == (
        Fraction(2, 7),
        Fraction(2, 5),
        Fraction(3, 4),
        Fraction(1, 6),
    )
    assert told.reason == "1/4 ≤ p₁ = 3/4 ≤ 3/4 and p₁ ≥ τ·p₂ = 8/5·1/6 = 4/15"
    assert [f.failure_id for f in told.failures] == ["r3.q0.a0"]


def test_a_node_tells_its_members_and_the_pairs_that_were_judged(history: History) -> None:
    told = why_node(history, "n1", history.end)
    assert [(m.cause_id, m.created_under) for m in told.members] == [("c1", "n1"), ("c3", "n3")]
    assert [(p.other, p.merged, p.similarity) for p in told.pairs] == [
        ("n2", False, 0.51),
        ("n3", True, 0.66),
    ]
    assert why_node(history, "n3", history.end).merged_into == "n1"


def test_of_many_matches_one_of_each_way_is_told(store: Store) -> None:
    """Four deduplications before the first recurrence: with three told, the recurrence is one of them."""
    with diagevo.open(store.url, "ways", root=store.root) as memory:
        player = Player(memory)
        player.configure()
        player.open(1)
        player.score(player.question(0, [("1", 6)], "kept"))
        player.fail("r1.q0.a0")
        player.diagnose("r1.q0.a0", "new_cause", description=C1)
        player.trained()
        player.settle_new("r1.q0.a0", label="one")
        player.commit()
        player.open(2)
        player.score(player.question(0, [("1", 6)], "kept"), player.question(1, [("2", 6)], "kept", "c1"))
        failures = [f"r2.q0.a{sample}" for sample in range(4)] + ["r2.q1.a0", "r2.q1.a1"]
        for failure in failures:
            player.fail(failure)
            if failure.startswith("r2.q1"):
                player.recurs(failure, "c1")
            else:
                player.diagnose(failure, "new_cause", description=C2)
        player.trained()
        for failure in failures:
            if failure.startswith("r2.q1"):
                player.settle_recurrence(failure)
            else:
                player.settle_duplicate(failure, "c1", 0.7)
        player.commit()
        history = History(memory.database, "ways")
        [counted] = of_kind(story(history, "c1").turns, "counted")
    assert isinstance(counted, Counted)
    assert [e.failure_id for e in counted.evidence] == ["r2.q0.a0", "r2.q0.a1", "r2.q1.a0"]
    assert (counted.failures, counted.recurrences, counted.deduplications) == (6, 2, 4)


def test_a_promotion_tells_the_questions_and_votes_that_made_it(history: History) -> None:
    """Round 3: 9 and 8 of 12 for c2, 17/24 in all; the label of r3.q2 is false."""
    [third, _] = of_kind(story(history, "c2", evidence=None).turns, "promoted")
    assert isinstance(third, Promoted)
    assert [(v.question_id, v.agreeing, v.responses, v.label, v.label_true) for v in third.votes] == [
        ("r3.q1", 9, 12, "3", True),
        ("r3.q2", 8, 12, "5", False),
    ]


def test_failures_against_a_false_label_are_told_as_such(history: History) -> None:
    """The label of r2.q2 is false; r2.q2.a0 gave the truth. r3.q2.a5 is one of three that reactivated c2."""
    [second] = [t for t in story(history, "c2").turns if isinstance(t, Counted)]
    assert (second.failures, second.against_false_labels) == (2, 2)
    assert [(e.failure_id, e.label_true, e.right) for e in second.evidence] == [
        ("r2.q2.a0", False, True),
        ("r2.q2.a1", False, False),
    ]
    [third] = of_kind(story(history, "c2").turns, "reactivated")
    assert isinstance(third, Reactivated)
    assert (third.failures, third.against_false_labels) == (3, 1)
