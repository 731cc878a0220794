"""The answer of a response and whether it is right by rule; figures of an evaluation: scores with standard
errors, categories, paired comparisons."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from diagevo.answers.equivalence import AnswerChecker
from diagevo.answers.extraction import boxed_answer, extract_boxed, extract_choice
from diagevo.errors import ConfigError
from diagevo.evaluation.benchmarks import LETTERS, Question
from diagevo.evaluation.protocol import Estimate, PairedDifference, estimate, paired_difference
from diagevo.evaluation.store import Answered, Evaluation, EvaluationStore

_STATED = re.compile(r"answer\s*+(?:is\s*+)?:\s*(?P<answer>[^\n]+)", re.IGNORECASE)
_WRAPPED = re.compile(r"\\(?:text|textbf|mathrm|mathbf|boxed)\s*+\{([^{}]*+)\}")
_COMMA = re.compile(r" ?, ?")
_WHOLE = re.compile(r"[+-]?\d++\.0")


class Checker(Protocol):
    """The part of the answer checker that compares an answer with its reference."""

    def agree_many(self, pairs: Sequence[tuple[str, str]]) -> list[bool]: ...


def read_answer(question: Question, response: str) -> str | None:
    """A response's answer; None if none can be read, which counts as wrong.

    A mathematical answer must be boxed. A choice is the letter the response settles on, never a guess. A text
    answer is boxed, or follows the last "answer:" of the response.
    """
    if question.kind == "choice":
        return extract_choice(response, LETTERS[: question.options])
    if question.kind == "vote":
        return extract_boxed(response)
    boxed = boxed_answer(response)
    if boxed is not None or question.kind == "answer":
        return boxed
    stated = list(_STATED.finditer(response))
    return stated[-1]["answer"].strip().strip("*").strip() or None if stated else None


def plain_text(answer: str) -> str:
    """A text answer for exact matching: case, spaces, TeX text commands, quotes and enclosing marks aside.

    "(C)" and "C" are the same; so are "[friday, saturday]" and "Friday,Saturday", and "90" and "90.0".
    """
    text = _WRAPPED.sub(r"\1", answer).replace("$", "").replace("**", "")
    text = " ".join(text.split()).casefold().strip().rstrip(".?").strip()
    text = _COMMA.sub(",", _bare(text))
    return text.removesuffix(".0") if _WHOLE.fullmatch(text) else text


def _bare(text: str) -> str:
    """A text with single spaces, stripped of any surrounding brackets and quotes."""
    start, end = 0, len(text)
    while end - start > 1 and text[start] + text[end - 1] in ("()", "[]", "{}", '""', "''", "``"):
        start, end = start + 1, end - 1
        while start < end and text[start] == " ":
            start += 1
        while start < end and text[end - 1] == " ":
            end -= 1
    return text[start:end]


def right_by_rule(
    questions: Sequence[Question], answers_Q_G: Sequence[Sequence[str | None]], checker: Checker
) -> list[list[bool]]:
    """Whether each answer is right: by answer agreement, by letter, or by exact match.

    A missing answer counts as wrong.
    """
    pairs = [
        (answer, question.reference)
        for question, group in zip(questions, answers_Q_G, strict=True)
        for answer in group
        if answer is not None and question.kind in ("answer", "vote")
    ]
    agreed = iter(checker.agree_many(pairs))

    def right(question: Question, answer: str | None) -> bool:
        if answer is None:
            return False
        if question.kind in ("answer", "vote"):
            return next(agreed)
        if question.kind == "choice":
            return answer == question.reference
        return plain_text(answer) == plain_text(question.reference)

    return [[right(q, answer) for answer in group] for q, group in zip(questions, answers_Q_G, strict=True)]


def for_the_judge(result: Answered) -> list[int]:
    """The samples that a judge is asked about: mathematical answers that the rule rejected."""
    if result.kind != "answer":
        return []
    return [i for i, right in enumerate(result.by_rule) if not right and result.extracted[i]]


def figures(results: Sequence[Answered], checker: AnswerChecker | None = None) -> dict[str, float]:
    """Shares in [0, 1] over the settled questions.

    `score` with its standard error over questions; `by_rule` without the judge; `no_answer` and `truncated`
    responses; with a judge, the share of responses that it was asked about (`judge_asked`), turned to right
    (`judge_changed`) and gave no readable verdict on (`judge_unread`, counted as wrong); with several samples
    `majority`, the accuracy of the majority answer (what a pseudo-label is).
    """
    score = estimate([result.score or 0.0 for result in results])
    responses = sum(len(result.by_rule) for result in results)
    by_rule = estimate([sum(result.by_rule) / len(result.by_rule) for result in results])
    found = {
        "score": score.value,
        "score_se": score.standard_error,
        "by_rule": by_rule.value,
        "no_answer": sum(a is None for result in results for a in result.extracted) / responses,
        "truncated": sum(t for result in results for t in result.truncated) / responses,
    }
    if any(result.judge is not None for result in results):
        verdicts = [(r.judged or [])[i] for r in results for i in for_the_judge(r)]
        found |= {
            "judge_asked": len(verdicts) / responses,
            "judge_changed": sum(verdict is True for verdict in verdicts) / responses,
            "judge_unread": sum(verdict is None for verdict in verdicts) / responses,
        }
    if checker is not None and len(results[0].by_rule) > 1 and results[0].kind in ("answer", "vote"):
        majority = majorities(results, checker)
        found |= {"majority": majority.value, "majority_se": majority.standard_error}
    return found


def majorities(results: Sequence[Answered], checker: AnswerChecker) -> Estimate:
    """Accuracy of the answer that most samples of a question agree on; wrong if there is none."""
    labels = [votes.label for votes in checker.group([result.extracted for result in results])]
    pairs = [(label, r.reference) for label, r in zip(labels, results, strict=True) if label is not None]
    agreed = iter(checker.agree_many(pairs))
    return estimate([float(label is not None and next(agreed)) for label in labels])


def by_category(results: Iterable[Answered]) -> dict[str, Estimate]:
    """The score of each category, over its settled questions."""
    scores: dict[str, list[float]] = defaultdict(list)
    for result in results:
        if result.score is not None:
            scores[result.category or "–"].append(result.score)
    return {name: estimate(of_category) for name, of_category in sorted(scores.items())}


def compare(
    store: EvaluationStore, first: Evaluation, second: Evaluation, confidence: float = 0.95
) -> PairedDifference:
    """`second` against `first`, paired by question. Raises ConfigError if they asked different questions."""
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
    """Conditions that differ between two evaluations: possible reasons for a difference in score."""
    names = sorted(first.conditions.keys() | second.conditions.keys())
    pairs = {name: (first.conditions.get(name), second.conditions.get(name)) for name in names}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
