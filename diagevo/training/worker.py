"""One rank of a run: `python -m diagevo.training.worker SPEC`, in torchrun's environment.

`accelerate launch` and `torchrun` start it as well as workers.py does. It runs phases and samples from
policies on request, one after the other, until it is asked to exit.
"""

import gc
import os
import queue
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

from diagevo.config.resources import mean_tokens
from diagevo.errors import ConfigError, DiagEvoError
from diagevo.progress import StopFlag
from diagevo.sampling.device import uses_cpu
from diagevo.sampling.engine import Engine, EngineSampler, SamplingCall
from diagevo.sampling.sampler import Completion, Row
from diagevo.sampling.transformers_sampler import TransformersSampler, loaded
from diagevo.text.redaction import masked
from diagevo.training.grpo import play_phase
from diagevo.training.phase import Phase, Reward, Rollout, TrainingSummary
from diagevo.training.ranks import LaunchSpec, SamplingRequest


class _Watched:
    """A reward that reports this rank's progress to the run."""

    def __init__(self, reward: Reward, connection: Connection) -> None:
        self._reward = reward
        self._connection = connection

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


class _Inbox:
    """Messages from the run, in order, except an overdue stop, which takes effect at any time."""

    def __init__(self, connection: Connection) -> None:
        self.stop = StopFlag()
        self._messages: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        threading.Thread(target=self._listen, args=[connection], daemon=True).start()

    def next(self) -> tuple[Any, ...]:
        """Raises EOFError once the run is gone."""
        message = self._messages.get()
        if message == ("gone",):
            raise EOFError("the run is gone")
        return message

    def more(self) -> bool:
        """Whether a message is waiting."""
        return not self._messages.empty()

    def _listen(self, connection: Connection) -> None:
        try:
            while True:
                message = connection.recv()
                if message == ("overdue",):
                    self.stop.set_overdue()
                else:
                    self._messages.put(message)
        except (EOFError, OSError):
            self._messages.put(("gone",))


