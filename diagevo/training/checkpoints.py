"""Atomically published folders: resumable checkpoints and the weights of a finished phase.

A folder is written next to its destination under a hidden name, gets a manifest of sizes and SHA-256 digests,
is flushed to disk, and is then renamed. The manifest lists everything that may exist, not only what must:
readers load every shard that they find. A folder without a matching manifest is ignored.
"""

import hashlib
import os
import shutil
import stat
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from diagevo.errors import StoreError
from diagevo.private import close_to_others, sync_names
from diagevo.progress import StopFlag
from diagevo.sampling.model_folder import digest_of

MANIFEST = "manifest.json"
KEEP = 2  # checkpoints that stay in a work folder: the newest, and one before it
_PREFIX = "checkpoint-"
_STAGING = ".staging-"


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    bytes: int
    sha256: str


class _Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    files: dict[str, _File]
    """By path below the folder; everything but the manifest."""
    notes: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint: the step after which it was saved, its folder, and the writer's notes."""

    step: int
    folder: Path
    notes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Found:
    """What an interrupted phase left: its newest complete checkpoint, and newer incomplete ones."""

    checkpoint: Checkpoint | None
    broken: tuple[str, ...]
    """A line each: the folder's name and what is wrong with it."""

    @property
    def step(self) -> int:
        """The step to resume from: 0 if there is no complete checkpoint."""
        return 0 if self.checkpoint is None else self.checkpoint.step


def staging_folder(target: Path) -> Path:
    """Where `target` is prepared: a hidden folder beside it, so that the rename stays on one file system."""
    return target.with_name(f"{_STAGING}{target.name}")


def publish(staging: Path, target: Path, notes: Mapping[str, Any]) -> None:
    """Give `staging` its manifest, flush everything to disk, and rename it to `target` (replacing it)."""
    files = _files(staging)
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        digests = list(pool.map(_digest_and_flush, files))
    entries = {
        file.relative_to(staging).as_posix(): _File(file.stat().st_size, digest)
        for file, digest in zip(files, digests, strict=True)
    }
    manifest = staging / MANIFEST
    manifest.write_bytes(msgspec.json.format(msgspec.json.encode(_Manifest(entries, dict(notes))), indent=1))
    close_to_others(staging)
    _digest_and_flush(manifest)
    for folder in {file.parent for file in files} | {staging}:
        sync_names(folder)
    if target.exists():
        old = staging_folder(target.with_name(f"{target.name}.old"))
        shutil.rmtree(old, ignore_errors=True)
        target.rename(old)
        staging.rename(target)
        shutil.rmtree(old)
    else:
        staging.rename(target)
    sync_names(target.parent)


def find(work: Path, stop: StopFlag | None = None) -> Found:
    """Find the newest complete checkpoint. Broken ones are skipped, each with a reason. Raises
    StoppedSafely once `stop` is overdue: all files are read."""
    folders = sorted(_checkpoints(work), reverse=True)
    broken = [f"{folder.name} is incomplete" for folder in _staged(work)]
    for step, folder in folders:
        notes, fault = _read(folder, stop)
        if fault is None and notes.get("step") != step:
            fault = f"it was saved as that of step {notes.get('step')}"
        if fault is None:
            return Found(Checkpoint(step, folder, notes), tuple(broken))
        broken.append(f"{folder.name}: {fault}")
    return Found(None, tuple(broken))


def fault_of(folder: Path) -> str | None:
    """What is wrong with a published folder. None: nothing."""
    return _read(folder)[1]


def _read(folder: Path, stop: StopFlag | None = None) -> tuple[Mapping[str, Any], str | None]:
    """A published folder's notes, and its first fault: what is missing, cut short, changed or foreign."""
    try:
        manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=_Manifest)
    except FileNotFoundError:
        return {}, f"{MANIFEST} is missing"
    except (OSError, ValueError, msgspec.MsgspecError, RecursionError):
        return {}, f"{MANIFEST} cannot be read"
    return manifest.notes, _misfit(folder, manifest.files, stop)


def _misfit(folder: Path, listed: Mapping[str, _File], stop: StopFlag | None) -> str | None:
    if not listed:
        return f"{MANIFEST} lists no file"
    # Names are compared with the files below the folder: none is followed outside it.
    there = {path.relative_to(folder).as_posix(): path.lstat() for path in folder.rglob("*")}
    folders = {parent.as_posix() for name in listed for parent in PurePosixPath(name).parents}
    for name in sorted(there.keys() - listed.keys() - folders - {MANIFEST}):
        return f"{name} is not one of its files"
    for name, file in listed.items():
        if name not in there:
            return f"{name} is missing"
        if not stat.S_ISREG(there[name].st_mode):
            return f"{name} is not a file of its own"
        if (found := there[name].st_size) != file.bytes:
            return f"{name} has {found} bytes, not {file.bytes}"
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        digests = pool.map(lambda name: digest_of(folder / name, stop), listed)
    for (name, file), digest in zip(listed.items(), digests, strict=True):
        if digest != file.sha256:
            return f"{name} has changed"
    return None


@contextmanager
def writing(what: str, folder: Path) -> Iterator[None]:
    """A block that writes `what` below `folder`. Raises StoreError if the disk refuses it."""
    try:
        yield
    except Exception as error:  # torch and safetensors raise their own errors if a write fails
        message = str(error)
        if (
            not isinstance(error, OSError)
            and "inline_container" not in message
            and "I/O error" not in message
        ):
            raise
        free = shutil.disk_usage(folder).free / 1e6
        raise StoreError(
            f"{what} cannot be written to {folder}, where {free:,.1f} MB are free: {message.splitlines()[0]}",
            hint="free some space; what was saved before is intact, and diagevo train --resume "
            "continues from it",
        ) from error


def checkpoint_folder(work: Path, step: int) -> Path:
    return work / f"{_PREFIX}{step}"


def rotate(work: Path, keep: int = KEEP) -> None:
    """Remove all but the newest `keep` checkpoints."""
    for _, folder in sorted(_checkpoints(work), reverse=True)[keep:]:
        _remove(folder)


def discard_after(work: Path, step: int) -> None:
    """Remove what an interrupted phase left behind: checkpoints after `step`, and everything partially
    written."""
    for found, folder in _checkpoints(work):
        if found > step:
            _remove(folder)
    for folder in _staged(work):
        _remove(folder)


def _remove(path: Path) -> None:
    """Of a link, the link."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def _checkpoints(work: Path) -> list[tuple[int, Path]]:
    if not work.is_dir():
        return []
    names = ((folder.name.removeprefix(_PREFIX), folder) for folder in work.glob(f"{_PREFIX}*"))
    found = [(int(number), folder) for number, folder in names if number.isdecimal()]
    return [(step, folder) for step, folder in found if folder == checkpoint_folder(work, step)]  # not -02


def _staged(work: Path) -> list[Path]:
    return sorted(work.glob(f"{_STAGING}*")) if work.is_dir() else []


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _digest_and_flush(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
    return digest
