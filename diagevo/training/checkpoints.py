"""Folders that are there whole or not at all: resumable checkpoints and the weights of a finished phase.

A folder is written beside its place under a hidden name, gets a manifest of sizes and SHA-256 digests, is
flushed to disk, and is then renamed. Without a manifest, or where it does not fit, a folder is not counted.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
KEEP = 2  # checkpoints that stay in a work folder: the newest, and one before it
_PREFIX = "checkpoint-"
_STAGING = ".staging-"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A whole checkpoint: the step after which it was saved, its folder, and what the writer noted."""

    step: int
    folder: Path
    notes: Mapping[str, Any]


def staging_folder(target: Path) -> Path:
    """Where `target` is prepared: a hidden folder beside it, so that the rename stays on one file system."""
    return target.with_name(f"{_STAGING}{target.name}")


def publish(staging: Path, target: Path, notes: Mapping[str, Any]) -> None:
    """Give `staging` its manifest, flush everything to disk, and rename it to `target` (replacing it)."""
    files = _files(staging)
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
        digests = list(pool.map(_digest_and_flush, files))
    entries = {
        str(file.relative_to(staging)): {"bytes": file.stat().st_size, "sha256": digest}
        for file, digest in zip(files, digests, strict=True)
    }
    manifest = staging / MANIFEST
    manifest.write_text(json.dumps({"files": entries, "notes": dict(notes)}, indent=1), encoding="utf-8")
    _digest_and_flush(manifest)
    for folder in {file.parent for file in files} | {staging}:
        _flush_folder(folder)
    if target.exists():
        old = staging_folder(target.with_name(f"{target.name}.old"))
        shutil.rmtree(old, ignore_errors=True)
        target.rename(old)
        staging.rename(target)
        shutil.rmtree(old)
    else:
        staging.rename(target)
    _flush_folder(target.parent)


def notes_of(folder: Path) -> Mapping[str, Any] | None:
    """The notes of a whole folder, None where a file is missing, cut short, changed or never listed."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        entries: dict[str, dict[str, Any]] = manifest["files"]
        paths = [folder / name for name in entries]
        if any(
            path.stat().st_size != entry["bytes"] for path, entry in zip(paths, entries.values(), strict=True)
        ):
            return None
        with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as pool:
            digests = list(pool.map(_digest, paths))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if digests != [entry["sha256"] for entry in entries.values()]:
        return None
    return manifest["notes"]


def newest_whole(work: Path) -> Checkpoint | None:
    """The newest checkpoint of `work` that is whole; broken ones before it are passed over."""
    for step, folder in sorted(_checkpoints(work), reverse=True):
        notes = notes_of(folder)
        if notes is not None:
            return Checkpoint(step, folder, notes)
    return None


def last_saved_step(work: Path) -> int:
    """The step a resumed phase goes on from: 0 where there is no whole checkpoint."""
    checkpoint = newest_whole(work)
    return 0 if checkpoint is None else checkpoint.step


def checkpoint_folder(work: Path, step: int) -> Path:
    return work / f"{_PREFIX}{step}"


def rotate(work: Path, keep: int = KEEP) -> None:
    """Remove all but the newest `keep` checkpoints."""
    for _, folder in sorted(_checkpoints(work), reverse=True)[keep:]:
        shutil.rmtree(folder)


def discard_after(work: Path, step: int) -> None:
    """Remove what an interrupted phase left behind: checkpoints after `step`, and everything half written."""
    for found, folder in _checkpoints(work):
        if found > step:
            shutil.rmtree(folder)
    if work.is_dir():
        for folder in work.glob(f"{_STAGING}*"):
            shutil.rmtree(folder)


def _checkpoints(work: Path) -> list[tuple[int, Path]]:
    if not work.is_dir():
        return []
    names = ((folder.name.removeprefix(_PREFIX), folder) for folder in work.glob(f"{_PREFIX}*"))
    return [(int(number), folder) for number, folder in names if number.isdigit()]


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest_and_flush(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        os.fsync(file.fileno())
    return digest


def _flush_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
