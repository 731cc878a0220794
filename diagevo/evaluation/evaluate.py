"""Measures a model on a benchmark: concurrently, resumable by question, with every answer and verdict
stored. `validate` measures it, after a round, on labelled questions that training never sees."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any, Protocol

from diagevo.answers.equivalence import AnswerChecker
from diagevo.errors import ConfigError, StoppedSafely
from diagevo.evaluation.answer_scoring import Checker, figures, for_the_judge, read_answer, right_by_rule
from diagevo.evaluation.benchmarks import Loaded, Question
from diagevo.evaluation.judge import Case, Judge, as_answered
from diagevo.evaluation.protocol import AT_BEST, at_best_temperature, estimate
from diagevo.evaluation.store import Answered, Evaluation, EvaluationStore
from diagevo.sampling.sampler import Completion, Prompt, Sampler, SamplingParams
from diagevo.selfplay.questions import PromptTemplates


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured: a model, and the run and round of its checkpoint, if it is one."""

    model: str
    revision: str
    """Digest of the weights, or the server's name of its model."""
    run_id: str | None = None
    round: int | None = None


@dataclass(frozen=True, slots=True)
class EvaluatedModel:
    """A model ready to be evaluated, with its prompts and limits."""

    sampler: Sampler
    templates: PromptTemplates
    subject: Subject
    top_p: float
    max_new_tokens: int
    served: bool = False
    """Whether it is served: the server takes questions one by one and batches them itself."""


@dataclass(frozen=True, slots=True)
class Procedure:
    """How a benchmark is run, `batch` questions at once.

    `served`: the model is behind an endpoint, so each question is a separate request with its own seed,
    stored as soon as it is answered. Otherwise a batch goes to the model in one call and is stored together,
    and a sample depends on its batch.
    """

    samples: int
    params: SamplingParams
    seed: int = 0
    batch: int = 64
    served: bool = False


def procedure_of(
    loaded: Loaded,
    model: EvaluatedModel,
    *,
    seed: int,
    batch: int,
    samples: int | None = None,
    temperature: float | None = None,
) -> Procedure:
    """The protocol's procedure, one greedy answer (AMC: 32 samples at T = 1), unless samples or temperature
    are given. Raises ConfigError for several greedy samples: they would be one answer counted several times.
    """
    entry = loaded.benchmark
    n = entry.samples if samples is None else samples
    heat = entry.temperature if temperature is None else temperature
    if n > 1 and heat == 0:
        raise ConfigError(
            f"{n} greedy samples are one answer repeated", hint="give a temperature above 0: --temperature 1"
        )
    params = SamplingParams(heat, model.top_p, model.max_new_tokens)
    return Procedure(n, params, seed, batch, model.served)


def conditions_of(
    loaded: Loaded, model: EvaluatedModel, procedure: Procedure, judge: Judge | None
) -> dict[str, Any]:
    """Everything that the result depends on: the evaluation's id is its digest."""
    params, subject = procedure.params, model.subject
    return {
        "benchmark": loaded.benchmark.name,
        "metric": f"mean@{procedure.samples}" if procedure.samples > 1 else "accuracy",
        "source": loaded.source,
        "data": loaded.digest,
        "questions": len(loaded.questions),
        "whole": len(loaded.questions) == loaded.benchmark.questions,
        "samples": procedure.samples,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "max_new_tokens": params.max_new_tokens,
        "seed": procedure.seed,
        "batch": None if procedure.served else procedure.batch,
        "prompts": {name: model.templates.digest(name) for name in ("solver_system", "solver_user")},
        "judge": None if judge is None else judge.conditions,
        "model": subject.model,
        "revision": subject.revision,
        "run": subject.run_id,
        "round": subject.round,
        "version": version("diagevo"),
    }


