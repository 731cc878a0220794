"""Human-labelled items: questions with answers that guide a challenger and are practised."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diagevo.errors import ConfigError
from diagevo.memory.events import InvalidReason

HINT = 'each line must be an object with "question" and "answer"'
LARGEST = 64 * 2**20
"""Maximum bytes of a file of anchors. R-Few's has 11,600 items at most."""
REFUSED: dict[InvalidReason, str] = {
    "held_out": "is of the validation set: training on it would be measured",
    "too_long": "is longer than sampling.max_prompt_tokens allows",
    "outside_world": "is outside the world",
}


@dataclass(frozen=True, slots=True)
class Anchor:
    """A question with the answer that a person gave."""

    question: str
    answer: str


def read_anchors(file: Path) -> list[Anchor]:
    """The items of a JSONL file. Raises ConfigError for one that cannot be read, with its line."""
    try:
        if file.stat().st_size > LARGEST:
            raise ConfigError(f"anchors.file: {file} has more than 64 MiB", hint="take a sample of it")
        with open(file, encoding="utf-8", newline="\n") as source:
            lines = list(source)
    except UnicodeDecodeError as error:
        raise ConfigError(f"anchors.file: {file} is not UTF-8", hint="save it as UTF-8") from error
    except OSError as error:
        raise ConfigError(f"anchors.file: {file} cannot be read: {error.strerror}", hint=HINT) from error
    return [_anchor(line, f"{file}, line {number}") for number, line in enumerate(lines, 1)]


def _anchor(line: str, where: str) -> Anchor:
    try:
        row: Any = json.loads(line)
        found = Anchor(*(row[name] for name in ("question", "answer")))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ConfigError(f"anchors.file: {where} is not a labelled question", hint=HINT) from error
    for name in ("question", "answer"):
        text = getattr(found, name)
        if not isinstance(text, str) or not text.strip():
            raise ConfigError(f"anchors.file: the {name} of {where} is no text", hint=HINT)
    return found


def usable(
    anchors: Iterable[Anchor], file: str, refusal: Callable[[str], InvalidReason | None]
) -> list[Anchor]:
    """All of them, in order. Raises ConfigError if there is none, one repeats another's question, or one
    may not be practised."""
    found = list(anchors)
    if not found:
        raise ConfigError(f"anchors.file: {file} holds no items", hint=HINT)
    first: dict[str, int] = {}
    for number, anchor in enumerate(found, 1):
        where = f"anchors.file: the question of {file}, item {number},"
        if (earlier := first.setdefault(anchor.question, number)) != number:
            raise ConfigError(f"{where} is item {earlier} too", hint="keep one of the two")
        if (reason := refusal(anchor.question)) is not None:
            raise ConfigError(f"{where} {REFUSED[reason]}", hint="leave it out")
    return found
