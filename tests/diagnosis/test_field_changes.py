"""Structured output by field: what writers of each format wrote, changes that were made, bombs, causes."""

import copy
import csv
import json
import random
import re
import time
from collections import Counter
from io import StringIO
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ruamel.yaml import YAML

from benchmarks.causes.planted import planted
from benchmarks.causes.rows import LabelledRow
from diagevo.diagnosis.levels import step_location, structured_output
from diagevo.diagnosis.levels.cause_levels import Explained, Levels
from diagevo.diagnosis.levels.features import Vocabulary
from diagevo.diagnosis.levels.field_changes import (
    ANY,
    CALLS,
    as_date,
    as_number,
    changes,
    features,
    is_change,
    pair,
)
from diagevo.diagnosis.levels.inputs import Failure, Prompt, Response
from diagevo.diagnosis.levels.structured_output import MOST_VALUES, Document, Unreadable, read

NAMES = st.sampled_from(["name", "city", "due", "total", "items", "notes", "status", "contact"])
TEXTS = st.text("abcdefghij", min_size=1, max_size=8)
SCALARS = TEXTS | st.integers(-10_000, 10_000) | st.booleans() | st.none()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(NAMES, VALUES, min_size=2, max_size=6)


def value(text: str) -> Any:
    found = read(text.splitlines())
    assert isinstance(found, Document), found
    return found.value


def kinds(own: Any, other: Any, question: str = "") -> list[str]:
    return [f"{path}: {kind}" for path, kind, _, _ in changes(own, other, question)]


# What is read


@given(
    OBJECTS, st.sampled_from([None, 1, 4]), st.sampled_from(["{}", "```json\n{}\n```", "Here:\n{}\nDone."])
)
def test_json_is_read_in_a_fence_or_not(made: dict[str, Any], indent: int | None, frame: str) -> None:
    assert value(frame.replace("{}", json.dumps(made, indent=indent))) == made


@given(OBJECTS)
def test_yaml_is_read_as_its_writer_meant_it(made: dict[str, Any]) -> None:
    out = StringIO()
    YAML(typ="safe").dump(made, out)
    assert value(f"```yaml\n{out.getvalue()}```") == made


@given(st.lists(st.lists(TEXTS, min_size=3, max_size=3), min_size=2, max_size=5))
def test_tables_are_read_by_their_heads(rows: list[list[str]]) -> None:
    head = ["article", "size", "unit"]
    out = StringIO()
    csv.writer(out).writerows([head, *rows])
    expected = [dict(zip(head, row, strict=True)) for row in rows]
    assert value(out.getvalue()) == value(f"```csv\n{out.getvalue()}```") == expected
    table = [head, ["---"] * 3, *rows]
    assert value("So:\n\n" + "\n".join(f"| {' | '.join(row)} |" for row in table)) == expected


def test_xml_is_read_by_its_elements() -> None:
    root = ElementTree.Element("order", number="7")
    for name in ("shelf", "lamp"):
        ElementTree.SubElement(root, "item").text = name
    text = ElementTree.tostring(root, encoding="unicode")
    assert (
        value(text) == value(f"```xml\n{text}\n```") == {"order": {"@number": "7", "item": ["shelf", "lamp"]}}
    )


@pytest.mark.parametrize(
    "text",
    [
        "The answer is \\boxed{5}.",
        "Step 1: 2 + 3 = 5\nStep 2: 5 * 2 = 10\nAnswer: 10",
        "First, we add, then\nwe multiply, so\nthe end is, well, 5",
        "```python\nx = {'a': 1}\n```",
        "[1]",
        "a | b",
    ],
)
def test_prose_and_code_are_no_documents(text: str) -> None:
    found = read(text.splitlines())
    assert not isinstance(found, Unreadable)
    assert found is None or found.value == [1]


def test_broken_json_is_text_and_its_line_is_named() -> None:
    found = read(["Here:", "```json", '{"a": 1,', '"b" 2}', "```"])
    assert found == Unreadable(3, "Expecting ':' delimiter")
    assert Response('{"a": 1,').words == ("{", '"', "a", '"', ":", "1", ",")


