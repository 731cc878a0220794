"""Questions that a model writes from a document, by level of difficulty and kind of answer: how each is
requested, parsed, and put to a solver that sees the document.

There are two worlds of them: texts, and the worked lines of the arithmetic world.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from random import Random
from typing import Any, Literal, Protocol, cast

from diagevo.equations.darc_rewards import copied_share
from diagevo.methods.document_corpus import SourceDocument
from diagevo.sampling.sampler import Prompt
from diagevo.selfplay.templates import fill, load_templates

AnswerKind = Literal["integer", "float", "categorical"]
LEVELS = (1, 2, 3)
"""Easy, moderate and hard."""
INTEGERS = 0.8
"""How often a mathematics document gets an integer question; otherwise the answer is a decimal number."""
OPTIONS = 3
"""Minimum options of a choice."""

TEMPLATES: Mapping[str, tuple[str, ...]] = {
    "questioner_asked": ("document", "level", "answer"),
    "informed_user": ("document", "question"),
}
FIELDS = frozenset(
    {"analysis", "question", "intermediate_results", "answer"}
    | {"solving_time_estimate", "required_concepts", "potential_errors"}
)
"""The fields of the object that a completion must be."""
_LEVELS = (
    "easy. One or two places of the document, and one or two simple steps.",
    "moderate. At least two places of the document that have to be combined, and two or three steps.",
    "hard. At least three distant places of the document, and five steps or more that lead to one result.",
)
_ANSWERS: Mapping[AnswerKind, str] = {
    "integer": "an integer.",
    "float": "a number with a decimal point.",
    "categorical": "the letter of the one right option; the question lists options A to D, each on a line.",
}
_FENCED = re.compile(r"```(?:json)?\s*+(\{.*\})\s*+```", re.IGNORECASE | re.DOTALL)
_OPTION = re.compile(r"^\s*([A-J])\s*[.):：．）、]", re.MULTILINE)
_FORMS: Mapping[AnswerKind, str] = {"integer": r"[-+]?\d+", "float": r"[-+]?\d+\.\d+", "categorical": "[A-J]"}


class DocumentQuestions(Protocol):
    """All methods are deterministic in their arguments."""

    def digests(self) -> dict[str, str]:
        """Digests of its prompt templates, by name."""
        ...

    def kind(self, document: SourceDocument, rng: Random) -> AnswerKind:
        """The kind of answer requested for a document."""
        ...

    def asks(self, document: str, level: int, kind: AnswerKind) -> Prompt:
        """The questioner's prompt."""
        ...

    def read(self, completion: str, kind: AnswerKind) -> str | None:
        """The question in a completion; None if there is none of the requested form."""
        ...

    def informed(self, question: str, document: str) -> Prompt:
        """The prompt of a solver that sees the document."""
        ...

    def copied(self, document: str, question: str) -> Fraction:
        """How much of a question is copied from its document, in [0, 1]."""
        ...


class TextQuestions:
    """`DocumentQuestions` of texts, as JSON."""

    @cached_property
    def templates(self) -> dict[str, str]:
        return load_templates("diagevo.methods", TEMPLATES)

    def digests(self) -> dict[str, str]:
        return {name: hashlib.sha256(text.encode()).hexdigest() for name, text in self.templates.items()}

    def kind(self, document: SourceDocument, rng: Random) -> AnswerKind:
        if document.kind == "general":
            return "categorical"
        return "integer" if rng.random() < INTEGERS else "float"

    def asks(self, document: str, level: int, kind: AnswerKind) -> Prompt:
        values = {"document": document, "level": _LEVELS[level - 1], "answer": _ANSWERS[kind]}
        return [{"role": "user", "content": fill(self.templates["questioner_asked"], values)}]

    def read(self, completion: str, kind: AnswerKind) -> str | None:
        question = read_object(completion).get("question")
        if not isinstance(question, str) or not (question := question.strip()):
            return None
        if kind == "categorical" and len(set(_OPTION.findall(question.upper()))) < OPTIONS:
            return None
        return question

    def informed(self, question: str, document: str) -> Prompt:
        values = {"document": document, "question": question}
        return [{"role": "user", "content": fill(self.templates["informed_user"], values)}]

    def copied(self, document: str, question: str) -> Fraction:
        return copied_share(document, question)


def read_object(completion: str) -> Mapping[str, Any]:
    """The completion's JSON object, fenced or not; empty if it is not one, or has other fields."""
    text = completion.strip()
    if (fenced := _FENCED.fullmatch(text)) is not None:
        text = fenced[1]
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    if not isinstance(found, dict):
        return {}
    fields = cast("dict[str, Any]", found)
    return fields if fields.keys() == FIELDS else {}


def in_form(answer: str, kind: AnswerKind) -> str | None:
    """A solver's answer in the form of its kind; None if it has another. For a choice: its letter."""
    answer = answer.strip()
    if kind == "categorical":
        letters = set(re.findall(r"\b[A-J]\b", re.sub(r"\\[a-z]+", " ", answer, flags=re.IGNORECASE).upper()))
        answer = letters.pop() if len(letters) == 1 else ""
    return answer if re.fullmatch(_FORMS[kind], answer) else None
