"""One rank of a launched phase: `python -m diagevo.training.worker SPEC`, in torchrun's environment.

`accelerate launch` and `torchrun` start it as well as launch.py does.
"""

import os
import queue
import sys
import threading
import traceback
from collections.abc import Sequence
from datetime import timedelta
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

from diagevo.errors import ConfigError, DiagEvoError
from diagevo.progress import StopFlag
from diagevo.text.redaction import masked
from diagevo.training.grpo import play_phase, uses_cpu
from diagevo.training.launch_spec import LaunchSpec
from diagevo.training.phase import Borrower, Phase, Reward, Rollout


class _Watched:
    """A reward that tells the launcher where this rank is."""

    def __init__(self, reward: Reward, connection: Connection) -> None:
        self._reward = reward
        self._connection = connection

    def borrow(self, engine: Any) -> None:
        if isinstance(self._reward, Borrower):
            self._reward.borrow(engine)

    def measure(self, rollouts: Sequence[Rollout]) -> list[Any]:
        step = rollouts[0].step if rollouts else "?"
        self._connection.send(("at", f"measuring the rollouts of step {step}"))
        measures = self._reward.measure(rollouts)
        self._connection.send(("at", f"waiting for the other ranks at step {step}"))
        return measures

    def rewards(self, rollouts: Sequence[Rollout], measures: Sequence[Any]) -> list[float]:
        rewards = self._reward.rewards(rollouts, measures)
        self._connection.send(("at", f"updating the policy at step {rollouts[0].step}"))
        return rewards


class _Told:
    """What the launcher says: its answer to a step, and at any time that a stop is overdue."""

    def __init__(self, connection: Connection) -> None:
        self.stop = StopFlag()
        self._answers: queue.SimpleQueue[Exception | None] = queue.SimpleQueue()
        threading.Thread(target=self._listen, args=[connection], daemon=True).start()

    def answer(self) -> Exception | None:
        """To the step that was reported: None, or what is to be raised."""
        return self._answers.get()

    def _listen(self, connection: Connection) -> None:
        try:
            while True:
                match connection.recv():
                    case ("answer", answer):
                        self._answers.put(answer)
                    case ("overdue",):
                        self.stop.set_overdue()
        except (EOFError, OSError) as gone:
            self._answers.put(gone)


def _play(phase: Phase, connection: Connection) -> None:
    import torch
    from accelerate import PartialState

    if phase.hardware.threads is not None:
        torch.set_num_threads(phase.hardware.threads)
    on_cpu = uses_cpu(phase.hardware)
    if on_cpu:
        _let_ranks_load_each_others_files()
    # Before the trainer's own: it would leave out the time limit on the CPU, and a hung rank would hang all.
    state = PartialState(cpu=on_cpu, timeout=timedelta(seconds=phase.hardware.rank_timeout))
    connection.send(("at", "building the trainer"))
    if state.num_processes != phase.hardware.processes:
        raise ConfigError(
            f"{phase.hardware.processes} training processes were requested, but "
            f"{state.num_processes} started.",
            hint="Start as many as hardware.processes says.",
        )

    told = _Told(connection)

    def on_step(step: int, rollouts: list[Rollout], rewards: list[float]) -> None:
        connection.send(("step", step, rollouts, rewards))
        if (stop := told.answer()) is not None:
            raise stop

    def finished(step: int) -> None:
        if state.is_main_process:
            connection.send(("finished", step))

    reward = _Watched(phase.reward.build(told.stop), connection)
    summary = play_phase(phase, reward, on_step, told.stop, finished)
    if state.is_main_process:
        connection.send(("done", summary))
    state.destroy_process_group()


def _let_ranks_load_each_others_files() -> None:
    """Ranks on the CPU tag what they save with "cpu:0"; torch knows no such place and refuses to load it."""
    import torch

    def place(storage: Any, location: str) -> Any:
        return storage if location.startswith("cpu:") else None

    torch.serialization.register_package(5, lambda storage: None, place)


def main() -> int:
    spec = LaunchSpec.read(Path(sys.argv[1]))
    connection = Client(spec.address, authkey=bytes.fromhex(spec.key))
    connection.send(("hello", int(os.environ.get("RANK", "0"))))
    try:
        _play(spec.phase, connection)
    except Exception as error:  # the parent is told of any, or it would wait
        print(masked(traceback.format_exc()), file=sys.stderr)
        told = error if isinstance(error, DiagEvoError) else f"{type(error).__name__}: {error}"
        connection.send(("error", told))
        # The interpreter's end would wait for collectives that never come.
        sys.stderr.flush()
        os._exit(1)
    finally:
        connection.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
