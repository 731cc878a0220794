import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from diagevo.answers.equivalence import AnswerChecker
from diagevo.errors import ConfigError, StoppedSafely
from diagevo.evaluation.answer_scoring import compare, different_conditions
from diagevo.evaluation.benchmarks import Benchmark, Loaded, Question, benchmark
from diagevo.evaluation.evaluate import EvaluatedModel, Procedure, Subject, evaluate
from diagevo.evaluation.question_files import load
from diagevo.evaluation.store import Evaluation, EvaluationStore
from diagevo.memory.log.database import Database
from diagevo.memory.log.migrate import prepare
from diagevo.sampling.sampler import Completion, Prompt, SamplingParams
from diagevo.selfplay.questions import PromptTemplates

from .scripted import ScriptedSampler

DATA = Path(__file__).parents[2] / "../shared/data"
TEMPLATES = PromptTemplates.load()
GREEDY = Procedure(1, SamplingParams(temperature=0.0, max_new_tokens=64), seed=0, batch=2)
ENTRY = Benchmark("sums", "Sums", "mathematics", (), 5, judged=True)


@pytest.fixture(scope="module")
def checker() -> Iterator[AnswerChecker]:
    with AnswerChecker(workers=1) as checker:
        yield checker


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EvaluationStore]:
    database = Database(str(tmp_path / "a.db"))
    prepare(database, create=True)
    yield EvaluationStore(database)
    database.close()


def sums(n: int = 5) -> Loaded:
    return Loaded(
        ENTRY, tuple(Question(f"{i} + {i}?", str(2 * i), "even", "answer") for i in range(n)), "here"
    )


def adds(message: str, sample: int, params: SamplingParams) -> str:
    return rf"\boxed{{{2 * int(message.split()[0])}}}"


Ask = Callable[..., Evaluation]


@pytest.fixture
def ask(store: EvaluationStore, checker: AnswerChecker) -> Ask:
    """An evaluation of five sums, greedily, where nothing else is said."""

    def asked(sampler: Any, loaded: Loaded | None = None, *, name: str = "adder", **said: Any) -> Evaluation:
        given: Any = {"procedure": GREEDY, "store": store, **said}
        model = EvaluatedModel(sampler, TEMPLATES, Subject(name, "1"), 1.0, 16)
        return evaluate(model=model, loaded=loaded or sums(), checker=checker, **given)

    return asked


def test_every_question_is_kept_with_its_prompt_response_extraction_and_verdict(
    ask: Ask, store: EvaluationStore
) -> None:
    wrong_at_three = ScriptedSampler(lambda m, i, p: r"\boxed{7}" if m.startswith("3") else adds(m, i, p))
    done = ask(wrong_at_three)
    assert done.metrics is not None
    assert done.metrics["score"] == 0.8
    assert done.metrics["score_se"] == pytest.approx(0.2)  # one of five: sqrt(0.2 / 5)
    third = store.results(done.evaluation_id)[3]
    assert third.prompt[-1] == {"role": "user", "content": "3 + 3?"}
    assert (third.responses, third.extracted, third.by_rule) == ([r"\boxed{7}"], ["7"], [False])
    assert (third.reference, third.correct, third.judge) == ("6", [False], None)
    assert done.conditions["temperature"] == 0.0
    assert done.conditions["data"] == sums().digest


def test_an_evaluation_that_is_asked_to_stop_goes_on_without_asking_twice(ask: Ask) -> None:
    sampler = ScriptedSampler(adds)

    def stop() -> bool:
        return len(sampler.asked) >= 2

    with pytest.raises(StoppedSafely, match="2 of 5 questions are answered"):
        ask(sampler, should_stop=stop)
    assert len(sampler.asked) == 2
    for _ in range(2):
        assert ask(sampler).metrics is not None
        assert sorted(sampler.asked) == [f"{i} + {i}?" for i in range(5)]


@pytest.mark.parametrize("served", [False, True])
def test_an_evaluation_whose_sampler_breaks_off_keeps_what_was_answered_and_asks_for_the_rest(
    ask: Ask, served: bool
) -> None:
    class BrokenOff(ScriptedSampler):
        def sample(self, prompts: Sequence[Prompt], **how: Any) -> list[list[Completion]]:
            if len(self.asked) == 3:
                raise StoppedSafely("stopped in sampling, as asked")
            return super().sample(prompts, **how)

    one = Procedure(1, SamplingParams(temperature=0.0), batch=1, served=served)
    broken, rest = BrokenOff(adds), ScriptedSampler(adds)
    with pytest.raises(StoppedSafely, match="3 of 5 questions are answered") as stopped:
        ask(broken, procedure=one)
    assert stopped.value.hint == "run the same command again to continue"
    done = ask(rest, procedure=one)
    assert done.metrics is not None
    assert (len(broken.asked), rest.asked) == (3, ["3 + 3?", "4 + 4?"])


