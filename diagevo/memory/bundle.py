"""A run as a folder of files: events with the chain's head, texts, replies and vectors, as JSONL or
Parquet.

Written and read a page at a time, so that a run of any length fits. `check_bundle` verifies a bundle on its
own; `import_bundle` verifies it while it reads and takes all of it or nothing. In the new database the
events get new positions and, with them, new hashes; into an empty one a run that was alone comes back with
the very same head.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
from sqlalchemy.dialects import postgresql, sqlite

from diagevo.errors import ConfigError, StoreError
from diagevo.memory.artifacts import ARTIFACT, REPLY
from diagevo.memory.bundle_files import FORMATS, Form, digest_of_file, read_rows, writer
from diagevo.memory.bundle_texts import texts_of
from diagevo.memory.database import Database
from diagevo.memory.history import AsOf, History
from diagevo.memory.log import Log
from diagevo.memory.opening import check_name, runs_folder
from diagevo.memory.records import GENESIS, Recorded
from diagevo.memory.transcribe import Transcript, Written, keep_heads
from diagevo.memory.vectors import VECTOR

FORMAT = "diagevo.bundle/1"
EXPORT_AGAIN = "take a whole copy of the bundle, or write it again: diagevo memory export FOLDER"
MANIFEST = "manifest.json"
BATCH = 500


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
    files: dict[str, dict[str, Any]]


def export_bundle(history: History, as_of: AsOf, folder: Path, form: Form = "jsonl") -> Manifest:
    """Write a run up to that point into a new folder. Raises ConfigError where the folder is not empty."""
    if form not in FORMATS:
        raise ConfigError(f"a bundle is not written as {form}", hint=f"one of: {', '.join(FORMATS)}")
    try:
        if folder.exists() and any(folder.iterdir()):
            raise ConfigError(f"{folder} is not empty", hint="name a new folder")
        folder.mkdir(parents=True, exist_ok=True)
        head, files = GENESIS, {}
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
        described = {
            name: {"rows": out.rows, "sha256": digest_of_file(folder / name)} for name, out in files.items()
        }
        manifest = Manifest(
            FORMAT, form, history.run_id, as_of.sequence, as_of.round, head, version("diagevo"), described
        )
        (folder / MANIFEST).write_text(json.dumps(asdict(manifest), indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise StoreError(
            f"the bundle {folder} cannot be written: {error.strerror or error}",
            hint="name a new folder where you may write and that has room",
        ) from error
    return manifest


def read_manifest(folder: Path) -> Manifest:
    """A bundle's manifest. Raises ConfigError where the folder is none, StoreError for another format."""
    try:
        values = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=dict[str, Any])
        if (found := values.get("format", FORMAT)) != FORMAT:
            raise StoreError(
                f"{folder} is a {found}, this version reads {FORMAT}",
                hint="read it with the version that wrote it",
            )
        if absent := [field.name for field in fields(Manifest) if field.name not in values]:
            raise StoreError(
                f"the manifest of {folder} cannot be read: it lacks {', '.join(absent)}", hint=EXPORT_AGAIN
            )
        return msgspec.convert(values, Manifest)
    except FileNotFoundError as error:
        raise ConfigError(
            f"{folder} is no bundle: it has no {MANIFEST}",
            hint="name a folder that diagevo memory export wrote",
        ) from error
    except (OSError, ValueError) as error:  # as are msgspec's
        raise StoreError(f"the manifest of {folder} cannot be read: {error}", hint=EXPORT_AGAIN) from error


def check_bundle(folder: Path) -> Manifest:
    """Verify a bundle: every file's digest, every event's hash and predecessor, the head. Raises
    StoreError."""
    manifest = read_manifest(folder)
    _check_files(folder, manifest)
    for _ in _events(folder, manifest):
        pass
    return manifest


def import_bundle(
    folder: Path, database: Database, name: str | None = None, *, root: Path | None = None
) -> Written:
    """Read a bundle into a new run (`name`, or its own). Verified on the way: all of it is taken or nothing.

    Raises StoreError where the bundle is damaged, ConflictError where the run exists, ConfigError for a name
    that a run cannot have.
    """
    manifest = read_manifest(folder)
    run_id = manifest.run_id if name is None else name
    check_name(run_id)
    _check_files(folder, manifest)
    dialect = sqlite if database.dialect == "sqlite" else postgresql
    with database.write() as connection:
        for table, name_ in ((ARTIFACT, "texts"), (REPLY, "replies"), (VECTOR, "vectors")):
            add = dialect.insert(table).on_conflict_do_nothing()
            for rows in _batches(read_rows(folder, name_, manifest.form)):
                connection.execute(add, rows)
        transcript = Transcript(connection, Log(database), run_id)
        transcript.copy(_events(folder, manifest))
        written = transcript.finish()
    keep_heads(runs_folder(database, root) / run_id, written)
    return written


def _batches(rows: Iterator[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    batch: list[dict[str, Any]] = []
    for row in rows:
        batch.append(row)
        if len(batch) == BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _check_files(folder: Path, manifest: Manifest) -> None:
    for name, described in manifest.files.items():
        path = folder / name
        if not path.exists():
            raise StoreError(f"the bundle {folder} lacks {name}", hint=EXPORT_AGAIN)
        try:
            digest = digest_of_file(path)
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror}", hint=EXPORT_AGAIN) from error
        if digest != described.get("sha256"):
            raise StoreError(
                f"{path} is not what was exported: its digest differs from the manifest's", hint=EXPORT_AGAIN
            )


def _events(folder: Path, manifest: Manifest) -> Iterator[Recorded]:
    """The events, each checked against its hash and its predecessor, and the last against the head."""
    previous, sequence = GENESIS, 0
    for row in read_rows(folder, "events", manifest.form):
        recorded = Recorded(**row)
        if (
            recorded.hash != recorded.computed_hash
            or recorded.previous_hash != previous
            or recorded.sequence != sequence + 1
        ):
            raise StoreError(
                f"event {sequence + 1} of the bundle {folder} is not what was written", hint=EXPORT_AGAIN
            )
        previous, sequence = recorded.hash, recorded.sequence
        yield recorded
    if (sequence, previous) != (manifest.events, manifest.head):
        raise StoreError(
            f"the bundle {folder} ends at event {sequence};"
            f" its manifest names {manifest.events} and its head",
            hint=EXPORT_AGAIN,
        )
