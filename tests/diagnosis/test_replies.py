import json
import random
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diagevo.diagnosis.replies import (
    AssignmentReply,
    DuplicateReply,
    ExtractionReply,
    MergeReply,
    read_assignment,
    read_duplicate,
    read_extraction,
    read_merge,
)
from tests.diagnosis.generated import reply

TWELVE = "fails to check candidate solutions against the domain of the original equation"


def extraction(matched: object, cause: object) -> str:
    return json.dumps({"matched_cause_id": matched, "error_cause": cause})


def words(n: int) -> str:
    return " ".join(["word"] * n)


Outcome = tuple[str, str | None, str | None, tuple[str, ...]]
"""Verdict, cause, description and flags."""
READ: dict[str, tuple[str, Outcome | None, str | None]] = {
    "a supplied id": (extraction("c7", None), ("recurrence", "c7", None, ()), None),
    "both null": (extraction(None, None), ("slip", None, None, ()), None),
    **{f"{n} words": (extraction(None, words(n)), ("new_cause", None, words(n), ()), None) for n in (10, 20)},
    **{
        f"{n} words": (
            *(extraction(None, words(n)), ("new_cause", None, words(n), ("length",))),
            f"{n} words",
        )
        for n in (1, 9, 21)
    },
    "both, a valid id": (extraction("c7", TWELVE), ("recurrence", "c7", None, ("both_given",)), None),
    "an unknown id": (extraction("c8", TWELVE), ("new_cause", None, TWELVE, ("unknown_id",)), "c8"),
    "an unknown id alone": (extraction("c8", None), ("unresolved", None, None, ("unknown_id",)), "c8"),
    "a field left out": (json.dumps({"error_cause": TWELVE}), ("new_cause", None, TWELVE, ()), None),
    "an empty object": ("{}", None, ""),
    "an object inside a broken one": (f'{{"draft": {extraction(None, None)}, "then', None, ""),
    "two objects": (extraction(None, None) + extraction("c7", None), ("slip", None, None, ()), None),
    "a repeated key": ('{"matched_cause_id": "c7", "matched_cause_id": null}', None, "twice"),
    "lines and signs unseen": (
        extraction(None, f"{TWELVE}\n\u202e- c1\u200b (Active):\u2028x\x00"),
        ("new_cause", None, f"{TWELVE} - c1 (Active): x\ufffd", ()),
        None,
    ),
}


@pytest.mark.parametrize(("text", "outcome", "complaint"), READ.values(), ids=READ)
def test_an_extraction_is_read_or_complained_about(text: str, outcome: Outcome | None, complaint: str | None):
    reading = read_extraction(text, ["c7", "c9"])
    found = reading.value
    assert (found and (found.verdict, found.cause_id, found.description, found.flags)) == outcome
    assert (reading.complaint is None) == (complaint is None)
    assert (complaint or "") in (reading.complaint or "")
    assert reading.soft == (outcome is not None and outcome[3] == ("length",))


@pytest.mark.parametrize(
    "text",
    [
        '{"duplicate": true, "matched_cause_id": null}',
        '{"duplicate": true, "matched_cause_id": "c4"}',
        '{"duplicate": false, "matched_cause_id": "c3"}',
        '{"duplicate": "true", "matched_cause_id": "c3"}',
        '{"duplicate": 1, "matched_cause_id": "c3"}',
        '{"matched_cause_id": "c3"}',
        "yes",
    ],
)
def test_a_duplicate_names_a_candidate_and_anything_else_is_complained_about(text: str):
    named = read_duplicate('{"duplicate": true, "matched_cause_id": "c3"}', ["c3"]).value
    assert named is not None
    assert (named.duplicate, named.cause_id) == (True, "c3")
    reading = read_duplicate(text, ["c3"])
    assert reading.value is None
    assert reading.complaint


@pytest.mark.parametrize(
    ("create", "label", "node", "taken"),
    [
        (False, None, "n2", True),
        (True, TWELVE, None, True),
        (True, None, None, False),
        (True, TWELVE, "n1", False),
        (False, TWELVE, "n1", False),
        (False, None, None, False),
        (False, None, "n9", False),
    ],
)
def test_a_listed_node_or_a_new_label_is_taken_and_neither_both_nor_an_unlisted_one(
    create: bool, label: str | None, node: str | None, taken: bool
):
    text = json.dumps({"create_new_node": create, "new_node_label": label, "assigned_node": node})
    reading = read_assignment(text, ["n1", "n2"])
    found = reading.value
    assert (found and (found.node_id, found.new_label)) == ((node, label) if taken else None)
    assert (reading.complaint is None) is taken


@pytest.mark.parametrize(
    ("merge", "label", "taken"),
    [(True, TWELVE, True), (False, None, True), (True, None, False), (False, "x", False)],
)
def test_a_merge_has_a_label_and_a_refusal_has_none(merge: bool, label: str | None, taken: bool):
    found = read_merge(json.dumps({"merge": merge, "merged_label": label})).value
    assert (found and (found.merge, found.label)) == ((merge, label) if taken else None)


def test_ten_thousand_generated_replies_are_read_as_they_were_built():
    rng = random.Random(20)
    outcomes: Counter[tuple[str, str]] = Counter()
    for _ in range(10_000):
        ids = rng.choice([[], ["c1"], ["c1", "c12"]])
        made = reply(rng, ids)
        reading = read_extraction(made.text, ids)
        verdict = reading.value.verdict if reading.value else "unresolved"
        assert verdict == made.verdict, (made.kind, made.text[:300])
        if reading.value is not None and made.kind != "hostile Unicode":
            assert reading.value.cause_id == made.cause_id
            assert reading.value.description == made.description
        outcomes[made.kind, verdict] += 1
    assert len({kind for kind, _ in outcomes}) >= 20
    assert all(count >= 50 for count in outcomes.values())


@settings(max_examples=400)
@given(st.text(max_size=400), st.lists(st.text(max_size=5), max_size=3))
def test_no_text_at_all_upsets_a_reader(text: str, ids: list[str]):
    for reading in (
        read_extraction(text, ids),
        read_duplicate(text, ids),
        read_assignment(text, ids),
        read_merge(text),
    ):
        assert reading.value is not None or reading.complaint


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=400)
@given(
    st.dictionaries(
        st.sampled_from(
            [*ExtractionReply.model_fields, *DuplicateReply.model_fields, *AssignmentReply.model_fields]
        ),
        JSON | st.sampled_from(["c1", "n1", TWELVE, None, True, False]),
    )
)
def test_whatever_the_fields_hold_only_ids_on_offer_come_out(fields: dict[str, object]):
    text = json.dumps(fields)
    extracted = read_extraction(text, ["c1"]).value
    assert extracted is None or extracted.cause_id in (None, "c1")
    assert extracted is None or (extracted.verdict == "recurrence") == (extracted.cause_id is not None)
    assert extracted is None or (extracted.verdict == "new_cause") == (extracted.description is not None)
    duplicate = read_duplicate(text, ["c1"]).value
    assert duplicate is None or duplicate.duplicate == (duplicate.cause_id == "c1")
    assigned = read_assignment(text, ["n1"]).value
    assert assigned is None or (assigned.node_id == "n1") != (assigned.new_label is not None)


def test_the_schemas_are_what_strict_servers_take():
    for model in (ExtractionReply, DuplicateReply, AssignmentReply, MergeReply):
        schema = model.model_json_schema()
        assert schema["additionalProperties"] is False
        assert sorted(schema["required"]) == sorted(schema["properties"])
