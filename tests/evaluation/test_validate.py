from dataclasses import replace

import pytest

from diagevo.evaluation.protocol import colder
from diagevo.evaluation.questions import Question
from diagevo.evaluation.validate import validate
from diagevo.sampling.sampler import SamplingParams

from .scripted import BarePrompts, SameText, ScriptedSampler

QUESTIONS = [Question("2+2?", "4", None, "answer"), Question("3+3?", "6", None, "answer")]


def half_right_when_sampled(message: str, sample: int, params: SamplingParams) -> str:
    """The first question is always right; the second is right greedily and for one sample of four."""
    if message == "2+2?":
        return r"so \boxed{4}"
    if params.temperature == 0:
        return r"so \boxed{6}"
    if params.temperature < 1:
        return r"\boxed{6}" if sample < 2 else r"\boxed{7}"
    return [r"\boxed{6}", r"\boxed{7}", "no idea", r"\boxed{8}"][sample]


def test_validation_gives_the_mean_over_samples_and_the_greedy_answer() -> None:
    sampler = ScriptedSampler(half_right_when_sampled)
    metrics = validate(
        sampler, BarePrompts(), QUESTIONS, SameText(), samples=4, params=SamplingParams(), seed=3
    )
    assert metrics["mean_at_k"] == 0.625  # (1 + 1/4) / 2
    assert metrics["mean_at_k_se"] == pytest.approx(0.375)  # scores 1 and 1/4
    assert metrics["greedy"] == 1.0
    assert metrics["greedy_se"] == 0.0
    assert metrics["no_box"] == 0.125  # one response of eight
    assert not colder(metrics)


def test_the_temperature_baselines_draw_the_same_samples_colder() -> None:
    metrics = validate(
        ScriptedSampler(half_right_when_sampled),
        BarePrompts(),
        QUESTIONS,
        SameText(),
        samples=4,
        params=SamplingParams(),
        seed=3,
        baseline_temperatures=(0.5, 0.77),
    )
    assert metrics["mean_at_k_T0.77"] == metrics["mean_at_k_T0.5"] == 0.75
    assert colder(metrics) == {"mean_at_k_T0.77": "T = 0.77", "mean_at_k_T0.5": "T = 0.5"}


def test_an_older_log_has_its_one_colder_draw_without_the_temperature_in_its_name() -> None:
    older = {"mean_at_k": 0.5, "mean_at_k_baseline": 0.62, "mean_at_k_baseline_se": 0.02}
    assert colder(older, {"baseline_temperature": 0.77}) == {"mean_at_k_baseline": "T = 0.77"}
    assert colder(older) == {"mean_at_k_baseline": "lower temperature"}


def test_scores_are_given_by_category_where_questions_are_of_some() -> None:
    """The first is always right, the second for one sample of four, and both greedily."""
    questions = [replace(q, category=name) for q, name in zip(QUESTIONS, ("head", "tail"), strict=True)]
    metrics = validate(
        ScriptedSampler(half_right_when_sampled),
        BarePrompts(),
        questions,
        SameText(),
        samples=4,
        params=SamplingParams(),
        seed=3,
    )
    assert (metrics["mean_at_k/head"], metrics["mean_at_k/tail"], metrics["mean_at_k"]) == (1.0, 0.25, 0.625)
    assert (metrics["greedy/head"], metrics["greedy/tail"]) == (1.0, 1.0)


def test_a_choice_is_read_as_a_letter_and_its_words_are_not_compared() -> None:
    question = Question("Which?\n\n(A) 4\n(B) 5", "B", "geometry", "choice", options=2)
    replies = {0: r"\boxed{B}", 1: "The answer is (B).", 2: r"\boxed{5}", 3: r"\boxed{A}"}
    metrics = validate(
        ScriptedSampler(lambda message, sample, params: replies[sample]),
        BarePrompts(),
        [question],
        SameText(),
        samples=4,
        params=SamplingParams(),
        seed=3,
    )
    assert metrics["mean_at_k"] == 0.5  # B twice; "5" is no letter, A is wrong
    assert metrics["no_box"] == 0.25
