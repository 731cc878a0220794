"""The pages about one thing: a cause, a node, a question, a failure."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import cast

from diagevo.memory.events import (
    CandidateScored,
    CauseCreated,
    CauseMatched,
    FailureAssigned,
    FailureObserved,
    WrittenPair,
)
from diagevo.memory.events.decode import Fact
from diagevo.memory.history import History, expect
from diagevo.memory.log.artifacts import digest_of
from diagevo.memory.read.counts import RoundFailures, failures_by_round
from diagevo.memory.state.assignments import moves
from diagevo.memory.stories.cause_story import CauseStory, Sampled
from diagevo.memory.stories.examples import Example, examples, examples_of
from diagevo.memory.stories.failures import (
    contradicted_causes,
    counted_under,
    failure_story,
    question_story,
)
from diagevo.memory.stories.nodes import why_node
from diagevo.memory.stories.references import Reference, observation, resolve
from diagevo.memory.stories.story_wording import failure_lines, question_lines, turn_lines
from diagevo.memory.stories.why import why_cause
from diagevo.text.numbers import count
from diagevo.text.steps import parted
from diagevo.text.thoughts import answered, thought
from diagevo.view.outcomes import MeanOfQuestions
from diagevo.view.page import TEXT, Page, Sentence, Site, part_of
from diagevo.view.pages import below

EVIDENCE = 3
"""Failures of a turn that are shown in it; every one has a page, and stands in the list below."""
PROMOTING = 50
"""Questions of promotions that a cause's page shows, the last ones; each round's page has its own."""
SHOWN = 3
"""Failures that a cause's page shows whole, on questions of their own."""
LOOKED_AT = 30
"""Failures that they are chosen from, the last ones."""
STEPS = 1_000
"""Steps of a text that are compared: what that takes grows with their square."""
_STEP = re.compile(r"(?<=;)|(?<=[.!?])\s+")


@dataclass(frozen=True, slots=True)
class LinePair:
    """A line of a text beside the line of another; None where it has none."""

    left: str | None
    right: str | None
    same: bool
    left_place: tuple[int, int] | None = None
    right_place: tuple[int, int] | None = None
    """Where in either the place begins and ends that the cause is about."""


def _steps(text: str) -> list[str]:
    """Lines; of one line sentences, and what ends in a semicolon. STEPS and TEXT characters at most."""
    shown = text[:TEXT]
    lines = shown.splitlines()
    return (lines if len(lines) > 1 else [step for step in _STEP.split(shown) if step])[:STEPS]


def _is_cut(text: str) -> bool:
    return len(text) > TEXT or len(_steps(text)) == STEPS


def side_by_side(left: str, right: str) -> list[LinePair]:
    """Two texts step by step, by their longest common runs: a textual difference and no more."""
    a, b = _steps(left), _steps(right)
    rows: list[LinePair] = []
    for tag, i1, i2, j1, j2 in SequenceMatcher(a=a, b=b, autojunk=False).get_opcodes():
        for place in range(max(i2 - i1, j2 - j1)):
            one = a[i1 + place] if i1 + place < i2 else None
            two = b[j1 + place] if j1 + place < j2 else None
            rows.append(LinePair(one, two, tag == "equal"))
    return rows


@dataclass(frozen=True, slots=True)
class Sides:
    """A response that agrees with the label, or that passed, and one that failed, step by step."""

    lines: tuple[LinePair, ...]
    first: int | None
    """The step that was computed to be wrong, else that in which they part; where it is not a line, the first
    that differs."""
    cut: bool
    against: str
    """A response, one to a prompt that is near, the known answer, or nothing."""
    thoughts: tuple[str, str] = "", ""
    """What either thought, which is folded."""


