from pathlib import Path

import pytest

from tests.run import small


@pytest.fixture(scope="session")
def one_step(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small.one_step(tmp_path_factory)
