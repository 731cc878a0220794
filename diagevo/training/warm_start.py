"""Supervised steps before round 1, by TRL's SFTTrainer: a small model learns the format of both roles."""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from diagevo.config.models import HardwareConfig, WarmStartConfig
from diagevo.errors import ConfigError, StoppedSafely
from diagevo.private import private_folder
from diagevo.progress import StopFlag
from diagevo.sampling.device import uses_cpu
from diagevo.sampling.model_folder import check_model_folder, digest_of, load_tokenizer
from diagevo.sampling.sampler import Message
from diagevo.training import checkpoints
from diagevo.training.attention import attention_for
from diagevo.training.grpo import computes_in, keep_reports, resumable

ROLES = ("system", "user", "assistant")


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmStart:
    """From the weights in `start` to those in `output`; `work` holds resumable checkpoints, like a
    phase's."""

    start: Path
    documents: Path
    settings: WarmStartConfig
    hardware: HardwareConfig
    output: Path
    work: Path
    seed: int


def read_documents(file: Path) -> list[list[Message]]:
    """Chat turns, `{"messages": [...]}` a line, the last of them the assistant's. Raises ConfigError."""
    hint = (
        'each line: {"messages": [{"role": "user", "content": "…"}, {"role": "assistant", "content": "…"}]}'
    )
    found: list[list[Message]] = []
    try:
        with open(file, encoding="utf-8", newline="\n") as lines:  # a text may contain other line separators
            for number, line in enumerate(lines, 1):
                if line.strip():
                    found.append(_turns(line, f"warm_start.documents: {file}, line {number}", hint))
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"warm_start.documents: {file} cannot be read: {error}", hint=hint) from error
    if not found:
        raise ConfigError(f"warm_start.documents: {file} holds no document", hint=hint)
    return found


def _turns(line: str, where: str, hint: str) -> list[Message]:
    try:
        turns = json.loads(line)["messages"]
        messages: list[Message] = [{"role": turn["role"], "content": turn["content"]} for turn in turns]
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{where} is not a list of chat turns", hint=hint) from error
    sound = all(turn["role"] in ROLES and isinstance(turn["content"], str) for turn in messages)
    if not sound or len(messages) < 2 or messages[-1]["role"] != "assistant":
        raise ConfigError(f"{where} does not end with a turn of the assistant's", hint=hint)
    return messages


def play_warm_start(warm: WarmStart, on_step: Callable[[int, float], None], stop: StopFlag) -> list[float]:
    """Train on completions only and write `warm.output`; returns the loss of each step run here.

    `on_step` gets a step and its loss. If it raises StoppedSafely, that is raised here once the step is
    saved.
    """
    check_model_folder(warm.start)
    documents = read_documents(warm.documents)
    settings = warm.settings
    from accelerate import PartialState

    PartialState(cpu=uses_cpu(warm.hardware))
    notes = {
        "documents": digest_of(warm.documents, stop),
        "seed": warm.seed,
        "settings": settings.model_dump(mode="json", exclude={"save_steps"}),
        "form": "sharded",
    }
    resumed = resumable(warm.work, notes, stop)
    private_folder(warm.work)
    from diagevo.training.saving import Saving

    losses: list[float] = []

    def stepped(step: int, loss: float) -> None:
        losses.append(loss)
        on_step(step, loss)

    with Saving(warm.work, notes, warm.hardware.rank_timeout) as saving:
        trainer = _trainer(warm, documents, saving, stepped, stop)
        folder = None if resumed is None else str(checkpoints.checkpoint_folder(warm.work, resumed))
        trainer.train(resume_from_checkpoint=folder)
        if trainer.stopped is not None:
            raise trainer.stopped
    with checkpoints.writing("the weights of the warm start", warm.output.parent):
        staging = checkpoints.staging_folder(warm.output)
        private_folder(staging)
        trainer.save_model(str(staging))
        (staging / "training_args.bin").unlink(missing_ok=True)
        checkpoints.publish(staging, warm.output, {**notes, "step": trainer.state.global_step})
    return losses


def _trainer(
    warm: WarmStart,
    documents: Sequence[Sequence[Message]],
    saving: Any,
    on_step: Callable[[int, float], None],
    stop: StopFlag,
) -> Any:
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    import datasets
    from datasets import Dataset
    from transformers.trainer_callback import PrinterCallback, TrainerCallback
    from transformers.trainer_utils import set_seed
    from trl.trainer.sft_config import SFTConfig
    from trl.trainer.sft_trainer import SFTTrainer

    from diagevo.training.saving import WholeCheckpoints

    settings, hardware = warm.settings, warm.hardware

    class Trainer(WholeCheckpoints, SFTTrainer):
        work = warm.work
        stopped: StoppedSafely | None = None

        def compute_loss(self, *inputs: Any, **named: Any) -> Any:
            stop.check_overdue()
            return super().compute_loss(*inputs, **named)

    class SFTProgress(TrainerCallback):
        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """A checkpoint brings the `save_steps` that it was saved under; it may be another now."""
            state.compute_steps(args, state.max_steps)

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if "loss" not in (logs or {}):
                return
            try:
                on_step(state.global_step, float(logs["loss"]))
                stop.check()
            except StoppedSafely as asked:
                trainer.stopped = asked
                control.should_save = control.should_training_stop = True

    micro = min(settings.micro_batch, settings.batch_documents)
    if settings.batch_documents % micro:
        raise ConfigError(
            "warm_start.batch_documents is not a multiple of warm_start.micro_batch",
            hint=f"set micro_batch to {settings.batch_documents} or to a part of it",
        )
    args = SFTConfig(
        output_dir=str(warm.work),
        seed=warm.seed % 2**32,
        max_steps=settings.steps,
        per_device_train_batch_size=micro,
        gradient_accumulation_steps=settings.batch_documents // micro,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=0,
        weight_decay=0.0,
        max_grad_norm=1.0,
        train_sampling_strategy="group_by_length",  # fewer padded tokens
        max_length=None,
        save_strategy="steps",
        save_steps=settings.save_steps,
        logging_steps=1,
        disable_tqdm=True,
        report_to=list(hardware.report_to) or "none",
        dataloader_pin_memory=False,
        gradient_checkpointing=not uses_cpu(hardware),
        model_init_kwargs={
            "dtype": "float32",
            "use_safetensors": True,
            "attn_implementation": attention_for(hardware.attention, on_gpu=not uses_cpu(hardware)),
        },
        **computes_in(hardware),
    )
    rows = [{"prompt": list(turns[:-1]), "completion": [turns[-1]]} for turns in documents]
    datasets.disable_progress_bars()
    set_seed(warm.seed % 2**32)
    trainer = Trainer(
        model=str(warm.start),
        args=args,
        train_dataset=Dataset.from_list(rows),
        processing_class=load_tokenizer(warm.start),
        callbacks=[SFTProgress()],
    )
    trainer.saving = saving
    trainer.remove_callback(PrinterCallback)
    keep_reports(trainer, warm.output.with_name(f"{warm.output.name}-logs"))
    return trainer
