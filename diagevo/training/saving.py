"""Checkpoints that are written and published while the next step runs; and when an extra one is due.

The trained weights and AdamW's moments are copied to host memory, and written by
`torch.distributed.checkpoint` as safetensors: under FSDP each rank writes its shards, which any number of
ranks can read. Then digests, flush, rename, rotation.

Private in transformers, so that another release may change them (tests/training/test_hooks.py):
- `_save_checkpoint(model, trial)` and `_get_output_dir(trial)`: into a staging folder that is renamed once it
  is whole, beside the next step;
- `_save_optimizer_and_scheduler(output_dir)`, `_load_optimizer_and_scheduler(checkpoint)`: the weights too;
- `_load_from_checkpoint(resume_from_checkpoint, model)`: nothing is left to it.
"""

import shutil
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import torch
from torch import distributed
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import async_save
from transformers.trainer import Trainer
from transformers.trainer_callback import TrainerCallback, TrainerControl, TrainerState
from transformers.training_args import TrainingArguments

from diagevo.errors import StoppedSafely
from diagevo.private import private_folder
from diagevo.training import checkpoints
from diagevo.training.measures import PhaseMeasures

warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)  # a single process is fine
_FILE = 2**28
"""Bytes of tensors in a file: as many are there once more while it is written."""
_OPTIONS = StateDictOptions(ignore_frozen_params=True, strict=False)
_LEAVING = 10.0
"""Seconds for what is being written once something else went wrong: as long as idle ranks get to end. Where a
peer is gone, gloo says so at once; a write that takes longer must not keep the error from being told."""
_SETTINGS = "optimizer.pt"
"""The non-tensor state of the optimizer and the scheduler."""


class Saving:
    """One checkpoint at a time: the next is not written before the last one is published, or the disk
    would hold one more. Errors are raised at the next save, or at the end of the block."""

    def __init__(self, work: Path, notes: Mapping[str, Any], patience: float) -> None:
        """`patience`: seconds that ranks wait for each other."""
        self._work = work
        self._notes = notes
        self._patience = timedelta(seconds=patience)
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._writing: Future[Any] | None = None
        """What a thread of torch's writes, also before it is known to be whole."""
        self._last: Future[None] | None = None
        self.group: Any = None
        """All ranks, for what they say to each other beside the next step; None where one trains alone."""

    def __enter__(self) -> Self:
        if distributed.is_initialized():
            self.group = distributed.new_group(backend="gloo", timeout=self._patience)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if kind is not None and not issubclass(kind, StoppedSafely):  # what went wrong first is told
            self._pool.shutdown(wait=False, cancel_futures=True)
            under_way = [future for future in (self._writing, self._last) if future is not None]
            # A single process waits only for the disk, and the next attempt removes the folder.
            wait(under_way, timeout=None if self.group is None else _LEAVING)
            return  # the group with this process: its peers may be in it, or a writer still
        self._pool.shutdown()
        if self._writing is not None:
            wait([self._writing])
        if self.group is not None:
            distributed.destroy_process_group(self.group)
        self.wait()

    def write(self, tensors: dict[str, torch.Tensor], folder: Path) -> Future[Any]:
        """As `written`, by the ranks of this group. It is known to be under way from its first moment."""
        self._writing = written(tensors, folder, self.group)
        return self._writing

    def publish(self, written: Future[Any], staging: Path | None, step: int) -> None:
        """Once it is `written`, let what lies in `staging` become the checkpoint of `step`; returns before it
        is. Of several ranks one names the folder."""
        self._last = self._pool.submit(self._publish, written, staging, step)

    def wait(self) -> None:
        """Wait until the last checkpoint is published. Raises StoreError if the disk refused it."""
        if self._last is not None:
            self._last.result()

    def _publish(self, written: Future[Any], staging: Path | None, step: int) -> None:
        target = checkpoints.checkpoint_folder(self._work, step)
        with checkpoints.writing(f"the checkpoint of step {step}", self._work):
            try:
                written.result()
                if staging is None:
                    return
                checkpoints.publish(staging / target.name, target, {**self._notes, "step": step})
            except (CheckpointException, OSError) as error:
                for file in staging.rglob("*.safetensors") if staging else ():
                    file.unlink()  # what is told next needs room on the disk
                if isinstance(error, CheckpointException):  # of a rank, or several
                    raise next(iter(error.failures.values()))[0] from error
                raise
            shutil.rmtree(staging)
            checkpoints.rotate(self._work)


