"""Measure a model on a benchmark: batched, resumable by question, every answer and verdict kept."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any

from diagevo.errors import ConfigError, StoppedSafely
from diagevo.evaluation.judge import Case, Judge
from diagevo.evaluation.protocol import Estimate, PairedDifference, estimate, paired_difference
from diagevo.evaluation.questions import Loaded, Question
from diagevo.evaluation.reading import read_answer, right_by_rule
from diagevo.evaluation.store import Answered, Evaluation, EvaluationStore
from diagevo.sampling.sampler import Sampler, SamplingParams
from diagevo.selfplay.equivalence import AnswerChecker
from diagevo.selfplay.questions import PromptTemplates


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured: a model, and the run and round whose checkpoint it is, where it is one."""

    model: str
    revision: str
    """Digest of the weights, or what the server calls its model."""
    run_id: str | None = None
    round: int | None = None


@dataclass(frozen=True, slots=True)
class Procedure:
    """How a benchmark is asked. `batch` belongs to it: the draw of a sample depends on its batch."""

    samples: int
    params: SamplingParams
    seed: int = 0
    batch: int = 64


def procedure_of(
    loaded: Loaded,
    *,
    top_p: float,
    max_new_tokens: int,
    seed: int,
    batch: int,
    samples: int | None = None,
    temperature: float | None = None,
) -> Procedure:
    """The protocol's, greedy once and AMC by 32 samples at T = 1, unless samples or temperature are given.

    Raises ConfigError for several greedy samples: they would be one answer counted several times.
    """
    entry = loaded.benchmark
    n = entry.samples if samples is None else samples
    heat = entry.temperature if temperature is None else temperature
    if n > 1 and heat == 0:
        raise ConfigError(
            f"{n} greedy samples are one answer repeated", hint="give a temperature above 0: --temperature 1"
        )
    return Procedure(n, SamplingParams(heat, top_p, max_new_tokens), seed=seed, batch=batch)


def conditions_of(
    loaded: Loaded, subject: Subject, procedure: Procedure, templates: PromptTemplates, judge: Judge | None
) -> dict[str, Any]:
    """Everything that the result depends on: the id of the evaluation is a digest of it."""
    params = procedure.params
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
        "batch": procedure.batch,
        "prompts": {name: templates.digest(name) for name in ("solver_system", "solver_user")},
        "judge": None if judge is None else {"model": judge.name, "prompt": judge.prompt_digest},
        "model": subject.model,
        "revision": subject.revision,
        "run": subject.run_id,
        "round": subject.round,
        "version": version("diagevo"),
    }


