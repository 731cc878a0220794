from pathlib import Path

import pytest

from tests.run.program import first, played


@pytest.fixture(scope="session")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a run `a` of one small round that nothing disturbed, played by the program."""
    home = tmp_path_factory.mktemp("unbroken")
    done = played(home, first(home))
    assert done.code == 0, done.stderr[-3000:]
    return home
