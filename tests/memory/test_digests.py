"""Texts in stored payloads are named by their SHA-256, and by the type of its field a text is found."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from diagevo.errors import ConfigError, StoreError
from diagevo.memory.events import EVENT_TYPES, Digest, DuplicateJudged, ModelCall, named_texts
from diagevo.memory.events.decode import read
from diagevo.memory.events.records import payload_of

FROZEN = Path(__file__).parents[1] / "contracts" / "frozen" / "events.jsonl"
NAMED = {
    "CandidateScored": ["question", "reference", "given[0]", "task"],
    "GroupIngested": [
        *("question", "reference", "failed[0].trajectory", "failed[1].trajectory"),
        *("passed[0]", "feedback[0].text"),
    ],
    "FailureObserved": ["trajectory", "reference", "feedback"],
    "FailureDiagnosed": ["call.request", "call.reply", "pair.passed"],
    "DuplicateJudged": ["call.request", "call.reply"],
    "FailureAssigned": ["failure.trajectory", "failure.question"],
    "FailureUnassigned": ["failure.trajectory", "failure.question"],
    "NodeAssigned": ["call.request", "call.reply"],
    "NodePairJudged": ["call.request", "call.reply"],
}
EXAMPLES = [(e["type"], e["version"], e["payload"]) for e in map(json.loads, FROZEN.read_text().splitlines())]


@pytest.mark.parametrize(("type_", "version", "payload"), EXAMPLES, ids=lambda value: str(value)[:24])
def test_each_text_of_each_version_of_an_event_is_found(type_: str, version: int, payload: str) -> None:
    found = dict(named_texts.named_texts(read(type_, version, payload)))
    current = EVENT_TYPES[type_].schema_version
    later = {"feedback[0].text", "feedback", "pair.passed", "task"} if version < current else set[str]()
    later |= {"given[0]"} if version == 1 else set()
    assert list(found) == [field for field in NAMED.get(type_, []) if field not in later]
    assert all(f'"{digest}"' in payload for digest in found.values())


def _forged(part: dict[str, Any], field: str, digest: str) -> None:
    first, _, rest = field.partition(".")
    name, _, index = first.partition("[")
    if rest:
        inner = part[name][int(index.rstrip("]"))] if index else part[name]
        _forged(inner, rest, digest)
    elif index:
        part[name][int(index.rstrip("]"))] = digest
    else:
        part[name] = digest


@pytest.mark.parametrize(
    "digest", ["", "a" * 63, "a" * 65, "a" * 64 + "\n", "A" * 64, "g" * 64, "½" + "a" * 63]
)
@pytest.mark.parametrize("type_", NAMED)
def test_what_is_no_digest_is_refused_wherever_it_stands(type_: str, digest: str) -> None:
    version, payload = next((v, p) for t, v, p in reversed(EXAMPLES) if t == type_)
    for field in NAMED[type_]:
        forged = json.loads(payload)
        _forged(forged, field, digest)
        with pytest.raises(StoreError, match=rf"{type_} cannot be read: .*{said(field, digest)}"):
            read(type_, version, json.dumps(forged))


def said(field: str, digest: str) -> str:
    """Where msgspec finds another length, and where other digits are found."""
    if len(digest) == 64:
        return re.escape(f"{field} is not the SHA-256 of a text")
    return re.escape(f"of length {'>=' if len(digest) < 64 else '<='} 64 - at `$.{field}`")


@pytest.mark.parametrize("digest", ["What is 2 + 2?", "A" * 64, 7])
def test_a_consumer_learns_of_a_wrong_digest_before_anything_is_recorded(digest: Any) -> None:
    call = ModelCall(model="m", prompt="a template's hash", request=digest, reply=None)
    judged = DuplicateJudged("r1.q1.a0", [], None, duplicate=False, cause_id=None, call=call)
    with pytest.raises(ConfigError, match=r"DuplicateJudged cannot be recorded: .*call\.request"):
        payload_of(judged)


@pytest.mark.parametrize(
    "kind", [dict[str, Digest], tuple[Digest, int], Digest | int, list[Digest] | list[int]]
)
def test_a_text_in_a_place_that_is_not_looked_at_is_an_error_at_once(kind: Any) -> None:
    with pytest.raises(TypeError, match="would not be found"):
        named_texts._naming(kind)
