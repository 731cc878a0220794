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