PAIRS = list(zip("abcdefg", "bcdefgh", strict=True))
LAUGHS = "a: &a [x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 8)}]\n" for old, new in PAIRS
)
MERGED = "a: &a {k: 1}\n" + "".join(
    f"{new}: &{new}\n  <<: [{', '.join([f'*{old}'] * 8)}]\n" for old, new in PAIRS
)
ENTITIES = '<!DOCTYPE a [<!ENTITY x "ha"><!ENTITY y "&x;&x;&x;">]><a>&y;</a>'


@pytest.mark.parametrize(
    "text",
    [
        f"```yaml\n{LAUGHS}```",
        f"```yaml\n{MERGED}```",
        ENTITIES,
        '{"a":' * 100 + "1" + "}" * 100,
        '{"a":' * 100_000 + "1" + "}" * 100_000,
        "[" * 200_000,
        json.dumps({f"field {place}": place for place in range(100_000)}),
        json.dumps(list(range(100_000))),
        '{"a": ' * 1_000 + "\n" * 1_000,
        json.dumps({"a": "x" * 10_000_000}),
        "{" * 10_000_000,
        "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 40_000,
        '{"n": ' + "9" * 5_000 + "}",
        '{"n": 1e999, "m": NaN}',
        "<a>" * 50_000 + "</a>" * 50_000,
    ],
    ids=lambda text: text[:20].replace("\n", " "),
)
def test_bombs_end_soon_and_leave_little(text: str) -> None:
    start = time.process_time()
    response = Response(text)
    own = response.fields
    found = features(own, own, "q")
    found += [f"{path}: {kind}" for path, kind, _, _ in changes(own, {"a": [1, 2]}, "q")]
    assert time.process_time() - start < 5
    assert len(json.dumps(own)) < 40 * MOST_VALUES
    assert len(found) < 1_000


def test_yaml_of_brackets_without_end_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """24 responses of 6 kB took half a minute of the processor."""

    def asked() -> None:
        raise AssertionError

    monkeypatch.setattr(structured_output, "_loader", asked)
    for brackets in ("[" * 3_000 + "]" * 3_000, "a: [" + "{b: [" * 400, "[a, " * 10_000):
        assert Response(f"```yaml\n{brackets}\n```").fields is None


# What is compared


@given(OBJECTS)
def test_what_is_equal_has_no_changes_in_any_order_of_fields(made: dict[str, Any]) -> None:
    assert not changes(dict(reversed(made.items())), made, "")


@given(OBJECTS, st.data())
def test_a_change_that_is_made_is_the_one_that_is_found(made: dict[str, Any], data: st.DataObject) -> None:
    own = copy.deepcopy(made)
    name = data.draw(st.sampled_from(sorted(made)))
    match data.draw(st.sampled_from(["lost", "extra", "type", "too many", "too few", "order"])):
        case "lost":
            del own[name]
            expected = f"{name}: left out"
        case "extra":
            own["surplus"] = data.draw(VALUES)
            expected = "surplus: a field that is not expected"
        case "type":
            made[name], own[name] = 1500, "1,500"
            expected = f"{name}: a text in place of a number"
        case "too many":
            made[name], own[name] = ["a", "b"], data.draw(st.permutations(["a", "b", "c"]))
            expected = f"{name}[]: an element too many"
        case "too few":
            made[name], own[name] = ["a", "b", {"c": 1}], ["b", {"c": 1}]
            expected = f"{name}[]: an element too few"
        case _:
            made[name], own[name] = [1, 2, {"c": 1}], [{"c": 1}, 1, 2]
            expected = f"{name}: another order of the elements"
    assert kinds(own, made) == [expected]


@given(OBJECTS, OBJECTS)
def test_what_differs_has_a_change_at_a_path_of_one_of_the_two(own: Any, other: Any) -> None:
    found = changes(own, other, "")
    texts = [json.dumps(each, sort_keys=True) for each in (own, other)]
    assert bool(found) == (texts[0] != texts[1])
    assert {re.split(r"[.\[]", path)[0] for path, *_ in found} <= own.keys() | other.keys()


LETTER = "Ordered on 3 May 2026, due 17 May 2026. Total 15.389,99 EUR for Berger & Söhne."


