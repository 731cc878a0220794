"""`python forked_rank.py ADDRESS SPEC`: a rank, forked by the server at ADDRESS (tests/forked.py), which ends
with this process. A node starts this in the place of the worker."""

import multiprocessing
import os
import sys
import threading
from multiprocessing.process import BaseProcess
from pathlib import Path

if __name__ == "__main__":  # in no folder that has the tests
    sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.forked import Forked, use_server


def main() -> int:
    _, address, spec = sys.argv
    use_server(address)
    with Forked("tests.cluster.forked_rank:work", [spec], env=os.environ, into=sys.stdout) as rank:
        return rank.wait(None)


def work() -> int:
    from diagevo.training import worker

    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_end_with, args=[parent], daemon=True).start()
    return worker.main()


def _end_with(parent: BaseProcess) -> None:
    parent.join()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
