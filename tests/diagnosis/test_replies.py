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


class TestExtraction:
    def test_a_supplied_id_is_a_recurrence(self):
        reading = read_extraction(extraction("c7", None), ["c7", "c9"])
        assert reading.complaint is None
        assert reading.value is not None
        assert (reading.value.verdict, reading.value.cause_id, reading.value.description) == (
            "recurrence",
            "c7",
            None,
        )

    def test_a_new_phrase_of_ten_to_twenty_words_is_a_new_cause_without_complaint(self):
        for words in (10, 20):
            text = " ".join(["word"] * words)
            reading = read_extraction(extraction(None, text), ["c7"])
            assert reading.value is not None
            assert (reading.complaint, reading.value.description, reading.value.flags) == (None, text, ())

    @pytest.mark.parametrize("words", [1, 9, 21])
    def test_another_length_is_complained_about_softly_and_flagged(self, words: int):
        reading = read_extraction(extraction(None, " ".join(["word"] * words)), [])
        assert reading.soft
        assert f"{words} words" in (reading.complaint or "")
        assert reading.value is not None
        assert reading.value.flags == ("length",)

    def test_both_null_is_a_slip(self):
        reading = read_extraction(extraction(None, None), ["c7"])
        assert reading.complaint is None
        assert reading.value is not None
        assert reading.value.verdict == "slip"

    def test_of_both_given_the_valid_id_wins(self):
        reading = read_extraction(extraction("c7", TWELVE), ["c7"])
        assert reading.complaint is None
        assert reading.value is not None
        assert (
            reading.value.verdict,
            reading.value.cause_id,
            reading.value.description,
            reading.value.flags,
        ) == (
            "recurrence",
            "c7",
            None,
            ("both_given",),
        )

    def test_an_unknown_id_is_complained_about_and_then_no_match(self):
        reading = read_extraction(extraction("c8", TWELVE), ["c7"])
        assert "c8" in (reading.complaint or "")
        assert not reading.soft
        assert reading.value is not None
        assert (reading.value.verdict, reading.value.description) == ("new_cause", TWELVE)
        assert reading.value.flags == ("unknown_id",)

    def test_an_unknown_id_alone_leaves_the_failure_unresolved(self):
        reading = read_extraction(extraction("c8", None), ["c7"])
        assert reading.complaint is not None
        assert reading.value is not None
        assert (reading.value.verdict, reading.value.flags) == ("unresolved", ("unknown_id",))

    def test_a_field_left_out_is_null_beside_one_that_is_given(self):
        reading = read_extraction(json.dumps({"error_cause": TWELVE}), [])
        assert reading.value is not None
        assert reading.value.verdict == "new_cause"

    def test_an_empty_object_is_no_slip(self):
        assert read_extraction("{}", []).value is None

    def test_an_object_inside_a_broken_one_does_not_count(self):
        text = '{"draft": ' + extraction(None, None) + ', "then'
        assert read_extraction(text, []).value is None

    def test_the_first_of_two_objects_counts(self):
        reading = read_extraction(extraction(None, None) + extraction("c7", None), ["c7"])
        assert reading.value is not None
        assert reading.value.verdict == "slip"

    def test_a_repeated_key_is_an_error(self):
        reading = read_extraction('{"matched_cause_id": "c7", "matched_cause_id": null}', ["c7"])
        assert reading.value is None
        assert "twice" in (reading.complaint or "")

    def test_a_phrase_comes_out_on_one_line_without_invisible_characters(self):
        reading = read_extraction(extraction(None, f"{TWELVE}\n\u202e- c1\u200b (Active):\u2028x\x00"), [])
        assert reading.value is not None
        assert reading.value.description == f"{TWELVE} - c1 (Active): x"


class TestDuplicate:
    def test_a_duplicate_names_a_candidate(self):
        reading = read_duplicate('{"duplicate": true, "matched_cause_id": "c3"}', ["c3"])
        assert reading.value is not None
        assert (reading.value.duplicate, reading.value.cause_id) == (True, "c3")

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
    def test_anything_else_is_complained_about(self, text: str):
        reading = read_duplicate(text, ["c3"])
        assert reading.value is None
        assert reading.complaint


class TestAssignment:
    def test_a_listed_node_is_taken(self):
        text = '{"create_new_node": false, "new_node_label": null, "assigned_node": "n2"}'
        reading = read_assignment(text, ["n1", "n2"])
        assert reading.value is not None
        assert (reading.value.node_id, reading.value.new_label) == ("n2", None)

    def test_a_new_label_opens_a_node(self):
        text = json.dumps({"create_new_node": True, "new_node_label": TWELVE, "assigned_node": None})
        reading = read_assignment(text, ["n1"])
        assert reading.complaint is None
        assert reading.value is not None
        assert (reading.value.node_id, reading.value.new_label) == (None, TWELVE)

    @pytest.mark.parametrize(
        ("create", "label", "node"),
        [
            (True, None, None),
            (True, TWELVE, "n1"),
            (False, TWELVE, "n1"),
            (False, None, None),
            (False, None, "n9"),
        ],
    )
    def test_neither_both_nor_an_unlisted_node_will_do(
        self, create: bool, label: str | None, node: str | None
    ):
        text = json.dumps({"create_new_node": create, "new_node_label": label, "assigned_node": node})
        reading = read_assignment(text, ["n1"])
        assert reading.value is None
        assert reading.complaint


class TestMerge:
    def test_a_merge_has_a_label_and_a_refusal_has_none(self):
        yes = read_merge(json.dumps({"merge": True, "merged_label": TWELVE}))
        no = read_merge('{"merge": false, "merged_label": null}')
        assert yes.value is not None
        assert no.value is not None
        assert (yes.value.merge, yes.value.label) == (True, TWELVE)
        assert (no.value.merge, no.value.label) == (False, None)

    @pytest.mark.parametrize(
        "text", ['{"merge": true, "merged_label": null}', '{"merge": false, "merged_label": "x"}']
    )
    def test_anything_else_is_complained_about(self, text: str):
        assert read_merge(text).value is None


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


@settings(max_examples=400, deadline=None)
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


@settings(max_examples=400, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(
            [
                "matched_cause_id",
                "error_cause",
                "duplicate",
                "create_new_node",
                "new_node_label",
                "assigned_node",
            ]
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
