"""What a response thinks is a part of its own: compared, folded on screens and pages, never lost."""

import json
from pathlib import Path

import pytest

from diagevo.diagnosis.levels.cause_levels import Levels
from diagevo.diagnosis.levels.features import THOUGHT, Vocabulary
from diagevo.diagnosis.levels.inputs import Failure, Prompt, Response
from diagevo.text.steps import parted
from diagevo.text.thoughts import answered, thought
from tests.cli.program import invoke

ZONES = ("Oslo", "Lima", "Cairo", "Perth", "Quito", "Delhi", "Accra", "Sofia")


def planned(place: int, *, wrong: bool) -> str:
    """The mistake is in what is thought; the answer, an hour off, says nothing of it."""
    one, two = ZONES[place % 8], ZONES[(place + 3) % 8]
    hint = "ignore summer time there" if wrong else "add an hour for summer time"
    return f"<think>\n{one} is ahead of {two}.\nI {hint}, as I do.\n</think>\nWe meet at {9 + place % 7}."


def prompts_of(write) -> list[Prompt]:
    return [
        Prompt(
            f"q{place}",
            f"When do people of {ZONES[place % 8]} and {ZONES[(place + 3) % 8]} meet on day {place}?",
            None,
            [Response(write(place + each, wrong=False)) for each in range(3)],
            [Failure(f"f{place}", Response(write(place, wrong=True)))],
        )
        for place in range(40)
    ]


def test_a_mistake_in_what_is_thought_is_a_cause_that_says_so() -> None:
    prompts = prompts_of(planned)
    levels = Levels(prompts, [])
    causes = [levels.of(prompt)[0].cause for prompt in prompts]
    descriptions = {each.description for each in causes if each is not None}
    assert sum(each is not None for each in causes) == 40
    assert all("in its reasoning: " in each for each in descriptions)


def test_what_was_thought_is_counted_and_marked_where_it_stands() -> None:
    prompts = prompts_of(planned)
    levels = Levels(prompts, [])
    for prompt in prompts:
        [known] = levels.of(prompt)
        assert known.cause is not None
        assert known.cause.description == (
            'wrote "ignore" where a pass has "add an hour for" (40 of 40); '
            "in its reasoning: leaves out `hour`, which passes have"
            " (40 of 40 failures, 0 of 120 passes at diagnosis)"
        )
        pair = known.pair
        assert pair is not None
        for place, text in ((pair.wrote, prompt.failed[0].response.text), (pair.should, pair.sibling.text)):
            assert text.split("\n")[place.line].startswith(f"I {place.text} ")


def test_what_is_thought_adds_features_of_its_own_and_changes_none_of_the_answer() -> None:
    answer = "We meet at 12.\nThe answer is 12."
    prompt = Prompt("q", "When do 2 people meet?", None, [Response(answer)], [])
    vocabulary = Vocabulary([prompt])
    plain = set(vocabulary.features(prompt, Response(answer)).tolist())
    whole = Response(f"<think>Let me see: 4 * 3 = 12, and 5 + 5 = 11.</think>\n{answer}")
    both = set(vocabulary.features(prompt, whole).tolist())
    assert plain < both
    names = dict(vocabulary.named(prompt, whole, both - plain))
    assert names.keys() == both - plain
    assert all(name.startswith(THOUGHT) for name in names.values())
    assert f"{THOUGHT}§a step that does not hold" in names.values()


@pytest.mark.parametrize(
    ("text", "said", "own"),
    [
        ("<think>a\nb</think>\nc", ["a", "b"], ["c"]),
        ("a\nb</think>c", ["a", "b"], ["c"]),  # the template opened it in the prompt
        ("<THINKING>a</THINKING>b<reasoning>c</reasoning>d", ["a", "c"], ["bd"]),
        ("a <think>b", ["b"], ["a "]),
        ("assistant: <think>a</think>b\n\ntool f: <think>c</think>\n\nassistant: d", ["a"], ["b", "d"]),
        ("a < b and <b>c</b>", [], ["a < b and <b>c</b>"]),
    ],
)
def test_thoughts_and_answer_are_parted_with_their_lines(text: str, said: list[str], own: list[str]) -> None:
    response = Response(text)
    assert [part for _, part in response.thoughts] == said
    assert [part for _, part in response.own] == own
    turns = [turn.text for turn in response.turns]
    lines = "\n\n".join(turns).split("\n")
    assert all(
        part.strip() in lines[line] for line, part in (*response.thoughts, *response.own) if part != "bd"
    )
    if not text.startswith("assistant"):
        assert answered(text).split() == " ".join(own).split()
        assert thought(text).split() == said


def test_responses_part_in_their_answers_before_their_thoughts() -> None:
    passed, failed = "<think>One way.</think>\n2 + 2 = 4\nSo 4", "<think>Another.</think>\n2 + 2 = 5\nSo 5"
    assert parted(passed, failed)[1:] == ("2 + 2 = 4", "2 + 2 = 5")
    assert parted("<think>a</think>\nSo 4", "<think>b</think>\nSo 4")[1:] == (
        "<think>a</think>",
        "<think>b</think>",
    )


def test_why_shows_the_answer_and_then_what_was_thought(tmp_path: Path) -> None:
    rows = [
        {
            "prompt": "2 + 2?",
            "response": [
                {"role": "assistant", "reasoning": f"I recall {n} things.", "content": f"It is {n}."}
            ],
            "reward": n == 4,
        }
        for n in (4, 5)
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    home = {"DIAGEVO_HOME": str(tmp_path)}
    for words in (["ingest", "jsonl", file], ["diagnose", "--local"]):
        assert invoke(*words, "--run", "own", env=home).exit_code in (0, 3)
    shown = invoke("memory", "why", "r1.q0.a1", "--run", "own", "--full", env=home).stdout
    wanted = ("It is 5.", "It is 4.", "reasoning, failed", "I recall 5 things.")
    parts = [shown.index(text) for text in wanted]
    assert parts[0] < parts[2] < parts[3]
    assert parts[1] < parts[2]
    assert shown.index("I recall 4 things.") > parts[2]
    site = tmp_path / "site"
    assert invoke("view", "--run", "own", "--export", site, env=home).exit_code == 0
    (page,) = (file.read_text() for file in site.rglob("r1.q0.a1.html"))
    folded = page.index('<details class="call"><summary>reasoning</summary>')
    assert page.index("It is 5.</td>") < folded < page.index("<pre>I recall 5 things.</pre>")
    assert "&lt;think&gt;" not in page
