"""A disk that is really full: while a checkpoint is written, and while events are appended."""

import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.run.program import RESUMED, Moment, assert_same_end, first, played

MEGABYTE = 2**20
SIZE = 64 * MEGABYTE


class SmallDisk:
    """A file system of 64 MB in memory, seen by the programs that are started with `prefix`."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError where the system permits no file systems of one's own."""
        folder.mkdir()
        mount = f"mount -t tmpfs -o size={SIZE} none '{folder}' && echo mounted && exec sleep 3600"
        self._holder = subprocess.Popen(
            ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._holder.stdout is not None
        if self._holder.stdout.readline() != "mounted\n":
            self.close()
            raise OSError("no mount")
        self.home = folder
        self.prefix = ["nsenter", f"--target={self._holder.pid}", "--user", "--mount"]
        self.prefix.append("--preserve-credentials")
        self._seen = Path(f"/proc/{self._holder.pid}/root{folder}")

    def fill(self, _: object, left: int) -> None:
        """Leave this many bytes."""
        free = os.statvfs(self._seen)
        (self._seen / "filler").write_bytes(bytes(free.f_bavail * free.f_frsize - left))

    def clear(self) -> None:
        (self._seen / "filler").unlink()

    def copy(self, folder: Path) -> Path:
        """What is on the disk, where this process can read it too."""
        shutil.copytree(self._seen, folder)
        return folder

    def write_config(self) -> list[str]:
        return [argument.replace(str(self._seen), str(self.home)) for argument in first(self._seen)]

    def close(self) -> None:
        self._holder.kill()
        self._holder.communicate()


class ShortFiles:
    """Where no file system may be mounted: no file may grow beyond a size, in the running process."""

    prefix: tuple[str, ...] = ()

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.home = folder

    def fill(self, process: subprocess.Popen[str], left: int) -> None:
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (left, resource.RLIM_INFINITY))

    def clear(self) -> None:
        """The limit ended with its process."""

    def copy(self, folder: Path) -> Path:
        return self.home

    def write_config(self) -> list[str]:
        return first(self.home)

    def close(self) -> None:
        pass


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk | ShortFiles]:
    try:
        made: SmallDisk | ShortFiles = SmallDisk(tmp_path / "disk")
    except OSError:
        made = ShortFiles(tmp_path / "files")
    yield made
    made.close()


@pytest.mark.slow
def test_a_full_disk_ends_the_run_with_its_cause_and_given_room_it_goes_on(
    unbroken: Path, disk: SmallDisk | ShortFiles, tmp_path: Path
) -> None:
    # 4 MB hold the weights (2.5 MB) and not the state of the optimizer (5 MB).
    saving = Moment("challenger", "stage_progress", lambda p: disk.fill(p, 4 * MEGABYTE))
    told = played(disk.home, disk.write_config(), saving, prefix=disk.prefix)
    assert told.code == 5, told.stderr[-3000:]
    error = told.error()
    assert error["kind"] == "store"
    assert "the checkpoint of step" in error["message"]
    assert f"cannot be written to {disk.home}/a/rounds/001/challenger-work, where" in error["message"]
    assert error["hint"].startswith("make room; ")
    disk.clear()

    appending = Moment("votes", "stage_started", lambda p: disk.fill(p, 0))
    told = played(disk.home, RESUMED, appending, prefix=disk.prefix)
    assert told.code == 5, told.stderr[-3000:]
    assert "checkpoint-1 is half written" in told.messages()
    assert "challenger was interrupted and begins again" in told.messages()
    assert told.steps("challenger") == [1, 2]
    assert f"the database sqlite:///{disk.home}/diagevo.db cannot be written" in told.error()["message"]
    assert told.error()["hint"] == "check that the folder exists, may be written, and has room"
    disk.clear()

    told = played(disk.home, RESUMED, prefix=disk.prefix)
    assert told.code == 0, told.stderr[-3000:]
    assert told.stages() == ["votes", "solver", "diagnosis"]
    assert_same_end(disk.copy(tmp_path / "copy"), unbroken).close()
