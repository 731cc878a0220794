"""One GRPO phase of one policy: from a folder of starting weights to a folder of new ones."""

import os
import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from diagevo.config.models import GRPOConfig, HardwareConfig, SamplingConfig
from diagevo.errors import ConfigError, StoppedSafely
from diagevo.private import private_folder
from diagevo.progress import StopFlag
from diagevo.sampling.device import numbers_of, uses_cpu
from diagevo.sampling.engine import Engine
from diagevo.sampling.model_folder import check_model_folder, encode_prompts, end_ids, load_tokenizer
from diagevo.training import checkpoints
from diagevo.training.adapters import adapted, check_adapter
from diagevo.training.attention import attention_for, described
from diagevo.training.measures import PhaseMeasures, measured, stop_where_wrong
from diagevo.training.phase import (
    OnStep,
    OnUpdate,
    Phase,
    Reward,
    TrainingRow,
    TrainingSummary,
    no_update,
)
from diagevo.training.plan import PhasePlan, plan_phase


def play_phase(
    phase: Phase,
    reward: Reward,
    on_step: OnStep,
    stop: StopFlag,
    on_update: OnUpdate = no_update,
    engine: Engine | None = None,
) -> TrainingSummary:
    """Run a phase, or this rank's part of it. `reward` is the one that `phase.reward` names.

    `on_step` is called on rank 0 once per step, before that step's checkpoint is saved. If it raises
    StoppedSafely, that is raised here, on every rank, after the step's checkpoint is saved; anything else at
    once. Once `stop` is overdue on a rank, all abort the running step and save the steps before it; it is
    repeated later. `on_update` is called on rank 0 after each update. `engine`: generates the rollouts if
    `hardware.colocate_vllm` is set.

    Raises ConfigError for rows that cannot be trained on, MissingDependencyError for a folder that is not a
    model, StoreError if a checkpoint cannot be written, WrongTrainingError if the measurements show that the
    reference or the sampler has the wrong weights.
    """
    settings, training, hardware, work = phase.settings, phase.training, phase.hardware, phase.work
    check_model_folder(phase.start)
    check_adapter(phase.start, training.lora)
    _check_rows(phase.rows, settings)
    from accelerate import PartialState
    from accelerate.utils import broadcast_object_list

    from diagevo.training.saving import Saving
    from diagevo.training.sharding import refuse_wrong_sharding

    refuse_wrong_sharding()
    on_cpu = uses_cpu(hardware)
    processes = PartialState(cpu=on_cpu)
    plan = plan_phase(
        phase.rows,
        batch_questions=settings.batch_questions,
        max_steps=settings.max_steps,
        group=settings.group,
        ranks=processes.num_processes,
        seed=phase.seed,
        in_order=phase.in_order,
    )
    notes = {
        "plan": plan.digest(),
        "seed": phase.seed,
        "settings": settings.model_dump(mode="json", exclude={"micro_batch", "save_steps"}),
        "lora": training.lora,
        "form": "sharded",  # of checkpoints; any number of ranks can read them, sharded or not
    }
    found: list[Any] = [None]
    if processes.is_main_process:
        found = [resumable(work, notes, stop)]
    broadcast_object_list(found)
    resumed_from: int | None = found[0]

    attention = described(attention_for(hardware.attention, on_gpu=not on_cpu))

    def check(steps: list[dict[str, Any]]) -> PhaseMeasures:
        found = measured(steps, training, reference=settings.beta > 0, attention=attention)
        stop_where_wrong(found, training)
        return found

    try:
        with Saving(work, notes, hardware.rank_timeout) as saving:
            trainer = _build_trainer(
                phase,
                plan,
                reward=reward,
                on_step=on_step,
                on_update=on_update,
                saving=saving,
                check=check,
                stop=stop,
                saved=resumed_from or 0,
                engine=engine,
            )
            keep_reports(trainer, phase.logs)
            checkpoint = (
                None if resumed_from is None else str(checkpoints.checkpoint_folder(work, resumed_from))
            )
            trainer.train(resume_from_checkpoint=checkpoint)
            if trainer.stopped is not None:
                raise trainer.stopped
    except StoppedSafely:
        processes.wait_for_everyone()  # if one rank ends, the others do: the checkpoint counts by now
        raise
    with checkpoints.writing("the weights of the phase", phase.output.parent):
        _write_output(trainer, phase, notes)
    log = tuple(entry for entry in trainer.state.log_history if "loss" in entry)
    return TrainingSummary(
        steps=plan.steps, final=phase.output, resumed_from=resumed_from, measures=check(list(log)), log=log
    )