def sides_of(example: Example, reference: str | None, trajectory: str | None) -> Sides:
    """What passed and what failed, step by step, with the place that the example is about."""
    lines = tuple(side_by_side(answered(reference or ""), answered(trajectory or "")))
    _, expected, actual = parted((reference or "")[:TEXT], (trajectory or "")[:TEXT])
    if example.wrong is not None and example.actual:
        actual = expected = example.actual
    before = thought((reference or "")[:TEXT]), thought((trajectory or "")[:TEXT])
    if (pair := example.pair) is not None:
        marked = _with_places(lines, reference or "", trajectory or "", pair)
        first = next((n for n, line in enumerate(marked) if line.left_place or line.right_place), None)
        if first is not None:
            cut = _any_cut(reference, trajectory)
            return Sides(tuple(marked), first, cut, example.against, before)
    differ = [n for n, line in enumerate(lines) if not line.same]
    part = (n for n in differ if actual in (lines[n].right or "") or expected in (lines[n].left or ""))
    first = next(part, next(iter(differ), None))
    return Sides(lines, first, _any_cut(reference, trajectory), example.against, before)


def _any_cut(*texts: str | None) -> bool:
    return any(_is_cut(text or "") for text in texts)


def _with_places(lines: Sequence[LinePair], left: str, right: str, pair: WrittenPair) -> list[LinePair]:
    """The lines with the place of the pair marked on either side, where it has words there."""
    places = [
        _step_of(left, pair.passed_line, pair.passed_start, pair.should),
        _step_of(right, pair.line, pair.start, pair.wrote),
    ]
    seen = [-1, -1]
    found: list[LinePair] = []
    for line in lines:
        for side, text in enumerate((line.left, line.right)):
            seen[side] += text is not None
            place = places[side]
            if text is not None and place is not None and place[0] == seen[side]:
                line = replace(line, **{("left_place", "right_place")[side]: place[1:]})
        found.append(line)
    return found


def _step_of(text: str, line: int, start: int, words: str) -> tuple[int, int, int] | None:
    """The step with these words of a line, and where they begin and end in it; None where it is not shown."""
    rows, own = text.split("\n"), answered(text)
    if not words or line >= len(rows) or rows[line][start : start + len(words)] != words:
        return None
    shown = own.split("\n")[line]  # without what was thought before it in its line
    at = sum(len(row) + 1 for row in own.split("\n")[:line]) + start - len(rows[line]) + len(shown)
    end = 0
    for number, step in enumerate(_steps(own)):
        begin = own.find(step, end)
        end = begin + len(step)
        if begin <= at and at + len(words) <= end:
            return number, at - begin, at - begin + len(words)
    return None


def cause(history: History, site: Site, cause: str, part: str | None = None) -> Page:
    """What the cause is by failures of it, what was asked about it, its turns as `memory why` has them."""
    at = history.end
    resolve(history, cause, at, "cause")
    story = why_cause(history, cause, at, evidence=EVIDENCE)
    promoting = {turn.round for turn in story.turns if turn.event == "promoted"}
    aimed = [
        (fact.round, one)
        for fact in (history.events(CandidateScored, cause_id=cause) if _was_aimed_at(story) else ())
        if (one := fact.event).verdict != "invalid"
    ]
    questions = [(number, one) for number, one in aimed if number in promoting]
    texts = history.texts([one.question for _, one in questions[-PROMOTING:]])
    failed, moved = failures_by_round(history, cause), _Moved.of(history, cause)
    total = sum(one.failures for one in failed)
    page = part_of(total, part)
    shown = _counted(history, cause, failed, moved, page.start, page.rows)
    observed = _observed(history, shown)
    in_words = examples(history, observed)
    last = _counted(history, cause, failed, moved, max(total - LOOKED_AT, 0), LOOKED_AT)
    data = {
        "story": story,
        "turns": [(turn, list(turn_lines(turn, {}, rest=", listed below"))) for turn in story.turns],
        "sentences": list(_cause_sentences(history, story, failed, aimed)),
        "whole": _whole(history, _observed(history, last)) if page.number == 1 else [],
        "questions": [(n, one, texts.get(one.question)) for n, one in questions[-PROMOTING:]],
        "promoting": len(questions),
        "failures": [(fact, in_words[_name(fact)]) for fact in shown],
        "counted": total,
        "part": page,
        "base": f"{history.run_id}/causes/{cause}",
        "commands": [
            f"diagevo memory why {cause} --run {history.run_id}",
            f"diagevo view --run {history.run_id} --cause {cause} --export {cause}.html",
        ],
    }
    run = history.run_id
    return Page("cause.html", f"{cause} of {run}", data, (*below(run), ("causes", f"{run}/causes.html")))


