"""Reads the draws that `diagevo ingest --follow --steer FILE` keeps in FILE, in the trainer's process. It
imports only the standard library, so a trainer's environment needs no more than `pip install --no-deps
diagevo`.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class NextDraws(Iterator[dict[str, Any]]):
    """The draws of the round that comes next, without end: those of a later round as soon as FILE has them.

    A draw has `mode`, `cause_id`, `stitched_cause_id`, and `row`, which is a place in the data set.
    `round`, `epsilon` and `causes` are those of the draws.

    Args:
        file: FILE.

    Raises:
        FileNotFoundError: Nothing writes it yet.
    """

    def __init__(self, file: str | os.PathLike[str]) -> None:
        self._file = Path(file)
        self._stamp: tuple[int, int] | None = None
        self._draws: list[dict[str, Any]] = []
        self._place = self.round = 0
        self.epsilon = "1"
        self.causes: list[dict[str, Any]] = []
        self._look()

    def __next__(self) -> dict[str, Any]:
        self._look()
        draw = self._draws[self._place % len(self._draws)]
        self._place += 1
        return draw

    def _look(self) -> None:
        """Load a later round. The file is replaced atomically, so a read is always complete."""
        try:
            stat = self._file.stat()
        except FileNotFoundError:
            raise FileNotFoundError(
                f"{self._file} has no draws yet; start first: diagevo ingest FORMAT FOLDER --run NAME"
                f" --follow --steer {self._file}"
            ) from None
        if (stamp := (stat.st_mtime_ns, stat.st_ino)) == self._stamp:
            return
        found = json.loads(self._file.read_text(encoding="utf-8"))
        if found["round"] != self.round or not self._draws:
            self._place = 0
        self._stamp, self._draws, self.causes = stamp, found["draws"], found["causes"]
        self.round, self.epsilon = found["round"], found["epsilon"]