@pytest.mark.parametrize(
    ("own", "other", "kind"),
    [
        ("17.05.2026", "2026-05-17", "a date in another form"),
        ("17 May 2026", "2026-05-17", "a date in another form"),
        ("2026-05-03", "2026-05-17", "another date"),
        (15.38999, 15389.99, "1000 times too small"),
        ("15,389.99", "15.389,99", "a number written in another way"),
        ("12 km", "12 m", "another unit"),
        ("12 km", "12", "a unit more"),
        ("BERGER", "Berger", "other letters in upper case"),
        ("Berger", "Berger & Söhne", "only its beginning"),
        ("Söhne", "Berger & Söhne", "only a part of it"),
        ("Berger-Söhne", "Berger Söhne", "other blanks or signs"),
        (7, 8, "one too few"),
        (-8, 8, "the other sign"),
        (True, False, "the other truth value"),
        (None, 8, "null in place of a value"),
        (8, None, "a value in place of null"),
        ("", "Berger", "an empty text"),
    ],
)
def test_another_value_is_of_a_kind(own: Any, other: Any, kind: str) -> None:
    assert kinds({"x": own}, {"x": other}, LETTER) == [f"x: {kind}"]


def test_where_a_value_is_from_is_seen_in_whatever_form_it_stands_there() -> None:
    assert kinds({"x": 15389.99}, {"x": 4}, LETTER) == [
        "x: copied from elsewhere in the prompt",
        "x: another number",
    ]
    assert kinds({"x": 4}, {"x": 15389.99}, LETTER) == ["x: not in the prompt", "x: another number"]
    assert kinds({"x": "May"}, {"x": "June"}, LETTER)[0] == "x: copied from elsewhere in the prompt"


@given(st.dates(), st.sampled_from(["%Y-%m-%d", "%d %B %Y", "%B %d, %Y", "%d.%m.%Y", "%m/%d/%Y", "%Y/%m/%d"]))
def test_a_date_is_read_as_it_was_written(day: Any, form: str) -> None:
    if day.year >= 1000:
        assert day in as_date(day.strftime(form))


@given(st.integers(0, 10**9))
def test_a_number_is_read_with_either_point(cents: int) -> None:
    text = f"{cents / 100:,.2f}"
    for written in (text, text.translate(str.maketrans(",.", ".,")), f"{text} EUR"):
        found = as_number(written)
        assert found is not None
        assert cents / 100 in found[0]


def test_arguments_of_a_tool_are_fields_of_its_calls() -> None:
    def called(amount: object) -> Any:
        return Response(f'[tool call] refund({{"amount": {json.dumps(amount)}}})').fields

    assert called(5) == {CALLS: {"refund": [{"amount": 5}]}}
    assert kinds(called("5"), called(5)) == ["refund(amount): a text in place of a number"]
    assert kinds(Response("Hello.").fields or {}, called(5)) == ["refund: never called"]
    answer = '[{"name": "refund", "arguments": {"amount": 5}}]'
    prompt = Prompt("k", "q", answer, [], [Failure("f", Response('[tool call] refund({"amount": 7})'))])
    assert prompt.expected == called(5)


# What they are causes of


def prompts_of(rows: list[LabelledRow]) -> list[Prompt]:
    by_question: dict[str, list[tuple[str, LabelledRow]]] = {}
    for place, row in enumerate(rows):
        by_question.setdefault(row.question, []).append((f"f{place}", row))
    return [
        Prompt(
            question,
            question,
            own[0][1].answer,
            [Response(row.text) for _, row in own if not row.failed],
            [Failure(key, Response(row.text)) for key, row in own if row.failed],
        )
        for question, own in by_question.items()
    ]


def explained(prompts: list[Prompt]) -> dict[str, Explained]:
    levels = Levels([each for each in prompts if each.failed], [each for each in prompts if not each.failed])
    return {
        failure.key: found
        for prompt in prompts
        for failure, found in zip(prompt.failed, levels.of(prompt), strict=True)
    }


@pytest.mark.parametrize("domain", ["extraction", "extraction with a reference"])
def test_each_planted_change_of_a_field_is_a_cause_with_what_is_expected(domain: str) -> None:
    rows = planted(domain, 3)
    found = explained(prompts_of(rows))
    labels = {f"f{place}": row.label for place, row in enumerate(rows) if row.failed}
    whose = "the reference has" if "reference" in domain else "most responses have"
    for mode, said in {
        "takes another date": "due: another date",
        "leaves the date as it is written": "due: a date in another form",
        "lists what was cancelled": "positions[]: an element too many",
        "gives the number as text": "total: a text in place of a number",
        "leaves out what is empty": "leaves out the field contact",
    }.items():
        members = [found[key] for key, label in labels.items() if label == mode]
        shown = [
            any(
                said in f"{one.cause and one.cause.description}\n{each.text}"
                and (" the field" in said or f"; {whose}: " in each.text)
                for each in one.evidence
            )
            for one in members
        ]
        assert sum(shown) >= 0.8 * len(members), mode


