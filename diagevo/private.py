"""Folders and files of a run, which only their owner may read: it holds a model's every text, and its
configuration.

A stricter umask stays as it is; a laxer one makes nothing of these readable for others.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path


def private_folder(folder: Path) -> None:
    """Make the folder and those above it that are missing, each for this user alone. One that is there keeps
    its rights: somebody chose them."""
    if not folder.is_dir():
        private_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def open_to_others(path: Path) -> bool:
    """Whether others may read what is there, as of a version that did not close it."""
    return path.exists() and bool(path.stat().st_mode & 0o077)


def private(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file, as `opener` of `open`: a new one for this user alone."""
    return os.open(path, flags, 0o600)


def private_file(file: Path) -> None:
    """Make an empty file for this user alone, unless it is there."""
    with open(file, "ab", opener=private):
        pass


@contextmanager
def atomic_file(file: Path) -> Generator[Path]:
    """A file for this user alone under another name, which gets its own, in one step, once the block is
    through; removed where that fails. Raises OSError."""
    part = file.with_name(f"{file.name}.part")
    private_folder(file.parent)
    part.unlink(missing_ok=True)
    try:
        private_file(part)
        yield part
        os.replace(part, file)
    finally:
        for end in ("", "-journal", "-wal", "-shm"):  # what SQLite leaves beside a file that it cannot finish
            with suppress(OSError):
                part.with_name(part.name + end).unlink()


def close_to_others(folder: Path) -> None:
    """Take the rights of others from what a library wrote into a folder."""
    for path in folder.rglob("*"):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & 0o700)


def sync_names(folder: Path) -> None:
    """Have the names of a folder's files on the disk before returning: a new file's name is its folder's."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
