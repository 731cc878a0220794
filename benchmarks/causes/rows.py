"""Rows of a labelled set: what `ingest jsonl` reads, with the true mode of each failure.

`label` is the failure's mode, "" where nobody planned it; `wrong_line` is the line of the response that is
wrong, from 0. Neither reaches the product.
"""

import json
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from diagevo.errors import ConfigError
from diagevo.ingest.formats.messages import messages

PASS_AT = 0.5


@dataclass(frozen=True, slots=True)
class LabelledRow:
    """One response. `label` is None for one that passed; `style` what is known of its wording."""

    prompt: Any
    response: Any
    reward: float
    group: str | None = None
    label: str | None = None
    wrong_line: int | None = None
    answer: str | None = None
    style: tuple[str, ...] = ()

    @property
    def failed(self) -> bool:
        return self.reward < PASS_AT

    @property
    def question(self) -> str:
        """As the log has it."""
        return messages(self.prompt)

    @property
    def text(self) -> str:
        """The response as the log has it."""
        return messages(self.response)


class _Row(msgspec.Struct):
    prompt: Any
    response: Any
    reward: float | int | bool
    group: str | int | None = None
    label: str | None = None
    wrong_line: int | None = None
    answer: Any = None


def read(file: Path) -> list[LabelledRow]:
    """Raises ConfigError, with the line, for what is no row."""
    found, decoder = [], msgspec.json.Decoder(_Row)
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = decoder.decode(line)
        except msgspec.MsgspecError as error:
            hint = "a row has prompt, response, reward, and label, wrong_line, group, answer where known"
            raise ConfigError(f"{file}, line {number}: {error}", hint=hint) from error
        group = None if row.group is None else str(row.group)
        answer = None if row.answer is None else str(row.answer)
        label = row.label if float(row.reward) < PASS_AT else None
        found.append(
            LabelledRow(row.prompt, row.response, float(row.reward), group, label, row.wrong_line, answer)
        )
    return found


def write(rows: Iterable[LabelledRow], file: Path, *, labelled: bool) -> None:
    """For the product without labels, so that it cannot read them; `labelled`: for `--rows`."""
    with file.open("w", encoding="utf-8") as out:
        for row in rows:
            line: dict[str, Any] = {"prompt": row.prompt, "response": row.response, "reward": row.reward}
            shown = {"group": row.group, "answer": row.answer}
            if labelled:
                shown |= {"label": row.label, "wrong_line": row.wrong_line}
            line |= {name: value for name, value in shown.items() if value is not None}
            out.write(f"{json.dumps(line, ensure_ascii=False)}\n")


def shuffled(rows: Sequence[LabelledRow], rng: random.Random) -> list[LabelledRow]:
    """The rewards dealt anew among the responses of a prompt; of all prompts, where each has one response."""
    groups: dict[str, list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        groups[row.question].append(place)
    if len(groups) == len(rows):
        groups = {"": list(range(len(rows)))}
    found = list(rows)
    for places in groups.values():
        rewards = [rows[place].reward for place in places]
        rng.shuffle(rewards)
        for place, reward in zip(places, rewards, strict=True):
            label = "" if reward < PASS_AT else None
            found[place] = replace(rows[place], reward=reward, label=label, wrong_line=None)
    return found


def one_each(rows: Sequence[LabelledRow], rng: random.Random) -> list[LabelledRow]:
    """One response a prompt."""
    groups: dict[str, list[LabelledRow]] = defaultdict(list)
    for row in rows:
        groups[row.question].append(row)
    return [rng.choice(group) for group in groups.values()]
