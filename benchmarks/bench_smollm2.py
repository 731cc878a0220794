"""A language model of 135 M parameters and 49k tokens on one thread: sampling beside plain `generate`, and an
update beside TRL's own trainer on the same completions. Needs the folder that `make lm` makes."""

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.rows import Row, cpu_seconds, faster

FOLDER = Path(".lm/models/SmolLM2-135M-Instruct")
PROMPTS, SAMPLES, NEW_TOKENS = 8, 8, 48
QUESTIONS, GROUP, MICRO_BATCH = 2, 8, 8


def rows() -> list[Row]:
    if not FOLDER.is_dir():
        why = f"skipped: {FOLDER} is not here; make it: make lm"
        return [Row("SmolLM2-135M", None, "", None, "", None, "", None, why)]
    import torch

    torch.set_num_threads(1)
    return [_sampling(), _update()]


def _prompts(count: int) -> list[Any]:
    from diagevo.arithmetic import PROMPTS as TEMPLATES
    from diagevo.arithmetic import held_out
    from diagevo.selfplay.questions import PromptTemplates

    questions = [question for question, _ in held_out()]
    return [PromptTemplates.load(TEMPLATES).solver(q) for q in questions[:: len(questions) // count][:count]]


def _sampling() -> Row:
    """Tokens a CPU second. Without an end mark every row is as long as it may be, on both sides."""
    from diagevo.sampling.model_folder import encode_prompts
    from diagevo.sampling.sampler import SamplingParams
    from diagevo.sampling.transformers_sampler import TransformersSampler

    sampler: Any = TransformersSampler(FOLDER, threads=1)
    sampler._end_ids = (-1,)
    prompts = _prompts(PROMPTS)
    params = SamplingParams(temperature=1.0, top_p=0.99, max_new_tokens=NEW_TOKENS)
    ids = encode_prompts(sampler._tokenizer, prompts)
    width = max(map(len, ids))
    import torch

    padded = torch.tensor([[0] * (width - len(row)) + row for row in ids])
    mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in ids])

    def ours() -> None:
        sampler.sample(prompts, n=SAMPLES, params=params, seed=0)

    def plain() -> None:
        sampler._model.generate(
            input_ids=padded,
            attention_mask=mask,
            do_sample=True,
            top_p=params.top_p,
            top_k=0,
            eos_token_id=-1,
            min_new_tokens=NEW_TOKENS,
            max_new_tokens=NEW_TOKENS,
            num_return_sequences=SAMPLES,
        )

    tokens = PROMPTS * SAMPLES * NEW_TOKENS
    measured, reference = tokens / cpu_seconds(ours), tokens / cpu_seconds(plain)
    ratio = measured / reference
    note = f"{PROMPTS} prompts × {SAMPLES} samples × {NEW_TOKENS} tokens, float32"
    return Row(
        "SmolLM2-135M, sampling", measured, "tokens/CPU s", reference, "plain generate", ratio, "≥ 2 ×",
        ratio >= 2, note,
    )  # fmt: skip


class _Halves:
    """Rewards every second completion."""

    def measure(self, rollouts: Sequence[Any]) -> list[int]:
        return [rollout.sample % 2 for rollout in rollouts]

    def rewards(self, rollouts: Sequence[Any], measures: Sequence[int]) -> list[float]:
        return [float(measure) for measure in measures]


def _update() -> Row:
    """CPU seconds of one step without what draws its completions: reference, loss, gradients."""
    from datasets import Dataset
    from trl.trainer.grpo_config import GRPOConfig as TRLConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    from diagevo.config.models import GRPOConfig, HardwareConfig, SamplingConfig, TrainingConfig
    from diagevo.progress import StopFlag
    from diagevo.sampling.model_folder import load_tokenizer
    from diagevo.training.grpo import play_phase
    from diagevo.training.phase import Phase, RewardSpec, TrainingRow
    from diagevo.training.trainer import PhaseTrainer

    drawn: list[list[int]] = []
    spent = {"ours": 0.0, "TRL": 0.0}
    draw, step, plain_step = (
        PhaseTrainer._generate_single_turn, PhaseTrainer.training_step, GRPOTrainer.training_step,
    )  # fmt: skip

    def kept(self: Any, *given: Any, **named: Any) -> Any:
        began = time.process_time()
        completions, logps = draw(self, *given, **named)
        spent["ours"] -= time.process_time() - began
        drawn.extend(completions)
        return completions, logps

    def timed(self: Any, *given: Any, **named: Any) -> Any:
        began = time.process_time()
        loss = step(self, *given, **named)
        spent["ours"] += time.process_time() - began
        return loss

    class Plain(GRPOTrainer):
        def _generate_single_turn(self, prompt_ids: Any, *_: Any, **__: Any) -> Any:
            return drawn[: len(prompt_ids)], None

        def training_step(self, *given: Any, **named: Any) -> Any:
            began = time.process_time()
            loss = plain_step(self, *given, **named)
            spent["TRL"] += time.process_time() - began
            return loss

    prompts = _prompts(QUESTIONS)
    settings = GRPOConfig(max_steps=1, batch_questions=QUESTIONS, group=GROUP, micro_batch=MICRO_BATCH)
    with tempfile.TemporaryDirectory() as folder:
        phase = Phase(
            start=FOLDER.resolve(),
            rows=tuple(TrainingRow(f"q{i}", prompt) for i, prompt in enumerate(prompts)),
            reward=RewardSpec("unused:unused"),
            settings=settings,
            sampling=SamplingConfig(max_new_tokens=NEW_TOKENS),
            hardware=HardwareConfig(device="cpu"),
            training=TrainingConfig(),
            output=Path(folder) / "out",
            work=Path(folder) / "work",
            seed=0,
        )
        with (
            patch.object(PhaseTrainer, "_generate_single_turn", kept),
            patch.object(PhaseTrainer, "training_step", timed),
        ):
            play_phase(phase, _Halves(), lambda *_: None, StopFlag())
        plain = Plain(
            model=str(phase.start),
            reward_funcs=[lambda completions, **_: [float(i % 2) for i in range(len(completions))]],
            args=TRLConfig(
                output_dir=folder,
                use_cpu=True,
                bf16=False,
                gradient_checkpointing=False,
                num_generations=GROUP,
                per_device_train_batch_size=MICRO_BATCH,
                gradient_accumulation_steps=QUESTIONS * GROUP // MICRO_BATCH,
                max_completion_length=NEW_TOKENS,
                max_steps=1,
                beta=settings.beta,
                loss_type=settings.loss_type,
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                model_init_kwargs={"dtype": "float32"},
            ),
            train_dataset=Dataset.from_dict({"prompt": prompts}),
            processing_class=load_tokenizer(phase.start),
        )
        plain.train()
    tokens = sum(map(len, drawn))
    return faster(
        "SmolLM2-135M, update", spent["ours"], spent["TRL"], "TRL's trainer", 1 / 1.3, "CPU s",
        f"{QUESTIONS * GROUP} completions, {tokens} tokens, reference included",
    )  # fmt: skip
