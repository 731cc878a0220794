"""TRL's `log_completions`: a file a logging step, with prompt, completion, a column a reward function, extras
and the advantage."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec

from diagevo.errors import ConfigError
from diagevo.ingest.formats.messages import ChatMessage, written
from diagevo.ingest.formats.rows import ANOTHER, Row, answer, number, step_of, with_reward
from diagevo.ingest.lines import CutLine, regular
from diagevo.ingest.rollouts import IngestedRollout, RolloutStep
from diagevo.text.numbers import count

CALLBACK = "diagevo.integrations.trl's RoundCallback sees every training batch and no evaluation"


class TrlRow(Row):
    """A row of the table."""

    prompt: str | list[ChatMessage]
    completion: str | list[ChatMessage]
    answer: Any = None
    solution: Any = None


class Columns(msgspec.Struct):
    """What the reader says of a file first."""

    columns: list[str] = []
    numbers: list[str] = []
    error: str | None = None


class CompletionReader:
    """Reads files in a program beside this one: see `trl_rows`."""

    def __init__(self, reward: str | None) -> None:
        self.reward = reward
        self._program: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "CompletionReader":
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def load(self, file: Path, step: int) -> RolloutStep:
        """The rollouts of a file. Raises CutLine where it is not whole, and ConfigError."""
        _whole(file)
        lines = self._lines(file)
        try:
            return self._step(file, step, lines)
        except ConfigError:
            self._end()  # what it has still to say is of this file
            raise

    def _step(self, file: Path, step: int, lines: Iterator[bytes]) -> RolloutStep:
        columns = msgspec.json.decode(next(lines), type=Columns)
        type_ = with_reward(TrlRow, self._reward(file, columns))
        decoder = msgspec.json.Decoder(type_)
        found: list[IngestedRollout | None] = []
        for line, text in enumerate(lines, start=1):
            row = _row(file, line, text, decoder)
            value = number(row.reward)
            if value is None:
                found.append(None)
                continue
            prompt, completion = (
                text if isinstance(text, str) else written(text) for text in (row.prompt, row.completion)
            )
            expected = row.solution if row.answer is None else row.answer
            found.append(IngestedRollout(prompt, completion, value, answer(f"{file}, row {line}", expected)))
        return step_of(step, file.name, found)

    def _reward(self, file: Path, columns: Columns) -> str:
        """The column that is the reward."""
        names = columns.columns
        if not {"prompt", "completion", "advantage"} <= set(names):
            raise ConfigError(
                f"{file} has no prompt, completion and advantage: it was not written by TRL's "
                "log_completions",
                hint=ANOTHER,
            )
        after = names[names.index("completion") + 1 :]
        numbers = [name for name in after if name != "advantage" and name in columns.numbers]
        if self.reward is None and len(numbers) != 1:
            raise ConfigError(
                f"{file} has {len(numbers)} columns that could be the reward: {', '.join(numbers) or 'none'}",
                hint="say which: --reward COLUMN",
            )
        if self.reward is not None and self.reward not in numbers:
            raise ConfigError(
                f"{file} has no reward {self.reward}", hint=f"its numbers: {', '.join(numbers)}"
            )
        return self.reward or numbers[0]

    def _lines(self, file: Path) -> Iterator[bytes]:
        """What the program says of the file, up to its end. Raises ConfigError where it complains or dies."""
        program = self._started()
        assert program.stdin is not None
        assert program.stdout is not None
        try:
            program.stdin.write(json.dumps(str(file.absolute())).encode() + b"\n")
            program.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, and says nothing below
        while (line := program.stdout.readline()).endswith(b"\n"):
            if line == b"null\n":
                return
            if line.startswith(b'{"error": '):
                said = msgspec.json.decode(line, type=Columns).error
                raise ConfigError(f"{file} cannot be read as Parquet: {said}", hint=ANOTHER)
            yield line
        self._end()
        raise ConfigError(
            f"{file} cannot be read: the process that read it ran out of memory or crashed",
            hint="move the file away: it is damaged, or was made to cause this",
        )

    def _started(self) -> subprocess.Popen[bytes]:
        if self._program is None:
            self._program = subprocess.Popen(
                [sys.executable, "-P", "-m", "diagevo.ingest.formats.trl_rows"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=os.environ | {"POLARS_MAX_THREADS": "1"},
                start_new_session=True,  # Ctrl-C ends a followed training, not a file in the middle
            )
        return self._program

    def _end(self) -> None:
        if self._program is not None:
            self._program.kill()
            self._program.communicate()
            self._program = None


def _row(file: Path, line: int, text: bytes, decoder: msgspec.json.Decoder[Any]) -> Any:
    try:
        try:
            return decoder.decode(text)
        except msgspec.ValidationError:
            raise
        except msgspec.DecodeError:
            return msgspec.convert(json.loads(text), decoder.type)  # NaN is no JSON
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file}, row {line}: {error}", hint=ANOTHER) from error


def _whole(file: Path) -> None:
    """Raises CutLine where a Parquet file has no end yet, and ConfigError for what is none."""
    regular(file)
    with file.open("rb") as stream:
        begins = stream.read(4)
        size = stream.seek(0, 2)
        stream.seek(max(0, size - 4))
        if not b"PAR1".startswith(begins):
            raise ConfigError(f"{file} is not a Parquet file", hint=ANOTHER)
        if size < 12 or stream.read(4) != b"PAR1":
            raise CutLine


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
