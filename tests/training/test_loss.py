"""The loss of a batch whose ratios are not 1, against values worked out by hand: clips, KL, normalisation."""

import math
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, get_args

import hypothesis
import pytest
import torch
from hypothesis import strategies as st
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM
from trl.trainer.grpo_trainer import GRPOTrainer

from diagevo.config.models import GRPOConfig, HardwareConfig, SamplingConfig
from diagevo.training.loss import LARGEST, clipped, grpo_loss, kl_to, ratios, token_weights, truncated
from diagevo.training.measures import FIRST_KL
from diagevo.training.plan import plan_phase
from diagevo.training.saving import Saving
from diagevo.training.trainer import PhaseTrainer
from tests.sampling.tiny_model import VOCABULARY, make_tiny_tokenizer
from tests.training import phase

PROMPT = [7, 8]
COMPLETIONS = [[9, 10, 11], [12, 13]]
RATIOS = [[1.5, 0.5, 1.1], [0.5, 5.0]]
"""New probability over old, token by token. The paper clips at 0.8 and 1.3; beyond 3 a ratio counts as 3."""
ADVANTAGES = [2.0, -1.0]
POLICY = (2 * 1.3 + 2 * 0.5 + 2 * 1.1) + (-0.8 - 3.0)
"""min(ratio · A, clipped · A): 1.5 is cut to 1.3; 0.5 stays where A > 0 and becomes 0.8 where A < 0."""
LONGEST = 8
TYPES = get_args(GRPOConfig.model_fields["loss_type"].annotation)
LEVELS = get_args(GRPOConfig.model_fields["importance_sampling_level"].annotation)
DISTANCE = 2 - math.log(2) - 1
"""A token's KL estimate where the reference finds it twice as likely: exp(d) − d − 1 with d = ln 2."""


def built(start: Path, work: Path, micro_batches: int = 1, **settings: Any) -> Any:
    step: dict[str, Any] = {"max_steps": 1, "batch_questions": 1, "group": 2}
    plan = plan_phase(phase.ROWS, **step, ranks=1, seed=0)
    given = phase.of(
        start,
        work,
        settings=GRPOConfig(**step, **settings),
        sampling=SamplingConfig(max_prompt_tokens=32, max_new_tokens=LONGEST),
        hardware=HardwareConfig(device="cpu"),
    )
    trainer = phase.trainer(given, plan, Saving(work, {}, 60))
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = trainer.args.steps_per_generation = micro_batches
    return trainer


@pytest.fixture
def trainer(tiny_model: Path, tmp_path: Path) -> Any:
    return built(tiny_model, tmp_path)


def likelihood(model: Any, completion: list[int]) -> torch.Tensor:
    with torch.no_grad():
        logits = model(torch.tensor([[*PROMPT, *completion]])).logits[0, len(PROMPT) - 1 : -1]
    return logits.log_softmax(-1)[range(len(completion)), completion]


def batch(trainer: Any) -> dict[str, torch.Tensor]:
    """Two completions, the second padded by one token that must not count."""
    new = [likelihood(trainer.model, completion) for completion in COMPLETIONS]
    old = [found - torch.tensor(ratios).log() for found, ratios in zip(new, RATIOS, strict=True)]
    padded = torch.nn.utils.rnn.pad_sequence
    return {
        "prompt_ids": torch.tensor([PROMPT] * 2),
        "prompt_mask": torch.ones(2, 2, dtype=torch.long),
        "completion_ids": torch.tensor([COMPLETIONS[0], [*COMPLETIONS[1], 0]]),
        "completion_mask": torch.tensor([[1, 1, 1], [1, 1, 0]]),
        "advantages": torch.tensor(ADVANTAGES),
        "old_per_token_logps": padded(old, batch_first=True),
        "ref_per_token_logps": padded([found + math.log(2) for found in new], batch_first=True),
        "num_items_in_batch": torch.tensor(5),
        "completions": torch.tensor(2),
    }


def rows_of(batch: dict[str, torch.Tensor]) -> list[dict[str, torch.Tensor]]:
    return [{k: v[i : i + 1] if v.ndim else v for k, v in batch.items()} for i in range(2)]


def test_the_loss_of_five_tokens_is_the_one_worked_out_by_hand(trainer: Any) -> None:
    expected = -(POLICY - 0.01 * 5 * DISTANCE) / 5
    assert expected == pytest.approx(-0.396931, abs=1e-6)
    assert trainer.compute_loss(trainer.model, batch(trainer)).item() == pytest.approx(expected, abs=1e-5)


