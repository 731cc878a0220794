"""The pages about responses: all responses of a run, searched and filtered, and those to one prompt side by
side."""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any
from urllib.parse import urlencode

from diagevo.errors import ConfigError, NotFoundError, extra
from diagevo.memory.history import History
from diagevo.memory.read.asking import select_rows
from diagevo.memory.read.responses import (
    NO_CAUSE,
    ORDERS,
    SEARCHED,
    Chosen,
    Responses,
    StoredResponse,
    excerpt,
    phrases,
)
from diagevo.text.escaping import csv_text, json_text, storable
from diagevo.text.thoughts import answered, thought
from diagevo.view.page import TEXT, Page, Site, TablePage, part_of
from diagevo.view.pages import below

LISTED = 100
"""Responses on one page of the list."""
BESIDE = 20
"""Responses to a prompt on one page."""
EXCERPT = 240
"""Maximum characters of a response in the list."""
CHOICES = 200
"""Maximum values that a filter offers, most frequent first."""
WRITTEN = 1_000
"""Responses read at a time for a file."""
ORDER_NAMES = {
    "file": "as in the file",
    "reward": "reward, lowest first",
    "-reward": "reward, highest first",
    "length": "shortest first",
    "-length": "longest first",
    "prompt": "by prompt",
}


@dataclass(frozen=True, slots=True)
class ListedResponse:
    """A row of the list, with the displayed part of its texts."""

    of: StoredResponse
    prompt: str
    text: tuple[str, str, str]
    """The match and its context: before, match, after."""
    tags: tuple[str, ...]


def chosen_of(query: Mapping[str, str]) -> Chosen:
    """The filter in an address; misspelt parts are ignored."""
    return Chosen(
        **{field.name: storable(query[field.name]) for field in fields(Chosen) if query.get(field.name)}
    )


def listed(history: History, site: Site, part: str | None = None, query: Mapping[str, str] = {}) -> Page:
    """All responses, or those that the address selects."""
    run, chosen = history.run_id, chosen_of(query)
    found = site.responses(run)
    fault, total, page, rows = None, 0, TablePage(1, 1, LISTED), list[ListedResponse]()
    try:
        total = found.count(chosen)
        page = part_of(total, part, LISTED)
        rows = _rows(history, found.find(chosen, page.start, page.rows), chosen)
    except ConfigError as error:
        fault = f"{error.message}: {error.hint}"
    asked = {name: value for name, value in asdict(chosen).items() if value != getattr(Chosen(), name)}
    causes = history.state(history.end).causes
    known = found.values("cause") if site.live else {}
    data = {
        "chosen": chosen,
        "fault": fault,
        "total": total,
        "kept": found.count(Chosen()),
        "responses": _responses(history),
        "rows": rows,
        "part": page,
        "base": f"{run}/responses",
        "suffix": f"?{urlencode(asked)}" if asked else "",
        "tags": list(found.tags().items())[:CHOICES] if site.live else [],
        "models": list(found.values("model").items())[:CHOICES] if site.live else [],
        "steps": sorted(found.values("step").items(), key=lambda one: int(one[0])) if site.live else [],
        "causes": [(one, n, causes[one].description) for one, n in known.items() if one in causes][:CHOICES],
        "no_cause": NO_CAUSE,
        "searched": SEARCHED,
        "orders": [(name, ORDER_NAMES[name]) for name in ORDERS],
        "kinds": KINDS,
    }
    return Page("responses.html", "responses", data, below(run))


def _rows(history: History, found: Sequence[StoredResponse], chosen: Chosen) -> list[ListedResponse]:
    texts = history.texts([*(one.prompt for one in found), *(one.text for one in found)])
    words, head = phrases(chosen.words), history.head
    return [
        ListedResponse(
            one,
            _without(head, texts.get(one.prompt, "(not kept)")),
            excerpt(_shown(texts.get(one.text, "(not kept)"), words), words, EXCERPT),
            tuple(json.loads(one.tags)),
        )
        for one in found
    ]


def _without(head: str, prompt: str) -> str:
    return f"…{prompt[len(head) :]}" if head and prompt.startswith(head) else prompt


def _shown(text: str, words: Sequence[str]) -> str:
    """The answer without its reasoning; with it if only the reasoning has the match."""
    own = answered(text).strip()
    lowered = own.lower()
    return own if own and (not words or any(word.lower() in lowered for word in words)) else text


@dataclass(frozen=True, slots=True)
class _Rollouts:
    """`v_rollouts`."""

    rollouts: int


def _responses(history: History) -> int | None:
    """How many there were, if the trainer's files say so."""
    if history.ingested is None:
        return None
    return sum(one.rollouts for one in select_rows(history, "v_rollouts", _Rollouts))


