"""What is told of a log is told of one moment, whichever of its readings a commit falls into."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest

from diagevo.memory.audit.verify import verify
from diagevo.memory.history import open_history
from diagevo.memory.log import heads
from diagevo.memory.log.log import Log
from diagevo.memory.read.runs import list_runs, run_story
from diagevo.memory.state import projection
from tests.contracts.databases import Store
from tests.memory.play import candidate


def _commit(store: Store) -> None:
    with store.open() as memory:
        memory.open_round(3)
        memory.score([candidate("r3.q0", 9)])
        memory.commit()


def _commit_during(monkeypatch: pytest.MonkeyPatch, store: Store, owner: Any, name: str) -> None:
    """Another process commits round 3 once `owner.name` has given its first answer."""
    real = getattr(owner, name)

    def then_commit(*arguments: Any, **chosen: Any) -> Any:
        monkeypatch.setattr(owner, name, real)
        found = real(*arguments, **chosen)
        if isinstance(found, Iterator):
            found = chain([next(found)], found)
        _commit(store)
        return found

    monkeypatch.setattr(owner, name, then_commit)


@pytest.mark.parametrize("during", ["heads.read", "Log.runs", "Log.read", "Log.head", "projection.rows"])
def test_a_log_that_is_written_meanwhile_is_well(
    played: Store, monkeypatch: pytest.MonkeyPatch, during: str
) -> None:
    of, name = during.split(".")
    owner = {"heads": heads, "Log": Log, "projection": projection}[of]
    real = getattr(owner, name)
    _commit_during(monkeypatch, played, owner, name)
    with played.log() as log:
        report = verify(log, "a", played.root / "a", deep=False)
        assert getattr(owner, name) is real
        assert (report.faults, report.rounds) == ([], 2 if during != "heads.read" else 3)
        assert verify(log, "a", played.root / "a", deep=False).rounds == 3


@pytest.mark.parametrize("during", ["runs", "read"])
def test_a_run_that_is_written_meanwhile_is_listed_as_it_stood(
    played: Store, monkeypatch: pytest.MonkeyPatch, during: str
) -> None:
    with played.log() as log:
        before = list_runs(log.database)
        _commit_during(monkeypatch, played, Log, during)
        assert list_runs(log.database) == before
        [after] = list_runs(log.database)
    assert (before[0].rounds, after.rounds) == (2, 3)
    assert after.events > before[0].events


def test_a_run_that_is_written_meanwhile_is_shown_as_it_stood(
    played: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    history = open_history(played.url, "a")
    before = run_story(history)
    _commit_during(monkeypatch, played, Log, "read")
    assert run_story(history) == before
    after = run_story(history)
    history.close()
    assert [(story.line.rounds, len(story.rounds)) for story in (before, after)] == [(2, 2), (3, 3)]