def test_every_token_of_a_step_weighs_the_same_whatever_its_completion_and_micro_batch(trainer: Any) -> None:
    whole = trainer.compute_loss(trainer.model, batch(trainer)).item()
    parts = [trainer.compute_loss(trainer.model, row).item() for row in rows_of(batch(trainer))]
    assert sum(parts) == pytest.approx(whole, abs=1e-5)
    assert parts[0] == pytest.approx(-(2 * 1.3 + 2 * 0.5 + 2 * 1.1 - 0.01 * 3 * DISTANCE) / 5, abs=1e-5)


CAPPED = (
    1.3 * math.log(1.5) + 0.5 * math.log(0.5) + 1.1 * math.log(1.1),
    0.5 * math.log(0.5) + 1.3 * math.log(4),
)
"""Of each completion of the next test, a token's ratio, 1.3 at most, times its log-probability."""
BY_HAND = {
    "dapo": -(5.8 - 4.8) / 5,
    "grpo": -(5.8 / 3 - 4.8 / 2) / 2,
    "dr_grpo": -(5.8 - 4.8) / (2 * LONGEST),
    "cispo": -(2 * CAPPED[0] - CAPPED[1]) / 5,
}
"""A new loss needs a value worked out by hand here; below it is held against TRL's."""


@pytest.mark.parametrize("loss_type", TYPES)
def test_a_step_is_divided_by_its_tokens_or_by_its_completions(loss_type: Any) -> None:
    """The first completion gains 2.6 + 1 + 2.2 = 5.8, the second −0.8 and −4 where no `delta` bounds it at 3:
    here it is 4."""
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    old = torch.zeros(2, 3)
    new = torch.tensor([[1.5, 0.5, 1.1], [0.5, 4.0, 9.9]]).log()
    weights = token_weights(mask, loss_type, tokens=mask.sum(), completions=2, longest=LONGEST)
    options: Any = {"clip_low": 0.2, "clip_high": 0.3, "delta": None, "beta": 0.01}
    options["capped"] = loss_type == "cispo"
    found = grpo_loss(new, ratios(new, old, mask), None, torch.tensor(ADVANTAGES), weights, **options)
    assert found.item() == pytest.approx(BY_HAND[loss_type], abs=1e-6)
    assert weights[1, 2] == 0, "padding"


def test_a_token_loses_its_gradient_where_it_has_left_the_clip_range_for_its_gain() -> None:
    found = torch.tensor([[1.29, 1.31, 0.5], [0.81, 0.79, 1.5]])
    low, high = clipped(found, torch.tensor(ADVANTAGES), clip_low=0.2, clip_high=0.3)
    assert high.tolist() == [[False, True, False], [False, False, False]]
    assert low.tolist() == [[False, False, False], [False, True, False]]


def test_a_completion_has_the_geometric_mean_of_its_tokens_ratios() -> None:
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    new = torch.tensor([[2.0, 0.5, 8.0], [4.0, 1.0, 9.9]]).log()
    found = ratios(new, torch.zeros(2, 3), mask, "sequence")
    assert torch.allclose(found, torch.tensor([[2.0] * 3, [2.0] * 3]))


def test_a_token_weighs_what_its_sampler_was_off_up_to_the_cap_and_1_where_it_told_nothing() -> None:
    sampled = torch.tensor([[0.5, 0.1, 0.8, torch.nan]]).log()
    found = truncated(torch.full((1, 4), 0.4).log(), sampled, 2.0)
    assert torch.allclose(found, torch.tensor([[0.8, 2.0, 0.5, 1.0]]))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("loss_type", TYPES)
@pytest.mark.parametrize("cap", [None, 1.5])
def test_gspo_cispo_and_tis_are_those_of_trl(
    level: Any, loss_type: Any, cap: float | None, tiny_model: Path, tmp_path: Path
) -> None:
    """In one micro-batch. For CISPO, TRL is told where a ratio is cut: our clip says how far above 1."""
    settings = {"loss_type": loss_type, "importance_sampling_level": level, "sampler_correction": cap}
    trainer = built(tiny_model, tmp_path, **settings)
    given = batch(trainer)
    off = torch.tensor([[0.5, 1.0, 2.0], [1.25, 1.0, 1.0]])  # probability in the trainer over the sampler's
    given["sampling_per_token_logps"] = given["old_per_token_logps"] - off.log()
    found = gradient(trainer, trainer.compute_loss(trainer.model, given))
    if cap is not None:
        trainer.use_vllm = trainer.vllm_importance_sampling_correction = True
        given["importance_sampling_ratio"] = off.clamp(max=cap)
    if loss_type == "cispo":
        trainer.epsilon_high = 1.3
    of_trl = gradient(trainer, GRPOTrainer._compute_loss(trainer, trainer.model, given))
    largest = max(float(value.abs().max()) for value in of_trl.values())
    assert largest > 0.01
    for name, value in found.items():
        assert torch.allclose(value, of_trl[name], rtol=0, atol=1e-5 * largest), name


