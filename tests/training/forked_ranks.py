"""Two ranks of a phase on the CPU, as torchrun would start them, but forked (tests/forked.py)."""

import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from diagevo.training.launch_spec import free_port
from tests.forked import Forked


def play_ranks(main: str, arguments: Sequence[str], env: Mapping[str, str]) -> str:
    """What rank 0 printed. Raises CalledProcessError where a rank ended badly; the other is killed then."""
    port = str(free_port("127.0.0.1"))
    of_both = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    with ExitStack() as stack:
        ranks = [
            stack.enter_context(Forked(main, arguments, env={**env, **of_both, "RANK": n, "LOCAL_RANK": n}))
            for n in ("0", "1")
        ]
        while None in (codes := [rank.poll() for rank in ranks]) and not any(codes):
            time.sleep(0.05)
        for rank in ranks:
            rank.kill()
        printed = ranks[0].stdout.read()
        if any(codes):
            raise subprocess.CalledProcessError(
                next(filter(None, codes)), main, printed, "".join(rank.stderr.read() for rank in ranks)
            )
        return printed
