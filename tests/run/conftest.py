from pathlib import Path

import pytest

from tests.once import once
from tests.run import small
from tests.run.program import first, played


@pytest.fixture(scope="session")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a run `a` of one small round that nothing disturbed, played by the program."""

    def make(home: Path) -> None:
        done = played(home, first(home))
        assert done.code == 0, done.stderr[-3000:]

    return once(tmp_path_factory, "unbroken", make)


@pytest.fixture(scope="session")
def one_step(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small.one_step(tmp_path_factory)