HELD = [math.nan, math.inf, -math.inf, 1e10, -1e10, 300.0]
"""What padding may hold. Log-probabilities of real tokens are finite."""


def updated(
    given: dict[str, torch.Tensor], loss_type: Any, level: Any, *, delta: float | None, cap: float | None
) -> tuple[float, torch.Tensor]:
    """The loss, and its gradient by the policy's log-probabilities, as `compute_loss` puts it together."""
    logps, mask = given["logps"].clone().requires_grad_(), given["mask"]
    correction = 1.0 if cap is None else truncated(given["old"], given["sampled"], cap)
    weights = token_weights(mask, loss_type, tokens=mask.sum(), completions=2, longest=LONGEST)
    loss = grpo_loss(
        logps,
        ratios(logps, given["old"], mask, level),
        given["reference"],
        given["advantages"],
        weights,
        clip_low=0.2,
        clip_high=0.3,
        delta=delta,
        beta=0.5,
        capped=loss_type == "cispo",
        correction_B_T=correction,
    )
    loss.backward()
    assert logps.grad is not None
    return loss.item(), logps.grad


KINDS: list[Any] = [
    {"loss_type": loss_type, "level": level, "delta": delta, "cap": cap}
    for loss_type, level, delta, cap in product(TYPES, LEVELS, [None, 3.0], [None, 1.5])
]


@hypothesis.settings(max_examples=20)
@hypothesis.given(st.integers(0, 2**32), st.lists(st.sampled_from(HELD), min_size=37, max_size=37))
def test_padding_changes_neither_loss_nor_gradient_whatever_it_holds(seed: int, held: list[float]) -> None:
    """Of every kind of loss. The third completion counts nowhere, its advantage neither."""
    drawn = -torch.randn(5, 3, 3, generator=torch.Generator().manual_seed(seed)).abs()
    mask = torch.tensor([[1, 1, 1], [1, 1, 0], [0, 0, 0]])
    kept = dict(zip(("logps", "old", "reference", "sampled"), drawn, strict=False)) | {"mask": mask}
    padded = dict(kept)
    for name, values in zip(
        ("logps", "old", "reference", "sampled"), zip(*[iter(held)] * 9, strict=False), strict=False
    ):
        padded[name] = torch.where(mask.bool(), kept[name], torch.tensor(values).view(3, 3))
    kept["advantages"] = drawn[4, 0] * torch.tensor([1, -1, 0])
    padded["advantages"] = torch.tensor([*kept["advantages"][:2].tolist(), held[-1]])
    for kind in KINDS:
        loss, gradient = updated(kept, **kind)
        found, moved = updated(padded, **kind)
        assert math.isfinite(loss)
        assert found == loss, kind
        assert torch.equal(moved, gradient), kind
        assert gradient[mask == 1].all(), "every real token has one"


@pytest.mark.parametrize("advantage", [2.0, 0.0, -1.0])
@pytest.mark.parametrize("far", [300.0, -300.0])
@pytest.mark.parametrize("of", ["old", "reference", "sampled"])
def test_a_token_far_from_what_it_is_compared_with_leaves_loss_and_gradient_finite(
    advantage: float, far: float, of: str
) -> None:
    """Of every kind of loss. The policy finds it e^±300 times as likely: in float32 that is inf or 0."""
    logps = torch.tensor([[-301.0 if far < 0 else -1.0, -1.0]])
    given = {name: logps.clone() for name in ("logps", "old", "reference", "sampled")}
    given |= {"mask": torch.ones(1, 2), "advantages": torch.tensor([advantage])}
    given[of][0, 0] -= far
    for kind in KINDS:
        loss, gradient = updated(given, **kind)
        assert math.isfinite(loss), kind
        assert torch.isfinite(gradient).all(), kind


def test_a_log_ratio_counts_as_20_at_most_and_has_no_gradient_above() -> None:
    logps, old = torch.tensor([[19.0, 21.0, -300.0]], requires_grad=True), torch.zeros(1, 3)
    found = ratios(logps, old, torch.ones(1, 3))
    assert found[0].tolist() == pytest.approx([math.exp(19), math.exp(LARGEST), 0], rel=1e-6)
    [slope] = torch.autograd.grad(found.sum(), logps)
    assert slope[0].tolist() == pytest.approx([math.exp(19), 0, 0], rel=1e-6)
    apart = kl_to(old, -logps)
    assert apart[0].tolist() == pytest.approx([math.exp(19) - 20, math.exp(20) - 21, 299], rel=1e-6)


