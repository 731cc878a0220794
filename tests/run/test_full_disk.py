"""A disk that is really full: while a checkpoint is written, and while events are appended."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.run.disk import MEGABYTE, ShortFiles, SmallDisk, small_disk
from tests.run.program import RESUMED, Moment, assert_same_end, first, played


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk | ShortFiles]:
    made = small_disk(tmp_path)
    yield made
    made.close()


def _config(disk: SmallDisk | ShortFiles) -> list[str]:
    seen = disk.seen()
    return [argument.replace(str(seen), str(disk.home)) for argument in first(seen)]


@pytest.mark.slow
def test_a_full_disk_ends_the_run_with_its_cause_and_given_room_it_goes_on(
    unbroken: Path, disk: SmallDisk | ShortFiles, tmp_path: Path
) -> None:
    # 4 MB hold the weights (2.5 MB) and not the state of the optimizer (5 MB).
    saving = Moment("challenger", "stage_progress", lambda p: disk.fill(p, 4 * MEGABYTE))
    told = played(disk.home, _config(disk), saving, HOLDER=disk.holder)
    assert told.code == 5, told.stderr[-3000:]
    error = told.error()
    assert error["kind"] == "store"
    assert "the checkpoint of step" in error["message"]
    assert f"cannot be written to {disk.home}/a/rounds/001/challenger-work, where" in error["message"]
    assert error["hint"].startswith("free some space; ")
    disk.clear()

    appending = Moment("votes", "stage_started", lambda p: disk.fill(p, 0))
    told = played(disk.home, RESUMED, appending, HOLDER=disk.holder)
    assert told.code == 5, told.stderr[-3000:]
    assert "checkpoint-1 is incomplete" in told.messages()
    assert "challenger was interrupted and begins again" in told.messages()
    assert told.steps("challenger") == [1, 2]
    assert f"the stage votes cannot write {disk.home}/a" in told.error()["message"]  # the answers so far
    assert told.error()["hint"].startswith("free some space or ")
    disk.clear()

    told = played(disk.home, RESUMED, HOLDER=disk.holder)
    assert told.code == 0, told.stderr[-3000:]
    assert told.stages() == ["votes", "solver", "diagnosis"]
    assert_same_end(disk.copy(tmp_path / "copy"), unbroken).close()
