"""A served model that knows the mistakes of the arithmetic world, and is now and then busy or chatty.

It reads what is asked as a model does: from the messages alone.
"""

import json
import re
from typing import Any
from zlib import crc32

from diagevo.arithmetic import RuleDiagnostician
from diagevo.arithmetic.wordings import LABELS, kind_of, skill, skill_of
from diagevo.diagnosis.diagnostician import FailurePair
from tests.diagnosis.server import Answer

_RULES = RuleDiagnostician()
_FENCED = re.compile(r"^\[(\w+)\] begin\n(.*?)\n\[\1\] end$", re.DOTALL | re.MULTILINE)


def behave(request: dict[str, Any], before: int) -> Answer:
    """One request in ten is refused at first, one in ten is answered with talk around the JSON, and one in
    ten with nothing that can be read."""
    asked = "\n".join(message["content"] for message in request["messages"])
    manner = crc32(asked.encode()) % 10
    if manner == 0 and before == 0:
        return Answer("busy", status=429, headers=(("Retry-After", "0"),))
    if manner == 1 and len(request["messages"]) <= 2:
        return Answer("I would have to think about that.")
    said = json.dumps(_said(asked))
    return Answer(f"Here it is:\n```json\n{said}\n```" if manner == 2 else said)


def _said(asked: str) -> dict[str, Any]:
    parts = [found[1] for found in _FENCED.findall(asked)]
    if "# Task\n" in asked:
        question, right, passed, failed, *known = parts
        found = _RULES.extract(FailurePair("r1.q0.a0", question, right, passed, failed))
        if found.description is not None:
            for name, told in _listed(known[0] if known else ""):
                if kind_of(told) == kind_of(found.description):
                    return {"matched_cause_id": name, "error_cause": None}
        return {"matched_cause_id": None, "error_cause": found.description}
    if "# Candidate Existing Causes" in asked:
        new, listed = parts
        same = [name for name, told in _listed(listed) if kind_of(told) == kind_of(new)]
        return {"duplicate": bool(same), "matched_cause_id": same[0] if same else None}
    if "# Top-K Candidate Skill Nodes" in asked:
        kind = kind_of(parts[0])
        assert kind is not None
        nodes = [
            name for name, told in _listed(parts[1]) if skill_of(told.partition(" | ")[0]) == skill(kind)
        ]
        label = None if nodes else LABELS[skill(kind)][0]
        return {
            "create_new_node": not nodes,
            "new_node_label": label,
            "assigned_node": nodes[0] if nodes else None,
        }
    label_a, _, label_b, _ = parts
    merge = skill_of(label_a) == skill_of(label_b)
    return {"merge": merge, "merged_label": label_a if merge else None}


def _listed(entries: str) -> list[tuple[str, str]]:
    return re.findall(r"^- ([cn]\d+)(?: \(\w+\))?: (.*)$", entries, re.MULTILINE)
