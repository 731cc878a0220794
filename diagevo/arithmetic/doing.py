"""How the solver does a question in the corpus: correctly, except for misconceptions and a few random
slips."""

from collections.abc import Sequence
from random import Random

from diagevo.arithmetic.grammar import FAMILIES, JOIN, Part, Step, outcome, right_step
from diagevo.arithmetic.misconceptions import misconception
from diagevo.arithmetic.slips import RATES, offers, step_kinds

RANDOM_SLIPS = 0.1
"""Scale of the random slips: noise, which a lower temperature would cure everywhere."""


def _maybe_slip(rng: Random, family: str, name: str, right: Step, scale: float, last: bool) -> Step | None:
    """The step as done: mostly right, sometimes wrong, None if left out."""
    held = misconception(family, name, right)
    if held is not None and rng.random() < held[1] * scale:
        return held[0]
    chance = rng.random()
    for kind in step_kinds(family, name):
        if kind.type == "count" and right.op == "+" and not last:
            continue  # a jump too few is the last one missing
        chance -= RATES[kind] * scale * RANDOM_SLIPS
        if chance < 0:
            wrong = offers(kind, right)
            return rng.choice(wrong) if wrong else right
    return right


def do(rng: Random, part: Part, scale: float) -> list[Step]:
    """A part's procedure done with mistakes at `scale` times their probabilities; later steps use the
    results."""
    results: list[int] = []
    steps: list[Step] = []
    instructions = FAMILIES[part.family].procedure(part.numbers)
    for place, instruction in enumerate(instructions):
        right = right_step(instruction, part.numbers, results)
        done = _maybe_slip(rng, part.family, instruction.name, right, scale, place == len(instructions) - 1)
        if done is None:
            if part.family == "jumps" and rng.random() < 0.5:
                steps += [right, Step(right.result, "+", right.right, right.result + right.right)]
            break
        steps.append(done)
        results.append(done.result)
    return steps


def do_all(rng: Random, parts: Sequence[Part], scale: float) -> tuple[list[Step], int]:
    """A question of one or two parts done with mistakes: the steps and the answer."""
    done = [do(rng, part, scale) for part in parts]
    answers = [outcome(part, steps) for part, steps in zip(parts, done, strict=True)]
    steps = [step for part_steps in done for step in part_steps]
    if len(parts) == 1:
        return steps, answers[0]
    right = Step(answers[0], "+", answers[1], sum(answers))
    total = _maybe_slip(rng, JOIN, "total", right, scale, last=True)
    if total is None:
        return steps, answers[1]
    return [*steps, total], total.result
