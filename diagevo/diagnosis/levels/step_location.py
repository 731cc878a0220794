"""The step where a failure goes wrong, as far as it can be shown, and its nearest sibling."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from fractions import Fraction

from diagevo.diagnosis.levels.arithmetic_checks import LONGEST, equations, given, numbers, value
from diagevo.diagnosis.levels.inputs import TOKEN, Prompt, Response

_SIGN = re.compile(r"(?<=[\d)%\s])[-+*/x×÷](?=[\d(\s$.])")
NEAR = 0.6
"""Similarity from which a response counts as an edited copy of a passing one."""
COMPARED = 2_000
"""Maximum characters compared."""
_SOLVED = re.compile(
    r"(?:\bvariable |\bvalue of |(?<![\w/*)]))\$?([a-zA-Z])(?: is|\s*=):?\s*"
    r"\$?(-?(?:[\d,]*\d(?:\.\d+)?|\.\d+))(?!\d*\s*[-+*/x])"
)
_ASKED = re.compile(r"\b(?:variable|value of|unknown) \$?([a-zA-Z])\b|\$?\b([xyz])\b")


@dataclass(frozen=True, slots=True)
class Located:
    """A step, and why it is named: `shown` if it was computed, otherwise it is the first that differs."""

    line: int
    text: str
    why: str
    shown: bool


def nearest(response: Response, passed: Sequence[Response]) -> Response | None:
    """The passing response that shares most words with it, counted with multiplicity."""
    if len(passed) < 2:
        return passed[0] if passed else None
    own = response.counts
    return max(passed, key=lambda each: _overlap(own, each.counts))


def located(prompt: Prompt, response: Response, sibling: Response | None) -> Located | None:
    """Where the response goes wrong, compared with a passing one to the same prompt, if there is one.

    A near copy of the sibling: the first step that differs. Otherwise the first equation that does not hold
    (letters that the sibling solves for have its values), or the first number that comes neither from the
    question nor from the sibling, and that no correct result uses; otherwise the step that gives the
    wrong result.
    """
    steps = response.steps
    if not steps:
        return None
    if sibling is not None and (copy := _changed(response, sibling)) is not None:
        there = equations(((copy.line, copy.text),), _letters(prompt, sibling))
        return copy if all(each.holds for each in there) else replace(copy, why="does not hold", shown=True)
    letters = _letters(prompt, sibling)
    found = list(equations(steps, letters) if letters else response.equations)
    false = next((each for each in found if not each.holds), None)
    if sibling is None:
        return None if false is None else Located(false.line, false.text, "does not hold", True)
    asked, passed = given(prompt.question), set(numbers("\n".join(text for _, text in sibling.steps)))
    right = {*asked, *passed, Fraction(0), Fraction(1), Fraction(2)}
    reached = passed - asked
    for each in reversed(found):
        if each.left in reached:
            right.update(each.numbers)
    unknown = next(((line, text, n) for line, text in steps for n in numbers(text) if n not in right), None)
    if false is not None and (unknown is None or false.line <= unknown[0]):
        return Located(false.line, false.text, "does not hold", True)
    if unknown is not None:
        line, text, number = unknown
        return Located(
            line, text, f"{_written(number)} is neither given nor in the response that passed", True
        )
    ends = [numbers(text) for _, text in steps]
    end = next((each[-1] for each in reversed(ends) if each), None)
    if end is not None:
        wrong = next((each for each in found if each.right == end), None)
        if wrong is not None:
            return Located(wrong.line, wrong.text, "gives what it ends with", False)
        line, text = next(step for step, each in zip(steps, ends, strict=True) if end in each)
        return Located(line, text, "first has what it ends with", False)
    return _first_difference(response, sibling)


def _changed(response: Response, sibling: Response) -> Located | None:
    """The first step that differs in a near copy."""
    own, other = response.steps, sibling.steps
    if abs(len(own) - len(other)) > 1 or not other:
        return None
    if _overlap(response.counts, sibling.counts) <= NEAR:
        return None  # the likeness in order is no more
    texts = ["\n".join(text for _, text in each) for each in (own, other)]
    if _ratio(*texts) <= NEAR:
        return None
    place = _parts(own, other)
    if not place < min(len(own), len(other)):
        return None
    line, text = own[place]
    if place == 0 and (len(own) > 6 or _ratio(text, other[place][1]) < 0.5):
        return None
    return Located(line, text, f"passed has: {other[place][1]}", False)


def change(prompt: Prompt, response: Response) -> str | None:
    """How a near copy of a passing response first differs from it.

    A description, not a test: it is true, but whether it matters must be decided from other evidence.
    """
    if response.fields is not None:
        return None  # compared by field
    sibling = nearest(response, [each for each in prompt.beside if each is not response])
    if sibling is None or _overlap(response.counts, sibling.counts) <= NEAR:
        return None
    own, other = response.steps, sibling.steps
    if not own or not other:
        return None
    if len(own) != len(other):
        return "a step more" if len(own) > len(other) else "a step less"
    place = _parts(own, other)
    mine, theirs = own[place][1], other[place][1]
    if mine == theirs:
        return None
    ours, their = numbers(mine), numbers(theirs)
    signs, there = ("".join(_SIGN.findall(text)) for text in (mine, theirs))
    if len(ours) != len(their):
        return "more numbers in a step" if len(ours) > len(their) else "fewer numbers in a step"
    if signs != there:
        return "another operation"
    if ours == their:
        return "other words in a step"
    first = next(n for n, (mine, theirs) in enumerate(zip(ours, their, strict=True)) if mine != theirs)
    if first == len(ours) - 1 and len(ours) > 1:
        return "another result of a step"
    asked = set(numbers(prompt.question))
    before = {n for _, text in own[:place] for n in numbers(text)}
    mine, theirs = (
        "a given number" if n in asked else "a result" if n in before else "another number"
        for n in (ours[first], their[first])
    )
    return f"{mine} in place of {theirs}"


def _parts(own: Sequence[tuple[int, str]], other: Sequence[tuple[int, str]]) -> int:
    """The first place with other words; the same number written differently is not a difference."""
    for place, (_, text) in enumerate(own):
        if place >= len(other):
            return place
        theirs = other[place][1]
        if TOKEN.findall(text.lower()) != TOKEN.findall(theirs.lower()):
            found = numbers(text)
            if found == numbers(theirs) and len(found) > 1:
                continue
            return place
    return len(own) - 1


def first_difference(response: Response, sibling: Response) -> tuple[tuple[int, str], tuple[int, str]]:
    """The first step with other words and what the other response has there, each with its line."""
    place = _parts(response.steps, sibling.steps)
    steps = (of.steps[place] if 0 <= place < len(of.steps) else (0, "") for of in (response, sibling))
    one, other = steps
    return one, other


def _first_difference(response: Response, sibling: Response) -> Located | None:
    place = _parts(response.steps, sibling.steps)
    line, text = response.steps[place]
    there = sibling.steps[place][1] if place < len(sibling.steps) else "no further step"
    return Located(line, text, f"passed has: {there}", False)


def contradicted(named: str, failed: str, passed: str, computed: str | None) -> str | None:
    """A flag on a step called wrong, if the computation disagrees.

    Args:
        named: The step called wrong.
        failed: The response that it is attributed to.
        passed: A response that passed, or empty.
        computed: The step computed to be wrong, if any.

    Returns:
        "no_such_step": it is not in the response. "step_passed": the response that passed has it too.
        "step_holds": it holds when it is computed, and another step does not.
    """
    words, whole = _spaced(named), _spaced(failed)
    if not words.strip() or words not in whole:
        return "no_such_step"
    if words in _spaced(passed):
        return "step_passed"
    found = list(equations(Response(named).steps, {}))
    other = computed is not None and words not in _spaced(computed) and _spaced(computed) not in words
    return "step_holds" if other and found and all(each.holds for each in found) else None


def _spaced(text: str) -> str:
    return f" {' '.join(TOKEN.findall(text.lower()))} "


def _letters(prompt: Prompt, sibling: Response | None) -> Mapping[str, Fraction]:
    """Values of the letters that the question asks for, from the response that passed."""
    asked = {first or second for first, second in _ASKED.findall(prompt.question)}
    if not asked or sibling is None:
        return {}
    text = "\n".join(text for _, text in sibling.steps)
    solved = [pair for pair in _SOLVED.findall(text) if pair[0] in asked and len(pair[1]) <= LONGEST]
    found = {letter: value(number) for letter, number in solved}
    return {letter: number for letter, number in found.items() if letter == letter.lower()}


def _overlap(one: Mapping[str, int], other: Mapping[str, int]) -> float:
    both = sum(min(number, other.get(word, 0)) for word, number in one.items())
    return 2 * both / max(sum(one.values()) + sum(other.values()), 1)


def _ratio(one: str, other: str) -> float:
    words = (TOKEN.findall(text[:COMPARED].lower()) for text in (one, other))
    return SequenceMatcher(None, *words, autojunk=False).ratio()


def _written(number: Fraction) -> str:
    return str(number.numerator) if number.denominator == 1 else f"{float(number):g}"
