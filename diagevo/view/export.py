"""The same pages as a folder, which opens from a disk and from any file server."""

import shutil
from collections import deque
from importlib.resources import as_file, files
from pathlib import Path

from diagevo.errors import ConfigError, NotFoundError
from diagevo.memory.log.database import Database
from diagevo.view.site import View

PAGES = 5_000
"""Pages of an export, unless another number is asked for."""


class _Chosen:
    """The pages that an export holds: in the order in which links to them were met, up to a number."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.waiting: deque[str] = deque()
        self.known: set[str] = set()
        self.left_out: set[str] = set()

    def keep(self, path: str) -> bool:
        if path in self.known:
            return True
        if len(self.known) >= self.most:
            self.left_out.add(path)
            return False
        self.known.add(path)
        self.waiting.append(path)
        return True


def export(
    database: Database, folder: Path | None, to: Path, *, run: str | None = None, most: int = PAGES
) -> tuple[int, int]:
    """Write the pages into an empty or new folder; those of one run, or of all. Returns how many were written
    and how many that they would have led to were left out.

    Raises ConfigError where the folder holds something else.
    """
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise ConfigError(f"{to} is not an empty folder", hint="name a new one")
    chosen = _Chosen(most)
    view = View(database, folder, keep=chosen.keep, live=False, only=run)
    chosen.keep("index.html")
    to.mkdir(parents=True, exist_ok=True)
    with as_file(files("diagevo.view") / "static") as static:
        shutil.copytree(static, to / "static")
    while chosen.waiting:
        path = chosen.waiting.popleft()
        try:
            text = view.render(path)
        except NotFoundError as error:
            text = view.error(path, error.message, error.hint)
        target = to / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return len(chosen.known), len(chosen.left_out)
