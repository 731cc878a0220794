"""Level 3: what is tested against chance, and what makes a group."""

from collections.abc import Iterable

import numpy as np

from diagevo.diagnosis.levels import contrast
from diagevo.diagnosis.levels.cause_levels import Levels
from diagevo.diagnosis.levels.clustering import grouped
from diagevo.diagnosis.levels.contrast import Side, Signed
from diagevo.diagnosis.levels.features import Vocabulary
from diagevo.diagnosis.levels.inputs import Failure, Prompt, Response
from diagevo.diagnosis.levels.step_location import located

MODE, OTHER, COMMON = 1, 2, 3


def response(*names: int) -> np.ndarray:
    return np.unique(np.array(names, np.uint64))


def own(place: int) -> int:
    """A feature that one prompt has."""
    return 1_000 + place


def test_features_that_go_together_are_one_test_and_not_thousands() -> None:
    """Of four responses the two that failed have it, in each of nine prompts: (1/6)^9 = 1e-7. A thousand
    others beside it would ask for 2e-8 of each, were they a thousand chances that count a run in 5,000."""
    together = range(5_000, 6_000)
    sides = [
        Side(
            [response(COMMON, own(2 * place)), response(COMMON, own(2 * place + 1))],
            [response(COMMON, MODE, *together), response(COMMON, MODE, *together)],
        )
        for place in range(9)
    ]
    found = contrast.tested(sides, [])
    assert MODE in found.names.tolist()
    assert found.seen.tolist() == [9] * 1_001


def test_as_many_prompts_as_chance_does_not_explain_and_no_fewer() -> None:
    """One of three failures has it, and the pass has not: by chance in 3 of 4 prompts. (3/4)^40 is 1e-5."""

    def found(prompts: int) -> bool:
        sides = [
            Side(
                [response(COMMON, own(4 * place))],
                [response(COMMON, *([] if n else [MODE]), own(4 * place + n + 1)) for n in range(3)],
            )
            for place in range(prompts)
        ]
        with np.errstate(all="raise"):
            return MODE in contrast.tested(sides, []).names.tolist()

    assert (found(20), found(40)) == (False, True)


def test_labels_that_say_nothing_set_nothing_apart() -> None:
    rng = np.random.default_rng(7)
    for _ in range(5):
        sides = []
        for _ in range(60):
            drawn = [response(*rng.choice(300, 60, replace=False)) for _ in range(8)]
            sides.append(Side(drawn[:4], drawn[4:]))
        assert not len(contrast.tested(sides, []).names)


def test_prompts_with_more_failures_do_not_show_more() -> None:
    """Of each prompt five responses that draw from the same words: where all five failed, any word is in one
    of them more often than in a response that passed."""
    rng = np.random.default_rng(3)
    for _ in range(5):
        between = []
        for _ in range(30):
            drawn = [[response(*rng.choice(60, 12, replace=False)) for _ in range(5)] for _ in range(8)]
            sides = [[one[n] for one in drawn] for n in range(5)]
            between.append([Side(each[:4], each[4:], borrowed=True) for each in sides])
        assert not len(contrast.tested([], between).names)


def test_what_prompts_that_never_passed_show_in_most_responses_sets_them_apart() -> None:
    """Four of five responses of a prompt that never passed have it, in 24 groups of two such prompts and two
    others."""
    rng = np.random.default_rng(4)
    between = [
        [
            Side(
                [response(*rng.integers(5_000, 6_000, 4)) for _ in range(2)],
                [response(*[MODE] * (n > 0), *rng.integers(5_000, 6_000, 4)) for _ in range(2)],
                borrowed=True,
            )
            for n in range(5)
        ]
        for _ in range(24)
    ]
    assert contrast.tested([], between).names.tolist() == [MODE]


