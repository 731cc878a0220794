"""Questions with answers that a challenger writes from a document, as in SPICE: how each is requested and
parsed.

There are two worlds of them: JSON from texts, and sentences from the worked lines of the arithmetic world.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping
from functools import cached_property
from random import Random
from typing import Any, NamedTuple, Protocol, cast

from diagevo.memory.events import InvalidReason
from diagevo.methods.document_corpus import SourceDocument
from diagevo.methods.document_questions import FIELDS, AnswerKind
from diagevo.sampling.sampler import Prompt
from diagevo.selfplay.templates import fill, load_templates

INTEGERS = 0.6
"""How often a mathematics document gets an integer question; otherwise the answer is a decimal number."""
QUESTION = 2000
"""Maximum characters of a question; a longer one is cut."""
LISTED = 10
"""Maximum concepts, or errors, that an object names; each at least one."""

TEMPLATE = "document_asked"
_ANSWERS: Mapping[AnswerKind, str] = {
    "integer": "an integer, as a JSON number.",
    "float": "a decimal number, as a JSON number that is written with a decimal point.",
    "categorical": 'a choice: "A", "B", "C" or "D". The question ends with four options, each on a line of'
    ' its own that begins with "A) ", "B) ", "C) " or "D) ", of which one is right.',
}
_OPTION = re.compile(r"^\s*\(?([A-D])\)?[).:]\s+", re.MULTILINE)


class AnsweredQuestion(NamedTuple):
    text: str
    answer: str


class AnsweredQuestions(Protocol):
    """All methods are deterministic in their arguments."""

    def digests(self) -> dict[str, str]:
        """Digests of its prompt templates, by name."""
        ...

    def kind(self, document: SourceDocument, rng: Random) -> AnswerKind:
        """The kind of answer requested for a document."""
        ...

    def asks(self, document: str, kind: AnswerKind) -> Prompt:
        """The challenger's prompt."""
        ...

    def read(self, completion: str, kind: AnswerKind) -> AnsweredQuestion | InvalidReason:
        """The question and answer in a completion, or the reason why there are none of the requested form."""
        ...


class JsonQuestions:
    """`AnsweredQuestions` of texts: a completion is one JSON object and nothing else."""

    @cached_property
    def template(self) -> str:
        return load_templates("diagevo.methods", {TEMPLATE: ("document", "answer")})[TEMPLATE]

    def digests(self) -> dict[str, str]:
        return {TEMPLATE: hashlib.sha256(self.template.encode()).hexdigest()}

    def kind(self, document: SourceDocument, rng: Random) -> AnswerKind:
        if document.kind == "general":
            return "categorical"
        return "integer" if rng.random() < INTEGERS else "float"

    def asks(self, document: str, kind: AnswerKind) -> Prompt:
        content = fill(self.template, {"document": document, "answer": _ANSWERS[kind]})
        return [{"role": "user", "content": content}]

    def read(self, completion: str, kind: AnswerKind) -> AnsweredQuestion | InvalidReason:
        try:
            found = json.loads(completion)
        except (ValueError, RecursionError):
            return "unreadable"
        if not isinstance(found, dict):
            return "unreadable"
        written = cast("dict[str, Any]", found)
        if written.keys() != FIELDS or not _well_formed(written):
            return "unreadable"
        question, answer = written["question"].strip()[:QUESTION].rstrip(), written["answer"]
        if kind == "categorical":
            letter = answer.strip().upper() if isinstance(answer, str) else ""
            if re.fullmatch("[A-D]", letter) is None:
                return "unanswered"
            if set(_OPTION.findall(question)) != set("ABCD"):
                return "unreadable"
            return AnsweredQuestion(question, letter)
        # bool is an int; a number without a point is no float, and one with an exponent alone is refused
        if type(answer) is not (int if kind == "integer" else float) or not _finite(answer):
            return "unanswered"
        if kind == "float" and not _written_with_a_point(completion, answer):
            return "unanswered"
        return AnsweredQuestion(question, str(answer))


def _well_formed(written: Mapping[str, Any]) -> bool:
    """Whether everything but the answer has its type."""
    steps, minutes = written["intermediate_results"], written["solving_time_estimate"]
    return (
        isinstance(written["analysis"], str)
        and _filled(written["question"])
        and isinstance(steps, dict)
        and bool(steps)
        and all(_filled(name) and _filled(gives) for name, gives in cast("dict[str, Any]", steps).items())
        and type(minutes) in (int, float)
        and _finite(minutes)
        and all(_listed(written[name]) for name in ("required_concepts", "potential_errors"))
    )


def _filled(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _listed(value: object) -> bool:
    return (
        isinstance(value, list)
        and 1 <= len(cast("list[Any]", value)) <= LISTED
        and all(_filled(one) for one in cast("list[Any]", value))
    )


def _finite(number: float) -> bool:
    try:
        return math.isfinite(float(number))
    except OverflowError:
        return False


def _written_with_a_point(completion: str, answer: float) -> bool:
    """Whether the answer is written as this number with a decimal point."""
    written = re.findall(r'"answer"\s*+:\s*+([-+]?\d++\.\d++(?:[eE][-+]?\d++)?)', completion)
    return any(float(number) == answer for number in written)
