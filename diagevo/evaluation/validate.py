"""Accuracy of a solver on labelled questions that training never sees: what a round is selected by."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from diagevo.evaluation.protocol import estimate
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
    baseline_temperatures: Sequence[float] = (),
    on_begin: Callable[[str, int], None] = lambda name, samples: None,
) -> dict[str, float]:
    """Ask every question `samples` times under `params`, and once greedily.

    Answers are read and judged as `diagevo eval` does, by the rule alone. Returns shares in [0, 1]:
    `mean_at_k` (mean over questions of the mean over samples), `greedy`, each with its standard error over
    questions (`…_se`), `no_box` (responses without a readable answer) and `truncated`. Also
    `mean_at_k_T0.5` and so on: the same samples drawn at the `baseline_temperatures`, because self-play
    partly sharpens the distribution and the base model at a lower temperature shows how much. Where questions
    are of categories, each score is given for each of them too: `greedy/tail`. `on_begin`: told what is
    measured next, and how many answers to a question that takes.
    """
    prompts = [templates.solver(question.text) for question in questions]

    def measured(name: str, n: int, how: SamplingParams) -> dict[str, float]:
        on_begin(name, n)
        groups = sampler.sample(prompts, n=n, params=how, seed=seed)
        answers = [
            [read_answer(question, completion.text) for completion in group]
            for question, group in zip(questions, groups, strict=True)
        ]
        right = right_by_rule(questions, answers, checker)
        scores = [sum(group) / n for group in right]
        of_all = estimate(scores)
        found = {name: of_all.value, f"{name}_se": of_all.standard_error}
        for category in dict.fromkeys(q.category for q in questions if q.category is not None):
            own = [score for q, score in zip(questions, scores, strict=True) if q.category == category]
            found[f"{name}/{category}"] = estimate(own).value
        if name == "mean_at_k":
            total = n * len(prompts)
            found["no_box"] = sum(answer is None for group in answers for answer in group) / total
            found["truncated"] = sum(each.truncated for group in groups for each in group) / total
        return found

    metrics = measured("mean_at_k", samples, params) | measured("greedy", 1, replace(params, temperature=0.0))
    for heat in baseline_temperatures:
        metrics |= measured(f"mean_at_k_T{heat:g}", samples, replace(params, temperature=heat))
    return metrics