def test_a_group_is_a_way_to_fail_and_not_a_topic() -> None:
    """Two topics, each with a call of its own that both ways to fail leave out, which the other topic cannot
    leave out; one way leaves out a check too, the other adds a word. Three prompts have a pass that does the
    same, so that check and word say less than the calls."""
    check, word, calls = 10, 11, (20, 21)
    sides, ways = [], []
    for place in range(40):
        topic, way = place % 2, place // 2 % 2
        passed = [response(check, calls[topic], own(2 * place + each)) for each in range(2)]
        failed = response(COMMON) if way else response(check, word)
        sides.append(Side(passed, [failed, failed]))
        ways += [way, way]
    rows: list[tuple[int, Signed]] = [
        (place, marks) for place, side in enumerate(sides) for marks in contrast.signed(side)
    ]
    harmless = [response(check), response(word)]
    groups = grouped(contrast.tested([*sides, *[Side(harmless, harmless)] * 3], []), rows)
    assert same(ways, [groups.of(groups.row(marks)) for _, marks in rows])


def same(one: Iterable[object], other: Iterable[object]) -> bool:
    """Whether both divide alike."""
    pairs = set(zip(one, other, strict=True))
    return len({left for left, _ in pairs}) == len(pairs) == len({right for _, right in pairs})


def test_a_word_has_the_same_number_in_every_process() -> None:
    assert Vocabulary([]).id("join") == 5828604845654783540


def test_failures_that_end_below_zero_are_not_said_to_end_above() -> None:
    """The sign of the last number alone sets four failures apart from four passes, in nine prompts."""
    ways = ["calm", "deep", "even", "fair"]
    prompts: list[Prompt] = []
    for place, word in enumerate(["ask", "bat", "cod", "dim", "elk", "fur", "gin", "hop", "ink"]):
        passed, failed = (
            [
                Response(f"We take the {way} {word}.\nSo it is {sign}{13 * place + 5 + each}.")
                for each, way in enumerate(ways)
            ]
            for sign in ("", "-")
        )
        failures = [Failure(f"{word}{each}", response) for each, response in enumerate(failed)]
        prompts.append(Prompt(word, f"What is the {word} balance?", None, passed, failures))
    levels = Levels(prompts, [])
    explained = [each for prompt in prompts for each in levels.of(prompt)]
    causes = {each.cause for each in explained}
    assert all(len(list(each.evidence)) == len(list(each.evidence)) > 0 for each in explained)
    [cause] = causes
    assert cause is not None
    assert cause.key in ("3:-§a number at the end", "3:+§a negative number at the end")


def test_what_nothing_computed_tells_is_placed_at_the_first_line_that_differs() -> None:
    """No numbers, and no near copy: the first step that the passing response has otherwise."""
    passed = Response("Water runs down.\nThe mill turns with it.\nSo flour is made.")
    failed = Response(
        "Water runs down.\nNobody owns the valley since the war ended long ago.\nThus sheep graze."
    )
    prompt = Prompt("q", "What does a brook do?", None, [passed], [Failure("f", failed)])
    found = located(prompt, failed, passed)
    assert found is not None
    assert (found.line, found.text) == (1, "Nobody owns the valley since the war ended long ago.")
    assert found.why == "passed has: The mill turns with it."


def test_a_right_answer_without_a_reward_hides_no_other_mistake() -> None:
    """Passes that are right are nearly all: without them nothing would be left to hold failures against."""
    prompts: list[Prompt] = []
    for place in range(60):
        one, other = place + 12, place % 9 + 3
        passed = [
            Response(f"{one} * {other} = {one * other}\n{each} {one * other}") for each in ("So", "Thus")
        ]
        text = f"{one} + {other} = {one + other}\nSo {one + other}" if place else passed[0].text + "."
        failed = [Failure(f"f{place}", Response(text))]
        prompts.append(Prompt(f"q{place}", f"{one} boxes of {other}?", str(one * other), passed, failed))
    levels = Levels(prompts, [])
    causes = [each.cause and each.cause.key for prompt in prompts for each in levels.of(prompt)]
    assert causes[0] == "1:equal"
    assert all(each is not None and each.startswith("3:") for each in causes[1:])
