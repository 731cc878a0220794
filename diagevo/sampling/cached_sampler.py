"""Answers stored in a file as they arrive, so that a stopped or killed stage asks only for the rest."""

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from diagevo.errors import StoppedSafely
from diagevo.private import private, private_folder
from diagevo.progress import now_playing
from diagevo.sampling.sampler import Answers, Completion, Prompt, Resumable, Row, SamplingParams

_SYNC = 1.0  # seconds of answers lost in a power failure; a killed process loses none
_REPORTS = 100  # maximum progress reports per call


class CachedSampler:
    """Implements `Sampler` over another one, for one policy. `close` closes both.

    A line of the file has rows that arrived together, under the digest of their request: prompts, n,
    params, seed, and the policy's weights. An incomplete line ends the file. The caller removes the file
    once its results are recorded.
    """

    def __init__(
        self,
        sampler: Resumable,
        file: Path,
        policy: Path,
        on_progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> None:
        """`on_progress`: receives the number of answered prompts of a call, in the caller's thread."""
        self._sampler = sampler
        self._path = file
        self._policy = policy
        self._on_progress = on_progress
        self._file: IO[bytes] | None = None
        self._synced = 0.0

    def __enter__(self) -> "CachedSampler":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def sample(
        self,
        prompts: Sequence[Prompt],
        *,
        n: int,
        params: SamplingParams,
        seed: int,
    ) -> list[list[Completion]]:
        """Raises StoppedSafely, which says how much is stored."""
        call = _digest(prompts, n, params, seed, self._policy)
        reported = -1

        def keep(rows: Mapping[Row, Completion]) -> None:
            nonlocal reported
            self._write(call, rows)
            done = (len(found.rows) + len(rows)) // n
            if done * _REPORTS // len(prompts) > reported:
                reported = done * _REPORTS // len(prompts)
                self._on_progress(done, len(prompts))

        found = Answers(len(prompts), n, known=self._read(call), keep=keep)
        try:
            return self._sampler.sample(prompts, n=n, params=params, seed=seed, answers=found)
        except StoppedSafely as stop:
            have = f"{len(found.rows)} of {n * len(prompts)} answers are kept"
            raise StoppedSafely(f"stopped in {now_playing()}: {have}", hint=stop.hint) from stop

    def close(self) -> None:
        self._sampler.close()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _read(self, call: str) -> dict[Row, Completion]:
        """The file's rows of a call. Truncates it at the first incomplete line."""
        rows: dict[Row, Completion] = {}
        if not self._path.exists():
            return rows
        with open(self._path, "r+b") as file:
            whole = 0
            for line in file:
                try:
                    of, found = _decoded(line)
                except (ValueError, TypeError, KeyError):
                    file.truncate(whole)
                    break
                whole += len(line)
                if of == call:
                    rows |= found
        return rows

    def _write(self, call: str, rows: Mapping[Row, Completion]) -> None:
        if self._file is None:
            private_folder(self._path.parent)
            self._file = open(self._path, "ab", opener=private)  # noqa: SIM115  (closed by `close`)
        given = [[*row, each.text, each.tokens, each.truncated] for row, each in rows.items()]
        self._file.write(json.dumps({"call": call, "rows": given}).encode() + b"\n")
        self._file.flush()
        if time.monotonic() - self._synced >= _SYNC:
            os.fsync(self._file.fileno())
            self._synced = time.monotonic()


def _decoded(line: bytes) -> tuple[str, dict[Row, Completion]]:
    if not line.endswith(b"\n"):
        raise ValueError("half a line")
    read: dict[str, Any] = json.loads(line)
    rows = {
        (place, sample): Completion(text, tokens, truncated)
        for place, sample, text, tokens, truncated in read["rows"]
    }
    return read["call"], rows


def _digest(prompts: Sequence[Prompt], n: int, params: SamplingParams, seed: int, policy: Path) -> str:
    """A digest of everything that the answers depend on.

    Weights count by size and time: reading them takes minutes.
    """
    weights = sorted(
        (file.name, status.st_size, status.st_mtime_ns)
        for file in policy.iterdir()
        if file.is_file()
        for status in [file.stat()]
    )
    asked = [prompts, n, params.temperature, params.top_p, params.max_new_tokens, seed, weights]
    return hashlib.sha256(json.dumps(asked).encode()).hexdigest()
