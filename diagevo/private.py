"""Folders and files of a run that only their owner may read: they contain all model texts, and the
configuration.

A stricter umask is kept; a laxer one makes none of these readable for others.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path


def private_folder(folder: Path) -> None:
    """Create the folder and its missing parents, each for this user only. An existing one keeps its
    permissions: somebody chose them."""
    if not folder.is_dir():
        private_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def open_to_others(path: Path) -> bool:
    """Whether others may read it, as after a version that did not restrict it."""
    return path.exists() and bool(path.stat().st_mode & 0o077)


def private(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file, as `opener` of `open`: a new one for this user only."""
    return os.open(path, flags, 0o600)


def private_file(file: Path) -> None:
    """Create an empty file for this user only, unless it exists."""
    with open(file, "ab", opener=private):
        pass


@contextmanager
def atomic_file(file: Path) -> Generator[Path]:
    """A file for this user only, under a temporary name; renamed atomically at the end of the block, or
    removed on failure. Raises OSError."""
    part = file.with_name(f"{file.name}.part")
    private_folder(file.parent)
    part.unlink(missing_ok=True)
    try:
        private_file(part)
        yield part
        os.replace(part, file)
    finally:
        for end in ("", "-journal", "-wal", "-shm"):  # what SQLite leaves next to an unfinished file
            with suppress(OSError):
                part.with_name(part.name + end).unlink()


def close_to_others(folder: Path) -> None:
    """Remove others' permissions from what a library wrote into a folder."""
    for path in folder.rglob("*"):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & 0o700)


def sync_names(folder: Path) -> None:
    """Flush a folder's directory entries to disk: a new file's name belongs to its folder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
