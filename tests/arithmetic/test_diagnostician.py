"""The rule diagnostician: earliest difference, recurrence, duplicates, nodes."""

from itertools import count
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from diagevo.arithmetic import RuleDiagnostician
from diagevo.arithmetic.doing import do_all
from diagevo.arithmetic.grammar import FAMILIES, draw_part, word, word_joined, write_solution
from diagevo.arithmetic.rule_diagnostician import PlaceboDiagnostician, by_rules, earliest_slip
from diagevo.arithmetic.slips import KINDS, Kind
from diagevo.arithmetic.wordings import CAUSES, LABELS, kind_of, skill
from diagevo.diagnosis.diagnostician import FailurePair, NodeContents

BOXES = "how many pens are in 7 boxes of 6 and 4 packs of 6"
RIGHT = "7*6=42;4*6=24;42+24=66;\\boxed{66}"
ROW = Kind("boxes", "first", "row")
JOINED = "first double 9 , add 4 and double again ; second write 47 backwards , then add 15 ; add both"
JOINED_RIGHT = "9*2=18;18+4=22;22*2=44;r47=74;74+15=89;44+89=133;\\boxed{133}"
JUMPS = "start at 7 and make 2 jumps of 5"
JUMPS_JOINED = f"first {JUMPS} ; second write 47 backwards , then add 15 ; add both"
JUMPS_JOINED_RIGHT = "7+5=12;12+5=17;r47=74;74+15=89;17+89=106;\\boxed{106}"


def _cause(cause_id: str, kind: Kind, wording: int = 0) -> Any:
    return SimpleNamespace(
        cause_id=cause_id, state="active", description=CAUSES[kind][wording], found_as=CAUSES[kind][wording]
    )


def _node(node_id: str, label: str) -> Any:
    return SimpleNamespace(node_id=node_id, label=label, similarity=0.5, representative="")


def _pair(disagreeing: str, known: tuple[Any, ...] = (), question: str = BOXES) -> FailurePair:
    return FailurePair("r1.q0.a0", question, "66", RIGHT, disagreeing, known)


@pytest.mark.parametrize(
    ("question", "right", "wrong", "kind"),
    [
        (BOXES, RIGHT, "7*6=48;4*6=24;48+24=72;\\boxed{72}", ROW),
        (BOXES, RIGHT, "7*6=42;4*6=25;42+25=67;\\boxed{67}", Kind("boxes", "second", "near")),
        (BOXES, RIGHT, "7*6=42;4*6=24;42+24=76;\\boxed{76}", Kind("boxes", "sum", "ten")),
        (BOXES, RIGHT, "7*6=42;4*6=24;\\boxed{24}", Kind("boxes", "sum", "stop")),
        (BOXES, RIGHT, "8*6=48;4*6=24;48+24=72;\\boxed{72}", Kind("boxes", "first", "copy")),
        # The earliest difference counts, not the later ones.
        (BOXES, RIGHT, "7*6=43;4*6=25;43+25=69;\\boxed{69}", Kind("boxes", "first", "near")),
        (JUMPS, "7+5=12;12+5=17;\\boxed{17}", "7+5=12;\\boxed{12}", Kind("jumps", "add", "count")),
        (
            JUMPS,
            "7+5=12;12+5=17;\\boxed{17}",
            "7+5=12;12+5=17;17+5=22;\\boxed{22}",
            Kind("jumps", "add", "count"),
        ),
        # In a joined question a step left out shows as what follows begun too early.
        (
            JOINED,
            JOINED_RIGHT,
            "9*2=18;18+4=22;r47=74;74+15=89;22+89=111;\\boxed{111}",
            Kind("doubling", "again", "stop"),
        ),
        (
            JUMPS_JOINED,
            JUMPS_JOINED_RIGHT,
            "7+5=12;12+5=17;17+5=22;r47=74;74+15=89;22+89=111;\\boxed{111}",
            Kind("jumps", "add", "count"),
        ),
        (JOINED, JOINED_RIGHT, JOINED_RIGHT.replace("133", "123"), Kind("join", "total", "carry")),
    ],
)
def test_the_earliest_differing_step_names_the_kind(
    question: str, right: str, wrong: str, kind: Kind
) -> None:
    assert earliest_slip(question, right, wrong) == kind


@pytest.mark.parametrize(
    "wrong",
    [
        "7*6=91;4*6=24;91+24=115;\\boxed{115}",
        "7*6=42;4*6=24;42+24=66;\\boxed{60}",
        "7*6=42;4*6=24;42+24=66;66+1=67;\\boxed{67}",
        "",
        "the answer is \\boxed{3}",
    ],
)
def test_a_difference_of_no_kind_is_a_slip(wrong: str) -> None:
    assert RuleDiagnostician().extract(_pair(wrong)).verdict == "slip"


def test_a_question_outside_the_grammar_is_a_slip() -> None:
    assert RuleDiagnostician().extract(_pair("1=1", question="why")).verdict == "slip"


def test_a_supplied_cause_of_the_kind_recurs_whatever_its_wording() -> None:
    known = (_cause("c1", Kind("boxes", "first", "near")), _cause("c7", ROW, wording=2))
    extraction = RuleDiagnostician().extract(_pair("7*6=48;4*6=24;48+24=72;\\boxed{72}", known))
    assert (extraction.verdict, extraction.cause_id, extraction.description) == ("recurrence", "c7", None)


