"""A memory for a test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from diagevo.memory.memory import Memory
from tests.diagnosis.rounds import open_memory


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with open_memory(tmp_path) as opened:
        yield opened
