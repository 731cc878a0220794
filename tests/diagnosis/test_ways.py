"""What is said in many ways, told by what goes together and not by who passed."""

from collections.abc import Mapping
from dataclasses import replace

from benchmarks.causes.planted import planted
from benchmarks.causes.rows import LabelledRow
from diagevo.diagnosis.levels import paraphrases
from diagevo.diagnosis.levels.cause_levels import Levels
from diagevo.diagnosis.levels.inputs import Failure, LocalCause, Prompt, Response

SORRY = ("We regret this", "My apologies", "So sorry", "Please excuse us", "Pardon the trouble")
FIX = ("a new one is coming", "we repair it", "you get another", "our van picks it up")
BLAME = ("you dropped it yourself", "you never read the manual", "you broke it, not us", "you misused it")


def letter(place: int, *, sorry: bool = True, blame: bool = False) -> Response:
    parts = [
        *([SORRY[place % 5]] if sorry else []),
        FIX[place % 4],
        *([BLAME[place // 2 % 4]] if blame else []),
    ]
    return Response("\n".join(parts))


def test_words_of_which_each_response_has_one_are_ways_to_say_the_same() -> None:
    """Two slots of three words each, in all nine pairs: no word of one slot excludes one of the other."""
    said = [frozenset((one, other, "the")) for one in ("a", "b", "c") for other in ("x", "y", "z")] * 4
    assert sorted(paraphrases.alternatives(said)) == [("a", "b", "c"), ("x", "y", "z")]


def test_responses_are_learned_from_in_turn_first_one_of_each_prompt() -> None:
    """Prompts may have one response or many, or none."""
    prompts = [
        Prompt(f"q{size}", "?", None, [Response(f"{size}.{each}") for each in range(size)], [])
        for size in (1, 3, 0, 2)
    ]
    asked = [prompt.key for prompt, _ in paraphrases.spread(prompts)]
    assert asked == ["q1", "q3", "q2", "q3", "q2", "q3"]
    assert len({response.text for _, response in paraphrases.spread(prompts)}) == 6


def test_a_sentence_is_new_where_no_pass_of_another_prompt_has_its_words() -> None:
    passed = [Response("We send it on Monday."), Response("It comes on Friday to you.")]
    prompts = [Prompt(str(place), "When?", None, [each], []) for place, each in enumerate(passed)]
    every = {prompt.key: frozenset[str]() for prompt in prompts}
    sentences = paraphrases.Sentences(list(zip(prompts, passed, strict=True)), every)
    third = Prompt("third", "When?", None, [], [])

    def new(prompt: Prompt, text: str) -> list[str]:
        return [sentence for _, sentence, _ in sentences.new(prompt, Response(text), frozenset())]

    assert new(third, "We send it on Monday. Call our hotline about it.") == ["Call our hotline about it."]
    assert new(prompts[0], "We send it on Monday.") == ["We send it on Monday."]


def test_what_is_left_out_or_added_in_ever_other_words_has_a_cause() -> None:
    prompts = [
        Prompt(
            f"q{place}",
            f"Answer letter {place}.",
            None,
            [letter(place + each) for each in range(4)],
            [Failure(f"f{place}", letter(place, sorry=place % 2 == 0, blame=place % 2 == 0))],
        )
        for place in range(40)
    ]
    levels = Levels(prompts, [])
    causes = [levels.of(prompt)[0].cause for prompt in prompts]
    blaming, silent = ({each.description for each in causes[start::2] if each} for start in (0, 1))
    assert len(silent) == 1
    assert silent.pop().startswith("leaves out any of `")
    assert blaming
    assert all(each.startswith("has any of `") for each in blaming)


def test_a_group_goes_on_under_the_cause_that_most_of_it_has() -> None:
    prompts = [
        Prompt(
            f"q{place}",
            f"Answer letter {place}.",
            None,
            [letter(place + each) for each in range(4)],
            [Failure(f"f{place}", letter(place, blame=True))],
        )
        for place in range(40)
    ]

    def causes(known: Mapping[str, LocalCause]) -> list[LocalCause | None]:
        levels = Levels(prompts, [], known)
        return [levels.of(prompt)[0].cause for prompt in prompts]

    found = causes({})
    before = [each and replace(each, description=f"so far: {each.description}") for each in found]
    known = {f"f{place}": each for place, each in enumerate(before) if each and place % 3}
    assert known
    assert causes(known) == before


def test_causes_do_not_hang_on_the_order_of_rows() -> None:
    by_question: dict[str, list[tuple[str, LabelledRow]]] = {}
    for place, row in enumerate(planted("tools", 0)):
        by_question.setdefault(str(row.question), []).append((f"f{place}", row))

    def found(order: int) -> dict[str, str | None]:
        prompts = [
            Prompt(
                question,
                question,
                None,
                [Response(row.text) for _, row in rows[::order] if not row.failed],
                [Failure(key, Response(row.text)) for key, row in rows[::order] if row.failed],
            )
            for question, rows in list(by_question.items())[::order]
        ]
        levels = Levels(
            [each for each in prompts if each.failed], [each for each in prompts if not each.failed]
        )
        return {
            failure.key: explained.cause and explained.cause.key
            for prompt in prompts
            for failure, explained in zip(prompt.failed, levels.of(prompt), strict=True)
        }

    assert found(1) == found(-1)
