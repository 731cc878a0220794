"""Advantages that compare a completion with those of the same kind of task in its step. Pure, no torch."""

import math
from collections.abc import Sequence


def whitened(rewards: Sequence[float], tokens: Sequence[int], parts: Sequence[str]) -> list[float]:
    """REINFORCE++'s advantage, whitened within each part of a step, as in Absolute Zero's trainer.

    A reward applies to every token of its completion, so that mean and variance weigh completions by their
    tokens: (r − mean) / √(var + 1e-8), with Bessel's correction over the tokens.

    Args:
        rewards: (B,) of the completions of a step.
        tokens: (B,) token counts.
        parts: (B,) the comparison group of each.

    Returns:
        (B,) advantages; 0 in a part with at most one token.
    """
    advantages = [0.0] * len(rewards)
    for part in dict.fromkeys(parts):
        places = [place for place, name in enumerate(parts) if name == part]
        total = sum(tokens[place] for place in places)
        if total < 2:
            continue
        mean = math.fsum(rewards[place] * tokens[place] for place in places) / total
        squares = math.fsum((rewards[place] - mean) ** 2 * tokens[place] for place in places)
        scale = math.sqrt(squares / (total - 1) + 1e-8)
        for place in places:
            advantages[place] = (rewards[place] - mean) / scale
    return advantages
