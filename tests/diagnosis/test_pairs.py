"""What a failure wrote beside what a pass, or the reference, has there: sums, calls, elements and fields."""

import json

import pytest

from diagevo.diagnosis.levels.aligned_pairs import aligned, in_words, operations
from diagevo.diagnosis.levels.cause_levels import Levels
from diagevo.diagnosis.levels.clauses import Clause
from diagevo.diagnosis.levels.field_changes import change_in_words
from diagevo.diagnosis.levels.inputs import Failure, Prompt, Response
from diagevo.diagnosis.levels.structured_output import Document, read

WORDS = [
    f"{one}{other}"
    for one in ("al", "be", "co", "do", "el", "fa")
    for other in ("na", "ri", "to", "mu", "se")
]
DRIVEN = Prompt("q", "A tram goes 72 km/h for 30 s. How far, in metres?", None, (), ())


def marked(name: str, sign: int, wrote: str, passed: str, prompt: Prompt = DRIVEN) -> tuple[str, str] | None:
    pair = aligned(Clause(name, sign), prompt, Response(wrote), Response(passed))
    if pair is None:
        return None
    for place, text in ((pair.wrote, wrote), (pair.should, passed)):
        assert text.split("\n")[place.line][place.start :].startswith(place.text)
    return pair.wrote.text, pair.should.text


@pytest.mark.parametrize(
    ("name", "sign", "wrote", "passed", "expected"),
    [
        (
            "§a product of a given number and a given number", 1,
            "So s = 72 * 30 = 2160 m", "v = 72 / 3.6 = 20\ns = 20 * 30 = 600",
            ("72 * 30 = 2160", "72 / 3.6 = 20"),
        ),
        (
            "§a division of a given number and a result", -1,
            "It is 72 + 30 = 102", "x = 72 + 30 = 102\ny = 102 / 30 = 3.4",
            ("72 + 30 = 102", "102 / 30 = 3.4"),
        ),
        ("§a given number not used", 1, "It is 72.", "72 * 30 = 2160", ("", "72 * 30 = 2160")),
        ("§a given number not used", -1, "72 - 30 = 42", "72 / 2 = 36", ("72 - 30 = 42", "72 / 2 = 36")),
        ("§ends one off", 1, "a\nIt is 601 m.", "a\nIt is 600 m.", ("601", "600")),
    ],
)  # fmt: skip
def test_a_computation_is_marked_beside_the_step_with_its_numbers(
    name: str, sign: int, wrote: str, passed: str, expected: tuple[str, str]
) -> None:
    assert marked(name, sign, wrote, passed) == expected


def test_what_either_does_is_said_where_it_is_one_thing() -> None:
    clause = Clause("§a product of a given number and a given number", 1)
    pair = aligned(clause, DRIVEN, Response("s = 72 * 30 = 2160"), Response("v = 72 / 3.6 = 20"))
    assert pair is not None
    assert operations(clause, pair) == ("multiplies", "divides")
    assert operations(Clause("metres", 1), pair) is None


def test_an_order_of_calls_is_marked_at_the_call() -> None:
    def agent(*names: str) -> str:
        turns = (f"assistant: [tool call] {name}({{}})\n\ntool {name}: done" for name in names)
        return "\n\n".join([*turns, "assistant: Done."])

    right, wrong = agent("find", "read", "move"), agent("read", "read", "move")
    assert marked("§start then find", -1, wrong, right) == ("read", "find")
    assert marked("§read called twice or more", 1, wrong, right) is None  # both call read there
    assert marked("§find then read", -1, agent("find", "move"), right) == ("move", "read")
    assert marked("§read then end", 1, agent("find", "read"), right) == ("", "move")


def test_an_element_is_marked_by_a_value_of_it_and_a_tool_by_its_name() -> None:
    items = [{"article": "lamp", "quantity": 2}, {"article": "desk", "quantity": 9}]
    wrote, passed = (json.dumps({"items": each}, indent=1) for each in (items, items[:1]))
    assert marked("§items[]: an element too many", 1, wrote, passed) == ("desk", "")
    one, two = (f'assistant: [tool call] {name}({{"id": 1}})\n\nassistant: Done.' for name in ("pay", "ask"))
    assert marked("§ask: never called", 1, one, two) == ("", "ask")
    twice = one.replace("assistant: Done.", "assistant: [tool call] pay({})\n\nassistant: Done.")
    assert marked("§pay: called too seldom", 1, one, twice) == ("", "pay")
    assert change_in_words("§pay: called too seldom") == "calls pay less often than expected"


