from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.sampling.tiny_model import make_tiny_model
from tests.training.forked_ranks import ForkedRank


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> list[ForkedRank]:
    """Ranks are forked where the launcher would start them. These are they, once they have been started."""
    started: list[ForkedRank] = []

    def start(argv: Sequence[str], *, log: Path, env: Mapping[str, str]) -> ForkedRank:
        started.append(ForkedRank(argv, log=log, env=env))
        return started[-1]

    monkeypatch.setattr("diagevo.training.ranks.SupervisedProcess", start)
    return started
