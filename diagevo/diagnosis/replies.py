"""The schema of a model's replies, and the readers of what it actually replies.

Malformed replies are the normal case: each reader turns any text at all into a `Reading`, never an exception.
The pydantic models are the schema for servers with structured output; the readers are the same with and
without it.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from diagevo.diagnosis.diagnostician import DuplicateJudgement, Extraction, NodeAssignment, PairJudgement
from diagevo.text.escaping import one_line, utf8

FEWEST_WORDS, MOST_WORDS = 10, 20
LONGEST_PHRASE = 1000
"""Maximum characters of a phrase. Anything longer is a broken reply."""
LONGEST_REPLY = 200_000
"""Maximum characters of a reply that are read."""
MOST_OBJECTS = 100
"""Maximum broken objects of a reply that are skipped; each costs a pass over the whole reply."""

T = TypeVar("T")


class _Reply(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class ExtractionReply(_Reply):
    """Prompt 1."""

    matched_cause_id: str | None
    error_cause: str | None = Field(max_length=LONGEST_PHRASE)


class TaskReply(ExtractionReply):
    """For an ingested failure: also the step, quoted from the response."""

    wrong_step: str | None


class DuplicateReply(_Reply):
    """Prompt 2."""

    duplicate: bool
    matched_cause_id: str | None


class AssignmentReply(_Reply):
    """Prompt 3."""

    create_new_node: bool
    new_node_label: str | None = Field(max_length=LONGEST_PHRASE)
    assigned_node: str | None


class MergeReply(_Reply):
    """Prompt 4."""

    merge: bool
    merged_label: str | None = Field(max_length=LONGEST_PHRASE)


@dataclass(frozen=True, slots=True)
class Reading(Generic[T]):
    """`value`: the content of the reply, None if unusable. `complaint`: what to show the model on a retry.
    With both, the value is used when the tries are used up; a `soft` complaint (a phrase
    of the wrong length) is shown at most once."""

    value: T | None
    complaint: str | None = None
    soft: bool = False


class _Broken(Exception):
    """The text contains no usable object; the message says why."""


def read_task(text: str, supplied: Collection[str]) -> Reading[Extraction]:
    """Prompt 1 about an ingested failure. A reply without the step is accepted too."""
    found = read_extraction(text, supplied)
    try:
        step = _validated(TaskReply, text, ("wrong_step", "matched_cause_id", "error_cause")).wrong_step
    except _Broken:
        step = None
    if found.value is None or step is None or not step.strip():
        return found
    return replace(found, value=replace(found.value, step=step[:LONGEST_PHRASE]))


def read_extraction(text: str, supplied: Collection[str]) -> Reading[Extraction]:
    """Prompt 1. A supplied id wins over a description; an unknown id is no match; both null is a slip."""
    try:
        reply = _validated(ExtractionReply, text, either=("matched_cause_id", "error_cause"))
        description = _phrase(reply.error_cause, "error_cause")
    except _Broken as broken:
        return Reading(None, str(broken))
    matched = _id(reply.matched_cause_id)
    if matched is not None and matched in supplied:
        flags = ("both_given",) if description is not None else ()
        return Reading(Extraction("recurrence", cause_id=matched, flags=flags))
    if matched is not None:
        ids = ", ".join(supplied) or "none were supplied, so it must be null"
        complaint = f"matched_cause_id {matched[:40]!r} is not one of the supplied causes ({ids})."
        if description is None:
            return Reading(Extraction("unresolved", flags=("unknown_id",)), complaint)
        flags = ("unknown_id", *_length_flags(description))
        return Reading(Extraction("new_cause", description=description, flags=flags), complaint)
    if description is None:
        return Reading(Extraction("slip"))
    return _with_length(Extraction("new_cause", description=description), description, "error_cause")


def read_duplicate(text: str, candidates: Collection[str]) -> Reading[DuplicateJudgement]:
    """Prompt 2: a duplicate names one of the candidates, and only a duplicate names one."""
    try:
        reply = _validated(DuplicateReply, text)
    except _Broken as broken:
        return Reading(None, str(broken))
    matched = _id(reply.matched_cause_id)
    if not reply.duplicate:
        if matched is not None:
            return Reading(None, "matched_cause_id must be null where duplicate is false.")
        return Reading(DuplicateJudgement(False))
    if matched is None or matched not in candidates:
        shown, ids = repr(matched[:40]) if matched else "null", ", ".join(candidates)
        return Reading(None, f"matched_cause_id {shown} is not one of the candidates ({ids}).")
    return Reading(DuplicateJudgement(True, matched))


def read_assignment(text: str, shortlist: Collection[str]) -> Reading[NodeAssignment]:
    """Prompt 3: a new label, or a node of the shortlist, never both."""
    try:
        reply = _validated(AssignmentReply, text)
        label = _phrase(reply.new_node_label, "new_node_label")
    except _Broken as broken:
        return Reading(None, str(broken))
    node = _id(reply.assigned_node)
    if reply.create_new_node:
        if label is None or node is not None:
            return Reading(None, "where create_new_node is true, new_node_label is needed, and no node.")
        return _with_length(NodeAssignment(new_label=label), label, "new_node_label")
    if label is not None or node is None:
        return Reading(None, "where create_new_node is false, assigned_node is needed, and no label.")
    if node not in shortlist:
        ids = ", ".join(shortlist) or "none are listed, so a new node is needed"
        return Reading(None, f"assigned_node {node[:40]!r} is not one of the listed nodes ({ids}).")
    return Reading(NodeAssignment(node_id=node))


def read_merge(text: str) -> Reading[PairJudgement]:
    """Prompt 4: a label exactly where the answer is yes."""
    try:
        reply = _validated(MergeReply, text)
        label = _phrase(reply.merged_label, "merged_label")
    except _Broken as broken:
        return Reading(None, str(broken))
    if not reply.merge:
        if label is not None:
            return Reading(None, "merged_label must be null where merge is false.")
        return Reading(PairJudgement(False))
    if label is None:
        return Reading(None, "merged_label is needed where merge is true.")
    return _with_length(PairJudgement(True, label), label, "merged_label")


def first_object(text: str) -> dict[str, Any]:
    """The first JSON object in the text, after a closed block of thinking if there is one.

    A brace that does not begin an object is skipped; a truncated object is not searched for smaller
    ones inside. Raises _Broken with a sentence for the model.
    """
    text = text[:LONGEST_REPLY]
    text = text.rpartition("</think>")[2]
    if not text.strip():
        raise _Broken("the reply is empty.")
    complaint = "the reply holds no JSON object."
    position = 0
    for _ in range(MOST_OBJECTS):
        start = _OBJECT.search(text, position)
        if start is None:
            break
        try:
            return _DECODER.raw_decode(text, start.start())[0]
        except json.JSONDecodeError as error:
            complaint = f"the JSON object is broken at character {error.pos}: {error.msg}."
            position = max(error.pos, start.end())
        except RecursionError:
            raise _Broken("the JSON object is nested too deeply.") from None
        except ValueError as error:
            raise _Broken(f"the JSON object cannot be read: {error}") from None
    raise _Broken(complaint)


_OBJECT = re.compile(r'\{\s*+["}]')


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key appears twice.")
    return value


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON.")


_DECODER = json.JSONDecoder(object_pairs_hook=_pairs, parse_constant=_constant)


R = TypeVar("R", bound=_Reply)


def _validated(model: type[R], text: str, either: tuple[str, ...] = ()) -> R:
    """The first object as this pydantic model. Extra fields are ignored; a missing one of `either` is
    null."""
    found = first_object(text)
    fields: Mapping[str, Any] = {name: _sound(found[name]) for name in model.model_fields if name in found}
    if any(fields.get(name) is not None for name in either):
        fields = dict.fromkeys(either) | dict(fields)
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise _Broken(f"{'.'.join(map(str, first['loc']))}: {first['msg']}.") from None


def _sound(value: Any) -> Any:
    """JSON may escape half a surrogate pair, which no encoding can store."""
    return utf8(value).decode() if isinstance(value, str) else value


def _phrase(text: str | None, field: str) -> str | None:
    """A description or label on one line, or None for null (and for the word "null")."""
    if text is None:
        return None
    phrase = one_line(text)
    if phrase.casefold() in ("null", "none"):
        return None
    if not any(c.isalnum() for c in phrase):
        raise _Broken(f"{field} must be a verb-object phrase or null, and it is empty.")
    return phrase


def _id(text: str | None) -> str | None:
    if text is None:
        return None
    text = one_line(text)
    return None if text.casefold() in ("null", "none") else text


def _length_flags(phrase: str) -> tuple[str, ...]:
    return () if FEWEST_WORDS <= len(phrase.split()) <= MOST_WORDS else ("length",)


V = TypeVar("V", Extraction, NodeAssignment, PairJudgement)


def _with_length(value: V, phrase: str, field: str) -> Reading[V]:
    """Complain once about a phrase outside 10 to 20 words; the paper's own examples have 7 and 5."""
    flags = _length_flags(phrase)
    if not flags:
        return Reading(value)
    words = len(phrase.split())
    complaint = f"{field} has {words} words; it must be a verb-object phrase of 10 to 20 words."
    return Reading(replace(value, flags=flags), complaint, soft=True)
