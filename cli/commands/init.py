"""`diagevo init`: a commented configuration and a migrated database."""

import os
import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from diagevo.config.shipped import Profile
from diagevo.errors import ConfigError

from .. import options
from ..call import CommandContext
from ..render.result import Result


@options.command(
    "init",
    without=("--run",),
    example="""diagevo init
    diagevo init study --template qwen3-8b""",
)
def init(
    call: CommandContext,
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="The folder.")] = Path(),
    *,
    template: Annotated[Profile | None, typer.Option(help="The profile to start from.")] = None,
) -> Result[Any]:
    """Write diagevo.yaml and make the database.

    The file holds every key with its purpose. Existing files are left unchanged.
    """
    from diagevo.config.loading import LOCAL_FILE
    from diagevo.config.writing import template as written
    from diagevo.memory.log.database import Database
    from diagevo.memory.log.migrate import prepare

    file = folder / LOCAL_FILE
    made = not file.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if made:
            file.write_text(written(template or "embedded"), encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"cannot write {file}: {error.strerror}",
            hint="name a writable folder: diagevo init DIR",
        ) from error
    beside = folder / "runs" / "diagevo.db"
    location = call.db or (call.database if os.environ.get("DIAGEVO_HOME") else str(beside))
    database = Database(location)
    prepare(database, create=True)
    database.close()
    where = str(database.file or location)
    data = {"config": str(file), "written": made, "database": where}
    kept = "" if made else " (exists, left unchanged)"
    into = "" if folder.resolve() == Path.cwd() else f"cd {shlex.quote(str(folder))} && "
    then = "train --plan" if template and template != "embedded" else "train --rounds 3"
    text = f"configuration  {file}{kept}\ndatabase       {where}\nnext           {into}diagevo {then}"
    return Result(data, text=text)
