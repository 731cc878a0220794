"""The pages about what was played: a round with its questions, and the log itself."""

import json
from collections import Counter

from diagevo.errors import NotFoundError
from diagevo.memory.audit.replay import describe, next_schedule
from diagevo.memory.events import EVENT_TYPES, CandidateScored, RoundOpened
from diagevo.memory.events.records import Recorded
from diagevo.memory.history import History, expect
from diagevo.memory.read.rounds import rounds
from diagevo.text.redaction import redacted
from diagevo.view.page import ROWS, Page, Site, part_of
from diagevo.view.pages import below

SHOWN_SCHEDULE = 20


def round_(history: History, site: Site, number: str, part: str | None = None) -> Page:
    """A round: how it came out, what it drew from, and each question with its verdict."""
    wanted = int(number)
    run = history.run_id
    if history.find(RoundOpened, wanted, "") is None:
        raise NotFoundError(f"run {run} has no round {wanted}", hint="the overview lists its rounds")
    line = next(iter(rounds(history, wanted)), None)
    schedule = None
    if wanted == 1 or any(commit.round == wanted - 1 for commit in history.commits):
        schedule = next_schedule(describe(history.state(history.after(wanted - 1)))) if wanted > 1 else None
    if line is not None:
        verdicts = line.verdicts
    else:  # it is open, or was when it was superseded
        verdicts = Counter(fact.event.verdict for fact in history.events(CandidateScored, round=wanted))
    total = sum(verdicts.values())
    page = part_of(total, part)
    read = history.log.read(
        run, types=["CandidateScored"], rounds=(wanted, wanted), skip=page.start, limit=ROWS
    )
    shown = [expect(recorded, CandidateScored) for recorded in read]
    texts = history.texts([one.question for one in shown])
    data = {
        "number": wanted,
        "ingested": history.ingested is not None and not history.steered,
        "line": line,
        "superseded_by": history.superseded().get(wanted),
        "schedule": schedule,
        "shown_schedule": SHOWN_SCHEDULE,
        "rows": [(one, texts.get(one.question)) for one in shown],
        "verdicts": verdicts,
        "total": total,
        "has_next": history.find(RoundOpened, wanted + 1, "") is not None,
        "part": page,
        "base": f"{run}/rounds/{wanted}",
        "commands": [f"diagevo memory replay --round {wanted} --run {run}"],
    }
    return Page("round.html", f"round {wanted} of {run}", data, below(run))


def log(history: History, site: Site, kind: str | None = None, part: str | None = None) -> Page:
    """The events, the newest first, all or those of a type."""
    if kind is not None and kind not in EVENT_TYPES:
        raise NotFoundError(f"there is no type of event {kind}", hint="the log's page lists them")
    run = history.run_id
    total = history.end.sequence if kind is None else history.log.count(run, kind)
    page = part_of(total, part)
    types = None if kind is None else [kind]
    rows = history.log.read(run, types=types, newest_first=True, limit=ROWS, skip=page.start)
    data = {
        "rows": [(recorded, *_told(recorded)) for recorded in rows],
        "kind": kind,
        "kinds": sorted(EVENT_TYPES),
        "total": total,
        "part": page,
        "base": f"{run}/log" + (f"/{kind}" if kind else ""),
    }
    return Page("log.html", "log", data, below(run))


_PAGES = {"cause_id": "causes", "node_id": "nodes", "question_id": "questions", "failure_id": "failures"}


def _told(recorded: Recorded) -> tuple[str, list[tuple[str, str]]]:
    """An event's payload, and what it is about with the folder of its pages."""
    values = json.loads(recorded.payload)
    names = [(folder, values[key]) for key, folder in _PAGES.items() if isinstance(values.get(key), str)]
    values.pop("type", None)
    if recorded.type == "RunConfigured":
        values = redacted(values)
    return json.dumps(values, ensure_ascii=False), names
