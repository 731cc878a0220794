"""A disk of a given size, that can be filled."""

import os
import resource
import shutil
import subprocess
from pathlib import Path

from tests.forked import Forked

MEGABYTE = 2**20
SIZE = 64 * MEGABYTE


class SmallDisk:
    """A file system of 64 MB in memory, in the namespaces of `holder`."""

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
        self.holder = str(self._holder.pid)
        self.prefix = ["nsenter", f"--target={self.holder}", "--user", "--mount", "--preserve-credentials"]
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

    def seen(self) -> Path:
        """The folder, where this process can write to it too."""
        return self._seen

    def close(self) -> None:
        self._holder.kill()
        self._holder.communicate()


class ShortFiles:
    """Where no file system may be mounted: no file may grow beyond a size, in the running process."""

    holder = ""
    prefix: tuple[str, ...] = ()

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.home = folder

    def fill(self, process: Forked | subprocess.Popen[str], left: int) -> None:
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (left, resource.RLIM_INFINITY))

    def clear(self) -> None:
        """The limit ended with its process."""

    def copy(self, folder: Path) -> Path:
        return self.home

    def seen(self) -> Path:
        return self.home

    def close(self) -> None:
        pass


def small_disk(folder: Path) -> SmallDisk | ShortFiles:
    """A small disk, or what is nearest to one here."""
    try:
        return SmallDisk(folder / "disk")
    except OSError:
        return ShortFiles(folder / "files")
