"""TRL's GRPOTrainer for one phase: its loss and update, our batches, sampling loop, rewards and checkpoints.

What is overridden, and why:
- the data loader: one pass without repeats and a smaller last batch (plan.py);
- generation: the loop of sampling/decoding.py, with a generator a row, so that a rollout is the same on one
  process or several and after a restart; with vLLM, TRL's own;
- micro-batches: sorted by length and cut to their longest row, which changes no term of the loss;
- saving: into a staging folder that is renamed once it is whole, beside the next step (saving.py), without
  the second copy of the weights that FSDP and DeepSpeed would leave in it;
- the loss: how far the sampler's probabilities are from the policy's is logged, under TRL's name;
- the reference: under FSDP it is sharded a layer at a time (sharding.py).
"""

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list, gather_object
from torch.utils.data import DataLoader, Dataset
from transformers.trainer_callback import TrainerCallback, TrainerControl, TrainerState
from transformers.training_args import TrainingArguments
from trl.models.utils import unwrap_model_for_generation
from trl.trainer.grpo_trainer import GRPOTrainer

from diagevo.errors import StoppedSafely
from diagevo.progress import StopFlag
from diagevo.sampling.decoding import Decoding, draw
from diagevo.training import checkpoints
from diagevo.training.measures import (
    COMPLETIONS,
    CUT_OFF,
    HIGHEST,
    LOWEST,
    SAMPLING_DIFFERENCE,
    PhaseMeasures,
)
from diagevo.training.phase import OnStep, Phase, Reward, Rollout
from diagevo.training.plan import PhasePlan
from diagevo.training.saving import Saving
from diagevo.training.sharding import shard_layers, whole


class _MicroSteps(Dataset):
    """The micro-batches of a phase in order; each item carries the rows of its whole step for one rank."""

    def __init__(self, plan: PhasePlan, rank: int) -> None:
        self._plan = plan
        self._rank = rank
        self._places = [
            (step, index) for step in range(1, plan.steps + 1) for index in range(plan.micro_batches(step))
        ]

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, place: int) -> dict[str, Any]:
        step, index = self._places[place]
        rows = [
            {
                "prompt": slot.row.prompt,
                "row_id": slot.row.row_id,
                "sample": slot.sample,
                "padding": slot.padding,
            }
            for slot in self._plan.slots(step, self._rank)
        ]
        return {"index": index, "count": self._plan.micro_batches(step), "rows": rows}


