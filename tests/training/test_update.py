"""One phase of two updates against the GRPO loss and AdamW worked out in plain torch, row by row.

The second update has a KL term that is not zero and a smaller batch. The oracle sees each row alone, without
padding, and takes the loss as the paper's family writes it: advantages by group, a mean over the tokens of
the batch, the low-variance estimator of the KL divergence to the starting weights. With padding, which a last
batch on several ranks may need, all is the same. Clipping is inert here, where the ratio is 1: test_loss.py.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import compress
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers.models.auto.modeling_auto import AutoModelForCausalLM
from transformers.trainer_callback import TrainerCallback

from diagevo.config.models import GRPOConfig, HardwareConfig, SamplingConfig
from diagevo.training.plan import PhasePlan, Slot, plan_phase
from diagevo.training.saving import Saving
from diagevo.training.trainer import PhaseTrainer
from tests.training import phase

ROWS = phase.ROWS[:3]
BETA = 0.5  # Large, so that an error in the KL term is seen.
LEARNING_RATE = 1e-2
CLIPPED = GRPOConfig(
    max_steps=2,
    batch_questions=2,
    group=4,
    micro_batch=4,
    learning_rate=LEARNING_RATE,
    beta=BETA,
    max_grad_norm=0.5,
)
UNCLIPPED = CLIPPED.model_copy(update={"max_grad_norm": 1e6})  # Clipped, the scale of a gradient is not seen.
SAMPLING = SamplingConfig(max_new_tokens=10, max_prompt_tokens=32, temperature=0.8, top_p=1.0)
Weights = dict[str, torch.Tensor]
Completions = list[tuple[list[int], list[int]]]  # prompt ids, completion ids


def weights_of(model: Any) -> Weights:
    return {name: value.detach().clone() for name, value in model.named_parameters()}


class Recorder(TrainerCallback):
    """Weights before each update, clipped gradients at it, weights after it."""

    def __init__(self, settings: GRPOConfig) -> None:
        self.clip = settings.max_grad_norm
        self.loss_type = settings.loss_type
        self.before: list[Weights] = []
        self.gradients: list[Weights] = []
        self.after: list[Weights] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.before.append(weights_of(kwargs["model"]))

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        named = kwargs["model"].named_parameters()
        self.gradients.append({name: value.grad.detach().clone() for name, value in named})

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.after.append(weights_of(kwargs["model"]))


class Padded(PhasePlan):
    """As where a last batch does not divide by the ranks: its group comes once more, as padding."""

    def slots(self, step: int, rank: int) -> list[Slot]:
        real = super().slots(step, rank)
        return real if step == 1 else [*real, *(replace(slot, padding=True) for slot in real)]


@pytest.fixture(
    scope="module",
    params=[
        (PhasePlan, CLIPPED),
        (PhasePlan, UNCLIPPED),
        (Padded, UNCLIPPED),
        (Padded, UNCLIPPED.model_copy(update={"loss_type": "grpo"})),
        (Padded, UNCLIPPED.model_copy(update={"loss_type": "dr_grpo"})),
    ],
    ids=["clipped", "unclipped", "padded", "each completion the same", "by the longest"],
)
def played(
    request: pytest.FixtureRequest, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Recorder, list[Completions], list[list[float]]]:
    batches: list[Completions] = []
    rewards: list[list[float]] = []
    draw = PhaseTrainer._generate_single_turn

    def drawn(self: Any, prompt_ids: Any, *rest: Any, **options: Any) -> Any:
        completions, logprobs = draw(self, prompt_ids, *rest, **options)
        real = [not row["padding"] for row in self._rows]
        batches.append(list(compress(zip(prompt_ids, completions, strict=True), real)))
        return completions, logprobs

    plan = plan_phase(ROWS, batch_questions=2, max_steps=2, group=4, ranks=1, seed=0)
    kind, settings = request.param
    plan = kind(**{field.name: getattr(plan, field.name) for field in fields(plan)})
    recorder = Recorder(settings)
    work = tmp_path_factory.mktemp("work")
    with pytest.MonkeyPatch.context() as patch, Saving(work, {}, 60) as saving:
        patch.setattr(PhaseTrainer, "_generate_single_turn", drawn)
        given = phase.of(
            tiny_model,
            work,
            settings=settings,
            sampling=SAMPLING,
            hardware=HardwareConfig(device="cpu"),
            seed=1,  # A seed whose short completions hold the rewarded letter in both steps.
        )
        trainer = phase.trainer(given, plan, saving, lambda step, rollouts, values: rewards.append(values))
        trainer.add_callback(recorder)
        trainer.train()
    return recorder, batches, rewards


def log_probabilities(model: Any, prompt: Sequence[int], completion: Sequence[int]) -> torch.Tensor:
    logits = model(torch.tensor([[*prompt, *completion]])).logits[0, len(prompt) - 1 : -1]
    return (logits / SAMPLING.temperature).log_softmax(-1)[range(len(completion)), list(completion)]


def expected_gradient(
    start: Path, weights: Weights, batch: Completions, rewards: Sequence[float], loss_type: str
) -> tuple[Weights, float]:
    """The gradient before it is clipped, and its norm."""
    reference: Any = AutoModelForCausalLM.from_pretrained(str(start))
    model: Any = AutoModelForCausalLM.from_pretrained(str(start))
    with torch.no_grad():
        for name, value in model.named_parameters():
            value.copy_(weights[name])
    groups = torch.tensor(rewards).view(-1, CLIPPED.group)
    advantages = ((groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + 1e-4)).flatten()
    tokens = sum(len(completion) for _, completion in batch)
    loss = torch.zeros(())
    for (prompt, completion), advantage in zip(batch, advantages, strict=True):
        new = log_probabilities(model, prompt, completion)
        with torch.no_grad():
            old = log_probabilities(reference, prompt, completion)
        ratio = torch.exp(new - new.detach())  # One update a batch: the ratio is 1, its gradient is not 0.
        distance = torch.exp(old - new) - (old - new) - 1
        divisor = {
            "dapo": tokens,
            "grpo": len(completion) * len(batch),
            "dr_grpo": SAMPLING.max_new_tokens * len(batch),
        }[loss_type]
        loss = loss - (ratio * advantage - BETA * distance).sum() / divisor
    loss.backward()
    gradient = {name: value.grad for name, value in model.named_parameters()}
    norm = sum(float((value**2).sum()) for value in gradient.values()) ** 0.5
    return gradient, norm


@pytest.mark.parametrize("step", [0, 1])
def test_the_gradient_is_that_of_the_grpo_loss(played: Any, tiny_model: Path, step: int) -> None:
    recorder, batches, rewards = played
    assert [len(batch) for batch in batches] == [len(values) for values in rewards] == [8, 4]
    assert any(reward != 0 for reward in rewards[step])
    whole, norm = expected_gradient(
        tiny_model, recorder.before[step], batches[step], rewards[step], recorder.loss_type
    )
    assert norm > CLIPPED.max_grad_norm or recorder.clip > norm, "clipping must be seen"
    expected = {name: value * min(1.0, recorder.clip / norm) for name, value in whole.items()}
    found = recorder.gradients[step]
    assert found.keys() == expected.keys()
    largest = max(float(value.abs().max()) for value in expected.values())
    for name, value in expected.items():
        assert torch.allclose(found[name], value, rtol=1e-3, atol=1e-4 * largest), name


def test_the_update_is_adamw_with_a_constant_rate(played: Any) -> None:
    recorder, _, _ = played
    first, second = recorder.gradients
    for name, weight in recorder.before[0].items():
        decay = 0.0 if "norm" in name else CLIPPED.weight_decay  # Norms are not decayed, as in transformers.
        mean, square = torch.zeros_like(weight), torch.zeros_like(weight)
        for t, gradient in ((1, first[name]), (2, second[name])):
            mean = 0.9 * mean + 0.1 * gradient
            square = 0.999 * square + 0.001 * gradient**2
            step = (mean / (1 - 0.9**t)) / ((square / (1 - 0.999**t)).sqrt() + 1e-8)
            weight = weight * (1 - LEARNING_RATE * decay) - LEARNING_RATE * step
        assert torch.allclose(recorder.after[1][name], weight, rtol=1e-4, atol=1e-5), name
