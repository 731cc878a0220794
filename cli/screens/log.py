"""The events of `memory log`: lines for people, JSON lines, or rows of another format."""

import json
import time
from collections.abc import Iterable, Iterator
from statistics import fmean
from typing import TYPE_CHECKING, Any

from diagevo.errors import ConfigError
from diagevo.text.numbers import count
from diagevo.text.redaction import redacted

from ..call import Call
from ..render.console import Out, sink, visible
from ..render.layout import folded, width
from ..render.rows import json_line
from ..render.table import columns

if TYPE_CHECKING:
    from diagevo.memory.audit.trail import Trail
    from diagevo.memory.events.records import Recorded
    from diagevo.memory.history import AsOf, History

POLL_SECONDS = 0.5
_SUBJECT = 14
_ENVELOPE = (
    *("position", "sequence", "round", "type", "cause_id", "event_id", "causation_id", "recorded_at"),
    *("schema_version", "payload", "hash"),
)
COLUMNS = columns("position: #, round, type, cause_id: cause, recorded_at, payload")


def write_lines(
    call: Call, history: "History", wanted: "Trail", as_of: "AsOf", *, follow: bool = False
) -> None:
    """Print the chosen events as they are read, a line an event; with `follow` those that come, too."""
    from diagevo.memory.audit.trail import trail

    if call.format not in ("table", "jsonl"):
        raise ConfigError(f"--follow cannot write {call.format}", hint="follow as a table or as jsonl")
    with sink(call) as out:
        _write(call, out, trail(history, wanted, as_of))
        if follow:
            _write(call, out, _following(history, wanted, as_of.position, out), flush=True)


def _write(call: Call, out: Out, events: Iterable["Recorded"], *, flush: bool = False) -> None:
    columns = None if call.output is not None else width()
    printed = map(json_line, map(row, events)) if call.format == "jsonl" else lines(events)
    if columns is not None and call.format != "jsonl":
        printed = (folded(line, columns) for line in printed)
    for line in printed:
        out.write(line + "\n")
        if flush:
            out.flush()


def _following(history: "History", wanted: "Trail", position: int, out: Out) -> Iterator["Recorded"]:
    """Events as they are written, until the reader goes away or presses Ctrl-C."""
    from dataclasses import replace

    from diagevo.memory.audit.trail import trail
    from diagevo.memory.history import AsOf

    while True:
        out.flush()
        time.sleep(POLL_SECONDS)
        end = history.log.last_position()
        if end > position:
            now = AsOf(0, end, 0)
            yield from trail(history, replace(wanted, last=None), now, after=position)
            position = end


def row(recorded: "Recorded") -> dict[str, Any]:
    """An event with its envelope as plain values."""
    return {name: getattr(recorded, name) for name in _ENVELOPE} | {"payload": _shown(recorded)}


def _shown(recorded: "Recorded") -> Any:
    """The payload; of a configuration that holds a secret, as an old or imported one may, without it."""
    payload = json.loads(recorded.payload)
    return redacted(payload) if recorded.type == "RunConfigured" else payload


def lines(events: Iterable["Recorded"]) -> Iterator[str]:
    """Aligned lines: position, round, type, subject, what it says. Streams: widths are fixed."""
    for recorded in events:
        payload = json.loads(recorded.payload)
        subject = _subject(recorded.type, payload)
        text = visible(_says(recorded.type, payload), one_line=True)
        mark = f"#{recorded.position}"
        yield f"{mark:>8}  r{recorded.round:<3} {recorded.type:<19} {subject:<{_SUBJECT}} {text}".rstrip()


def _subject(type_: str, p: dict[str, Any]) -> str:
    match type_:
        case "NodePairJudged":
            return " ".join(p["nodes"])
        case "NodesMerged":
            return p["survivor"]
        case "RunConfigured" | "RoundOpened" | "RoundCommitted" | "RoundsSuperseded":
            return ""
        case "CheckpointEvaluated":
            return p["role"]
        case "GroupIngested":
            return f"s{p['step']}.g{p['group']}"
        case "CauseMatched" | "CausePromoted" | "CauseReactivated" | "CauseCreated":
            return p["cause_id"]
    return p.get("failure_id") or p.get("question_id") or p.get("stage") or p.get("node_id") or ""


