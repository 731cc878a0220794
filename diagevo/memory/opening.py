"""Opens a Memory from a URL and a run's name."""

from pathlib import Path
from typing import TYPE_CHECKING

from diagevo.memory.events import Embedder
from diagevo.memory.history import resolve_run
from diagevo.memory.log.database import Database
from diagevo.memory.log.migrate import prepare
from diagevo.memory.memory import Memory
from diagevo.memory.places import check_name, check_place, runs_folder

if TYPE_CHECKING:
    from diagevo.config.models import Config


def open_memory(
    url: str,
    run: str,
    *,
    create: bool = True,
    root: Path | None = None,
    config: "Config | None" = None,
    embedder: Embedder | None = None,
) -> Memory:
    """See `diagevo.open`."""
    check_name(run)
    database = Database(url)
    prepare(database, create=create)
    if not create:
        resolve_run(database, run)
    settings = {} if config is None else config.model_dump(mode="json")
    try:
        folder = runs_folder(database, root)
        check_place(database, folder / run)
        return Memory(database, run, folder, settings, embedder)
    except BaseException:
        database.close()
        raise