def keep_reports(trainer: Any, logs: Path) -> None:
    """TensorBoard's files go to `logs`, which outlives the work folder."""
    from transformers.integrations.integration_utils import TensorBoardCallback

    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, TensorBoardCallback):
            callback.logging_dir = str(logs)


def computes_in(hardware: HardwareConfig) -> dict[str, Any]:
    """In transformers' terms: device and numbers of the arithmetic."""
    numbers = numbers_of(hardware)
    return {"use_cpu": uses_cpu(hardware), "bf16": numbers == "bfloat16", "fp16": numbers == "float16"}


def trl_settings(plan: PhasePlan, phase: Phase) -> Any:
    """The paper's settings in TRL's terms. Every value that differs from TRL's default is explicit.

    TRL fixes the epsilon of the advantage at 1e-4 where the paper's family has 1e-6: 0.02% at a group's
    standard deviation of 0.5.
    """
    from trl.trainer.grpo_config import GRPOConfig as TRLConfig

    settings, sampling, hardware = phase.settings, phase.sampling, phase.hardware
    on_cpu = uses_cpu(hardware)
    device = computes_in(hardware)
    if hardware.colocate_vllm:
        device |= {
            "use_vllm": True,
            "vllm_mode": "colocate",
            # With adapters it stays awake: it holds the base that the update goes through.
            "vllm_enable_sleep_mode": not on_cpu and phase.training.lora is None,
            "generation_kwargs": {"stop_token_ids": list(end_ids(phase.start, load_tokenizer(phase.start)))},
        }
    return TRLConfig(
        output_dir=str(phase.work),
        seed=phase.seed % 2**32,
        # The trainer takes one completion a prompt where it is told to, and cuts the batch into
        # micro-batches: these two only have to please TRL's checks.
        num_generations=max(settings.group, 2),
        per_device_train_batch_size=len(plan.slots(1, 0)) * (2 if settings.group == 1 else 1),
        gradient_accumulation_steps=1,
        steps_per_generation=1,
        max_steps=plan.steps,
        num_iterations=min(settings.updates, 2),  # from 2 on TRL keeps the log-probs of the policy that drew
        scale_rewards={"std": "group", "none": "none"}[settings.advantage_scale],
        loss_type=settings.loss_type,
        importance_sampling_level=settings.importance_sampling_level,
        epsilon=settings.clip_low,
        epsilon_high=settings.clip_high,
        delta=settings.delta,
        beta=settings.beta,
        sync_ref_model=False,
        use_bias_correction_kl=False,
        vllm_importance_sampling_correction=False,  # ours needs no pass of its own: `sampler_correction`
        mask_truncated_completions=False,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=0,
        max_completion_length=sampling.max_new_tokens,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="constant",
        warmup_steps=0,
        max_grad_norm=settings.max_grad_norm,
        weight_decay=settings.weight_decay,
        gradient_checkpointing=not on_cpu,
        save_strategy="steps",
        save_steps=settings.save_steps,
        logging_steps=1,
        disable_tqdm=True,
        report_to=list(hardware.report_to) or "none",
        run_name=str(phase.work),
        dataloader_pin_memory=False,
        remove_unused_columns=False,
        model_init_kwargs=None if phase.training.lora else {"dtype": "float32", **_loading(hardware)},
        **device,
    )


def _loading(hardware: HardwareConfig) -> dict[str, Any]:
    return {
        "use_safetensors": True,  # the other format runs code
        "attn_implementation": attention_for(hardware.attention, on_gpu=not uses_cpu(hardware)),
        "device_map": None,  # TRL's "auto" would spread the reference over the GPUs that FSDP shards on
    }


