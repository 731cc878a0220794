"""The same pages as a folder, which opens from disk and from any file server."""

import shutil
from collections import deque
from collections.abc import Sequence
from importlib.resources import as_file, files
from pathlib import Path

from diagevo.errors import ConfigError, NotFoundError
from diagevo.memory.log.database import Database
from diagevo.view.page import Drawn, Site
from diagevo.view.site import View

PAGES = 5_000
"""Default maximum of exported pages."""


class _Chosen:
    """The pages of an export: in the order in which links to them appear, up to a maximum."""

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
    database: Database,
    to: Path,
    *,
    runs: Sequence[str] = (),
    most: int = PAGES,
    drawn: Sequence[Drawn] = (),
) -> tuple[int, int]:
    """Write the pages of some or all runs into a folder that is new, empty or from an earlier export, whose
    pages are replaced. `drawn` has the report's figures of the first run. Returns how many pages were
    written and how many linked pages were left out.

    Raises ConfigError if the folder contains anything else, OSError if it cannot be written.
    """
    ours = to / "static" / "view.css"
    if to.is_dir() and any(to.iterdir()) and not ours.is_file():
        raise ConfigError(f"{to} contains something other than exported pages", hint="name a new folder")
    chosen = _Chosen(most)
    view = View(Site(database, live=False, only=runs, drawn=drawn), chosen.keep, most)
    chosen.keep("index.html")
    to.mkdir(parents=True, exist_ok=True)
    for old in to.rglob("*.html"):
        old.unlink()
    with as_file(files("diagevo.view") / "static") as static:
        (to / "static").mkdir(exist_ok=True)
        for file in static.iterdir():  # copytree would continue on a full disk, and raise a list of tuples
            shutil.copyfile(file, to / "static" / file.name)
    view.site.checks.look(view.site.runs())
    with database.view():
        while chosen.waiting:
            path = chosen.waiting.popleft()
            try:
                text = view.render(path)
            except NotFoundError as error:
                text = view.error(path, error.message, error.hint)
            target = to / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
            if target.name == "what-if.html":
                beside = view.sliders(path.partition("/")[0])
                target.with_suffix(".js").write_text(beside, encoding="utf-8")
    return len(chosen.known), len(chosen.left_out)


def export_page(database: Database, to: Path, run: str, page: str, others: Sequence[str] = ()) -> None:
    """Write a page of a run, `causes/c1` or `report`, as one self-contained file: inline style, no
    links, no script. `others` are additional runs that the page reads.

    Raises NotFoundError if the run has no such page, OSError if `to` cannot be written.
    """
    view = View(Site(database, live=False, only=[run, *others]), lambda path: False, 1)
    text = view.render(f"{run}/{page}.html")
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(text, encoding="utf-8")
