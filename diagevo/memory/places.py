"""Valid names of runs, and their folders."""

import os
import re
from pathlib import Path

from diagevo.errors import ConfigError
from diagevo.memory.log.database import Database
from diagevo.memory.log.log import LATEST
from diagevo.text.escaping import shortened

_PAGES = ("static", "index.html")
"""Names beside the runs' folders in the view."""
RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def check_name(run: str) -> None:
    """Raises ConfigError if a run cannot have this name."""
    if RUN_ID.fullmatch(run) is None:
        raise ConfigError(
            f"{shortened(run)!r} cannot name a run",
            hint="use up to 100 of a-z, A-Z, 0-9, dots, dashes and underscores, a letter or digit first",
        )
    if run in _PAGES:
        raise ConfigError(
            f"{run!r} cannot name a run: the view has a page of that name", hint="give it another name"
        )
    if run == LATEST:
        raise ConfigError(
            f"{run!r} cannot name a run: it means the one that was written to last",
            hint="give it another name",
        )


def check_place(database: Database, folder: Path) -> None:
    """Raises ConfigError if a run's folder cannot be made, or would collide with the database."""
    file = database.file
    ends = () if file is None else ("", "-wal", "-shm", "-journal")
    if os.path.abspath(folder) in [os.path.abspath(f"{file}{end}") for end in ends]:
        what = "is a place of the database"
    elif os.path.lexists(folder) and not folder.is_dir():
        what = "is not a folder"
    else:
        return
    raise ConfigError(
        f"{folder.name!r} cannot name a run here: {folder} {what}", hint="give the run another name"
    )


def runs_folder(database: Database, root: Path | None = None) -> Path:
    """The folder with one folder per run: `root`, or the SQLite file's, or $DIAGEVO_HOME, or ./runs."""
    if root is not None:
        return root
    if database.file is not None:
        return database.file.parent
    return Path(os.environ.get("DIAGEVO_HOME", "runs"))
