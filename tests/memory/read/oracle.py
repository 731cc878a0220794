"""Figures of a run from the payloads of its events alone, counted in plain Python."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any

from diagevo.memory.events.records import Recorded


@dataclass
class Figures:
    """What screens should show of a run, with the rounds that count."""

    rounds: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Of the committed rounds that count."""
    steps: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    """By round and step: groups, all passed, all failed, rollouts, passes."""
    causes: dict[str, list[int]] = field(default_factory=dict)
    """Failures, groups with some, their rollouts and passes."""
    prompts: dict[str, list[int]] = field(default_factory=dict)
    """By digest: rollouts, passes, failures without a cause."""
    tags: dict[str, list[int]] = field(default_factory=dict)
    questions: list[str] = field(default_factory=list)
    failures: set[str] = field(default_factory=set)
    """That count, as the questions do."""
    cause_of: dict[str, str] = field(default_factory=dict)
    again: tuple[float, float, float | None] | None = None
    """Mean pass rate of prompts that came back, the first and the last time, and the error of its change."""
    dropped: int = 0


def figures(log: Iterable[Recorded]) -> Figures:
    events = [(one.type, one.round, one.position, json.loads(one.payload)) for one in log]
    opened = [number for kind, number, _, _ in events if kind == "RoundOpened"]
    spans = [(told["first"], told["last"]) for kind, _, _, told in events if kind == "RoundsSuperseded"]
    counted = [number for number in opened if not any(first <= number <= last for first, last in spans)]
    found = Figures()
    of_round: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for kind, number, _, told in events:
        if number in counted:
            of_round[kind, number].append(told)
    for number in counted:
        _round(found, number, of_round)
    attempts: dict[int, int] = {}
    for kind, _, _, told in events:
        if kind == "GroupIngested" and told["attempt"] > 1:
            attempts.setdefault(told["attempt"], told["step"])
    by_prompt: dict[str, dict[int, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    for kind, batch, _, told in events:
        if kind != "GroupIngested":
            continue
        if any(later > told["attempt"] and began <= told["step"] for later, began in attempts.items()):
            continue
        waits = batch - len(counted)
        played = max(opened, default=0) + waits if waits > 0 else counted[batch - 1]
        n, passes = len(told["rewards"]), told["passes"]
        _add(found.steps, (played, told["step"]), [1, int(passes == n), int(passes == 0), n, passes])
        _add(found.prompts, told["question"], [n, passes, n - passes])
        for tag in told["tags"]:
            _add(found.tags, tag, [1, n, passes])
        _add(by_prompt[told["question"]], told["step"], [n, passes])
    for number in counted:
        for scored in of_round["CandidateScored", number]:
            under = Counter(
                found.cause_of[name]
                for name in found.cause_of
                if name.rpartition(".")[0] == scored["question_id"]
            )
            for cause, failures in under.items():
                _add(found.causes, cause, [failures, 1, scored["responses"], scored["first"]])
            if scored["question"] in found.prompts:
                found.prompts[scored["question"]][2] -= under.total()
    _changes(found, by_prompt)
    return found


def _add(into: Any, key: Any, numbers: list[int]) -> None:
    into[key] = [a + b for a, b in zip(into.get(key, [0] * len(numbers)), numbers, strict=True)]


def _round(found: Figures, number: int, of_round: dict[tuple[str, int], list[dict[str, Any]]]) -> None:
    scored = {one["question_id"]: one for one in of_round["CandidateScored", number]}
    gone = of_round["StageAbandoned", number]
    found.questions += scored
    observed = [
        one
        for one in of_round["FailureObserved", number]
        if not any(
            a["stage"] == one["stage"] and a["attempt"] >= one["attempt"] and a["after_step"] < one["step"]
            for a in gone
        )
    ]
    found.failures |= {one["failure_id"] for one in observed}
    for kind in ("CauseCreated", "CauseMatched"):
        found.cause_of |= {one["failure_id"]: one["cause_id"] for one in of_round[kind, number]}
    if not of_round["RoundCommitted", number]:
        return
    kept = [one for one in scored.values() if one["verdict"] == "kept"]
    known = [one["label_true"] for one in kept if one["label_true"] is not None]
    judged = [one for one in observed if scored[one["question_id"]]["label_true"] is not None]
    rewarded = [one for one in scored.values() if one["votes_are"] == "rewards"]
    found.rounds[number] = {
        "failures": of_round["RoundCommitted", number][0]["failures"],
        "candidates": len(scored),
        "kept": len(kept),
        "verdicts": dict(Counter(one["verdict"] for one in scored.values())),
        "observed": len(observed),
        "created": len(of_round["CauseCreated", number]),
        "promoted": sorted(one["cause_id"] for one in of_round["CausePromoted", number]),
        "reactivated": sorted(one["cause_id"] for one in of_round["CauseReactivated", number]),
        "labels_true": sum(known) / len(known) if known else None,
        "failures_judged": len(judged) or None,
        "against_false_labels": sum(not scored[one["question_id"]]["label_true"] for one in judged)
        if judged
        else None,
        "rollouts": sum(one["responses"] for one in rewarded),
        "passes": sum(one["first"] for one in rewarded),
    }


def _changes(found: Figures, by_prompt: dict[str, dict[int, list[int]]]) -> None:
    pairs: list[tuple[float, float]] = []
    for steps in by_prompt.values():
        first, last = steps[min(steps)], steps[max(steps)]
        pair = first[1] / first[0], last[1] / last[0]
        found.dropped += pair[1] < pair[0]
        if len(steps) > 1:
            pairs.append(pair)
    if pairs:
        error = stdev(b - a for a, b in pairs) / len(pairs) ** 0.5 if len(pairs) > 1 else None
        found.again = fmean(a for a, _ in pairs), fmean(b for _, b in pairs), error
