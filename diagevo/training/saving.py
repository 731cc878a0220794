"""Checkpoints that are made to count while the next step is played: digests, flush, rename, rotation; and
when one is due beside the regular ones.

Private in transformers, so that another release may change them (tests/training/test_hooks.py):
- `_save_checkpoint(model, trial)` and `_get_output_dir(trial)`: into a staging folder that is renamed once it
  is whole, beside the next step;
- `_issue_warnings_after_load(load_result)`: tied weights are not missing.
"""

import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from transformers.trainer import Trainer
from transformers.trainer_callback import TrainerCallback, TrainerControl, TrainerState
from transformers.training_args import TrainingArguments

from diagevo.errors import StoppedSafely
from diagevo.training import checkpoints
from diagevo.training.measures import PhaseMeasures


class Saving:
    """One checkpoint at a time: the next is not written before the last one counts, or the disk would hold
    one more. What went wrong is raised at the next save, or at the end of the block."""

    def __init__(self, work: Path, notes: Mapping[str, Any]) -> None:
        self._work = work
        self._notes = notes
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._last: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._pool.shutdown()
        if kind is None or issubclass(kind, StoppedSafely):  # else what went wrong first is told
            self.wait()

    def publish(self, staging: Path, step: int) -> None:
        """Let what lies whole in `staging` become the checkpoint of `step`; returns before it is."""
        self._last = self._pool.submit(self._publish, staging, step)

    def wait(self) -> None:
        """Until the last checkpoint counts. Raises StoreError where the disk did not take it."""
        if self._last is not None:
            self._last.result()

    def _publish(self, staging: Path, step: int) -> None:
        target = checkpoints.checkpoint_folder(self._work, step)
        with checkpoints.writing(f"the checkpoint of step {step}", self._work):
            checkpoints.publish(staging / target.name, target, {**self._notes, "step": step})
            shutil.rmtree(staging)
            checkpoints.rotate(self._work)


class WholeCheckpoints(Trainer):
    """For any of TRL's trainers: a checkpoint counts once it is whole. First among a class's parents."""

    saving: Saving
    work: Path
    saved: int = 0
    """The step of the newest checkpoint; 0 where there is none."""
    staging: Path | None = None
    """Where a checkpoint is being written."""

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """Tied weights are saved once, and transformers warns of the other name as missing."""
        tied = getattr(self.model, "all_tied_weights_keys", None) or {}
        load_result.missing_keys[:] = [key for key in load_result.missing_keys if key not in tied]
        super()._issue_warnings_after_load(load_result)

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
                if self.accelerator.is_main_process:
                    self.saving.publish(self.staging, step)
            self.saved = step
        finally:
            self.staging = None


class SavesAndStops(TrainerCallback):
    """Ends training after a step in which a stop was asked for, and has the step saved before.

    Ends it at once where what was measured says that it goes wrong: nothing of such a step is saved.
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