def written(tensors: dict[str, torch.Tensor], folder: Path, group: Any) -> Future[Any]:
    """Returns once they are copied, so that they may change while they are written: by all ranks of `group`,
    each its shards; None: by this process alone."""
    files, size = dict[str, int](), 0
    for name, tensor in tensors.items():
        files[name], size = 1 + size // _FILE, size + tensor.nbytes
    writer = HuggingFaceStorageWriter(str(folder), files, save_distributed=True)
    found = async_save(tensors, storage_writer=writer, process_group=group, no_dist=group is None)
    return cast("Future[Any]", found)


def named(weights: dict[str, Any], optimizer: dict[str, Any]) -> dict[str, torch.Tensor]:
    """What a checkpoint holds: weights, and AdamW's moments of each."""
    return {f"model.{name}": weight for name, weight in weights.items()} | {
        f"{kind}.{name}": value for name, of in optimizer["state"].items() for kind, value in of.items()
    }


class WholeCheckpoints(Trainer):
    """For any of TRL's trainers: a checkpoint counts once it is complete. Must be the first base class."""

    saving: Saving
    work: Path
    saved: int = 0
    """The step of the newest checkpoint; 0 where there is none."""
    staging: Path | None = None
    """The folder of the checkpoint being written."""
    written: Future[Any]
    """That of the newest."""

    def _get_output_dir(self, trial: Any) -> str:
        return super()._get_output_dir(trial) if self.staging is None else str(self.staging)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Write the checkpoint of this step to a staging folder; it is published beside the next step."""
        step = self.state.global_step
        self.saving.wait()
        self.staging = checkpoints.staging_folder(checkpoints.checkpoint_folder(self.work, step))
        try:
            with checkpoints.writing(f"the checkpoint of step {step}", self.work):
                # Not TRL's, which writes a model card with a link to a hub first.
                Trainer._save_checkpoint(self, model, trial)
                self.accelerator.wait_for_everyone()
                main = self.accelerator.is_main_process
                self.saving.publish(self.written, self.staging if main else None, step)
            self.saved = step
        finally:
            self.staging = None

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """A checkpoint has the weights beside the optimizer's state."""
        if self.staging is None:
            super().save_model(output_dir, _internal_call)

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        """Returns once everything is copied.

        Ranks with whole models have the same state: the first one writes it.
        """
        private_folder(Path(output_dir))
        weights, optimizer = self._state()
        shared = not self.is_fsdp_enabled and not self.accelerator.is_main_process
        tensors = {} if shared else named(weights, optimizer)
        self.written = self.saving.write(tensors, Path(output_dir))
        if self.args.should_save:
            scheduler: Any = self.lr_scheduler
            state = {"groups": optimizer["param_groups"], "scheduler": scheduler.state_dict()}
            torch.save(state, Path(output_dir) / _SETTINGS)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        """With the optimizer's state."""

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        if checkpoint is None:
            return
        weights, optimizer = self._state()
        group, reader = self.saving.group, HuggingFaceStorageReader(checkpoint)
        # Into the tensors themselves
        load(named(weights, optimizer), storage_reader=reader, process_group=group, no_dist=group is None)
        saved = torch.load(Path(checkpoint) / _SETTINGS, weights_only=True)
        optimizer["param_groups"] = saved["groups"]
        model: Any = self.model
        states = {"model_state_dict": weights, "optim_state_dict": optimizer}
        set_state_dict(model, self._optimizer(), **states, options=_OPTIONS)
        scheduler: Any = self.lr_scheduler
        scheduler.load_state_dict(saved["scheduler"])

    def _state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The trained weights and the optimizer's state. A weight with two names appears once."""
        model: Any = self.model
        weights, optimizer = get_state_dict(model, self._optimizer(), options=_OPTIONS)
        tied = getattr(model, "all_tied_weights_keys", None) or {}
        return {name: weight for name, weight in weights.items() if name not in tied}, dict(optimizer)

    def _optimizer(self) -> Any:
        """Torch's own, which accelerate wraps."""
        optimizer: Any = self.optimizer
        return getattr(optimizer, "optimizer", optimizer)


class SavesAndStops(TrainerCallback):
    """Ends training after a step in which a stop was requested, after saving the step.

    Ends it at once if the measurements show that it goes wrong: such a step is not saved.
    """

    def __init__(self, trainer: Any, check: Callable[[list[dict[str, Any]]], PhaseMeasures]) -> None:
        self._trainer = trainer
        self._check = check

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """A checkpoint brings the `save_steps` that it was saved under; it may be another now."""
        state.compute_steps(args, state.max_steps)

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if "loss" not in (newest := state.log_history[-1]):
            return  # of the phase as a whole
        if state.is_world_process_zero:
            self._trainer.on_update(state.global_step, newest)
        self._check([entry for entry in state.log_history if "loss" in entry])

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        if self._trainer.stopped is not None:
            control.should_save = control.should_training_stop = True