def test_a_change_is_counted_and_shown_as_it_stands_in_either_text() -> None:
    """Of the field that is due: what should be there is looked up in the reference."""
    rows = planted("extraction with a reference", 3)
    found = explained(prompts_of(rows))
    known = [(row, found[f"f{place}"]) for place, row in enumerate(rows) if row.failed]
    sizes = Counter(one.cause.description for _, one in known if one.cause is not None)
    marked = 0
    for row, one in known:
        if one.cause is None or not one.cause.description.startswith("due: "):
            continue
        size = sizes[one.cause.description]
        assert f" ({size} of {size} failures, 0 of " in one.cause.description
        due = json.loads(row.answer or "")["due"]
        assert one.evidence[0].text.endswith(f"; the reference has: {due}")
        assert one.pair is not None
        wrote, should = one.pair.wrote, one.pair.should
        assert should.text == due != wrote.text
        for place, text in ((wrote, row.text), (should, one.pair.sibling.text)):
            line = text.split("\n")[place.line]
            assert "due" in line[: place.start]
            assert line[place.start :].startswith(place.text)
        assert one.evidence[0].line == wrote.line
        marked += 1
    assert marked > 30


@given(OBJECTS, OBJECTS, st.sampled_from(["a\nb", "a: b", "a = b"]))
def test_a_feature_is_of_one_line_and_a_change_is_none_of_a_value(own: Any, other: Any, text: str) -> None:
    own["x"] = own[text] = text
    found = features(own, other, "")
    assert not any("\n" in each for each in found)
    assert not any(is_change(each) for each in features(own, None, "") if " = " in each)
    assert {each for each in found if each.startswith(f"§{ANY}: ")} <= set(filter(is_change, found))


def test_a_number_is_shown_as_it_was_written() -> None:
    shown = pair({"x": 12509.37}, {"x": 125.0}, "", "§x: another number")
    assert shown == ("x", "12509.37", "125")


def test_features_of_a_document_do_not_hang_on_who_passed() -> None:
    """Dealt labels must leave them as they are: else the test of what chance explains would not hold."""
    prompts = prompts_of(planted("extraction", 0))[:20]
    rng = random.Random(0)
    for prompt in prompts:
        every = prompt.responses
        failed = rng.sample(every, len(every) // 2)
        dealt = Prompt(
            prompt.key,
            prompt.question,
            None,
            [each for each in every if each not in failed],
            [Failure(str(place), each) for place, each in enumerate(failed)],
        )
        vocabulary = Vocabulary([prompt])
        for each in every:
            assert vocabulary.features(prompt, each).tolist() == vocabulary.features(dealt, each).tolist()


def test_json_that_cannot_be_read_is_a_cause_of_the_first_level_with_its_line() -> None:
    prompts = [
        Prompt(
            f"q{place}",
            f"Give item {place} as JSON.",
            None,
            [Response(json.dumps({"item": place, "n": n}, indent=1)) for n in range(2)],
            [Failure(f"f{place}", Response(f'{{\n "item": {place}\n "n": 3\n}}'))],
        )
        for place in range(20)
    ]
    found = [one for one in explained(prompts).values() if one.cause is not None]
    assert {one.cause and one.cause.key for one in found} == {"1:malformed"}
    assert len(found) == 20
    assert all(
        one.evidence[0].line == 2 and "Expecting ',' delimiter" in one.evidence[0].text for one in found
    )


def test_many_rollouts_of_one_prompt_are_looked_at_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0
    overlap = step_location._overlap

    def counted(*given: Any) -> float:
        nonlocal compared
        compared += 1
        return overlap(*given)

    monkeypatch.setattr(step_location, "_overlap", counted)
    rng = random.Random(0)
    texts = [" ".join(rng.choices(["oak", "elm", "fir", "ash", "yew"], k=9)) + f" {n}" for n in range(1_000)]
    failed = [Failure(f"f{n}", Response(text)) for n, text in enumerate(texts[500:])]
    prompt = Prompt("q", "Which trees?", None, [Response(text) for text in texts[:500]], failed)
    assert len(explained([prompt])) == 500
    assert compared < 150 * len(failed)