@dataclass(frozen=True, slots=True)
class _Group:
    """`v_group`: a prompt as logged."""

    answer: str | None
    rollouts: int
    passes: int


@dataclass(frozen=True, slots=True)
class ShownResponse:
    """A response to a prompt, up to the page's limit."""

    of: StoredResponse
    text: str
    thought: str
    feedback: str | None


def prompt(history: History, site: Site, prompt: str, part: str | None = None) -> Page:
    """A prompt with every response to it that the log keeps."""
    run, chosen = history.run_id, Chosen(prompt=prompt)
    responses = site.responses(run)
    if not (total := responses.count(chosen)):
        raise NotFoundError(f"run {run} has no response to such a prompt", hint="its responses have a page")
    page = part_of(total, part, BESIDE)
    found = responses.find(chosen, page.start, page.rows)
    digests = [prompt, *(one.text for one in found), *(one.feedback for one in found if one.feedback)]
    texts = history.texts(digests)
    groups = select_rows(history, "v_group", _Group, "question = :asked", {"asked": prompt}, order="position")
    data = {
        "prompt": texts.get(prompt),
        "digest": prompt,
        "shown": [
            ShownResponse(
                one,
                answered(text := texts.get(one.text, "(not kept)")).strip("\n") or text,
                thought(text[:TEXT]),
                texts.get(one.feedback or ""),
            )
            for one in found
        ],
        "answers": list(dict.fromkeys(one.answer for one in groups if one.answer is not None)),
        "tags": json.loads(found[0].tags),
        "rollouts": sum(one.rollouts for one in groups),
        "passes": sum(one.passes for one in groups),
        "total": total,
        "part": page,
        "base": f"{run}/prompts/{prompt}",
    }
    trail = (*below(run), ("responses", f"{run}/responses.html"))
    return Page("prompt.html", f"a prompt of {run}", data, trail)


KINDS = {
    "csv": "text/csv; charset=utf-8",
    "json": "application/json",
    "parquet": "application/vnd.apache.parquet",
}
"""The file formats of responses, with their media types."""


def written(history: History, site: Site, kind: str, query: Mapping[str, str]) -> Iterator[bytes]:
    """The responses that an address selects, as a file with whole texts. Raises ConfigError, for Parquet
    also if polars is missing."""
    chosen = chosen_of(query)
    found = site.responses(history.run_id)
    parts = records(history, found, chosen, found.count(chosen))
    if kind == "parquet":
        return iter([_parquet([row for rows in parts for row in rows])])
    return _csv(parts) if kind == "csv" else _json(parts)


NAMES = (
    *("prompt", "response", "verdict", "reward", "cause_id", "cause", "feedback", "tags", "model", "step"),
    *("round", "sample", "failure_id"),
)
"""The columns of a file of responses."""


def records(history: History, found: Responses, chosen: Chosen, total: int) -> Iterator[list[dict[str, Any]]]:
    """The selected responses with whole texts, in batches."""
    causes = history.state(history.end).causes
    for start in range(0, total, WRITTEN):
        some = found.find(chosen, start, WRITTEN)
        digests = {text for one in some for text in (one.prompt, one.text, one.feedback) if text}
        texts = history.texts(list(digests))
        yield [
            dict(
                zip(
                    NAMES,
                    (
                        *(texts.get(one.prompt), texts.get(one.text), one.verdict, one.reward, one.cause_id),
                        causes[one.cause_id].description if one.cause_id in causes else None,
                        *(texts.get(one.feedback or ""), one.tags, one.model, one.step),
                        *(one.round, one.sample, one.failure_id),
                    ),
                    strict=True,
                )
            )
            for one in some
        ]


def _csv(parts: Iterator[list[dict[str, Any]]]) -> Iterator[bytes]:
    yield (",".join(NAMES) + "\n").encode()
    for rows in parts:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        for row in rows:
            writer.writerow([csv_text(cell) if isinstance(cell, str) else cell for cell in row.values()])
        yield out.getvalue().encode()


def _json(parts: Iterator[list[dict[str, Any]]]) -> Iterator[bytes]:
    before = "[\n"
    for rows in parts:
        for row in rows:
            yield (before + json_text(row | {"tags": json.loads(row["tags"])})).encode()
            before = ",\n"
    yield b"[]\n" if before == "[\n" else b"\n]\n"


def _parquet(rows: list[dict[str, Any]]) -> bytes:
    with extra("polars", "Parquet"):
        import polars
    out = io.BytesIO()
    polars.DataFrame(rows, schema=list(NAMES), orient="row", infer_schema_length=None).write_parquet(out)
    return out.getvalue()