def _says(type_: str, p: dict[str, Any]) -> str:
    match type_:
        case "RunConfigured":
            origin = p.get("origin")
            model = p["embedder"]
            told = f"version {p['version']}, embeddings {model['name']} ({model['dimension']} numbers)"
            return told + (f", forked from {origin['run']} at #{origin['position']}" if origin else "")
        case "RoundOpened":
            return f"ε = {p['epsilon']}, F = {p['failures']}, {len(p['weights'])} Active, seed {p['seed']}"
        case "StageStarted":
            return f"attempt {p['attempt']}"
        case "StageCompleted":
            took = "" if p.get("seconds") is None else f", {p['seconds']:.1f} s"
            return f"attempt {p['attempt']}{took}"
        case "StepTrained":
            rewards = [reward for group in p["groups"] for reward in group["rewards"]]
            loss = "" if p["loss"] is None else f", loss {p['loss']:.4g}"
            told = f"attempt {p['attempt']}, step {p['step']}{loss}"
            return f"{told}, mean of {len(rewards)} rewards {fmean(rewards):.3g}" if rewards else told
        case "PhaseMeasured":
            return _measured(p)
        case "StageAbandoned":
            why = f"; {p['reason']}" if p.get("reason") else ""
            return f"attempt {p['attempt']}: what it observed after step {p['after_step']} is void{why}"
        case "CandidateScored":
            aim = {"free": "free", "targeted": p["cause_id"]}.get(
                p["mode"], f"{p['cause_id']} + {p['stitched_cause_id']}"
            )
            counted = f"{p['first']} and {p['second']} of {p['responses']}"
            if p.get("votes_are") == "rewards":
                counted = f"{p['first']} of {p['responses']} rewards passed"
            return f"{p['verdict']}: {aim}, {counted}"
        case "GroupIngested":
            return f"{p['source']}: {p['passes']} of {len(p['rewards'])} rewards passed"
        case "CausePromoted":
            return f"mean p₁ {p['consistency']} ≥ {p['threshold']}, closed f = {p['closed_frequency']}"
        case "FailureObserved":
            known = ", against the known answer" if p.get("against") == "answer" else ""
            return f"{p['stage']}, attempt {p['attempt']}, step {p['step']}{known}"
        case "FailureDiagnosed":
            return f"{p['verdict']}: {p['cause_id'] or p['description'] or ''}".rstrip(": ")
        case "DuplicateJudged":
            return f"the same as {p['cause_id']}" if p["duplicate"] else "no duplicate"
        case "NodeAssigned":
            return p["node_id"] or f"a new node: {p['new_label']}"
        case "NodeCreated":
            return p["label"]
        case "CauseCreated":
            return f"{p['failure_id']} under {p['node_id']}: {p['description']}"
        case "CauseMatched":
            near = "" if p["similarity"] is None else f" at {p['similarity']:.2f}"
            return f"{p['failure_id']} by {p['via']}{near}"
        case "CauseReactivated":
            return f"{p['failure_id']} undoes its promotion"
        case "NodePairJudged":
            return f"cosine {p['similarity']:.2f}: " + ("one skill" if p["merge"] else "two skills")
        case "NodesMerged":
            return f"{p['absorbed']} is part of it now: {p['label']}"
        case "RoundCommitted":
            return (
                f"F = {p['failures']}, ε next = {p['epsilon_next']}, {p['active']} Active, "
                f"{p['mastered']} Mastered, {count(p['nodes'], 'node')}"
            )
        case "RoundsSuperseded":
            rounds = (
                f"round {p['first']}" if p["first"] == p["last"] else f"rounds {p['first']} to {p['last']}"
            )
            back = f"back to F = {p['failures']}, {count(len(p['causes']), 'cause')}"
            return f"{rounds} superseded, {back}: {p['reason']}"
        case "CheckpointEvaluated":
            return f"{p['benchmark']}: " + ", ".join(f"{k} {v:.3f}" for k, v in sorted(p["metrics"].items()))
    return ""


def _measured(p: dict[str, Any]) -> str:
    parts = [f"attempt {p['attempt']}, {p['steps']} steps"]
    if p["first_kl"] is not None:
        parts.append(f"KL at step 1 {p['first_kl']:.3g}")
    if p["sampling_gap"] is not None:
        parts.append(f"log-prob gap {p['sampling_gap']:.3g}")
    parts.append(f"reward {p['reward_lowest']:g} to {p['reward_highest']:g}")
    parts.append(f"{p['cut_off']} of {p['completions']} cut off")
    return ", ".join([*parts, *(f"found: {name.replace('_', ' ')}" for name in p["findings"])])