def test_where_none_passed_a_field_stands_beside_the_reference() -> None:
    prompts = [
        Prompt(
            f"q{place}",
            f"{WORDS[place // 4]} orders {place + 20} lamps. As JSON.",
            json.dumps({"lamps": place + 20, "open": True}),
            []
            if place % 2
            else [Response(json.dumps({"lamps": place + 20, "open": True}, indent=place % 3))],
            [Failure(f"f{place}", Response(f'{{"lamps": {place + 20}, "open": "yes {place}"}}'))]
            * (place % 2),
        )
        for place in range(120)
    ]
    levels = Levels([each for each in prompts if each.failed], [each for each in prompts if not each.failed])
    [known] = levels.of(prompts[1])
    assert known.cause is not None
    assert known.pair is not None
    assert known.pair.known
    assert (known.pair.wrote.text, known.pair.should.text) == ("yes 1", "true")
    assert known.evidence[0].text == "open: yes 1; the reference has: true"


def test_keys_in_a_fence_without_a_language_are_a_document() -> None:
    found = read(["Here:", "```", "town: Bath", "rooms: 3", "```"])
    assert found == Document({"town": "Bath", "rooms": 3}, range(1, 5))
    assert read(["```", "Note: this is prose.", "It goes on", "```"]) is None


TURNS = "§a result of a call → words → the user"


def test_an_order_of_turns_is_marked_at_the_turn_of_the_policy_that_is_another_one() -> None:
    begun = 'assistant: [tool call] find({"id": 1})\n\ntool find: one'
    end = "\n\nassistant: [tool call] move({})\n\ntool move: done\n\nassistant: Done."
    asks, acts = f"{begun}\n\nassistant: Shall I?\n\nuser: Yes.{end}", f"{begun}{end}"
    assert marked(TURNS, -1, acts, asks) == ("move", "Shall I?")
    assert marked(TURNS, 1, asks, acts) == ("Shall I?", "move")
    assert marked(TURNS, 1, acts, asks) is None
    assert marked("§2 calls", 1, acts, begun) == ("move", "")
    assert marked("§2 calls", 1, acts, asks) is None  # as many calls: nothing to mark


def test_what_a_field_is_like_is_marked_at_its_value() -> None:
    one, two = (
        json.dumps({"due": due, "total": total}, indent=1)
        for due, total in (("18 May", 1.5), ("2026-05-18", 15))
    )
    assert marked("§due is written like 9-9-9", -1, one, two) == ("18 May", "2026-05-18")
    assert marked("§total is a number that the prompt has not", 1, one, two) == ("1.5", "15")
    assert marked("§the field due", -1, '{"total": 2}', two) == ("", "due")
    assert marked("§total is a number that the prompt has not", 1, two, two) is None


def test_a_run_over_two_lines_is_marked_on_the_line_with_most_of_its_words() -> None:
    assert marked(": return", -1, "return a", "if a:\n    return b\nreturn a") == ("", "return")


@pytest.mark.parametrize(
    ("name", "sign", "wrote", "passed", "expected"),
    [
        ("desc", -1, "order by age asc", "sort by price desc", ("", "desc")),
        ("asc", 1, "order by age asc", "sort by price desc", ("asc", "")),
        ("§a product of a given number and a given number", -1, "5 + 7", "2 * 3 = 6", ("", "2 * 3 = 6")),
        ("§start then find", -1, "assistant: [tool call] ask({})", "assistant: [tool call] find({})",
         ("ask", "find")),
        ("§items[]: an element too many", 1, '{"items": [1, 2]}', '{"items": [1]}', None),
        ("§a given number not used", 1, "It is 5.", "2 * 3 = 6", None),
    ],
)  # fmt: skip
def test_beside_a_response_to_another_prompt_only_what_the_clause_names_is_marked(
    name: str, sign: int, wrote: str, passed: str, expected: tuple[str, str] | None
) -> None:
    asked, other = (Prompt("q", text, None, (), ()) for text in ("What are 5 and 7?", "What are 2 and 3?"))
    pair = aligned(Clause(name, sign), asked, Response(wrote), Response(passed), other)
    assert (None if pair is None else (pair.wrote.text, pair.should.text)) == expected
    if expected == ("", "desc") and pair is not None:
        words = 'left out "desc"; a pass on a prompt like this has: sort by price «desc»'
        assert in_words(pair, Response(wrote)) == words
