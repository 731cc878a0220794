"""The pages about one thing: a cause, a node, a question, a failure."""

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from diagevo.memory.audit.failures import FailureStory, failure_story
from diagevo.memory.audit.nodes import why_node
from diagevo.memory.audit.questions import question_story
from diagevo.memory.audit.references import Reference, resolve
from diagevo.memory.audit.why import why_cause
from diagevo.memory.events import CandidateScored, CauseCreated, CauseMatched
from diagevo.memory.history import History, expect
from diagevo.view.page import TEXT, Page, Site, part_of
from diagevo.view.pages import below

EVIDENCE = 3
"""Failures of a turn that the story tells one by one; every one has a page, and stands in the list below."""
PROMOTING = 50
"""Questions of promotions that a cause's page shows, the last ones; each round's page has its own."""
STEPS = 1_000
"""Steps of a text that are compared: what that takes grows with their square."""


@dataclass(frozen=True, slots=True)
class LinePair:
    """A line of a text beside the line of another; None where it has none."""

    left: str | None
    right: str | None
    same: bool


def _steps(text: str) -> list[str]:
    """Lines; of a text on one line what ends in a semicolon. The first STEPS of the first TEXT characters."""
    shown = text[:TEXT]
    lines = shown.splitlines()
    return (lines if len(lines) > 1 else re.findall(r"[^;]*;|[^;]+$", shown))[:STEPS]


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


def cause(history: History, site: Site, cause: str, part: str | None = None) -> Page:
    """The turns of `memory why`, the questions that promoted it, and every failure counted under it."""
    at = history.end
    resolve(history, cause, at, "cause")
    story = why_cause(history, cause, at, evidence=EVIDENCE)
    promoting = {turn.round for turn in story.turns if turn.event == "promoted"}
    questions = [
        (recorded.round, one)
        for recorded in history.events(CandidateScored, cause_id=cause)
        if recorded.round in promoting and (one := expect(recorded, CandidateScored)).verdict != "invalid"
    ]
    texts = history.texts([one.question for _, one in questions[-PROMOTING:]])
    counted = list(history.events(CauseCreated, CauseMatched, cause_id=cause))
    page = part_of(len(counted), part)
    failures = [
        (recorded, _failure_of(recorded.event)) for recorded in counted[page.start : page.start + page.rows]
    ]
    data = {
        "story": story,
        "questions": [(n, one, texts.get(one.question)) for n, one in questions[-PROMOTING:]],
        "promoting": len(questions),
        "failures": failures,
        "counted": len(counted),
        "part": page,
        "base": f"{history.run_id}/causes/{cause}",
        "commands": [
            f"diagevo memory why {cause} --run {history.run_id}",
            f"diagevo memory why {cause} --fields --run {history.run_id}",
        ],
    }
    run = history.run_id
    return Page("cause.html", f"{cause} of {run}", data, (*below(run), ("causes", f"{run}/causes.html")))


def _failure_of(event: Any) -> str:
    assert isinstance(event, CauseCreated | CauseMatched)
    return event.failure_id


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
    found = history.find(CandidateScored, reference.round, question, at)
    assert found is not None
    data = {
        "story": story,
        "truth": found[1].truth,
        "commands": [f"diagevo memory why {question} --run {history.run_id}"],
    }
    return Page("question.html", f"{question} of {history.run_id}", data, _round_above(history, reference))


def failure(history: History, site: Site, failure: str) -> Page:
    """Reference and failed response beside each other, what the diagnostician was asked and said."""
    at = history.end
    reference = resolve(history, failure, at, "failure")
    story = failure_story(history, reference, at, full=True)
    found = history.find(CandidateScored, reference.round, story.question_id, at)
    scored = found[1] if found else None
    texts = story.texts
    assert texts is not None
    sides = side_by_side(texts.reference or "", texts.trajectory or "")
    data = {
        "story": story,
        "scored": scored,
        "false_label": scored is not None and scored.label_true is False,
        "sides": sides,
        "first": next((n for n, side in enumerate(sides) if not side.same), None),
        "cut": any(_is_cut(text or "") for text in (texts.reference, texts.trajectory)),
        "counted": _counted(story),
        "commands": [f"diagevo memory why {failure} --full --run {history.run_id}"],
    }
    return Page("failure.html", f"{failure} of {history.run_id}", data, _round_above(history, reference))


def _counted(story: FailureStory) -> str:
    """What became of it, in a few words."""
    if story.void:
        return "void: its attempt was abandoned before this step"
    if story.cause_id is not None:
        return {"created": "a new cause", "recurrence": "a recurrence", "deduplication": "a duplicate"}[
            story.outcome or "created"
        ]
    return story.verdict or "not diagnosed"


def _round_above(history: History, reference: Reference) -> tuple[tuple[str, str], ...]:
    run, number = history.run_id, reference.round
    return (*below(run), (f"round {number}", f"{run}/rounds/{number}.html"))