Counting = CauseCreated | CauseMatched | FailureAssigned


def _name(fact: Fact[Counting]) -> str:
    event = fact.event
    return event.failure.failure_id if isinstance(event, FailureAssigned) else event.failure_id


@dataclass(frozen=True, slots=True)
class _Moved:
    """What somebody assigned: failures that the cause has no more, and by round those that it has since."""

    out: frozenset[str]
    came: dict[int, list[Fact[Counting]]]

    @classmethod
    def of(cls, history: History, cause: str) -> "_Moved":
        last = {fact.event.failure.failure_id: fact for fact in moves(history.log, history.run_id)}
        came: dict[int, list[Fact[Counting]]] = {}
        for fact in last.values():
            if isinstance(fact.event, FailureAssigned) and fact.event.cause_id == cause:
                came.setdefault(fact.event.failure.round, []).append(cast("Fact[Counting]", fact))
        return cls(frozenset(last), came)


def _counted(
    history: History, cause: str, failed: Sequence[RoundFailures], moved: _Moved, start: int, most: int
) -> list[Fact[Counting]]:
    """Some of what is counted, in order; only the rounds that they are of are looked through."""
    found, before = list[Fact[Counting]](), 0
    for one in failed:
        if before < start + most and start < before + one.failures:
            own: list[Fact[Counting]] = [
                fact for fact in counted_under(history, cause, one.round) if _name(fact) not in moved.out
            ]
            own += moved.came.get(one.round, [])
            found += own[max(start - before, 0) : start + most - before]
        before += one.failures
    return found


def _was_aimed_at(story: CauseStory) -> bool:
    return any(isinstance(turn, Sampled) and turn.questions for turn in story.turns)


def _observed(history: History, counted: Sequence[Fact[Counting]]) -> dict[str, tuple[int, FailureObserved]]:
    """The failures that are counted, with their rounds."""
    found: dict[str, tuple[int, FailureObserved]] = {}
    for fact, chain in zip(counted, history.chains(counted), strict=True):
        if isinstance(fact.event, FailureAssigned):
            seen = observation(history, Reference("failure", _name(fact)), history.end)
            assert seen is not None
            found[_name(fact)] = seen.round, seen.event
        for link in chain:
            if link.type == FailureObserved.__name__:
                found[_name(fact)] = link.round, expect(link, FailureObserved)
    return found


def _whole(history: History, failures: dict[str, tuple[int, FailureObserved]]) -> list[tuple[Example, Sides]]:
    """The last of them, each on a question of its own, that do not give the true answer."""
    last: dict[str, tuple[int, FailureObserved]] = {}
    for number, failure in failures.values():
        if failure.right is not True:
            last.pop(failure.question_id, None)
            last[failure.question_id] = number, failure
    chosen = list(last.values())[-SHOWN:][::-1]
    in_words = examples(history, {failure.failure_id: (number, failure) for number, failure in chosen})
    beside = {
        one.failure_id: one.reference if (pair := in_words[one.failure_id].pair) is None else pair.passed
        for _, one in chosen
    }
    texts = history.texts([*beside.values(), *(one.trajectory for _, one in chosen)])
    return [
        (example, sides_of(example, texts.get(beside[one.failure_id]), texts.get(one.trajectory)))
        for _, one in chosen
        if (example := in_words[one.failure_id])
    ]


