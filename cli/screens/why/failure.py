"""The screen of a failure, and its texts and words as the other screens show them."""

import textwrap
from typing import TYPE_CHECKING

from diagevo.text.escaping import one_line
from diagevo.text.numbers import count

from ...render.console import visible
from ...render.layout import Line, lay, listed, wrapped

SHOWN = 80
"""Characters of a text in a line."""

if TYPE_CHECKING:
    from diagevo.memory.audit.examples import Example
    from diagevo.memory.audit.failures import FailureStory, ModelExchange


def told(example: "Example | None") -> str | None:
    """A failure in words: the question, and what its cause rests on, the step that was computed to be wrong,
    or else the first that differs."""
    if example is None or (example.evidence is None and None in (example.said, example.should)):
        return None
    question, said, should, wrong, evidence = (
        textwrap.shorten(one_line(text or ""), SHOWN, placeholder="…")
        for text in (example.question, example.said, example.should, example.wrong, example.evidence)
    )
    if evidence:
        return f"{question}: {evidence}"
    if wrong:
        return f"{question}: {said}: {wrong}"
    if example.against != "response":
        return f"{question}: ends {said}" + (f"; expected {should}" if should else "")
    return f"{question}: first difference {said}, instead of {should}"


def failure_screen(
    story: "FailureStory", columns: int | None, example: "Example | None", cause: str | None
) -> str:
    """What became of one failure, from the question to the count. `cause`: what it was counted under, in
    words."""
    at = story.positions.get
    drawn = {"free": "free exploration", "targeted": f"aimed at {story.target}"}.get(
        story.mode or "", f"stitched ({story.target} + {story.stitched})"
    )
    label = "no label" if story.label is None else f"label {story.label}"
    seen = f"{story.stage}, attempt {story.attempt}, step {story.step}"
    if story.votes_are == "rewards":
        drawn = "its trainer's prompt" + ("" if story.target is None else f", aimed at {story.target}")
        seen = f"step {story.step} of its trainer{held(story)}"
    lines = [
        Line("question", f"{story.question_id}, {drawn}, {label}", at("CandidateScored")),
        Line("observed", seen, at("FailureObserved")),
    ]
    if words := told(example):
        lines.append(Line("in words", words))
    if (mark := marked(story)) and story.contradicted is None:
        lines.append(Line("truth", mark.removeprefix(" · ")))
    if story.verdict is not None:
        shown = ", ".join(f"{s.cause_id} ({s.state})" for s in story.supplied) or "none"
        said = {"recurrence": f"recurrence of {story.chosen}", "new_cause": f"new: {story.description}"}.get(
            story.verdict, story.verdict
        )
        flags = f" [{', '.join(story.flags)}]" if story.flags else ""
        given = "" if story.local else f" (causes shown: {shown})"
        lines.append(Line("diagnosed", f"{said}{flags}{given}", at("FailureDiagnosed")))
    if story.contradicted is not None:
        lines.append(Line("but", story.contradicted))
    if story.duplicate is not None and not story.local:
        above = ", ".join(f"{c.cause_id} {c.similarity:.2f}" for c in story.candidates)
        text = f"the same as {story.cause_id}" if story.duplicate else f"no duplicate ({nearest(story)})"
        text += f"; above {story.theta_dup:.2f}: {above}" if above else ""
        lines.append(Line("judged", text, at("DuplicateJudged")))
    if at("NodeAssigned") is not None and not story.local:
        near = listed([f"{n.node_id} {n.similarity:.2f}" for n in story.shortlist]) or "empty"
        where = f"a new node “{story.new_label}”" if story.new_label else f"node {story.node_id}"
        lines.append(Line("assigned", f"{where} (shortlist: {near})", at("NodeAssigned")))
    end = at("CauseMatched") or at("CauseCreated")
    result = " · ".join(filter(None, (story.cause_id, how_counted(story))))
    lines.append(Line("counted", result, end))
    if cause is not None:
        lines.append(Line("cause", cause))
    return f"{story.failure_id}\n" + lay(lines, columns) + failure_texts(story, columns)


def marked(story: "FailureStory") -> str:
    """What the truth says of a failure: that its label is false, or that its answer is right."""
    truth = "" if story.truth is None else f", the truth is {story.truth}"
    if story.contradicted is not None:
        return f" · CONTRADICTED: {story.contradicted}"
    if story.right:
        return f" · RIGHT: it gives the true answer{'' if story.truth is None else f' {story.truth}'}"
    return f" · the label {story.label} is false{truth}" if story.label_true is False else ""


def held(story: "FailureStory") -> str:
    """That no response passed, where the known answer is all that a failure is held against."""
    return ", no response passed: compared with the known answer" if story.against == "answer" else ""


def how_counted(story: "FailureStory") -> str:
    """Why a failure was assigned to its cause."""
    if story.outcome == "recurrence":
        if story.mode == "stitched":
            asked = f"the question was stitched ({story.target} + {story.stitched})"
        else:
            asked = f"the question aimed at {story.target}"
        return f"recurrence: {asked}, the reply chose {story.chosen}"
    if story.outcome == "deduplication":
        near = "" if story.similarity is None else f"cosine {story.similarity:.2f} > {story.theta_dup:.2f}, "
        return f"deduplication: {near}judged the same" if near else "" if story.local else "deduplication"
    if story.outcome == "created":
        near = nearest(story)
        return f"a new cause ({near})" if near else "" if story.local else "a new cause"
    if story.void:
        return f"void: attempt {story.attempt} of {story.stage} was abandoned before this step, no count"
    if story.verdict is None:
        return "not diagnosed"
    return {
        "slip": "no pattern, no count" if story.local else "a slip: no skill behind it, no count",
        "unresolved": "unresolved: no readable reply, no count",
    }.get(story.verdict, f"{story.verdict}, not counted yet")


def nearest(e: "FailureStory") -> str:
    if e.nearest is None:
        return "" if e.local else "the first cause of all"
    near = f"nearest: {e.nearest.cause_id} at {e.nearest.similarity:.2f}"
    if e.judged:
        return f"{near}, above {e.theta_dup:.2f}, judged a different cause"
    return f"{near}, not above {e.theta_dup:.2f}"


def failure_texts(story: "FailureStory", columns: int | None) -> str:
    """Question, reference, trajectory, prompts and replies of one failure."""
    texts = story.texts
    if texts is None:
        return ""
    mark = marked(story).removeprefix(" · ")
    label = visible(mark or f"label {story.label or '–'}", one_line=True)
    out = [f"\n{story.failure_id}  ({label})\n"]
    for name, text in (
        ("question", texts.question),
        (_reference(story), texts.reference),
        ("trajectory, right but against the label" if story.right else "failed trajectory", texts.trajectory),
    ):
        out.append(f" {name}\n{wrapped(text if text is not None else '(not kept)', '   ', columns)}")
    return "".join(out) + "".join(call_texts(call, columns) for call in texts.calls)


def _reference(story: "FailureStory") -> str:
    if story.against == "answer":
        return "known answer; no response passed"
    rewards = story.votes_are == "rewards"
    return "reference, which passed" if rewards else "reference, agreeing with the label"


def call_texts(call: "ModelExchange", columns: int | None) -> str:
    cost = f"{call.input_tokens} + {call.output_tokens} tokens, {count(call.tries, 'try', 'tries')}"
    out = f" {call.purpose}, asked of {visible(call.model, one_line=True)} ({cost})\n"
    out += wrapped(call.request if call.request is not None else "(not kept)", "   ", columns)
    out += " reply\n"
    return out + wrapped(call.reply if call.reply is not None else "(none)", "   ", columns)
