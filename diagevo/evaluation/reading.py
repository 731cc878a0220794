"""What a response answers, and whether that is right by rule."""

import re
from collections.abc import Sequence
from typing import Protocol

from diagevo.answers.extraction import boxed_answer, extract_boxed, extract_choice
from diagevo.evaluation.questions import LETTERS, Question

_STATED = re.compile(r"answer\s*+(?:is\s*+)?:\s*(?P<answer>[^\n]+)", re.IGNORECASE)
_WRAPPED = re.compile(r"\\(?:text|textbf|mathrm|mathbf|boxed)\s*+\{([^{}]*+)\}")
_COMMA = re.compile(r" ?, ?")
_WHOLE = re.compile(r"[+-]?\d++\.0")


class Checker(Protocol):
    """The part of the answer checker that compares an answer with its reference."""

    def agree_many(self, pairs: Sequence[tuple[str, str]]) -> list[bool]: ...


def read_answer(question: Question, response: str) -> str | None:
    """The answer that a response gives; None where there is none to be read, which is wrong.

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
    """A text with single spaces without the brackets and quotes around it, however many."""
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
    """Whether each answer is right: by answer agreement, by letter, or by exact match. No answer is wrong."""
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
