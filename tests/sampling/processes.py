"""Looks at processes through /proc."""

import os
from pathlib import Path


def state(pid: int) -> str:
    """A letter, as in ps: Z has ended, T is stopped, and so is what is no more."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "Z"


def members(group: int) -> dict[int, str]:
    """The living processes of a process group, with their titles."""
    found = {}
    for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
        try:
            if os.getpgid(pid) == group and state(pid) != "Z":
                found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
        except (ProcessLookupError, FileNotFoundError):
            continue
    return found