def test_every_case_of_the_list_of_faults_is_finite_and_right() -> None:
    """`faults/loss.jsonl` beside the project says each in words; this is what its words mean."""
    e = math.exp

    def one(logps: list[float], old: list[float], **more: Any) -> tuple[float, list[float]]:
        given = {"logps": torch.tensor([logps]), "old": torch.tensor([old]), "reference": None}
        given |= {"mask": torch.ones(1, len(logps)), "advantages": torch.tensor([1.0])} | more
        loss, slope = updated(given, "dapo", "token", delta=more.get("delta"), cap=None)
        return loss, slope[0].tolist()

    padded = {"mask": torch.tensor([[1, 1, 0]])}
    for held in (-1e10, 299.0, -math.inf, math.nan):
        loss, slope = one([-1.0, -1.0, held], [-1.0, -1.0, -1.0], **padded)
        assert (loss, slope) == (-1.0, [-0.5, -0.5, 0.0]), held
    loss, slope = one([-120.0, -1.0], [-120.0, -1.0], reference=torch.tensor([[-1.0, -1.0]]))
    assert loss == pytest.approx(-1 + 0.5 * (e(20) - 21) / 2)
    assert slope == [-0.5, -0.5], "the pull of the reference has no slope any more"
    for advantage, delta in product([1.0, 0.0, -1.0], [None, 4.0]):
        loss, slope = one([99.0, -1.0], [-1.0, -1.0], advantages=torch.tensor([advantage]), delta=delta)
        unbounded = e(20) if delta is None else delta
        ratio = 1.3 if advantage > 0 else unbounded
        assert loss == pytest.approx(-advantage * (ratio + 1) / 2), (advantage, delta)
        assert slope == [0, -advantage / 2]


def gradient(trainer: Any, loss: torch.Tensor) -> dict[str, torch.Tensor]:
    trainer.model.zero_grad()
    loss.backward()
    return {name: value.grad.clone() for name, value in trainer.model.named_parameters()}


@pytest.fixture(scope="module")
def experts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mixture of experts, whose balance is part of its loss."""
    folder = tmp_path_factory.mktemp("experts")
    torch.manual_seed(0)
    config = Qwen3MoeConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=32,
        intermediate_size=64,
        moe_intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_experts=4,
        num_experts_per_tok=2,
        router_aux_loss_coef=0.1,
    )
    Qwen3MoeForCausalLM(config).save_pretrained(folder)
    make_tiny_tokenizer().save_pretrained(folder)
    return folder


@pytest.mark.parametrize("beta", [0.5, 0.0])
@pytest.mark.parametrize("loss_type", ["dapo", "grpo", "dr_grpo"])
@pytest.mark.parametrize("model", ["tiny_model", "experts"])
def test_loss_gradient_and_metrics_are_those_of_trl(
    model: str, loss_type: str, beta: float, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Of a step in two micro-batches."""
    trainer = built(request.getfixturevalue(model), tmp_path, 2, loss_type=loss_type, beta=beta)
    given = batch(trainer)
    if not beta:
        del given["ref_per_token_logps"]  # there is no reference
    loss, gradient, metrics = loss_gradient_and_metrics(PhaseTrainer.compute_loss, trainer, given)
    loss_of_trl, gradient_of_trl, metrics_of_trl = loss_gradient_and_metrics(
        GRPOTrainer._compute_loss, trainer, given
    )
    assert loss == pytest.approx(loss_of_trl, abs=1e-6)
    assert metrics.pop(FIRST_KL, None) == metrics.get("kl"), "no weight has changed"
    assert metrics.keys() == metrics_of_trl.keys()
    for name, values in metrics.items():
        assert values == pytest.approx(metrics_of_trl[name], abs=1e-6), name
    assert metrics["clip_ratio/high_mean"] == pytest.approx([1 / 3, 0]), "1.5 where A > 0"
    assert metrics["clip_ratio/low_mean"] == pytest.approx([0, 1 / 2]), "0.5 where A < 0"
    assert ("aux_loss" in metrics, "kl" in metrics) == (model == "experts", beta > 0)
    largest = max(float(value.abs().max()) for value in gradient_of_trl.values())
    assert largest > 0.01
    for name, value in gradient.items():
        assert torch.allclose(value, gradient_of_trl[name], rtol=0, atol=1e-6), name


def loss_gradient_and_metrics(
    compute: Callable[..., torch.Tensor], trainer: Any, given: dict[str, torch.Tensor]
) -> tuple[float, dict[str, torch.Tensor], dict[str, list[float]]]:
    trainer.model.zero_grad()
    trainer._metrics["train"].clear()
    losses = [compute(trainer, trainer.model, row) for row in rows_of(given)]
    sum(losses, torch.zeros(())).backward()
    gradient = {name: value.grad.clone() for name, value in trainer.model.named_parameters()}
    return sum(loss.item() for loss in losses), gradient, dict(trainer._metrics["train"])