def test_a_killed_evaluation_ends_as_an_uninterrupted_one(
    ask: Ask, store: EvaluationStore, tmp_path: Path
) -> None:
    """The draw of a batch depends on its place alone, so that what was lost in between changes nothing."""

    class Seeded:
        def __init__(self, dies_after: int | None = None) -> None:
            self.left = dies_after

        def sample(
            self, prompts: Sequence[Prompt], *, n: int, params: SamplingParams, seed: int
        ) -> list[list[Completion]]:
            if self.left == 0:
                raise KeyboardInterrupt
            if self.left is not None:
                self.left -= 1
            return [[Completion(rf"\boxed{{{seed + j}}}", 3, False) for j in range(n)] for _ in prompts]

        def close(self) -> None:
            pass

    four = Procedure(4, SamplingParams(), seed=2, batch=2)
    with pytest.raises(KeyboardInterrupt):
        ask(Seeded(1), procedure=four)
    resumed = ask(Seeded(), procedure=four)
    other = Database(str(tmp_path / "whole.db"))
    prepare(other, create=True)
    whole = ask(Seeded(), store=EvaluationStore(other), procedure=four)
    assert resumed.evaluation_id == whole.evaluation_id
    assert store.results(resumed.evaluation_id) == EvaluationStore(other).results(whole.evaluation_id)
    other.close()


def test_mean_at_k_and_the_majority_come_from_samples_that_were_drawn(ask: Ask) -> None:
    answers = {
        "0": "0 0 0 0",
        "1": "2 2 3 9",
        "2": "5 5 4 4",
    }  # scores 1, 1/2, 1/2; majority right, right, wrong
    sampler = ScriptedSampler(lambda m, i, p: rf"\boxed{{{answers[m[0]].split()[i]}}}")
    four = Procedure(4, SamplingParams(), batch=8)
    done = ask(sampler, sums(3), procedure=four)
    assert done.metrics is not None
    assert done.metrics["score"] == pytest.approx(2 / 3)
    assert done.metrics["majority"] == pytest.approx(2 / 3)


def words(message: str, sample: int, params: SamplingParams) -> str:
    return [r"\boxed{0}", r"\boxed{three}", r"\boxed{seven}", "none", r"\boxed{8}"][int(message[0])]


def test_a_comparison_is_paired_and_names_the_conditions_that_differ(
    ask: Ask, store: EvaluationStore
) -> None:
    good = ask(ScriptedSampler(adds), name="good")
    poor = ask(ScriptedSampler(words), name="poor")
    result = compare(store, poor, good, 0.95)
    assert (result.first, result.second, result.difference) == (0.4, 1.0, 0.6)
    assert (result.better, result.worse, result.questions) == (3, 0, 5)
    assert different_conditions(poor, good) == {"model": ("poor", "good")}
    other = ask(ScriptedSampler(adds), sums(4))
    with pytest.raises(ConfigError, match="same questions"):
        compare(store, good, other, 0.95)


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason="the benchmark files of ../shared/data are not here")
@pytest.mark.parametrize(
    ("name", "column", "most_by_chance"), [("gsm8k", "answer", 15), ("math500", "solution", 3)]
)
def test_reference_solutions_score_all_and_another_questions_next_to_none(
    ask: Ask, name: str, column: str, most_by_chance: int
) -> None:
    """Two questions in a row may share an answer: 15 of GSM8K's 1,319 and 3 of MATH-500's do."""
    rows = [json.loads(line) for line in (DATA / f"{name}_test.jsonl").read_text().splitlines()]
    loaded = load(benchmark(name), [DATA])
    solutions = [row[column] for row in rows]
    if name == "gsm8k":  # GSM8K marks its answers with ####, not with a box
        solutions = [
            s.rsplit("####", 1)[0] + rf"\boxed{{{s.rsplit('####', 1)[1].strip()}}}" for s in solutions
        ]
    texts = [question.text for question in loaded.questions]
    by_text = dict(zip(texts, solutions, strict=True))
    moved = dict(zip(texts, [*solutions[1:], solutions[0]], strict=True))
    procedure = Procedure(1, SamplingParams(temperature=0.0), batch=256)
    own = ask(
        ScriptedSampler(lambda m, i, p: by_text[m]), loaded, name="reference solutions", procedure=procedure
    )
    other = ask(
        ScriptedSampler(lambda m, i, p: moved[m]), loaded, name="another question's", procedure=procedure
    )
    assert own.metrics is not None
    assert other.metrics is not None
    assert own.metrics["score"] == 1.0
    assert other.metrics["score"] * len(texts) <= most_by_chance + 1e-9