def _cause_sentences(
    history: History,
    story: CauseStory,
    failed: Sequence[RoundFailures],
    aimed: Sequence[tuple[int, CandidateScored]],
) -> Iterator[Sentence]:
    """What speaks against it, how often, what was asked, and how the answers went."""
    if (why := contradicted_causes(history).get(story.cause_id)) is not None:
        yield Sentence("contradicted", f"{why}.")
    gone = history.superseded()
    counts = [one for one in failed if one.round not in gone]
    failures, questions = sum(one.failures for one in counts), sum(one.questions for one in counts)
    listed = ", ".join(f"{one.failures:,} in round {one.round}" for one in counts)
    yield Sentence(
        "failures",
        f"{count(failures, 'failure')} on {count(questions, 'question')}{': ' if listed else ''}{listed}.",
    )
    shares: dict[int, list[float]] = {}
    for number, one in aimed:
        if number not in gone:
            shares.setdefault(number, []).append(one.first / one.responses)
    if not shares:
        yield Sentence("aimed", "No question has been aimed at it.")
        return
    rewarded = any(turn.rewards for turn in story.turns if isinstance(turn, Sampled))
    called = "pass rate" if rewarded else "agreement p₁"
    means = ", ".join(
        f"{MeanOfQuestions.of(own)} in round {number}" for number, own in sorted(shares.items())
    )
    total = sum(map(len, shares.values()))
    text = f"{count(total, 'question was', 'questions were')} aimed at it, with a mean {called} of {means}."
    yield Sentence("aimed", text)


def node(history: History, site: Site, node: str) -> Page:
    at = history.end
    resolve(history, node, at, "node")
    story = why_node(history, node, at)
    run = history.run_id
    return Page(
        "node.html", f"{node} of {run}", {"story": story}, (*below(run), ("causes", f"{run}/causes.html"))
    )


def question(history: History, site: Site, question: str) -> Page:
    """The votes, the verdict with its arithmetic, and who failed on it."""
    at = history.end
    reference = resolve(history, question, at, "question")
    story = question_story(history, reference, at)
    data = {
        "story": story,
        "lines": [line for line in question_lines(story) if line.label not in ("votes", "rewards")],
        "in_words": examples_of(history, story.failures),
        "prompt": _prompt(history, story.question),
        "commands": [f"diagevo memory why {question} --run {history.run_id}"],
    }
    return Page("question.html", f"{question} of {history.run_id}", data, _round_above(history, reference))


def failure(history: History, site: Site, failure: str) -> Page:
    """Reference and failed response beside each other, the diagnostician's prompts and replies."""
    at = history.end
    reference = resolve(history, failure, at, "failure")
    story = failure_story(history, reference, at, full=True)
    found = history.find(CandidateScored, reference.round, story.question_id, at)
    scored = found.event if found else None
    texts, example = story.texts, examples_of(history, [story])[failure]
    assert texts is not None
    data = {
        "story": story,
        "scored": scored,
        "false_label": scored is not None and scored.label_true is False,
        "example": example,
        "sides": sides_of(example, texts.reference, texts.trajectory),
        "lines": failure_lines(story),
        "prompt": _prompt(history, texts.question),
        "commands": [f"diagevo memory why {failure} --full --run {history.run_id}"],
    }
    return Page("failure.html", f"{failure} of {history.run_id}", data, _round_above(history, reference))


def _prompt(history: History, text: str | None) -> str | None:
    """What a prompt's page is called, where it has one: prompts of another trainer have."""
    return None if history.ingested is None or text is None else digest_of(text)


def _round_above(history: History, reference: Reference) -> tuple[tuple[str, str], ...]:
    run, number = history.run_id, reference.round
    return (*below(run), (f"round {number}", f"{run}/rounds/{number}.html"))
