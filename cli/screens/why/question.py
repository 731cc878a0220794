"""The screen of a question: how it came to be drawn, how it was voted on, and what failed on it."""

from typing import TYPE_CHECKING

from diagevo.text.numbers import count, number, percent

from ...render.layout import Line, lay, sub, wrapped
from .failure import failure_texts, how_counted, marked, told

if TYPE_CHECKING:
    from collections.abc import Mapping

    from diagevo.memory.audit.examples import Example
    from diagevo.memory.audit.questions import QuestionStory


def question_screen(
    story: "QuestionStory",
    columns: int | None,
    examples: "Mapping[str, Example]",
    causes: "Mapping[str, str]",
) -> str:
    """How a question came to be drawn, how it was voted on, and what failed on it. `causes`: their words."""
    t = sub(story.round)
    if story.mode == "free":
        drawn = f"free exploration, ε{t} = {number(story.epsilon)}"
    else:
        partner = f" + {story.stitched_cause_id} (Mastered, same node)" if story.stitched_cause_id else ""
        p = "" if story.probability is None else f", p{t} = {percent(story.probability)}"
        drawn = f"aimed at {story.cause_id}{partner}, 1 − ε{t} = {number(1 - story.epsilon)}{p}"
    answers = ", ".join(f"{answer} × {votes}" for answer, votes in story.votes[:6]) or "no vote"
    if len(story.votes) > 6:
        answers += f" and {len(story.votes) - 6} more"
    rewards = story.votes_are == "rewards"
    if rewards and not story.steered:
        drawn = "its trainer's prompt" + ("" if story.cause_id is None else f", {_returned(story)}")
    if rewards:
        answers += " by rewards of its trainer, not by agreement"
    if story.drawn_round is not None:
        drawn += f"; drawn by the schedule of round {story.drawn_round}"
    lines = [
        Line("drawn", f"{story.mode}: {drawn}", story.opened),
        Line(
            "rewards" if rewards else "votes", f"{answers} (of {story.responses} responses)", story.position
        ),
        Line("verdict", f"{story.verdict.replace('_', ' ')}: {story.reason}", story.position),
    ]
    if story.undecided:
        lines.append(
            Line("undecided", f"{count(story.undecided, 'pair')} of answers, compared without a verdict")
        )
    if story.label_true is not None:
        truth = "" if story.truth is None or story.label_true else f", the truth is {story.truth}"
        word = "true" if story.label_true else "false"
        lines.append(Line("truth", f"the label {story.label} is {word}{truth}"))
    if (aim := causes.get(story.cause_id or "")) is not None:
        lines.insert(1, Line("cause", aim))
    for e in story.failures:
        counted = " → ".join(filter(None, (how_counted(e), e.cause_id))) + (marked(e) if e.right else "")
        position = e.positions.get("CauseMatched") or e.positions.get("CauseCreated")
        lines.append(Line(e.failure_id, counted, position, depth=1))
        words = told(examples.get(e.failure_id)), causes.get(e.cause_id or "")
        lines += [Line("", text, depth=1) for text in words if text is not None]
    text = wrapped(story.question if story.question is not None else "(text not kept)", "   ", columns)
    return (
        f"{story.question_id}\n{text}"
        + lay(lines, columns)
        + "".join(failure_texts(e, columns) for e in story.failures)
    )


def _returned(story: "QuestionStory") -> str:
    partner = f" and Mastered {story.stitched_cause_id}" if story.stitched_cause_id else ""
    return f"back again: its last failures were assigned to {story.cause_id}{partner}"
