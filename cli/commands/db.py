"""`diagevo db`: database revisions, checks and backups."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .. import options
from ..call import CommandContext
from ..render import console as render
from ..render.result import Result
from ..render.table import columns

if TYPE_CHECKING:
    from diagevo.memory.log.database import Database

FINDINGS = columns("check, ok, detail: found")


@contextmanager
def _database(call: CommandContext, *, must_exist: bool = True) -> Iterator["Database"]:
    from diagevo.memory.log.database import Database
    from diagevo.memory.log.migrate import refuse_missing

    database = Database(call.database)
    try:
        if must_exist:
            refuse_missing(database)
        with render.Heartbeat(call, "working on the database"):
            yield database
    finally:
        database.close()


@options.command(
    "db upgrade",
    without=("--run",),
    example="diagevo db upgrade",
)
def upgrade(call: CommandContext) -> Result[Any]:
    """Migrate the database to this version's revision.

    A backup of an SQLite file is written first; of PostgreSQL, make one with pg_dump. Projections are rebuilt
    from the log."""
    from diagevo.memory.log import migrate
    from diagevo.memory.log.location import shown
    from diagevo.memory.transfer.rebuilding import migrated, snapshots

    with _database(call) as database:
        migrate.refuse_foreign(database)
        with database.read() as connection:
            before = migrate.revision(connection)
        migrate.refuse_newer(database)
        old = before not in (None, migrate.HEAD)
        saved = _backup_beside(database.file, database) if old and database.file is not None else None
        unread = migrated(database) if before != migrate.HEAD else []
        where, read = shown(database.url), snapshots(database)
    data: dict[str, Any] = {"database": where, "before": before, "now": migrate.HEAD, "backup": saved}
    data["next"] = read.fix
    data["unread"] = unread
    text = (
        f"{where}: {before or 'empty'} → {migrate.HEAD}" if before != migrate.HEAD else f"{where}: up to date"
    )
    text += f"\nbackup: {saved}" if saved else ""
    text += "".join(f"\n{run} cannot be replayed: diagevo memory verify --run {run}" for run in unread)
    return Result(data, text=text + (f"\nsnapshots: {read.detail}; {read.fix}" if read.fix else ""))


def _backup_beside(file: Path, database: "Database") -> Path:
    """A copy next to an SQLite file; leftovers of a killed backup are removed."""
    from diagevo.memory.transfer.backup import backup

    for unfinished in file.parent.glob("before-upgrade-*.db.part*"):
        unfinished.unlink(missing_ok=True)
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S-%f")
    return backup(database, file.parent / f"before-upgrade-{stamp}.db").file


@options.command("db status", rows=True, without=("--run",), example="diagevo db status")
def status(call: CommandContext) -> Result[Any]:
    """Check revision, triggers and integrity.

    Changes nothing. Exits 5 if this version expects another revision, 1 for any other fault.
    """
    from diagevo.memory.log.check import check
    from diagevo.memory.log.location import shown
    from diagevo.memory.transfer.rebuilding import snapshots

    with _database(call) as database:
        title = shown(database.url)
        looked = check(database)
        if looked[0].ok:
            looked.append(snapshots(database))
    found = [
        render.plain(finding) | ({"detail": f"{finding.detail}; {finding.fix}"} if finding.fix else {})
        for finding in looked
    ]
    code = 5 if not looked[0].ok else 0 if all(finding.ok for finding in looked) else 1
    return Result(found, FINDINGS, title=title, exit_code=code)


@options.command("db backup", without=("--run",), example="diagevo db backup runs/monday.db")
def backup(
    call: CommandContext, file: Annotated[Path, typer.Argument(metavar="FILE", help="A new file.")]
) -> Result[Any]:
    """Copy the SQLite database into one file.

    Runs may keep writing meanwhile. For PostgreSQL, use pg_dump."""
    from diagevo.memory.transfer.backup import backup as write

    with _database(call) as database:
        done = write(database, file)
    runs = ", ".join(done.runs) or "none"
    text = f"{done.file}: {done.bytes:,} bytes, up to event #{done.position}; runs: {runs}"
    return Result(done, text=text)


@options.command(
    "db restore",
    without=("--run",),
    example="""diagevo db restore runs/monday.db --db runs/again.db
    diagevo db restore runs/monday.db --replace""",
)
def restore(
    call: CommandContext,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A backup.")],
    *,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace an existing database; the old one is kept beside it.")
    ] = False,
) -> Result[Any]:
    """Restore a backup to where `--db` points. An existing database is moved aside, never deleted."""
    from diagevo.memory.transfer.backup import restore as put_back

    with _database(call, must_exist=False) as database:
        done = put_back(file, database, replace=replace)
    lines = [f"restored up to event #{done.position}; runs: {', '.join(done.runs) or 'none'}"]
    lines += [f"moved aside: {path}" for path in done.aside]
    return Result(done, text="\n".join(lines))
