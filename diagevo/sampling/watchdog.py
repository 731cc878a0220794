"""Runs a command and ends its process group when the caller is gone, even by SIGKILL.

`python -m diagevo.sampling.watchdog COMMAND...`: the command runs while the caller holds its end of standard
input open; at end of file the whole group gets SIGTERM, and SIGKILL after a grace. The exit status is the
command's (128 + n where a signal n ended it). It must lead a process group of its own.
"""

import os
import signal
import subprocess
import sys
import threading
import time

GRACE = 10.0  # seconds between SIGTERM and SIGKILL


def _end_group_when_released(released: threading.Event) -> None:
    while os.read(sys.stdin.fileno(), 4096):
        pass
    released.set()
    os.killpg(0, signal.SIGTERM)
    time.sleep(GRACE)
    os.killpg(0, signal.SIGKILL)


def main() -> int:
    if os.getpgrp() != os.getpid():
        print("watchdog: not the leader of a process group of its own", file=sys.stderr)
        return 2
    try:
        child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    except OSError as error:
        print(f"watchdog: {sys.argv[1]} cannot be started: {error}", file=sys.stderr)
        return 127
    # The SIGTERM for the group is not meant for the watchdog, which stays to see the group end.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    released = threading.Event()
    threading.Thread(target=_end_group_when_released, args=(released,), daemon=True).start()
    status = child.wait()
    if released.is_set():
        os.killpg(0, signal.SIGKILL)  # The command has ended; what it left behind in the group ends now.
    return 128 - status if status < 0 else status


if __name__ == "__main__":
    sys.exit(main())
