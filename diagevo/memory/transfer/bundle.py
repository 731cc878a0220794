"""A run as a folder of files: events with the chain's head, texts, replies and vectors, as JSONL or
Parquet.

Written and read a page at a time, so that a run of any length fits. `import_bundle` verifies all of a bundle
while it reads (`bundle_check`) and takes the whole or nothing; `check_bundle` only verifies. In the new
database the events get new positions and, with them, new hashes; into an empty one a run that was alone comes
back with the very same head.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypedDict

import msgspec

from diagevo.errors import ConfigError, InconsistentError, StoreError
from diagevo.memory.audit.groups import first_stranger
from diagevo.memory.audit.history import AsOf, History
from diagevo.memory.events.records import GENESIS
from diagevo.memory.log.artifacts import REPLY, put_right
from diagevo.memory.log.database import Database, insert_missing
from diagevo.memory.log.log import Log
from diagevo.memory.log.migrate import prepare
from diagevo.memory.log.tables import brought
from diagevo.memory.log.vectors import VECTOR
from diagevo.memory.places import check_name, check_place, runs_folder
from diagevo.memory.transfer.bundle_check import Contents
from diagevo.memory.transfer.bundle_files import EXPORT_AGAIN, FORMATS, Form, Writer, writer
from diagevo.memory.transfer.bundle_rows import ROWS, Count, digest_of_file, open_regular
from diagevo.memory.transfer.bundle_texts import texts_of
from diagevo.memory.transfer.copying import Copy, Written, keep_heads
from diagevo.private import close_to_others, private_folder

FORMAT = "diagevo.bundle/1"
MANIFEST = "manifest.json"
BATCH = 500
LONGEST_MANIFEST = 2**20


class Described(TypedDict):
    """A file of a bundle."""

    rows: Count
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a bundle holds. `head` is the hash of its last event; `files` are names with SHA-256 and rows."""

    format: str
    form: Form
    run_id: str
    events: int
    round: int
    head: str
    version: str
    files: dict[str, Described]


def export_bundle(history: History, as_of: AsOf, folder: Path, form: Form = "jsonl") -> Manifest:
    """Write a run up to that point into a new folder. Raises ConfigError where the folder is not empty."""
    if form not in FORMATS:
        raise ConfigError(f"a bundle is not written as {form}", hint=f"one of: {', '.join(FORMATS)}")
    try:
        if folder.exists() and any(folder.iterdir()):
            raise ConfigError(f"{folder} is not empty", hint="name a new folder")
        private_folder(folder)
        head = GENESIS
        files: dict[str, Writer] = {}
        with writer(folder, "events", form) as events:
            for recorded in history.events(as_of=as_of):
                events.add(msgspec.structs.asdict(recorded))
                head = recorded.hash
            files[events.name] = events
        for name, rows in texts_of(history, as_of):
            with writer(folder, name, form) as out:
                for row in rows:
                    out.add(row)
                files[out.name] = out
        described: dict[str, Described] = {
            name: {"rows": out.rows, "sha256": digest_of_file(folder / name)} for name, out in files.items()
        }
        manifest = Manifest(
            format=FORMAT,
            form=form,
            run_id=history.run_id,
            events=as_of.sequence,
            round=as_of.round,
            head=head,
            version=version("diagevo"),
            files=described,
        )
        (folder / MANIFEST).write_text(json.dumps(asdict(manifest), indent=2) + "\n", encoding="utf-8")
        close_to_others(folder)
    except OSError as error:
        raise StoreError(
            f"the bundle {folder} cannot be written: {error.strerror or error}",
            hint="name a new folder where you may write and that has room",
        ) from error
    return manifest


def read_manifest(folder: Path) -> Manifest:
    """A bundle's manifest. Raises ConfigError where the folder is none, StoreError for another format."""
    try:
        with open_regular(folder / MANIFEST) as file:
            text = file.read(LONGEST_MANIFEST + 1)
        if len(text) > LONGEST_MANIFEST:
            raise ValueError(f"it has more than {LONGEST_MANIFEST:,} bytes")
        values = msgspec.json.decode(text, type=dict[str, Any])
        if (found := values.get("format", FORMAT)) != FORMAT:
            raise StoreError(
                f"{folder} is a {found}, this version reads {FORMAT}",
                hint="read it with the version that wrote it",
            )
        if absent := [field.name for field in fields(Manifest) if field.name not in values]:
            raise StoreError(
                f"the manifest of {folder} cannot be read: it lacks {', '.join(absent)}", hint=EXPORT_AGAIN
            )
        manifest = msgspec.convert(values, Manifest)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ConfigError(
            f"{folder} is not a bundle: it has no {MANIFEST}",
            hint="name a folder that diagevo memory export wrote",
        ) from error
    except (OSError, ValueError, RecursionError) as error:  # as are msgspec's
        raise StoreError(f"the manifest of {folder} cannot be read: {error}", hint=EXPORT_AGAIN) from error
    wanted = {f"{kind}.{manifest.form}" for kind in ROWS}
    if manifest.files.keys() != wanted:
        raise StoreError(
            f"the manifest of {folder} must name {', '.join(sorted(wanted))}, and nothing else",
            hint=EXPORT_AGAIN,
        )
    return manifest


