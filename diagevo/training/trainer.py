"""TRL's GRPOTrainer for one phase: its update, with our loss, batches, sampling loop and checkpoints.

What is overridden, and why:
- `get_train_dataloader`: one pass without repeats and a smaller last batch (plan.py);
- `training_step`: the rollouts of a step, whose micro-batches hold as many rows as their lengths allow
  (micro_batches.py), which changes no term of the loss;
- `compute_loss`: the loss of loss.py, whose step is divided by exactly its own tokens or completions;
- `save_model`: of a policy with an adapter, the one that trains alone.

Private in TRL 1.16 and transformers, so that another release may change them (tests/training/test_hooks.py):
- `_get_per_token_logps_and_entropies(model, input_ids, attention_mask, logits_to_keep, batch_size, ...)`: the
  reference's pass in such micro-batches too;
- `_generate_single_turn(prompt_ids, images, multimodal_fields, num_generations, has_tool_images)`: the loop
  of sampling/decoding.py, with a generator a row, so that a rollout is the same with one process or several
  and after a restart; with vLLM, TRL's own, whose engine (`vllm_generation.llm.llm_engine`, one a rank) is
  proven to have the weights (weight_sync.py, with `_last_loaded_step`) and hears a stop before each step;
- what a checkpoint is, and how it is read: see `WholeCheckpoints` (saving.py).
Called: `_generate_and_score_completions(inputs)`. Read: `_metrics`, `_tokenizer`.

Long, but one file: it is one class of hooks that share a step, documented by this list.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list, gather_object, is_peft_model, set_seed
from torch.utils.data import DataLoader
from trl.models.utils import unwrap_model_for_generation
from trl.trainer.grpo_trainer import GRPOTrainer

from diagevo.errors import StoppedSafely
from diagevo.progress import StopFlag
from diagevo.sampling.decoding import Decoding, draw, stoppable_in_steps
from diagevo.sampling.device import in_memory
from diagevo.sampling.engine import Engine
from diagevo.sampling.model_folder import end_ids
from diagevo.training.adapters import save_adapter
from diagevo.training.advantages import whitened
from diagevo.training.loss import clipped, grpo_loss, kl_to, ratios, token_weights, truncated
from diagevo.training.measures import FIRST_KL, TENSORS_APART, PhaseMeasures
from diagevo.training.metrics import StepMetrics
from diagevo.training.micro_batches import Dealt, Steps, in_place, select, sequences
from diagevo.training.phase import OnStep, OnUpdate, Phase, Reward, Rollout
from diagevo.training.plan import PhasePlan
from diagevo.training.saving import SavesAndStops, Saving, WholeCheckpoints
from diagevo.training.sharding import gathered, place_on_device
from diagevo.training.weight_sync import send_adapter, send_weights, serve_adapter


class PhaseTrainer(WholeCheckpoints, GRPOTrainer):
    """Plays a `PhasePlan`, from the folder of starting weights, where TRL reads its reference too.

    Args:
        phase: Settings, seed, and the work folder that checkpoints go to.
        plan: The rows of each step, and how ranks and micro-batches share them.
        reward: Measures this rank's rollouts, and rewards those of all ranks.
        on_step: Called on rank 0 once a step, before its checkpoint is saved.
        on_update: Called on rank 0 with each step once its weights are there.
        saving: Publishes checkpoints during the next step.
        check: Gets the metrics of all steps so far after each, and raises if they must end the phase.
        stop: Once it is overdue on a rank, all ranks abort the step and save those before it.
        saved: The step of the newest checkpoint; 0 where there is none.
        engine: The vLLM of this process, if it generates the rollouts.
        **trl: Arguments of TRL's `GRPOTrainer`.

    Raises:
        StoppedSafely: From `train`, on every rank, once a stop is overdue. One that `on_step` raises is in
            `stopped` after the step, whose checkpoint is saved.
    """

    def __init__(
        self,
        *,
        phase: Phase,
        plan: PhasePlan,
        reward: Reward,
        on_step: OnStep,
        on_update: OnUpdate,
        saving: Saving,
        check: Callable[[list[dict[str, Any]]], PhaseMeasures],
        stop: StopFlag,
        saved: int,
        engine: Engine | None,
        **trl: Any,
    ) -> None:
        self._phase = phase
        self._plan = plan
        self._reward = reward
        self._on_step = on_step
        self.on_update = on_update
        self.saving, self.work = saving, phase.work
        self._stop = stop
        self.saved = saved
        self._engine = engine
        self._rows: list[dict[str, Any]] = []
        self._updated = False
        """Whether this step has changed the weights that drew its rollouts."""
        self._held = 1
        """The least `micro_batch` that would have been cut as this step is."""
        self.stopped: StoppedSafely | None = None
        """What `on_step` asked for. Training ends after that step, with its checkpoint saved."""
        self._pad_id: int = trl["processing_class"].pad_token_id
        self._advantages: dict[tuple[str, int], float] = {}
        """Of this step's completions by row and sample, where they are whitened by part."""
        super().__init__(reward_funcs=[self._step_rewards()], **trl)
        self.num_generations = phase.settings.group  # TRL allows no 1
        for model in filter(None, (self.model, self.ref_model)):
            place_on_device(model, trained=model is self.model)
        self._served = phase.work / f"served-{self.accelerator.process_index}"
        if self.use_vllm and is_peft_model(self.model):
            serve_adapter(self.vllm_generation, self._served)
        self._meter = StepMetrics(self.accelerator, self._metrics["train"])
        self.eos_token_ids = list(end_ids(phase.start, trl["processing_class"]))
        self.add_callback(SavesAndStops(self, check))

    # Batches

    def get_train_dataloader(self) -> DataLoader:
        steps = Steps(self._plan, self.accelerator.process_index)
        return DataLoader(steps, batch_size=1, collate_fn=lambda items: items[0])

    def training_step(
        self, model: Any, inputs: dict[str, Any], num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """The rollouts of a step and their gradients. Random state is reset for each step.

        A step aborted before it has changed a weight leaves the previous step's state, which is saved.
        """
        model.train()
        losses: list[torch.Tensor] = []
        tokens = self.state.num_input_tokens_seen  # to which TRL adds those that are drawn
        try:
            # The same draws whether the phase was resumed before this step or not: nothing random is
            # carried over.
            set_seed(self._seed_of_step())
            self._rows, self._updated = inputs["rows"], False
            with in_memory("micro_batch", lambda: self._held):
                batch = self._generate_and_score_completions(self._rows)
                if self._phase.settings.advantage == "part":
                    found = [self._advantages.get((r["row_id"], r["sample"]), 0.0) for r in self._rows]
                    batch["advantages"] = torch.tensor(found, device=batch["advantages"].device)
                self._leave_out_padding(batch)
                for part in self._parts(batch):
                    # The first part is trained with what was drawn from; TRL's loop makes the last part's
                    # update itself.
                    if losses:
                        self._update(model)
                    losses.append(self._add_gradients(model, part))
            return torch.stack(losses).mean()
        except StoppedSafely:
            # Only while the weights are those of the step before: after an update inside the step there is
            # no state that a resumed phase could go on from.
            if len(losses) == 0 and self.saved < self.state.global_step:
                model.zero_grad()
                self.state.num_input_tokens_seen = tokens
                self._save_checkpoint(self.model, None)
            raise

    def _add_gradients(self, model: Any, batch: dict[str, Any]) -> torch.Tensor:
        """Micro-batch by micro-batch. Ranks with whole models exchange gradients once, after the last;
        sharded ones with each, or they would accumulate unsharded, and in bfloat16."""
        mask = batch["completion_mask"]
        # Of all ranks and all micro-batches: a mean of means would weigh a short micro-batch's tokens more.
        of_all = {
            "num_items_in_batch": self._gathered(mask.sum()).sum(),
            "completions": self._gathered(mask.any(1).sum()).sum(),
        }
        micro_batches = self._dealt(batch).micro_batches
        # `compute_loss` divides the routers' loss by it, a mean; the policy's is divided by the tokens
        # above.
        self.current_gradient_accumulation_steps = len(micro_batches)
        total = torch.zeros((), device=self.accelerator.device)
        for number, part in enumerate(micro_batches, 1):
            # Between micro-batches all ranks agree: a gradient that is half added up is thrown away by all
            # or none.
            self._stop_together()
            last = number == len(micro_batches)
            self.accelerator.gradient_state._set_sync_gradients(last)
            with nullcontext() if last or self.is_fsdp_enabled else self.accelerator.no_sync(model):
                with self.compute_loss_context_manager():
                    loss = self.compute_loss(model, part | of_all)
                self.accelerator.backward(loss)
            total += loss.detach()
        return total

    def _parts(self, batch: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The rows of each update of a step: equally many on every rank."""
        count = len(batch["completion_mask"])
        for rows in torch.arange(count).tensor_split(min(self._phase.settings.updates, count)):
            yield select(batch, rows)

    def _update(self, model: Any) -> None:
        """Within a step, what transformers does at its end."""
        # Before the step, as transformers does: an update of a part must be bounded like the last one.
        self.accelerator.clip_grad_norm_(model.parameters(), self._phase.settings.max_grad_norm)
        optimizer: Any = self.optimizer
        optimizer.step()
        model.zero_grad()
        self._updated = True

    def _dealt(self, batch: dict[str, Any]) -> Dealt:
        """A step's rows as micro-batches of all ranks."""
        sampling = self._phase.sampling
        # `micro_batch` counts rows of the longest allowed; short rows come in larger micro-batches of as
        # many tokens.
        row = sampling.max_prompt_tokens + sampling.max_new_tokens
        dealt = Dealt(batch, self._phase.settings.micro_batch * row, self.accelerator)
        # Rounded up: what runs out of memory is halved from what a step really held, not from the setting.
        self._held = -(-dealt.most // row)
        return dealt

    def _seed_of_step(self) -> int:
        name = f"{self._phase.seed}/{self.state.global_step + 1}/{self.accelerator.process_index}"
        return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=4).digest())

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Wraps work that a rank does without the others and may abort: all ranks continue after it, or
        none."""
        try:
            yield
        except StoppedSafely:
            self._stop.set_overdue()
        self._stop_together()

    def _stop_together(self) -> None:
        """Called where all ranks meet. Raises StoppedSafely on all if a stop is overdue on one: a rank
        that ended alone would leave the others waiting for it, and nothing could be saved.
        """
        overdue = torch.tensor(float(self._stop.overdue), device=self.accelerator.device)
        if self._gathered(overdue).sum() > 0:
            self._stop.set_overdue()
            self._stop.check()

    def _leave_out_padding(self, batch: dict[str, Any]) -> None:
        step = self.state.global_step + 1
        if any(slot.padding for rank in range(self._plan.ranks) for slot in self._plan.slots(step, rank)):
            # Padding gives ranks equally many rows; it must not be trained on.
            mask = batch["completion_mask"]
            mask[torch.tensor([row["padding"] for row in self._rows], device=mask.device)] = 0

    def _get_per_token_logps_and_entropies(
        self, model: Any, input_ids: torch.Tensor, attention_mask: torch.Tensor, logits_to_keep: int,
        batch_size: int | None = None, **options: Any,
    ) -> tuple[torch.Tensor, Any, Any]:  # fmt: skip
        """As TRL's, but chunks (of the reference's pass) are cut by tokens.

        A step may be aborted before each chunk.
        """
        if batch_size is None:
            return super()._get_per_token_logps_and_entropies(
                model, input_ids, attention_mask, logits_to_keep, **options
            )
        # Prompts are padded on the left and completions on the right: `Dealt` cuts each side's own padding.
        prompt = input_ids.size(1) - logits_to_keep
        parts = {
            "prompt_ids": input_ids[:, :prompt],
            "prompt_mask": attention_mask[:, :prompt],
            "completion_ids": input_ids[:, prompt:],
            "completion_mask": attention_mask[:, prompt:],
        }
        dealt, found = self._dealt(parts), []
        for part in dealt.micro_batches:
            self._stop_together()
            logps, _, _ = super()._get_per_token_logps_and_entropies(model, *sequences(part), **options)
            found.append(in_place(logps, part).float())
        return dealt.given_back(found)[:, :logits_to_keep], None, None

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """Of a micro-batch on this rank, so that a step's sum, in the mean over the ranks, is its loss."""
        logps, entropies, routing = self._get_per_token_logps_and_entropies(
            model, *sequences(inputs), compute_entropy=True, compute_aux_loss=self.aux_loss_enabled
        )
        logps, entropies = in_place(logps, inputs), in_place(entropies, inputs)
        settings, mask = self._phase.settings, inputs["completion_mask"]
        ratio = ratios(
            logps,
            old := inputs.get("old_per_token_logps", logps.detach()),
            mask,
            settings.importance_sampling_level,
        )
        sampled, reference = (inputs.get(f"{of}_per_token_logps") for of in ("sampling", "ref"))
        # The sampler's numbers differ from the trainer's (other kernels, other precision): without this,
        # tokens that vLLM finds likelier than the policy are learnt too often.
        correction: torch.Tensor | float = 1.0
        if settings.sampler_correction is not None and sampled is not None:
            correction = truncated(old, sampled, settings.sampler_correction)
        clip = {"clip_low": settings.clip_low, "clip_high": settings.clip_high}
        weights = token_weights(
            mask,
            settings.loss_type,
            tokens=inputs["num_items_in_batch"],
            completions=inputs["completions"],
            longest=self._phase.sampling.max_new_tokens,
        )
        # The ranks' gradients are averaged, and the weights count the tokens of all of them: times the
        # ranks, the average is the sum.
        loss = self._plan.ranks * grpo_loss(
            logps,
            ratio,
            reference,
            inputs["advantages"],
            weights,
            **clip,
            delta=settings.delta,
            beta=settings.beta,
            capped=settings.loss_type == "cispo",
            correction_B_T=correction,
        )
        if routing is not None:  # a mixture of experts
            loss = loss + self.router_aux_loss_coef * routing / self.current_gradient_accumulation_steps
            self._metrics["train"]["aux_loss"].append(self._gathered(routing).mean().item())
        with torch.no_grad():
            if reference is not None:
                self._meter.mean("kl", kl_to(reference, logps), mask)
                # Before the first update policy and reference are the same weights, so that a KL above 0 is
                # a wrong reference (measures.py).
                if not self._updated:
                    self._metrics["train"][FIRST_KL].append(self._metrics["train"]["kl"][-1])
            self._meter.mean("entropy", entropies, mask)
            self._meter.clipped(*clipped(ratio, inputs["advantages"], **clip), mask)
            if sampled is not None:
                self._meter.apart((old - sampled).abs(), mask)
        return loss

    def _gathered(self, value: torch.Tensor) -> Any:
        return self.accelerator.gather(value)

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
            generation = self.vllm_generation
            adapter = is_peft_model(self.model)
            # Repeated before each step, and counted: a tensor that the engine did not take would keep
            # sampling from old weights without any other sign.
            count = send_adapter(generation, self._served) if adapter else send_weights(generation)
            apart = torch.tensor(float(count), device=self.accelerator.device)
            self._metrics["train"][TENSORS_APART].append(self._gathered(apart).sum().item())
            self._last_loaded_step = self.state.global_step
            assert self._engine is not None
            self._engine.holds = None
            with self._alone(), stoppable_in_steps(self.vllm_generation.llm.llm_engine, self._stop):
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
        # A group's rows share their prompt: it is read once, and its cache is shared.
        groups: dict[str, list[int]] = {}
        for place, row in enumerate(self._rows):
            groups.setdefault(row["row_id"], []).append(place)
        prompts = [prompt_ids[places[0]] for places in groups.values()]
        keys = [[self._key(self._rows[place]) for place in places] for places in groups.values()]
        options: Any = self.args
        with (
            self._alone(),
            unwrap_model_for_generation(
                self.model_wrapped,
                self.accelerator,
                gradient_checkpointing_kwargs=options.gradient_checkpointing_kwargs,
            ) as model,
            gathered(model),
            self.accelerator.autocast(),
        ):
            training = model.training
            model.eval()
            with in_memory("rows_at_once", lambda: min(len(self._rows), decoding.rows_at_once)):
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
                   part: Sequence[str], padding: Sequence[bool], trainer_state: Any,
                   **_: Any) -> list[float | None]:  # fmt: skip
            step = trainer_state.global_step + 1
            texts = self._tokenizer.batch_decode(list(completion_ids), skip_special_tokens=True)
            ends = [ids[-1] in self.eos_token_ids for ids in completion_ids]
            rollouts = [
                Rollout(row_id=r, sample=g, step=step, text=text, truncated=not end)
                for r, g, text, end, pad in zip(row_id, sample, texts, ends, padding, strict=True)
                if not pad
            ]
            with self._alone():
                measures = self._reward.measure(rollouts)
            # A reward may compare the rollouts of a whole step (repetition), whichever rank drew them.
            everyone = gather_object(list(zip(rollouts, measures, strict=True)))
            rewards = self._reward.rewards([r for r, _ in everyone], [m for _, m in everyone])
            if self._phase.settings.advantage == "part":
                own = [
                    (len(ids), of)
                    for ids, of, pad in zip(completion_ids, part, padding, strict=True)
                    if not pad
                ]
                tokens, parts = zip(*gather_object(own), strict=True)
                keys = [(r.row_id, r.sample) for r, _ in everyone]
                self._advantages = dict(zip(keys, whitened(rewards, tokens, parts), strict=True))
            self._meter.rollouts([r for r, _ in everyone], rewards)
            self._report(step, [replace(r, measure=m) for r, m in everyone], rewards)
            found = {(r.row_id, r.sample): value for (r, _), value in zip(everyone, rewards, strict=True)}
            # None has no advantage; it stands for padding only.
            return [None if pad else found[r, g] for r, g, pad in zip(row_id, sample, padding, strict=True)]

        return reward

    def _report(self, step: int, rollouts: list[Rollout], rewards: list[float]) -> None:
        """Call `on_step` on rank 0. A stop that it requests waits, on every rank, until the step is saved."""
        asked: list[StoppedSafely | None] = [None]
        if self.accelerator.is_main_process:
            try:
                self._on_step(step, rollouts, rewards)
            except StoppedSafely as stop:
                asked = [stop]
        broadcast_object_list(asked)
        self.stopped = asked[0]

    # Checkpoints

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """As transformers', but for adapters."""
        if not is_peft_model(self.model) or self.staging is not None:
            super().save_model(output_dir, _internal_call)
        elif self.args.should_save:
            save_adapter(self.model, Path(output_dir or self.work))
