"""What holds for every test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

RUNS = Path(__file__).parents[1] / "runs"


def _written() -> dict[Path, int]:
    """When each run in the checkout's own `runs`, and each file at its top, was written to last."""
    found = [RUNS, *RUNS.glob("*"), *RUNS.glob("*/*")]
    return {path: path.stat().st_mtime_ns for path in found if path.exists()}


@pytest.fixture(autouse=True)
def _nothing_is_written_into_the_runs_of_the_checkout() -> Iterator[None]:
    before = _written()
    yield
    assert _written() == before, f"a test that ran now has written into {RUNS}"