def test_an_unknown_kind_is_described_the_same_way_each_time() -> None:
    pair = _pair("7*6=48;4*6=24;48+24=72;\\boxed{72}", (_cause("c1", Kind("boxes", "first", "near")),))
    first, second = (RuleDiagnostician().extract(pair) for _ in range(2))
    assert first == second
    assert first.verdict == "new_cause"
    assert first.cause_id is None
    assert first.description in CAUSES[ROW]


def test_different_failures_of_one_kind_get_different_wordings() -> None:
    wrongs = [f"7*6=48;4*6=24;48+24=72;\\boxed{{{n}}}" for n in range(20)]
    texts = {RuleDiagnostician().extract(_pair(wrong)).description for wrong in wrongs}
    assert texts == set(CAUSES[ROW])


@pytest.mark.parametrize("family", FAMILIES)
def test_nearly_every_generated_mistake_is_recognised_also_in_joined_questions(family: str) -> None:
    rng = Random(5)
    failures = found = 0
    for trial in count():
        if failures == 50:
            break
        parts = [draw_part(rng, family)]
        parts += [draw_part(rng, "mirror")] if trial % 2 else []
        sentences = [word(part) for part in parts]
        question = word_joined(*sentences) if len(parts) == 2 else sentences[0]
        right, truth = do_all(rng, parts, 0.0)
        steps, answer = do_all(rng, parts, 1.0)
        if answer != truth:
            failures += 1
            kind = earliest_slip(question, write_solution(right, truth), write_solution(steps, answer))
            found += kind is not None
    assert found / failures > 0.97


def test_duplicates_are_wordings_of_one_kind() -> None:
    judge = RuleDiagnostician().judge_duplicate
    others = [_cause("c1", Kind("boxes", "first", "near")), _cause("c2", Kind("boxes", "second", "row"))]
    same = judge(CAUSES[ROW][1], [*others, _cause("c3", ROW)])
    assert (same.duplicate, same.cause_id) == (True, "c3")
    assert judge(CAUSES[ROW][1], others).duplicate is False
    assert judge(CAUSES[ROW][1], others).cause_id is None
    foreign: Any = SimpleNamespace(
        cause_id="c9", state="active", description="something else", found_as="something else"
    )
    assert judge("something", [foreign]).duplicate is False


def test_a_node_is_chosen_by_skill_and_made_where_none_fits() -> None:
    assign = RuleDiagnostician().assign_node
    assert skill(ROW) == "tables"
    shortlist = [_node("n1", LABELS["carry"][0]), _node("n4", LABELS["tables"][1])]
    assert assign(CAUSES[ROW][0], shortlist).node_id == "n4"
    made = assign(CAUSES[ROW][0], shortlist[:1])
    assert made.node_id is None
    assert made.new_label in LABELS["tables"]


def test_nodes_of_one_skill_are_merged_and_others_are_not() -> None:
    first, second = LABELS["tables"]
    judge = RuleDiagnostician().judge_pair
    merged = judge(NodeContents("n1", first, ()), NodeContents("n4", second, ()))
    assert (merged.merge, merged.label) == (True, first)
    refused = judge(NodeContents("n1", first, ()), NodeContents("n2", LABELS["carry"][0], ()))
    assert (refused.merge, refused.label) == (False, None)
    unknown = judge(NodeContents("n1", "a", ()), NodeContents("n2", "b", ()))
    assert unknown.merge is False


def test_a_false_label_is_taken_as_right() -> None:
    wrong_majority = "7*6=48;4*6=24;48+24=72;\\boxed{72}"
    pair = FailurePair("r1.q0.a0", BOXES, "72", wrong_majority, RIGHT)
    assert kind_of(RuleDiagnostician().extract(pair).description or "") == ROW


def test_a_placebo_sees_what_the_rules_see_and_names_it_by_lot() -> None:
    placebo = by_rules("rules:placebo", seed=3)
    assert isinstance(placebo, PlaceboDiagnostician)
    assert placebo.extract(_pair(RIGHT)).verdict == "slip"  # nothing differs
    wrong = _pair("7*6=48;4*6=24;48+24=72;\\boxed{72}")
    drawn = {PlaceboDiagnostician(seed).extract(wrong).description for seed in range(300)}
    named = {kind_of(str(description)) for description in drawn}
    assert len(named) > len(KINDS) / 2  # the rules name one
    assert None not in named


def test_a_placebo_draws_by_its_seed_alone() -> None:
    wrong = _pair("7*6=48;4*6=24;48+24=72;\\boxed{72}")
    one, again = PlaceboDiagnostician(3), PlaceboDiagnostician(3)
    assert one.extract(wrong) == again.extract(wrong)
    assert len({PlaceboDiagnostician(seed).kind(wrong) for seed in range(40)}) > 20
    known = _cause("c9", one.kind(wrong) or ROW)
    assert one.extract(_pair("7*6=48;4*6=24;48+24=72;\\boxed{72}", (known,))).cause_id == "c9"
