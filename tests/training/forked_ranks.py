"""Ranks of a phase on the CPU, forked (tests/forked.py) by us or in place of what the launcher starts."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import diagevo.training.ranks
from diagevo.sampling.supervised import free_port
from diagevo.training import worker
from diagevo.training.phase import Phase
from tests.forked import Forked


class ForkedRank:
    """A rank of `diagevo.training.workers`, in the place of SupervisedProcess."""

    def __init__(self, argv: Sequence[str], *, log: Path, env: Mapping[str, str]) -> None:
        assert argv[1:3] == ["-m", "diagevo.training.worker"]
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        log.touch()  # one that is killed before it begins has a log too
        main = "tests.training.forked_ranks:work"
        self._process = Forked(main, [str(log), *argv[3:]], env={**os.environ, **env})

    def status(self) -> int | None:
        return self._process.poll()

    def stop(self) -> None:
        self._process.kill()
        self._process.__exit__()

    def tail(self) -> str:
        return self.log.read_text()


def program() -> None:
    """The program `diagevo`, whose ranks are forked too."""
    from tests import preloaded

    diagevo.training.ranks.SupervisedProcess = ForkedRank
    preloaded.program()


def work() -> int:
    """The worker, with its output in the file that is named first. BEFALLS: the folder of a phase and a
    signal, which rank 1 sends itself there, once the ranks have met."""
    with open(sys.argv.pop(1), "ab", buffering=0) as log:
        for number in (1, 2):
            os.dup2(log.fileno(), number)
    play_phase = worker.play_phase

    def met(phase: Phase, *given: Any) -> Any:
        folder, _, number = os.environ.get("BEFALLS", "").partition(":")
        if os.environ["RANK"] == "1" and phase.work.name == folder:
            os.kill(os.getpid(), signal.Signals[number])
        return play_phase(phase, *given)

    worker.play_phase = met
    return worker.main()


def play_ranks(main: str, arguments: Sequence[str], env: Mapping[str, str], *, ranks: int = 2) -> str:
    """What rank 0 printed, in torchrun's environment.

    Raises CalledProcessError where a rank ended badly; the other is killed then.
    """
    port = str(free_port("127.0.0.1"))
    of_all = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1"}
    with ExitStack() as stack:
        started = [
            stack.enter_context(
                Forked(
                    main,
                    arguments,
                    env={**env, **of_all, "MASTER_PORT": port, "RANK": str(n), "LOCAL_RANK": str(n)},
                )
            )
            for n in range(ranks)
        ]
        readers = stack.enter_context(ThreadPoolExecutor(2 * ranks))
        printed = [readers.submit(rank.stdout.read) for rank in started]
        errors = [readers.submit(rank.stderr.read) for rank in started]
        while None in (codes := [rank.poll() for rank in started]) and not any(codes):
            time.sleep(0.05)
        for rank in started:
            rank.kill()
        assert not {-signal.SIGABRT, -signal.SIGSEGV} & {rank.wait(30) for rank in started}, "a rank crashed"
        if any(codes):
            said = "".join(e.result() for e in errors)
            error = subprocess.CalledProcessError(next(filter(None, codes)), main, printed[0].result(), said)
            error.add_note(said[-3000:])
            raise error
        return printed[0].result()
