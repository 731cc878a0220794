import signal
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.sampling.tiny_model import make_tiny_model
from tests.training.forked_ranks import ForkedRank


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ForkedRank]]:
    """Ranks are forked where the launcher would start them. These are they, once they have been started.

    Whatever befell one of them, none may have crashed: a group that is destroyed under its user corrupts
    memory.
    """
    started: list[ForkedRank] = []

    def start(argv: Sequence[str], *, log: Path, env: Mapping[str, str]) -> ForkedRank:
        started.append(ForkedRank(argv, log=log, env=env))
        return started[-1]

    monkeypatch.setattr("diagevo.training.ranks.SupervisedProcess", start)
    yield started
    crashes = (-signal.SIGABRT, -signal.SIGSEGV, -signal.SIGBUS)
    assert not [rank.tail() for rank in started if rank.status() in crashes]