def strangers(folder: Path, manifest: Manifest) -> list[str]:
    """What else lies in the folder. It is never opened."""
    return sorted({path.name for path in folder.iterdir()} - {MANIFEST, *manifest.files})


def check_bundle(folder: Path) -> Manifest:
    """Verify a bundle as `import_bundle` does, by taking it into a database that is thrown away. Raises as it
    does."""
    manifest = _checked_manifest(folder)
    check_name(manifest.run_id)
    with (
        TemporaryDirectory(prefix="diagevo-") as scratch,
        closing(Database(str(Path(scratch, "check.db")))) as database,
    ):
        prepare(database, create=True)
        _take(folder, manifest, database, manifest.run_id)
    return manifest


def import_bundle(
    folder: Path, database: Database, name: str | None = None, *, root: Path | None = None
) -> Written:
    """Read a bundle into a new run (`name`, or its own). Verified on the way: all of it is taken or nothing.

    Every file against the manifest's digest; every event against its hash, its predecessor and the fold, the
    last against the manifest's head; texts against their digests; replies and vectors, which serve this run
    alone, against what the events name. A text that is wrong in the database becomes right. Raises StoreError
    where the bundle is damaged, ConfigError where the run exists and for a name that a run cannot have.
    """
    manifest = _checked_manifest(folder)
    run_id = manifest.run_id if name is None else name
    check_name(run_id)
    place = runs_folder(database, root) / run_id
    check_place(database, place)
    written = _take(folder, manifest, database, run_id, place)
    keep_heads(place, written)
    return written


def _take(
    folder: Path, manifest: Manifest, database: Database, run_id: str, place: Path | None = None
) -> Written:
    """All rows, in one transaction. `place`: the folder of the new run, where it will have one."""
    rows = {kind: manifest.files[f"{kind}.{manifest.form}"]["rows"] for kind in ROWS}
    with (
        closing(Contents(folder, manifest.form, manifest.run_id, rows)) as contents,
        database.write() as connection,
    ):
        copy = Copy(connection, Log(database), run_id, place or folder / "none")
        try:
            copy.take(contents.events(), f"the bundle {folder}", EXPORT_AGAIN)
        except InconsistentError as error:
            raise _impossible(folder, error.message) from error
        _check_end(folder, manifest, contents)
        written = copy.finish(imported=manifest.head)
        if (stranger := first_stranger(copy.log, copy.state)) is not None:
            raise _impossible(folder, f"#{stranger[0]}: {stranger[1]}")
        for add, taken in (
            (put_right(database), contents.texts()),
            (insert_missing(database, REPLY), _brought(contents.replies(), run_id)),
            (insert_missing(database, VECTOR), _brought(contents.vectors(), run_id)),
        ):
            for batch in _batches(taken):
                connection.execute(add, batch)
    return written


def _impossible(folder: Path, what: str) -> InconsistentError:
    return InconsistentError(
        f"the bundle {folder} tells what cannot have happened: {what}", hint=EXPORT_AGAIN
    )


def _brought(rows: Iterator[dict[str, Any]], run_id: str) -> Iterator[dict[str, Any]]:
    """Replies and vectors agree with the events, yet are the bundle's word alone for what models said."""
    return (row | {"model": brought(row["model"], run_id)} for row in rows)


def _batches(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    batch: list[dict[str, Any]] = []
    for row in rows:
        batch.append(row)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _checked_manifest(folder: Path) -> Manifest:
    """The manifest, once every file has the digest that it names."""
    manifest = read_manifest(folder)
    for name, described in manifest.files.items():
        path = folder / name
        try:
            digest = digest_of_file(path)
        except FileNotFoundError as error:
            raise StoreError(f"the bundle {folder} lacks {name}", hint=EXPORT_AGAIN) from error
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror}", hint=EXPORT_AGAIN) from error
        if digest != described["sha256"]:
            raise StoreError(
                f"{path} is not what was exported: its digest differs from the manifest's", hint=EXPORT_AGAIN
            )
    return manifest


def _check_end(folder: Path, manifest: Manifest, contents: Contents) -> None:
    """The last event against the manifest."""
    if (contents.sequence, contents.head) != (manifest.events, manifest.head):
        raise StoreError(
            f"the bundle {folder} ends at event {contents.sequence};"
            f" its manifest names {manifest.events} and its head",
            hint=EXPORT_AGAIN,
        )
    if contents.round != manifest.round:
        raise StoreError(
            f"the bundle {folder} ends after round {contents.round}; its manifest names {manifest.round}",
            hint=EXPORT_AGAIN,
        )