class PhaseTrainer(GRPOTrainer):
    """Plays a `PhasePlan`. Built from the folder of starting weights, where TRL reads its reference."""

    def __init__(
        self,
        *,
        phase: Phase,
        plan: PhasePlan,
        reward: Reward,
        on_step: OnStep,
        saving: Saving,
        check: Callable[[list[dict[str, Any]]], PhaseMeasures],
        stop: StopFlag,
        saved: int,
        **trl: Any,
    ) -> None:
        """`check` gets the metrics of all steps so far after each, and raises where they end the phase.
        `saved`: the step of the newest checkpoint."""
        self._phase = phase
        self._plan = plan
        self._reward = reward
        self._on_step = on_step
        self._saving = saving
        self._stop = stop
        self._saved = saved
        self._rows: list[dict[str, Any]] = []
        self._micro: list[dict[str, torch.Tensor]] = []
        self._logps = torch.zeros(0)
        self._staging: Path | None = None
        self.stopped: StoppedSafely | None = None
        """What `on_step` asked for. Training ends after that step, with its checkpoint saved."""
        self._pad_id: int = trl["processing_class"].pad_token_id
        super().__init__(reward_funcs=[self._step_rewards()], **trl)
        self.add_callback(_SavesAndStops(self, check))

    @property
    def ref_model(self) -> Any:
        """TRL's KL reference; None where there is none, or where it is the policy without its adapter."""
        return self._reference

    @ref_model.setter
    def ref_model(self, model: Any) -> None:
        # TRL sets it when it is loaded, and again once it has sharded what is left.
        if model is not None and self.is_fsdp_enabled and not hasattr(self, "_reference"):
            shard_layers(model, self.accelerator)
        self._reference = model

    # Batches

    def get_train_dataloader(self) -> DataLoader:
        steps = _MicroSteps(self._plan, self.accelerator.process_index)
        return DataLoader(steps, batch_size=1, collate_fn=lambda items: items[0])

    def _prepare_inputs(self, generation_batch: dict[str, Any]) -> dict[str, Any]:
        if generation_batch["index"] == 0:
            self._rows = generation_batch["rows"]
            batch = self._scored()
            self._leave_out_padding(batch)
            self._micro = self._split(batch, generation_batch["count"])
        return self._micro[generation_batch["index"]]

    def _scored(self) -> dict[str, Any]:
        """A step's rollouts. Broken off here it has changed no weight; the step before is saved first."""
        try:
            batch = self._generate_and_score_completions(self._rows)
            self._stop.check_overdue()
        except StoppedSafely:
            if self._saved < self.state.global_step:
                self._save_checkpoint(self.model, None)
            raise
        return batch

    def _leave_out_padding(self, batch: dict[str, Any]) -> None:
        step = self.state.global_step + 1
        if any(slot.padding for rank in range(self._plan.ranks) for slot in self._plan.slots(step, rank)):
            mask = batch["completion_mask"]
            mask[torch.tensor([row["padding"] for row in self._rows], device=mask.device)] = 0
            batch["num_items_in_batch"] = sum_over_ranks(self.accelerator, mask.sum())

    def _split(self, batch: dict[str, Any], count: int) -> list[dict[str, Any]]:
        """Micro-batches of rows of like length, without the columns that are padding in all of them.

        TRL divides the summed loss by num_items · (micro-batches of this step) / (of a full step); the number
        of tokens is rescaled so that a smaller last batch, too, is divided by exactly its own tokens. The
        losses that count completions are a mean over a micro-batch in TRL, with padding in it and however
        small it is: `share` makes each completion of the step weigh the same.
        """
        items = batch["num_items_in_batch"] * self._plan.micro_batches(1) / count
        order = batch["completion_mask"].sum(1).argsort(descending=True, stable=True)
        completions = self._plan.completions(self.state.global_step + 1) / self._plan.ranks
        return [
            _trim(_select(batch, rows))
            | {"num_items_in_batch": items, "share": len(rows) * count / completions}
            for rows in order.tensor_split(count)
        ]

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, logits_to_keep: int,
        batch_size: int | None = None, **options: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]:  # fmt: skip
        """As TRL's, but a batch that is cut into chunks is cut by length (the reference's pass).

        Before each pass is the place to break a step off. In an update the step before must have been saved.
        """
        if batch_size is None or batch_size >= len(input_ids):
            if self._saved == self.state.global_step:
                self._stop.check_overdue()
            found = super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, batch_size, **options
            )
            self._logps = found[0].detach()
            return found
        split = input_ids.size(1) - logits_to_keep
        parts = {
            "prompt_ids": input_ids[:, :split],
            "prompt_mask": attention_mask[:, :split],
            "completion_ids": input_ids[:, split:],
            "completion_mask": attention_mask[:, split:],
        }
        logps = torch.zeros(len(input_ids), logits_to_keep, device=input_ids.device)
        order = parts["completion_mask"].sum(1).argsort(descending=True, stable=True)
        for rows in order.split(batch_size):
            self._stop.check_overdue()
            part = _trim(_select(parts, rows))
            width = part["completion_ids"].size(1)
            ids = torch.cat([part["prompt_ids"], part["completion_ids"]], dim=1)
            mask = torch.cat([part["prompt_mask"], part["completion_mask"]], dim=1)
            found, _, _ = super()._get_per_token_logps_and_entropies(model, ids, mask, width, **options)
            logps[rows, :width] = found.to(logps.dtype)
        return logps, None, None

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> torch.Tensor:
        """As TRL's. Where the sampler has other weights than the policy, this metric jumps.

        TRL logs it together with a correction of the loss that we do not want, at the price of one more pass.
        """
        loss = super()._compute_loss(model, inputs)
        if self.loss_type != "dapo":
            loss = loss * inputs["share"]
        if (sampled := inputs.get("sampling_per_token_logps")) is not None:
            apart = (self._logps - sampled).abs()
            apart = apart[inputs["completion_mask"].bool() & ~apart.isnan()]
            mean: Any = self.accelerator.gather(apart.mean() if len(apart) else apart.new_zeros(()))
            self._metrics["train"][SAMPLING_DIFFERENCE].append(mean.mean().item())
        return loss

    # Rollouts and rewards

    def _generate_single_turn(
        self,
        prompt_ids: Any,
        images: Any,
        multimodal_fields: Any,
        num_generations: int,
        has_tool_images: bool = False,
    ) -> tuple[list[list[int]], Any]:
        if self.use_vllm:
            return super()._generate_single_turn(
                prompt_ids, images, multimodal_fields, num_generations, has_tool_images
            )
        decoding = Decoding(
            temperature=self.temperature,
            top_p=self.top_p,
            max_new_tokens=self._phase.sampling.max_new_tokens,
            end_ids=tuple(self.eos_token_ids),
            pad_id=self._pad_id,
            rows_at_once=self._phase.hardware.rows_at_once,
            threads=torch.get_num_threads() if self.accelerator.device.type == "cpu" else 1,
            stop=self._stop,
        )
        groups: dict[str, list[int]] = {}
        for place, row in enumerate(self._rows):
            groups.setdefault(row["row_id"], []).append(place)
        prompts = [prompt_ids[places[0]] for places in groups.values()]
        keys = [[self._key(self._rows[place]) for place in places] for places in groups.values()]
        options: Any = self.args
        with (
            unwrap_model_for_generation(
                self.model_wrapped,
                self.accelerator,
                gradient_checkpointing_kwargs=options.gradient_checkpointing_kwargs,
            ) as model,
            whole(model),
            self.accelerator.autocast(),
        ):
            training = model.training
            model.eval()
            drawn = draw(model, prompts, keys, decoding)
            model.train(training)
        completions: list[list[int]] = [[] for _ in self._rows]
        logps: list[list[float]] = [[] for _ in self._rows]
        for places, group in zip(groups.values(), drawn, strict=True):
            for place, row in zip(places, group, strict=True):
                completions[place], logps[place] = row.ids, row.logps
        return completions, logps

    def _key(self, row: dict[str, Any]) -> bytes:
        name = f"{self._phase.seed}/{row['row_id']}/{row['sample']}"
        return hashlib.blake2b(name.encode(), digest_size=16).digest()

    def _step_rewards(self) -> Callable[..., list[float | None]]:
        """The reward function that TRL calls with this rank's slice: synchronous, on every rank."""

        def reward(*, completion_ids: Sequence[list[int]], row_id: Sequence[str], sample: Sequence[int],
                   padding: Sequence[bool], trainer_state: Any, **_: Any) -> list[float | None]:  # fmt: skip
            step = trainer_state.global_step + 1
            texts = self._tokenizer.batch_decode(list(completion_ids), skip_special_tokens=True)
            ends = [ids[-1] in self.eos_token_ids for ids in completion_ids]
            rollouts = [
                Rollout(row_id=r, sample=g, step=step, text=text, truncated=not end)
                for r, g, text, end, pad in zip(row_id, sample, texts, ends, padding, strict=True)
                if not pad
            ]
            measures = self._reward.measure(rollouts)
            everyone = gather_object(list(zip(rollouts, measures, strict=True)))
            rewards = self._reward.rewards([r for r, _ in everyone], [m for _, m in everyone])
            self._measure([r for r, _ in everyone], rewards)
            self._report(step, [r for r, _ in everyone], rewards)
            found = {(r.row_id, r.sample): value for (r, _), value in zip(everyone, rewards, strict=True)}
            # None has no advantage; it stands for padding only.
            return [None if pad else found[r, g] for r, g, pad in zip(row_id, sample, padding, strict=True)]

        return reward

    def _measure(self, rollouts: list[Rollout], rewards: list[float]) -> None:
        """Add to the step's metrics what `measures.py` reads, of all ranks and without padding."""
        cut_off = sum(rollout.truncated for rollout in rollouts)
        found = {LOWEST: min(rewards), HIGHEST: max(rewards), COMPLETIONS: len(rollouts), CUT_OFF: cut_off}
        for name, value in found.items():
            self._metrics["train"][name].append(value)

    def _report(self, step: int, rollouts: list[Rollout], rewards: list[float]) -> None:
        """Call `on_step` on rank 0. A stop that it asks for waits, on every rank, until the step is saved."""
        asked: list[StoppedSafely | None] = [None]
        if self.accelerator.is_main_process:
            try:
                self._on_step(step, rollouts, rewards)
            except StoppedSafely as stop:
                asked = [stop]
        broadcast_object_list(asked)
        self.stopped = asked[0]

    # Checkpoints

    def _issue_warnings_after_load(self, load_result: Any) -> None:
        """Tied weights are saved once, and transformers warns of the other name as missing."""
        tied = getattr(self.model, "all_tied_weights_keys", None) or {}
        load_result.missing_keys[:] = [key for key in load_result.missing_keys if key not in tied]
        super()._issue_warnings_after_load(load_result)

    def _get_output_dir(self, trial: Any) -> str:
        return super()._get_output_dir(trial) if self._staging is None else str(self._staging)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """As transformers', but for the checkpoints of FSDP and DeepSpeed, which hold the weights already."""
        if self._staging is None or not (self.is_fsdp_enabled or self.is_deepspeed_enabled):
            super().save_model(output_dir, _internal_call)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Write the checkpoint of this step to a staging folder; it is published beside the next step."""
        step = self.state.global_step
        self._saving.wait()
        self._staging = checkpoints.staging_folder(checkpoints.checkpoint_folder(self._phase.work, step))
        try:
            with checkpoints.writing(f"the checkpoint of step {step}", self._phase.work):
                # Not TRL's, which writes a model card with a link to a hub first.
                super(GRPOTrainer, self)._save_checkpoint(model, trial)
                self.accelerator.wait_for_everyone()
                if self.accelerator.is_main_process:
                    self._saving.publish(self._staging, step)
            self._saved = step
        finally:
            self._staging = None


class _SavesAndStops(TrainerCallback):
    """Ends training after a step in which a stop was asked for, and has the step saved before.

    Ends it at once where what was measured says that it goes wrong: nothing of such a step is saved.
    """

    def __init__(self, trainer: PhaseTrainer, check: Callable[[list[dict[str, Any]]], PhaseMeasures]) -> None:
        self._trainer = trainer
        self._check = check

    def on_log(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        if steps := [entry for entry in state.log_history if "loss" in entry]:
            self._check(steps)

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        if self._trainer.stopped is not None:
            control.should_save = control.should_training_stop = True


def sum_over_ranks(accelerator: Any, value: torch.Tensor) -> torch.Tensor:
    return accelerator.gather(value).sum()


def _select(batch: dict[str, Any], rows: torch.Tensor) -> dict[str, Any]:
    return {name: value[rows] for name, value in batch.items() if torch.is_tensor(value) and value.ndim}


def _trim(batch: dict[str, Any]) -> dict[str, Any]:
    """Cut the columns that hold padding in every row: prompts on the left, completions on the right."""
    prompt = int(batch["prompt_mask"].sum(1).max())
    width = max(1, int(batch["completion_mask"].sum(1).max()))
    cut = dict(batch)
    for name in ("prompt_ids", "prompt_mask"):
        cut[name] = batch[name][:, -prompt:]
    for name in ("completion_ids", "completion_mask", "ref_per_token_logps", "old_per_token_logps",
                 "sampling_per_token_logps", "importance_sampling_ratio"):  # fmt: skip
        if name in batch and batch[name].ndim == 2 and batch[name].size(1) > 1:
            cut[name] = batch[name][:, :width]
    return cut
