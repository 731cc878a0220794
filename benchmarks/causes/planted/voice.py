"""How a response is worded: drawn anew for each, so that no two of a prompt are worded alike."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

OPENERS = (
    "Sure! Let's work through this.",
    "Let's think step by step.",
    "Okay, here is how I would approach it.",
    "To solve this, break the problem into parts.",
    "Great question.",
    "We are asked for the final amount, so let us start with what is given.",
    "I'll go through the information one piece at a time.",
    "Here's the solution:",
    "First, note what we know.",
    "Alright, let me see.",
    "**Solution**",
    "Let me work this out carefully.",
    "Thinking about the question, the plan is straightforward.",
    "",
    "",
    "",
)
CLOSERS = (
    "The answer is {}.",
    "So the answer is {}.",
    "**Answer: {}**",
    "Therefore, the final answer is {}.",
    "\\boxed{{{}}}",
    "#### {}",
    "Hence we get {}.",
    "That makes {} in total.",
    "Final answer: {}",
    "Thus, {} it is.",
    "In conclusion, the result is {}.",
    "Answer = {}",
)
ASIDES = (
    "Good.",
    "So far so good.",
    "Let me double-check that: yes.",
    "Now for the next part.",
    "Keep this in mind.",
    "Moving on.",
    "That was the easy bit.",
    "We will need this below.",
    "Note that units matter here.",
    "Next comes the rest.",
)
NUMBERINGS = ("", "", "{}. ", "{}) ", "Step {}: ", "**Step {}:** ", "- ", "* ", "({}) ", "Step {} - ")
SIGNS = {
    "*": ("×", "*", "*", "x", "\\times", "·"),
    "/": ("÷", "/", "/", "\\div", ":"),
    "+": ("+",),
    "-": ("-", "-", "−"),
}


@dataclass(frozen=True, slots=True)
class Voice:
    """The habits of one response; `traits` names them, for the share of causes that say only style."""

    opener: str
    closer: str
    numbering: str
    signs: dict[str, str]
    tight: bool
    commas: bool
    chatty: float
    blank: bool
    traits: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Prompt:
    """One question. `write` gives a response (text or messages), the line that is wrong, and its traits."""

    question: object
    modes: tuple[str, ...]
    write: Callable[[random.Random, str | None], tuple[object, int | None, tuple[str, ...]]]
    """Of a way to fail: None for none, "" for one that nobody planned."""
    answer: str | None = None


def voice(rng: random.Random, openers: Sequence[str] = OPENERS, closers: Sequence[str] = CLOSERS) -> Voice:
    opener, closer, numbering = rng.choice(openers), rng.choice(closers), rng.choice(NUMBERINGS)
    signs = {name: rng.choice(found) for name, found in SIGNS.items()}
    tight, commas, blank = rng.random() < 0.3, rng.random() < 0.4, rng.random() < 0.3
    traits = (
        f"opener {opener[:12]}",
        f"closer {closer[:12]}",
        f"numbering {numbering}",
        f"times {signs['*']}",
        f"tight {tight}",
    )
    chatty = rng.choice((0, 0, 0.15, 0.35))
    return Voice(opener, closer, numbering, signs, tight, commas, chatty, blank, traits)


def number(value: float, speaking: Voice) -> str:
    """At most two decimals, some with a comma in thousands."""
    text = f"{value:,.2f}" if speaking.commas else f"{value:.2f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def equation(a: float, sign: str, b: float, result: float, speaking: Voice) -> str:
    gap = "" if speaking.tight else " "
    left, right, end = (number(each, speaking) for each in (a, b, result))
    return f"{left}{gap}{speaking.signs[sign]}{gap}{right}{gap}={gap}{end}"


def laid_out(
    body: Sequence[str], speaking: Voice, rng: random.Random, end: str, asides: Sequence[str] = ASIDES
) -> tuple[str, list[int]]:
    """The response, and the line of each part of its body."""
    lines = [speaking.opener] if speaking.opener else []
    if lines and speaking.blank:
        lines.append("")
    places = []
    for count, part in enumerate(body, start=1):
        places.append(len(lines))
        lines.append(speaking.numbering.format(count) + part)
        if rng.random() < speaking.chatty:
            lines.append(rng.choice(asides))
        if speaking.blank:
            lines.append("")
    lines.append(end)
    return "\n".join(lines), places
