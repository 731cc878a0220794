"""Whatever a phase opens, it closes: also where any step of it raises."""

import gc
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed
from torch.distributed import distributed_c10d

from diagevo.config.models import HardwareConfig
from diagevo.errors import ServiceError, StoppedSafely
from diagevo.training import checkpoints, grpo, saving, trainer
from diagevo.training.saving import Saving, WholeCheckpoints
from diagevo.training.trainer import PhaseTrainer
from tests.forked import Forked
from tests.training import phase
from tests.training.forked_ranks import ForkedRank
from tests.training.launched import launch

SHORT = phase.SETTINGS.model_copy(update={"max_steps": 3})


class Broken(Exception):
    """What a step of a phase raises here."""


@pytest.fixture
def group(tmp_path: Path) -> Iterator[None]:
    """This process is the only rank of a gloo group."""
    distributed.init_process_group("gloo", f"file://{tmp_path / 'meet'}", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def _open() -> tuple[int, int, int]:
    """Threads, files and process groups of this process."""
    gc.collect()
    groups = len(distributed_c10d._world.pg_map)
    return threading.active_count(), len(os.listdir("/proc/self/fd")), groups


def _settled(before: tuple[int, int, int]) -> tuple[int, int, int]:
    """What is open, once threads that have nothing left to do have ended; a few seconds at most."""
    end = time.monotonic() + 5
    while any(now > then for now, then in zip(_open(), before, strict=True)) and time.monotonic() < end:
        time.sleep(0.05)
    return _open()


class _Reward(phase.LetterReward):
    def __init__(self, broken: str = "") -> None:
        super().__init__()
        self._broken = broken

    def measure(self, rollouts: Sequence[Any]) -> list[Any]:
        if self._broken == "measure":
            raise Broken
        return super().measure(rollouts)

    def rewards(self, rollouts: Sequence[Any], measures: Sequence[Any]) -> list[float]:
        if self._broken == "rewards":
            raise Broken
        return super().rewards(rollouts, measures)


STEPS: dict[str, tuple[Any, str]] = {
    "build": (PhaseTrainer, "__init__"),
    "batches": (PhaseTrainer, "get_train_dataloader"),
    "draw": (trainer, "draw"),
    "loss": (PhaseTrainer, "compute_loss"),
    "log": (saving.SavesAndStops, "on_log"),
    "save": (WholeCheckpoints, "_save_optimizer_and_scheduler"),
    "write": (saving, "written"),
    "settings": (torch, "save"),
    "hand over": (Saving, "publish"),
    "publish": (checkpoints, "publish"),
    "rotate": (checkpoints, "rotate"),
    "output": (grpo, "_write_output"),
}
"""What a phase does, where: each raises when it is done for the second time, or for the first where there is
no second."""
ONCE = ("build", "batches", "output")


@pytest.mark.slow
@pytest.mark.parametrize("step", [*STEPS, "measure", "rewards", "step", "stop"])
def test_a_phase_that_ends_at_any_step_leaves_no_thread_file_or_group(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    phase.trained(tiny_model, tmp_path / "warm", settings=SHORT)  # what is opened once and stays
    before = _open()
    if step in STEPS:
        where, name = STEPS[step]
        right, calls = getattr(where, name), []

        def broken(*given: Any, **named: Any) -> Any:
            calls.append(1)
            if len(calls) > (step not in ONCE):
                raise Broken
            return right(*given, **named)

        monkeypatch.setattr(where, name, broken)

    def on_step(number: int, *_: Any) -> None:
        if step == "step":
            raise Broken
        if step == "stop":
            raise StoppedSafely("asked to")

    with pytest.raises((Broken, StoppedSafely)):
        phase.trained(tiny_model, tmp_path / "broken", settings=SHORT, reward=_Reward(step), on_step=on_step)
    left = _settled(before)
    assert all(now <= then for now, then in zip(left, before, strict=True)), (before, left)


def test_programs_are_forked_from_a_process_of_one_thread() -> None:
    with Forked("tests.preloaded:say_threads", [], env=os.environ) as program:
        assert program.stdout.read() == "1\n", program.stderr.read()


@pytest.mark.usefixtures("group")
def test_a_phase_that_ends_gives_its_group_back(tiny_model: Path, tmp_path: Path) -> None:
    before = _open()[2]
    phase.trained(tiny_model, tmp_path, settings=SHORT)
    assert _open()[2] == before

    def stop(*_: Any) -> None:
        raise StoppedSafely("asked to")

    with pytest.raises(StoppedSafely):
        phase.trained(tiny_model, tmp_path / "stopped", settings=SHORT, on_step=stop)
    assert _open()[2] == before


@pytest.mark.usefixtures("group")
def test_what_is_being_written_is_waited_for_where_a_save_fails_and_keeps_its_group(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the disk is full, or a peer gone, between a writer's start and its checkpoint."""
    writers: list[Future[Any]] = []
    right, pool = saving.written, ThreadPoolExecutor(1)

    def slowly(tensors: dict[str, torch.Tensor], folder: Path, group: Any) -> Future[Any]:
        written = right(tensors, folder, group)

        def finish() -> None:
            written.result()
            time.sleep(0.5)
            distributed.barrier(group)  # what a planner says to the others at its end

        writers.append(pool.submit(finish))
        return writers[-1]

    def full(*_: Any) -> None:
        raise Broken

    monkeypatch.setattr(saving, "written", slowly)
    monkeypatch.setattr(torch, "save", full)
    with pool:
        with pytest.raises(Broken):
            phase.trained(tiny_model, tmp_path, settings=SHORT)
        assert writers[0].done()
    assert writers[0].exception() is None


@pytest.mark.usefixtures("group")
def test_a_writer_that_never_ends_does_not_keep_an_error_from_being_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving, "_LEAVING", 0.2)
    never: Future[Any] = Future()
    monkeypatch.setattr(saving, "written", lambda *_: never)
    began = time.monotonic()

    def fail() -> None:
        with Saving(tmp_path, {}, 60.0) as save:
            save.publish(save.write({}, tmp_path), None, 1)
            raise Broken

    with pytest.raises(Broken):
        fail()
    assert time.monotonic() - began < 5
    never.set_result(None)


@pytest.mark.slow
@pytest.mark.parametrize("broken", ["a rank dies", "the run does"])
def test_a_run_whose_phase_fails_keeps_no_rank_thread_or_file_of_it(
    tiny_model: Path, tmp_path: Path, forked: list[ForkedRank], broken: str
) -> None:
    hardware = HardwareConfig(device="cpu", processes=2, threads=1, rank_timeout=60)

    def played(folder: str, on_step: Callable[[int], None] = lambda _: None, **reward: Any) -> None:
        launch(tiny_model, tmp_path / folder, hardware, on_step=on_step, **reward)

    def fail(step: int) -> None:
        if step == 2:
            raise Broken

    played("warm")
    before = _open()
    if broken == "a rank dies":
        with pytest.raises(ServiceError, match="ended by signal 9"):
            played("killed", kill=1)
    else:
        with pytest.raises(Broken):
            played("failed", on_step=fail)
    left = _settled(before)
    assert all(now <= then for now, then in zip(left, before, strict=True)), (before, left)
    assert all(rank.status() is not None for rank in forked)