def _build_trainer(phase: Phase, plan: PhasePlan, *, engine: Engine | None, **ours: Any) -> Any:
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    from datasets import Dataset
    from transformers.trainer_callback import PrinterCallback
    from transformers.trainer_utils import set_seed

    from diagevo.training.sharding import loaded_in_shards
    from diagevo.training.trainer import PhaseTrainer
    from diagevo.training.weight_sync import lent

    tokenizer = load_tokenizer(phase.start, phase.sampling.chat_template_kwargs)
    played = [row for batch in plan.batches for row in batch]
    _refuse_long_prompts(tokenizer, played, phase.sampling)
    set_seed(phase.seed % 2**32)  # a new adapter is drawn
    rank, numbers = phase.training.lora, numbers_of(phase.hardware)
    loading, settings = _loading(phase.hardware), trl_settings(plan, phase)
    with loaded_in_shards(settings), nullcontext() if engine is None else lent(engine):
        trainer = PhaseTrainer(
            phase=phase,
            plan=plan,
            engine=engine,
            **ours,
            model=str(phase.start)
            if rank is None
            else adapted(phase.start, rank, phase.output, numbers, **loading),
            args=settings,
            # TRL wants a data set to be named; the rows are read from the plan.
            train_dataset=Dataset.from_dict({"row_id": [row.row_id for row in played]}),
            processing_class=tokenizer,
        )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _check_rows(rows: Sequence[TrainingRow], settings: GRPOConfig) -> None:
    if not rows or settings.max_steps == 0:
        raise ConfigError("a phase needs at least one row and one step.", hint="Skip the phase instead.")
    if len({row.row_id for row in rows}) != len(rows):
        raise ConfigError("two training rows have the same row_id.", hint="Give every row an id of its own.")


def _refuse_long_prompts(tokenizer: Any, rows: Sequence[TrainingRow], sampling: SamplingConfig) -> None:
    lengths = map(len, encode_prompts(tokenizer, [row.prompt for row in rows]))
    for row, length in zip(rows, lengths, strict=True):
        if length > sampling.max_prompt_tokens:
            raise ConfigError(
                f"the prompt of {row.row_id} has {length} tokens; sampling.max_prompt_tokens is "
                f"{sampling.max_prompt_tokens}.",
                hint="Leave such questions out before training, or raise the limit.",
            )


def resumable(work: Path, notes: dict[str, Any], stop: StopFlag) -> int | None:
    """The step to resume from, None to start at the beginning.

    Removes broken or partially written checkpoints.
    """
    found = checkpoints.find(work, stop)
    checkpoint = found.checkpoint
    private_folder(work)
    checkpoints.discard_after(work, found.step)
    if checkpoint is None:
        return None
    for name, value in notes.items():
        if checkpoint.notes.get(name) != value:
            raise ConfigError(
                f"{checkpoint.folder} was saved under another {name} than now: "
                f"{checkpoint.notes.get(name)!r}, not {value!r}.",
                hint=f"Resume with what the phase began with, or let it begin again: remove {work}"
                if name == "form"
                else "Resume with the rows, settings and seed that the phase began with.",
            )
    return checkpoint.step


def _write_output(trainer: Any, phase: Phase, notes: dict[str, Any]) -> None:
    """Write the whole weights; for a policy with an adapter, the adapter."""
    output = phase.output
    staging = checkpoints.staging_folder(output)
    if trainer.accelerator.is_main_process:
        shutil.rmtree(staging, ignore_errors=True)
        private_folder(staging)
    trainer.accelerator.wait_for_everyone()
    trainer.save_model(str(staging))
    trainer.accelerator.wait_for_everyone()
    if trainer.accelerator.is_main_process:
        (staging / "training_args.bin").unlink(missing_ok=True)
        checkpoints.publish(staging, output, notes | {"step": trainer.state.global_step})
    trainer.accelerator.wait_for_everyone()