def evaluate(
    store: EvaluationStore,
    model: EvaluatedModel,
    loaded: Loaded,
    checker: AnswerChecker,
    procedure: Procedure,
    *,
    judge: Judge | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Evaluation:
    """Ask unanswered questions, judge unjudged answers, and summarize. A finished evaluation is only read.

    Raises StoppedSafely once `should_stop`, after storing open requests; the same call continues from there.
    """
    conditions = conditions_of(loaded, model, procedure, judge)
    key = store.begin(conditions)
    if store.find(key).metrics is not None:
        return store.find(key)
    done, total = store.answered(key), len(loaded.questions)
    on_progress(len(done), total)
    prompts = {
        number: model.templates.solver(question.text)
        for number, question in enumerate(loaded.questions)
        if number not in done
    }
    responses = (
        _each(model.sampler, prompts, procedure, should_stop)
        if procedure.served
        else _batches(model.sampler, prompts, procedure, should_stop)
    )
    with _reporting_progress(lambda: f"{len(done)} of {total} questions are answered"):
        for groups in responses:
            asked = {number: loaded.questions[number] for number in groups}
            store.save(key, _read(asked, prompts, groups, checker))
            done.update(groups)
            on_progress(len(done), total)
        _stop_if(should_stop)
    texts = [question.text for question in loaded.questions]
    waiting = store.unsettled(key)
    with _reporting_progress(
        lambda: f"{len(store.unsettled(key))} of {total} questions wait for their verdict"
    ):
        for start in range(0, len(waiting), procedure.batch):
            if start:
                _stop_if(should_stop)
            store.settle(key, settled(waiting[start : start + procedure.batch], texts, judge))
    store.finish(key, figures(store.results(key), checker))
    return store.find(key)


def _stop_if(should_stop: Callable[[], bool]) -> None:
    if should_stop():
        raise StoppedSafely("stopped")


@contextmanager
def _reporting_progress(stands: Callable[[], str]) -> Iterator[None]:
    """Wraps work that may be stopped, here or in a sampler, and reports its progress then."""
    try:
        yield
    except StoppedSafely as stop:
        raise StoppedSafely(f"stopped: {stands()}", hint="run the same command again to continue") from stop


Groups = dict[int, list[Completion]]


def _each(
    sampler: Sampler, prompts: dict[int, Prompt], procedure: Procedure, should_stop: Callable[[], bool]
) -> Iterator[Groups]:
    """Every question separately; its number seeds its sampling."""
    asks = {number: (prompt, _seed(procedure, number)) for number, prompt in prompts.items()}
    return as_answered(
        sampler,
        asks,
        n=procedure.samples,
        params=procedure.params,
        at_once=procedure.batch,
        should_stop=should_stop,
    )


def _batches(
    sampler: Sampler, prompts: dict[int, Prompt], procedure: Procedure, should_stop: Callable[[], bool]
) -> Iterator[Groups]:
    """Fixed batches of the whole set, skipping answered ones; the batch's position seeds its sampling."""
    for start in sorted({number - number % procedure.batch for number in prompts}):
        if should_stop():
            return
        numbers = [n for n in range(start, start + procedure.batch) if n in prompts]
        found = sampler.sample(
            [prompts[n] for n in numbers],
            n=procedure.samples,
            params=procedure.params,
            seed=_seed(procedure, start),
        )
        yield dict(zip(numbers, found, strict=True))


def _seed(procedure: Procedure, place: int) -> int:
    return procedure.seed * 1_000_003 + place


def _read(
    questions: dict[int, Question], prompts: dict[int, Prompt], groups: Groups, checker: AnswerChecker
) -> list[Answered]:
    """Responses with their answers and the rule's verdicts."""
    numbers = sorted(groups)
    asked = [questions[number] for number in numbers]
    extracted = [[read_answer(questions[n], c.text) for c in groups[n]] for n in numbers]
    right = right_by_rule(asked, extracted, checker)
    return [
        Answered(
            question=number,
            category=question.category,
            kind=question.kind,
            prompt=[dict(message) for message in prompts[number]],  # pyright: ignore[reportArgumentType]
            reference=question.reference,
            responses=[c.text for c in groups[number]],
            truncated=[c.truncated for c in groups[number]],
            extracted=answers,
            by_rule=verdicts,
        )
        for number, question, answers, verdicts in zip(numbers, asked, extracted, right, strict=True)
    ]


def settled(results: Sequence[Answered], texts: Sequence[str], judge: Judge | None) -> list[Answered]:
    """The verdicts, with the judge's on mathematical answers that the rule rejected."""
    places = [] if judge is None else [(result, i) for result in results for i in for_the_judge(result)]
    verdicts: dict[tuple[int, int], bool | None] = {}
    if judge is not None and places:
        cases = [Case(texts[r.question], r.reference, r.extracted[i] or "") for r, i in places]
        verdicts = {(r.question, i): s for (r, i), s in zip(places, judge.equivalent(cases), strict=True)}
    finished = []
    for result in results:
        judged = [verdicts.get((result.question, i)) for i in range(len(result.by_rule))]
        correct = [rule or verdict is True for rule, verdict in zip(result.by_rule, judged, strict=True)]
        finished.append(
            replace(
                result,
                judged=judged,
                judge=None if judge is None else judge.model,
                correct=correct,
                score=sum(correct) / len(correct),
            )
        )
    return finished


class SolverPrompts(Protocol):
    """The part of the prompt templates for the solver."""

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
    temperatures: Sequence[float] = (),
    on_begin: Callable[[str, int], None] = lambda name, samples: None,
) -> dict[str, float]:
    """Ask every question `samples` times under `params`, and once greedily.

    Answers are read and judged as in `diagevo eval`, by the rule alone. Returns shares in [0, 1]:
    `mean_at_k` (mean over questions of the mean over samples), `greedy`, each with its standard error over
    questions (`…_se`), `no_box` (responses without a readable answer) and `truncated`. Also
    `mean_at_k_T0.5` and so on: the same samples drawn at the lower `temperatures`, because self-play partly
    sharpens the distribution, and `mean_at_k_best`, the mean at the best of them (`at_best_temperature`). If
    questions have categories, each score is also given per category: `greedy/tail`. `on_begin`: called with
    the next measurement and its number of answers per question.
    """
    prompts = [templates.solver(question.text) for question in questions]
    scores_by_heat: dict[float, list[float]] = {}

    def summed(name: str, scores: Sequence[float]) -> dict[str, float]:
        of_all = estimate(scores)
        found = {name: of_all.value, f"{name}_se": of_all.standard_error}
        for category in dict.fromkeys(q.category for q in questions if q.category is not None):
            own = [score for q, score in zip(questions, scores, strict=True) if q.category == category]
            found[f"{name}/{category}"] = estimate(own).value
        return found

    def measured(name: str, n: int, how: SamplingParams) -> dict[str, float]:
        on_begin(name, n)
        groups = sampler.sample(prompts, n=n, params=how, seed=seed)
        answers = [
            [read_answer(question, completion.text) for completion in group]
            for question, group in zip(questions, groups, strict=True)
        ]
        right = right_by_rule(questions, answers, checker)
        scores = [sum(group) / n for group in right]
        scores_by_heat[how.temperature] = scores
        found = summed(name, scores)
        if name == "mean_at_k":
            total = n * len(prompts)
            found["no_box"] = sum(answer is None for group in answers for answer in group) / total
            found["truncated"] = sum(each.truncated for group in groups for each in group) / total
        return found

    metrics = measured("mean_at_k", samples, params)
    for heat in temperatures:
        metrics |= measured(f"mean_at_k_T{heat:g}", samples, replace(params, temperature=heat))
    if temperatures:
        metrics |= summed(AT_BEST, at_best_temperature(scores_by_heat))
    return metrics | measured("greedy", 1, replace(params, temperature=0.0))