def evaluate(
    store: EvaluationStore,
    sampler: Sampler,
    loaded: Loaded,
    templates: PromptTemplates,
    checker: AnswerChecker,
    *,
    subject: Subject,
    procedure: Procedure,
    judge: Judge | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Evaluation:
    """Ask what is not answered yet, judge what is not judged yet, and sum up. A finished one is only read.

    Raises StoppedSafely between two batches once `should_stop`; the same call goes on from there.
    """
    conditions = conditions_of(loaded, subject, procedure, templates, judge)
    key = store.begin(
        conditions,
        benchmark=loaded.benchmark.name,
        model=subject.model,
        questions=len(loaded.questions),
        run_id=subject.run_id,
        round=subject.round,
    )
    if store.find(key).metrics is not None:
        return store.find(key)
    done = store.answered(key)
    total = len(loaded.questions)
    on_progress(len(done), total)
    for start in range(0, total, procedure.batch):
        numbers = [n for n in range(start, min(start + procedure.batch, total)) if n not in done]
        if not numbers:
            continue
        if should_stop():
            raise StoppedSafely(
                f"stopped after {len(done)} of {total} questions", hint="give the same command again to go on"
            )
        asked = [loaded.questions[n] for n in numbers]
        store.save(key, _ask(sampler, templates, checker, asked, numbers, procedure, start))
        done.update(numbers)
        on_progress(len(done), total)
    texts = [question.text for question in loaded.questions]
    waiting = store.unsettled(key)
    for start in range(0, len(waiting), procedure.batch):
        store.settle(key, settled(waiting[start : start + procedure.batch], texts, judge))
    results = store.results(key)
    store.finish(key, figures(results, checker))
    return store.find(key)


def _ask(
    sampler: Sampler,
    templates: PromptTemplates,
    checker: AnswerChecker,
    questions: Sequence[Question],
    numbers: Sequence[int],
    procedure: Procedure,
    start: int,
) -> list[Answered]:
    """Responses to one batch and the rule's verdicts. The batch's place seeds its draw."""
    prompts = [templates.solver(question.text) for question in questions]
    groups = sampler.sample(
        prompts, n=procedure.samples, params=procedure.params, seed=procedure.seed * 1_000_003 + start
    )
    extracted = [[read_answer(q, c.text) for c in group] for q, group in zip(questions, groups, strict=True)]
    right = right_by_rule(questions, extracted, checker)
    return [
        Answered(
            question=number,
            category=question.category,
            kind=question.kind,
            prompt=[dict(message) for message in prompt],  # pyright: ignore[reportArgumentType]
            reference=question.reference,
            responses=[c.text for c in group],
            truncated=[c.truncated for c in group],
            extracted=answers,
            by_rule=verdicts,
        )
        for number, question, prompt, group, answers, verdicts in zip(
            numbers, questions, prompts, groups, extracted, right, strict=True
        )
    ]


def settled(results: Sequence[Answered], texts: Sequence[str], judge: Judge | None) -> list[Answered]:
    """The verdicts, with the judge's word on what the rule refused: mathematical answers that were given."""

    def asks(result: Answered, i: int) -> bool:
        return (
            judge is not None
            and result.kind == "answer"
            and not result.by_rule[i]
            and bool(result.extracted[i])
        )

    places = [(result, i) for result in results for i in range(len(result.by_rule)) if asks(result, i)]
    said: dict[tuple[int, int], bool | None] = {}
    if judge is not None and places:
        cases = [Case(texts[r.question], r.reference, r.extracted[i] or "") for r, i in places]
        said = {(r.question, i): s for (r, i), s in zip(places, judge.same(cases), strict=True)}
    finished = []
    for result in results:
        judged = [said.get((result.question, i)) for i in range(len(result.by_rule))]
        correct = [rule or verdict is True for rule, verdict in zip(result.by_rule, judged, strict=True)]
        finished.append(
            replace(
                result,
                judged=judged,
                judge=None if judge is None else judge.name,
                correct=correct,
                score=sum(correct) / len(correct),
            )
        )
    return finished


def figures(results: Sequence[Answered], checker: AnswerChecker | None = None) -> dict[str, float]:
    """Shares in [0, 1] over the settled questions.

    `score` with its standard error over questions; `by_rule` without the judge; `judge_changed`, the share of
    responses that the judge turned; `no_answer` and `truncated` responses; with several samples also
    `majority`, the accuracy of the majority answer (what a pseudo-label is).
    """
    score = estimate([result.score or 0.0 for result in results])
    responses = sum(len(result.by_rule) for result in results)
    turned = sum(verdict is True for result in results for verdict in result.judged or [])
    by_rule = estimate([sum(result.by_rule) / len(result.by_rule) for result in results])
    found = {
        "score": score.value,
        "score_se": score.standard_error,
        "by_rule": by_rule.value,
        "judge_changed": turned / responses,
        "no_answer": sum(a is None for result in results for a in result.extracted) / responses,
        "truncated": sum(t for result in results for t in result.truncated) / responses,
    }
    if checker is not None and len(results[0].by_rule) > 1 and results[0].kind == "answer":
        majority = majorities(results, checker)
        found |= {"majority": majority.value, "majority_se": majority.standard_error}
    return found


def majorities(results: Sequence[Answered], checker: AnswerChecker) -> Estimate:
    """Accuracy of the answer that most samples of a question agree on; without one it is wrong."""
    labels = [votes.label for votes in checker.group([result.extracted for result in results])]
    pairs = [(label, r.reference) for label, r in zip(labels, results, strict=True) if label is not None]
    agreed = iter(checker.agree_many(pairs))
    return estimate([float(label is not None and next(agreed)) for label in labels])


def by_category(results: Iterable[Answered]) -> dict[str, tuple[float, float, int]]:
    """Score, standard error and number of questions of each category."""
    scores: dict[str, list[float]] = defaultdict(list)
    for result in results:
        if result.score is not None:
            scores[result.category or "–"].append(result.score)
    return {
        name: (e.value, e.standard_error, e.questions)
        for name, s in sorted(scores.items())
        for e in [estimate(s)]
    }


def compare(
    store: EvaluationStore, first: Evaluation, second: Evaluation, confidence: float
) -> PairedDifference:
    """`second` against `first`, paired by question. Raises ConfigError where they asked other questions."""
    if first.conditions["data"] != second.conditions["data"]:
        raise ConfigError(
            f"{first.evaluation_id} ({first.benchmark}) and {second.evaluation_id} ({second.benchmark}) did"
            " not ask the same questions",
            hint="compare evaluations of the same benchmark from the same source",
        )
    a, b = store.scores(first.evaluation_id), store.scores(second.evaluation_id)
    shared = sorted(a.keys() & b.keys())
    if len(shared) < 2:
        raise ConfigError(
            "fewer than two questions are settled in both", hint="finish them: diagevo eval run"
        )
    return paired_difference([a[n] for n in shared], [b[n] for n in shared], confidence=confidence)


def different_conditions(first: Evaluation, second: Evaluation) -> dict[str, tuple[Any, Any]]:
    """Conditions in which two evaluations differ: what a difference in score may come from."""
    names = sorted(first.conditions.keys() | second.conditions.keys())
    pairs = {name: (first.conditions.get(name), second.conditions.get(name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
