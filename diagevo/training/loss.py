"""The loss of a policy's update: GRPO, a token at a time. Pure.

Shao et al., DeepSeekMath (arXiv:2402.03300), its objective and its KL estimator. The clip has different
upper and lower bounds, as in Yu et al., DAPO (arXiv:2503.14476); a ratio far above both is bounded too, the
dual clip of Ye et al. (arXiv:1912.09729). Tests compare it with TRL's own and with hand-worked values.

B
completions of a micro-batch, T tokens of the longest. Log-probabilities are those of the sampled tokens.
Masked positions may contain anything: they are replaced before the arithmetic, since 0 · inf is not 0,
neither in a sum nor in a gradient. `where(mask, loss, 0)` after it would leave the gradient NaN.
"""

from typing import Literal

import torch

LARGEST = 20.0
"""Of a log-ratio, before `exp`: a token that became e^20 (5e8) times as likely weighs no more, and has no
gradient. Whatever the settings clip, they do so far below."""


def ratios(
    logps_B_T: torch.Tensor,
    old_B_T: torch.Tensor,
    mask_B_T: torch.Tensor,
    level: Literal["token", "sequence"] = "token",
) -> torch.Tensor:
    """New probability over that of the policy that drew the tokens: of each token, or for each of a
    completion's the geometric mean over them (GSPO, Zheng et al., arXiv:2507.18071)."""
    # Padding becomes 0 before the subtraction: -inf less -inf is NaN, which no mask takes out again.
    apart_B_T = _counted(logps_B_T, mask_B_T) - _counted(old_B_T, mask_B_T)
    if level == "sequence":
        # A completion of padding alone has no token: without the clamp its 0/0 would make the whole step
        # NaN.
        lengths_B_1 = mask_B_T.sum(1, keepdim=True).clamp(min=1)
        apart_B_T = (apart_B_T.sum(1, keepdim=True) / lengths_B_1).expand_as(apart_B_T)
    # Only above: exp of something very negative is 0, which is the right ratio.
    return torch.exp(apart_B_T.clamp(max=LARGEST))


def grpo_loss(
    logps_B_T: torch.Tensor,
    ratio_B_T: torch.Tensor,
    reference_B_T: torch.Tensor | None,
    advantages_B: torch.Tensor,
    weights_B_T: torch.Tensor,
    *,
    clip_low: float,
    clip_high: float,
    delta: float | None,
    beta: float,
    capped: bool = False,
    correction_B_T: torch.Tensor | float = 1.0,
) -> torch.Tensor:
    """The minimized loss: minus the surrogate objective, plus `beta` times the KL to the reference.

    Args:
        logps_B_T: under the policy being trained; they and `ratio_B_T` have a gradient.
        ratio_B_T: `ratios` to the policy that drew the tokens.
        reference_B_T: under the frozen reference; None if there is no KL.
        advantages_B: a completion's reward, standardised in its group.
        weights_B_T: `token_weights`.
        clip_low, clip_high: how far a ratio may move from 1 in its favour.
        delta: where clipping does not bound it, the maximum of a ratio; None: unbounded.
        beta: weight of the KL.
        capped: a ratio is only a weight, at most 1 + `clip_high` (CISPO, arXiv:2506.13585).
        correction_B_T: `truncated`, for a sampler that differs slightly from the policy.
    """
    logps_B_T = _counted(logps_B_T, weights_B_T)
    ratio_B_T = _counted(ratio_B_T, weights_B_T)
    # A padded row's advantage may be NaN too, which a weight of 0 alone would not remove.
    advantages_B_1 = _counted(advantages_B, weights_B_T.any(1)).unsqueeze(1)
    if capped:
        # CISPO: detached, the ratio weighs the gradient of log π and has none, so that no token is dropped.
        loss_B_T = -ratio_B_T.clamp(max=1 + clip_high).detach() * advantages_B_1 * logps_B_T
    else:
        # PPO's pessimistic choice: the minimum drops the gradient where a ratio has left the range for its
        # gain, and keeps it where a step back is due.
        clipped_B_T = ratio_B_T.clamp(1 - clip_low, 1 + clip_high)
        # With A < 0 the minimum takes the ratio as it is, however large: delta alone bounds that side.
        bounded_B_T = ratio_B_T if delta is None else ratio_B_T.clamp(max=delta)
        loss_B_T = -torch.min(bounded_B_T * advantages_B_1, clipped_B_T * advantages_B_1)
    # Before the KL, which compares the policy to its reference and knows no sampler.
    loss_B_T = loss_B_T * correction_B_T
    if reference_B_T is not None:
        # The reference's padding is replaced like the policy's: both stand in an exponent.
        loss_B_T = loss_B_T + beta * kl_to(_counted(reference_B_T, weights_B_T), logps_B_T)
    return (loss_B_T * weights_B_T).sum()


def truncated(old_B_T: torch.Tensor, sampled_B_T: torch.Tensor, cap: float) -> torch.Tensor:
    """The policy's probability over the sampler's, at most `cap` (TIS, Yao et al. 2025); 1 if the sampler
    gave none."""
    # A token that the sampler gave no probability is NaN here: it counts as drawn by the policy itself.
    return torch.exp((old_B_T - sampled_B_T).nan_to_num(nan=0.0)).clamp(max=cap)


def kl_to(reference_B_T: torch.Tensor, logps_B_T: torch.Tensor) -> torch.Tensor:
    """Each token's estimate of the KL to the reference: π_ref/π − log(π_ref/π) − 1, never below 0."""
    # Schulman's k3: unbiased, and of less variance than log(π/π_ref), which is negative for half of the
    # tokens.
    difference_B_T = (reference_B_T - logps_B_T).clamp(max=LARGEST)
    return torch.exp(difference_B_T) - difference_B_T - 1


def token_weights(
    mask_B_T: torch.Tensor,
    loss_type: Literal["dapo", "grpo", "dr_grpo", "cispo"],
    *,
    tokens: torch.Tensor,
    completions: torch.Tensor | int,
    longest: int,
) -> torch.Tensor:
    """The weight of each token in an update of this many `tokens` and `completions` on all ranks; padding 0.

    dapo, cispo: every token the same. grpo: every completion the same, a token as a share of its own.
    dr_grpo (Liu et al., arXiv:2503.20783): a token as a share of the `longest` completion allowed.
    """
    match loss_type:
        case "dapo" | "cispo":
            return mask_B_T / tokens.clamp(min=1)
        case "grpo":
            return mask_B_T / (mask_B_T.sum(1, keepdim=True).clamp(min=1) * completions)
        case "dr_grpo":
            return mask_B_T / (longest * completions)


def clipped(
    ratio_B_T: torch.Tensor, advantages_B: torch.Tensor, *, clip_low: float, clip_high: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Whether a token has left the clip range for its gain: below with A < 0, above with A > 0."""
    advantages_B_1 = advantages_B.unsqueeze(1)
    low_B_T = (ratio_B_T < 1 - clip_low) & (advantages_B_1 < 0)
    high_B_T = (ratio_B_T > 1 + clip_high) & (advantages_B_1 > 0)
    return low_B_T, high_B_T


def _counted(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """0 at masked positions, without a gradient there whatever their values."""
    return torch.where(mask.bool(), values, 0)
