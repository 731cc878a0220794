"""A model's reasoning before its answer, between the marks that it writes."""

import re
from collections.abc import Iterator

MARKS = re.compile(r"</?(?:think|thinking|thought|reasoning)>", re.IGNORECASE)
_THOUGHT = re.compile(
    r"<(think|thinking|thought|reasoning)>.*?(?:</\1>|\Z)|\A(?:(?!<think>).)*?</think>",
    re.DOTALL | re.IGNORECASE,
)
"""Some models' templates open it in the prompt: then only its end is in the response."""


def thoughts(text: str) -> Iterator[re.Match[str]]:
    """Each thought, with its marks; an unclosed one extends to the end."""
    return _THOUGHT.finditer(text) if MARKS.search(text) else iter(())


def answered(text: str) -> str:
    """A text without its reasoning, keeping the number of lines."""
    if not MARKS.search(text):
        return text
    return _THOUGHT.sub(lambda found: "\n" * found.group().count("\n"), text)


def thought(text: str) -> str:
    """The reasoning, without marks."""
    return "\n\n".join(words for each in thoughts(text) if (words := MARKS.sub("", each.group()).strip()))
