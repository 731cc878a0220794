"""Accuracy of a solver on labelled questions that training never sees: what a round is selected by."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from diagevo.evaluation.protocol import Estimate, estimate
from diagevo.evaluation.questions import Question
from diagevo.evaluation.reading import Checker, read_answer, right_by_rule
from diagevo.sampling.sampler import Prompt, Sampler, SamplingParams


class SolverPrompts(Protocol):
    """The part of the prompt templates that asks the solver."""

    def solver(self, question: str) -> Prompt: ...


def validate(
    sampler: Sampler,
    templates: SolverPrompts,
    questions: Sequence[Question],
    checker: Checker,
    *,
    samples: int,
    params: SamplingParams,
    seed: int,
    baseline_temperature: float | None = None,
) -> dict[str, float]:
    """Ask every question `samples` times under `params`, and once greedily.

    Answers are read and judged as `diagevo eval` does, by the rule alone. Returns shares in [0, 1]:
    `mean_at_k` (mean over questions of the mean over samples), `greedy`, each with its standard error over
    questions (`…_se`), `no_box` (responses without a readable answer) and `truncated`. With
    `baseline_temperature`, also `mean_at_k_baseline`: the same samples drawn at that temperature, because
    self-play partly sharpens the distribution and a colder draw of the untouched model shows how much.
    """
    prompts = [templates.solver(question.text) for question in questions]

    def measured(n: int, how: SamplingParams) -> tuple[Estimate, float, float]:
        groups = sampler.sample(prompts, n=n, params=how, seed=seed)
        answers = [
            [read_answer(question, completion.text) for completion in group]
            for question, group in zip(questions, groups, strict=True)
        ]
        right = right_by_rule(questions, answers, checker)
        total = n * len(prompts)
        no_box = sum(answer is None for group in answers for answer in group) / total
        truncated = sum(completion.truncated for group in groups for completion in group) / total
        return estimate([sum(group) / n for group in right]), no_box, truncated

    mean, no_box, truncated = measured(samples, params)
    greedy, _, _ = measured(1, replace(params, temperature=0.0))
    metrics = {
        "mean_at_k": mean.value,
        "mean_at_k_se": mean.standard_error,
        "greedy": greedy.value,
        "greedy_se": greedy.standard_error,
        "no_box": no_box,
        "truncated": truncated,
    }
    if baseline_temperature is not None:
        colder, _, _ = measured(samples, replace(params, temperature=baseline_temperature))
        metrics |= {"mean_at_k_baseline": colder.value, "mean_at_k_baseline_se": colder.standard_error}
    return metrics
