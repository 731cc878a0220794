"""Runs that tests share: played once, also where several workers of pytest-xdist ask for them."""

import fcntl
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest


def shared(factory: pytest.TempPathFactory) -> Path:
    """The folder for temporary files of all workers."""
    base = factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """The folder that `make` filled: made by the first worker that asks, for reading by all."""
    base = shared(factory)
    folder, made = base / name, base / f"{name}.made"
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a worker that failed half way
            folder.mkdir()
            make(folder)
            made.touch()
    return folder