class Worker:
    """Does a rank's work on request, with its own engine."""

    def __init__(self, spec: LaunchSpec, connection: Connection) -> None:
        """Connects to the other ranks. Raises ConfigError if there are not as many as there should be."""
        import torch
        from accelerate import PartialState

        hardware = spec.hardware
        on_cpu = uses_cpu(hardware)
        threads = hardware.threads
        if threads is None and not on_cpu:  # accelerate's launcher and torchrun set one
            ranks_here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
            threads = max(1, len(os.sched_getaffinity(0)) // ranks_here)
        if threads is not None:
            torch.set_num_threads(threads)
        if on_cpu:
            _let_ranks_load_each_others_files()
        # Before the trainer's own group, which has no timeout on the CPU: one hung rank would hang all.
        self._state = PartialState(cpu=on_cpu, timeout=timedelta(seconds=hardware.rank_timeout))
        connection.send(("at", "waiting for what is next"))
        if self._state.num_processes != hardware.processes:
            raise ConfigError(
                f"{hardware.processes} training processes were requested, but "
                f"{self._state.num_processes} started.",
                hint="Start as many as hardware.processes says.",
            )
        self._spec, self._connection, self._inbox = spec, connection, _Inbox(connection)
        self._decoding: TransformersSampler | None = None
        """The last sampled frozen policy, if there is no engine."""
        self._engine = None
        if hardware.colocate_vllm:
            rank, lora = self._state.process_index, spec.training.lora
            self._engine = Engine(spec.model, hardware, spec.sampling, lora=lora, rank=rank)

    def work(self) -> None:
        """Work until asked to exit."""
        while True:
            match self._inbox.next():
                case ("play", phase):
                    summary = self._play(phase)
                case ("sample", asked):
                    summary = self._sample(asked)
                case ("end",):
                    break
                case other:
                    raise RuntimeError(f"{other[0]} came where the start message was expected")
            self._connection.send(("done", summary))
        self._state.destroy_process_group()

    def _play(self, phase: Phase) -> TrainingSummary:
        self._connection.send(("at", "building the trainer"))
        self._drop()

        def on_step(step: int, rollouts: list[Rollout], rewards: list[float]) -> None:
            self._connection.send(("step", step, rollouts, rewards))
            _, stop = self._inbox.next()
            if stop is not None:
                raise stop

        def on_update(step: int, metrics: Mapping[str, float | None]) -> None:
            self._connection.send(("updated", step, dict(metrics)))

        stop = self._inbox.stop
        reward = _Watched(phase.reward.build(stop, self._engine), self._connection)
        try:
            return play_phase(phase, reward, on_step, stop, on_update, self._engine)
        finally:
            _forget_the_trainer()

    def _sample(self, asked: SamplingRequest) -> None:
        self._connection.send(("at", f"loading {asked.policy}"))
        if self._engine is None:
            self._by_parts(asked)
        else:
            sampler = EngineSampler(
                asked.policy, self._engine, template_kwargs=asked.template_kwargs, stop=self._inbox.stop
            )
            with sampler.drawing(asked.n, asked.params, asked.seed) as drawing:
                self._as_they_end(asked, self._engine, drawing)
        self._connection.send(("at", "waiting for what is next"))

    def _as_they_end(self, asked: SamplingRequest, engine: Engine, drawing: SamplingCall) -> None:
        """vLLM accepts prompts while it answers others: a quarter more than it decodes at once are queued
        there."""
        sampling = self._spec.sampling
        rows = engine.answers(mean_tokens(sampling))
        self._ready(-(-rows * 5 // (4 * asked.n)))
        enough = False
        while not enough or drawing.waits:
            while not enough and (self._inbox.more() or not drawing.waits):
                match self._inbox.next():
                    case ("ask", prompts):
                        drawing.ask([(place, prompt) for place, prompt, _ in prompts])
                    case _:
                        enough = True
            for place, found in drawing.step().items():
                self._answered({(place, sample): each for sample, each in enumerate(found)})

    def _by_parts(self, asked: SamplingRequest) -> None:
        """With our own decoding: a completion is the same whichever part its prompt is in."""
        if self._decoding is None or self._decoding.folder != asked.policy:
            self._drop()
            template, stop = asked.template_kwargs, self._inbox.stop
            self._decoding = loaded(asked.policy, self._spec.hardware, template_kwargs=template, stop=stop)
        sampler = self._decoding
        self._ready(2)
        while (message := self._inbox.next())[0] == "ask":
            places, prompts, before = zip(*message[1], strict=True)
            groups = sampler.sample(prompts, n=asked.n, params=asked.params, seed=asked.seed, before=before)
            rows = {
                (p, i): each for p, group in zip(places, groups, strict=True) for i, each in enumerate(group)
            }
            self._answered(rows)

    def _drop(self) -> None:
        if self._decoding is not None:
            self._decoding.close()
            self._decoding = None

    def _ready(self, messages: int) -> None:
        self._connection.send(("at", "answering"))
        self._connection.send(("ready", messages))

    def _answered(self, rows: dict[Row, Completion]) -> None:
        self._connection.send(("answered", rows))


def _forget_the_trainer() -> None:
    """Free its memory for the engine and the next trainer. accelerate keeps the shared state."""
    import torch
    from accelerate.state import AcceleratorState, GradientState

    AcceleratorState._reset_state()
    GradientState._reset_state()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


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
        Worker(spec, connection).work()
    except Exception as error:  # the run is told of any, or it would wait
        print(masked(traceback.format_exc()), file=sys.stderr)
        failure = error if isinstance(error, DiagEvoError) else f"{type(error).__name__}: {error}"
        with suppress(OSError):  # the run may be gone
            connection.send(("error", failure))
        # Interpreter shutdown would wait for collectives that never come.
        sys.stderr.flush()
        os._exit(1)
    finally:
        connection.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
