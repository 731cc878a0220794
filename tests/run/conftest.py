from pathlib import Path

import pytest

from tests.run.small import play, small_config


@pytest.fixture(scope="session")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a run `a` of one small round that nothing disturbed."""
    home = tmp_path_factory.mktemp("unbroken")
    play(home, small_config(), rounds=1)
    return home
