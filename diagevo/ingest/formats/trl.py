"""TRL's `log_completions`: a file a logging step, with prompt, completion, a column a reward function, extras
and the advantage."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from diagevo.errors import ConfigError
from diagevo.ingest.formats.messages import ChatMessage, unmarked, written
from diagevo.ingest.formats.rows import ANOTHER, Row, answer, number, step_of, terms, with_reward
from diagevo.ingest.formats.tables import Columns, TableReader, decoded
from diagevo.ingest.rollouts import IngestedRollout, RolloutStep
from diagevo.text.numbers import count

TEXTS = ("prompt", "completion", "answer", "solution")
CALLBACK = "diagevo.integrations.trl's RoundCallback sees every training batch and no evaluation"


class TrlRow(Row):
    prompt: str | list[ChatMessage]
    completion: str | list[ChatMessage]
    answer: Any = None
    solution: Any = None


def load(file: Path, step: int, *, tables: TableReader, reward: str | None) -> RolloutStep:
    """The rollouts of a file. Raises CutLine where it is not whole, and ConfigError."""
    columns, lines = tables.read(file, TEXTS)
    type_ = with_reward(TrlRow, _reward(file, columns, reward))
    decoder = msgspec.json.Decoder(type_)
    found: list[IngestedRollout | None] = []
    for line, text in enumerate(lines, start=1):
        row = decoded(file, line, text, decoder)
        value = number(row.reward)
        if value is None:
            found.append(None)
            continue
        prompt, completion = (
            unmarked(text) if isinstance(text, str) else written(text)
            for text in (row.prompt, row.completion)
        )
        expected = row.solution if row.answer is None else row.answer
        found.append(IngestedRollout(prompt, completion, value, answer(f"{file}, row {line}", expected)))
    return step_of(step, file.name, found)


def _reward(file: Path, columns: Columns, reward: str | None) -> str:
    """The column that is the reward, or the sum of some."""
    names = columns.columns
    if not {"prompt", "completion", "advantage"} <= set(names):
        raise ConfigError(
            f"{file} has no prompt, completion and advantage: it was not written by TRL's log_completions",
            hint=ANOTHER,
        )
    after = names[names.index("completion") + 1 :]
    numbers = [name for name in after if name != "advantage" and name in columns.numbers]
    if reward is None:
        found = [name for name in numbers if name.endswith("_reward")] or numbers  # others are logged beside
        if len(found) == 1:
            return found[0]
        hint = "say which: --reward COLUMN"
        if len(found) > 1:
            hint += f"; with the weights of the training, which no file has: --reward {'+'.join(found)}"
        raise ConfigError(
            f"{file} has {len(found)} columns that could be the reward: {', '.join(found) or 'none'}",
            hint=hint,
        )
    for _, name in terms(reward):
        if name not in numbers:
            raise ConfigError(f"{file} has no reward {name}", hint=f"its numbers: {', '.join(numbers)}")
    return reward


def once(steps: Iterator[RolloutStep], on_note: Callable[[str], None]) -> Iterator[RolloutStep]:
    """Without the steps that log a batch again: TRL writes its last generation at every logging step. At the
    end, says what the files cannot tell."""
    before: Sequence[IngestedRollout] = ()
    numbers: list[int] = []
    asked: dict[bytes, list[int]] = {}
    for step in steps:
        numbers.append(step.number)
        if step.rollouts != before:
            if step.rollouts:
                prompts = "\0".join(sorted({rollout.prompt for rollout in step.rollouts}))
                digest = blake2b(prompts.encode(), digest_size=16).digest()
                asked.setdefault(digest, []).append(step.number)
            yield step
        before = step.rollouts
    for again in asked.values():
        if len(again) > 1:
            on_note(
                f"steps {_listed(again)} have the same prompts: TRL logs an evaluation into the "
                "file of its step, in place of the training batch; if these are evaluations, "
                f"leave these files out ({CALLBACK})"
            )
    apart = Counter(b - a for a, b in pairwise(numbers))
    if apart and (usual := apart.most_common(1)[0][0]) > 1:
        on_note(
            f"the files are {count(usual, 'step')} apart: TRL logs the last batch of each logging step, so up"
            f" to {usual - 1} of {usual} batches are in no file; logging_steps=1 logs all ({CALLBACK})"
        )


def _listed(numbers: Sequence[int]) -> str:
    shown = ", ".join(str(number) for number in numbers[:5])
    return shown if len(numbers) <= 5 else f"{shown} and {len(numbers) - 5} more"
