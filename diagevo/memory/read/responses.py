"""Every response of a run whose text the log keeps: searched by words, filtered, sorted, counted.

The index is built from the log on first use, in a temporary SQLite database private to this process. So a
search needs no write access, works the same over PostgreSQL, and is not part of what `verify` trusts; texts
that are shown are read from the log, by digest.

PostgreSQL's own index is not used. At 100,000 responses of 580 characters a GIN over `to_tsvector` took 16.2
CPU seconds, where their whole ingest took 17.7; and it takes a path or a Chinese clause as one word.
"""

import re
import sqlite3
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from diagevo.errors import ConfigError
from diagevo.memory.events import CauseCreated, CauseMatched, FailureObserved, GroupIngested
from diagevo.memory.history import History
from diagevo.memory.read.asking import select_rows
from diagevo.memory.read.placed_groups import placed_groups
from diagevo.memory.state.assignments import causes_of, moves

SECONDS = 5.0
"""Maximum seconds of one search."""
STEPS = 10_000
"""SQLite VM instructions between two checks of the clock."""
SEARCHED = 200_000
"""Maximum characters of a text that are searched."""
WORDS = 500
"""Maximum characters of a search."""
TEXTS = 5_000
"""Texts read at a time."""
NO_CAUSE = "none"
"""Stands for a missing cause."""

Verdict = Literal["passed", "failed"]
ORDERS = {
    "file": "r.id",
    "reward": "r.reward, r.id",
    "-reward": "r.reward DESC, r.id",
    "length": "r.length, r.id",
    "-length": "r.length DESC, r.id",
    "prompt": "r.prompt, r.id",
}
"""How responses may be sorted, by the name in an address."""
_TABLES = """
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -65536;
CREATE TABLE text (id INTEGER PRIMARY KEY, digest TEXT UNIQUE);
CREATE TABLE tagged (position INTEGER, tag TEXT, PRIMARY KEY (position, tag)) WITHOUT ROWID;
CREATE TABLE response (
    id INTEGER PRIMARY KEY, position INTEGER, round INTEGER, step INTEGER, sample INTEGER, prompt INTEGER,
    text INTEGER, feedback INTEGER, verdict TEXT, reward REAL, model TEXT, length INTEGER, failure TEXT,
    cause TEXT
);
CREATE VIRTUAL TABLE words USING fts5(
    body, content='', columnsize=0, tokenize='unicode61 remove_diacritics 2'
);
"""
# Scripts without spaces between words: each character is a word, and a search is a phrase of them.
_SIGNS = re.compile("([\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00020000-\U0003134f])")
_PHRASE = re.compile(r'"([^"]*)"|([^\s"]+)')


@dataclass(frozen=True, slots=True)
class Chosen:
    """Which responses are selected; an empty field does not restrict."""

    words: str = ""
    """All of them, in any order; those in quotes as they stand. In a response, its prompt or its feedback."""
    verdict: str = ""
    cause: str = ""
    tag: str = ""
    step: str = ""
    model: str = ""
    prompt: str = ""
    """Its digest."""
    sort: str = "file"


class StoredResponse(NamedTuple):
    """A response, with the digests of its texts."""

    prompt: str
    text: str
    feedback: str | None
    verdict: Verdict
    reward: float | None
    round: int
    step: int
    sample: int
    model: str | None
    length: int
    failure_id: str | None
    """Its failure id, if it was observed as a failure."""
    cause_id: str | None
    position: int
    """The position of its event."""
    tags: str
    """The tags of its prompt, without models: a JSON list."""


class _Found(NamedTuple):
    """A response before it is stored: its texts are digests."""

    position: int
    round: int
    step: int
    sample: int
    prompt: str
    text: str
    feedback: str | None
    verdict: Verdict
    reward: float | None
    model: str | None
    failure: str | None
    cause: str | None
    tags: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Failure:
    """`v_failure`."""

    position: int
    round: int
    failure_id: str
    step: int
    question: str
    trajectory: str
    feedback: str | None


class Responses:
    """The responses of a run as it is now. Thread-safe; `close` drops the index."""

    def __init__(self, history: History) -> None:
        self._lock = threading.Lock()
        self._file = sqlite3.connect("", check_same_thread=False)  # without a name: private
        try:
            self._file.executescript(_TABLES)
        except sqlite3.OperationalError as error:
            raise ConfigError(
                f"responses cannot be searched: {error}", hint="use a Python whose SQLite has FTS5"
            ) from error
        self._fill(history)

    def close(self) -> None:
        self._file.close()

    def count(self, chosen: Chosen) -> int:
        """How many are selected. Raises ConfigError if that takes longer than SECONDS."""
        where, values = _where(chosen)
        with self._within() as file:
            return file.execute(f"SELECT count(*) FROM response r WHERE {where}", values).fetchone()[0]

    def find(self, chosen: Chosen, start: int, most: int) -> list[StoredResponse]:
        """A page of the selected ones, in order. Raises as `count` does."""
        where, values = _where(chosen)
        order = ORDERS.get(chosen.sort, ORDERS["file"])
        # The rows are chosen before their texts are looked up.
        query = f"""SELECT p.digest, t.digest, f.digest, r.verdict, r.reward, r.round, r.step, r.sample,
            r.model, r.length, r.failure, r.cause, r.position,
            (SELECT json_group_array(tag) FROM tagged WHERE tagged.position = r.position)
            FROM (SELECT * FROM response r WHERE {where} ORDER BY {order} LIMIT ? OFFSET ?) r
            JOIN text p ON p.id = r.prompt JOIN text t ON t.id = r.text LEFT JOIN text f ON f.id = r.feedback
            ORDER BY {order}"""
        with self._within() as file:
            return [StoredResponse(*row) for row in file.execute(query, (*values, most, start))]

    def values(self, column: Literal["verdict", "cause", "step", "model"]) -> dict[str, int]:
        """The values of a column with their number of responses, most frequent first; for causes only
        failures."""
        query = f"""SELECT {column}, count(*) FROM response WHERE {column} IS NOT NULL
            GROUP BY {column} ORDER BY count(*) DESC, {column}"""
        with self._within() as file:
            return {str(value): number for value, number in file.execute(query)}

    def tags(self) -> dict[str, int]:
        """The tags, models aside, with how many groups each has."""
        query = "SELECT tag, count(*) FROM tagged GROUP BY tag ORDER BY count(*) DESC, tag"
        with self._within() as file:
            return dict(file.execute(query).fetchall())

    @contextmanager
    def _within(self) -> Generator[sqlite3.Connection]:
        """The database, to one thread at a time and for SECONDS."""
        with self._lock:
            until = time.monotonic() + SECONDS
            self._file.set_progress_handler(lambda: time.monotonic() > until, STEPS)
            try:
                yield self._file
            except sqlite3.OperationalError as error:
                raise ConfigError(
                    f"the responses were not searched: {error} (at most {SECONDS:g} seconds)",
                    hint="ask for other words, or choose a cause, a tag or a step",
                ) from error
            finally:
                self._file.set_progress_handler(None, 0)

    def _fill(self, history: History) -> None:
        found = _of_groups(history) if history.ingested is not None else _of_failures(history)
        ids: dict[str, int] = {}

        def known(digest: str) -> int:
            return ids.setdefault(digest, len(ids) + 1)

        rows = [
            (
                *(one.position, one.round, one.step, one.sample, known(one.prompt), known(one.text)),
                *(None if one.feedback is None else known(one.feedback), one.verdict, one.reward, one.model),
                *(one.failure, one.cause),
            )
            for one in found
        ]
        tagged = {(tag, one.position) for one in found for tag in one.tags}
        with self._file:
            self._file.executemany("INSERT INTO text VALUES (?, ?)", ((n, d) for d, n in ids.items()))
            lengths = dict[int, int]()

            def bodies() -> Iterator[tuple[int, str]]:
                for digest, text in _texts(history, list(ids)):
                    lengths[ids[digest]] = len(text)
                    yield ids[digest], _spaced(text[:SEARCHED])

            self._file.executemany("INSERT INTO words (rowid, body) VALUES (?, ?)", bodies())
            self._file.executemany(
                f"INSERT INTO response VALUES (NULL, {', '.join('?' * 13)})",
                ((*row[:10], lengths.get(row[5], 0), *row[10:]) for row in rows),
            )
            self._file.executemany("INSERT INTO tagged (tag, position) VALUES (?, ?)", tagged)


def _texts(history: History, digests: Sequence[str]) -> Iterator[tuple[str, str]]:
    """In digest order: FTS5 flushes its buffer whenever a row is out of order."""
    for start in range(0, len(digests), TEXTS):
        some = digests[start : start + TEXTS]
        found = history.texts(some)
        yield from ((digest, found[digest]) for digest in some if digest in found)


def _of_groups(history: History) -> list[_Found]:
    """For an ingested run: every text of the groups that count."""
    causes = _causes(history)
    observed = {
        fact.event.failure_id: fact.event.trajectory
        for fact in history.log.chosen(history.run_id, [FailureObserved])
    }
    placed = placed_groups(history)
    names = {group.position: name for name, group in placed.items()}
    found: list[_Found] = []
    for fact in history.log.chosen(history.run_id, [GroupIngested]):
        if (name := names.get(fact.position)) is None:
            continue
        group, round_ = fact.event, placed[name].round
        said = {one.sample: one.text for one in group.feedback}
        failed = {one.sample: one.trajectory for one in group.failed}
        passing = [n for n in range(len(group.rewards)) if n not in failed]
        kept = group.passed or ([] if group.reference is None else [group.reference])
        texts = failed | dict(zip(passing, kept, strict=False))
        tags, model = placed[name].classes, placed[name].model
        for sample, text in sorted(texts.items()):
            failure = f"{name}.a{sample}"
            failure = failure if sample in failed and observed.get(failure) == text else None
            found.append(
                _Found(
                    *(fact.position, round_, group.step, sample, group.question, text, said.get(sample)),
                    *("failed" if sample in failed else "passed", group.rewards[sample], model, failure),
                    *(causes.get(failure or ""), tags),
                )
            )
    return found


def _of_failures(history: History) -> list[_Found]:
    """For a self-play run: its failures."""
    causes = _causes(history)
    return [
        _Found(
            *(one.position, one.round, one.step, int(one.failure_id.rpartition(".a")[2])),
            *(one.question, one.trajectory, one.feedback, "failed", None, None, one.failure_id),
            *(causes.get(one.failure_id), ()),
        )
        for one in select_rows(history, "v_failure", _Failure, order="position")
    ]


def _causes(history: History) -> dict[str, str | None]:
    """By failure, the cause that it is counted under."""
    gone = history.superseded()
    found: dict[str, str | None] = {
        fact.event.failure_id: fact.event.cause_id
        for fact in history.log.chosen(history.run_id, [CauseCreated, CauseMatched])
        if fact.round not in gone
    }
    return found | causes_of(moves(history.log, history.run_id))


def _where(chosen: Chosen) -> tuple[str, list[Any]]:
    """A condition on `response r`, and what stands in it."""
    parts, values = ["1"], list[Any]()

    def add(part: str, *given: Any) -> None:
        parts.append(part)
        values.extend(given)

    if chosen.words.strip():
        hit = "SELECT rowid FROM words WHERE words MATCH ?"
        phrases = match(chosen.words)
        add(f"(r.text IN ({hit}) OR r.prompt IN ({hit}) OR r.feedback IN ({hit}))", *[phrases] * 3)
    if chosen.verdict:
        add("r.verdict = ?", chosen.verdict)
    if chosen.cause == NO_CAUSE:
        add("r.cause IS NULL AND r.verdict = 'failed'")
    elif chosen.cause:
        add("r.cause = ?", chosen.cause)
    if chosen.tag:
        add("r.position IN (SELECT position FROM tagged WHERE tag = ?)", chosen.tag)
    if chosen.step:
        add("r.step = ?", int(chosen.step) if re.fullmatch(r"\d{1,9}", chosen.step) else -1)
    if chosen.model:
        add("r.model = ?", chosen.model)
    if chosen.prompt:
        add("r.prompt = (SELECT id FROM text WHERE digest = ?)", chosen.prompt)
    return " AND ".join(parts), values


def phrases(words: str) -> list[str]:
    """The words of a search, and its quoted phrases. A token without a letter or digit is not a word."""
    found = (quoted or word for quoted, word in _PHRASE.findall(words[:WORDS]))
    return [phrase for phrase in found if any(sign.isalnum() for sign in phrase)]


def match(words: str) -> str:
    """The same for FTS5, with no operators. Raises ConfigError if there is no word."""
    found = [_spaced(phrase) for phrase in phrases(words)]
    if not found:
        raise ConfigError(f"there is no word in {words[:80]!r}", hint="search for letters or digits")
    return " ".join('"{}"'.format("".join(c if c.isprintable() else " " for c in each)) for each in found)


def _spaced(text: str) -> str:
    return text if text.isascii() else _SIGNS.sub(r" \1 ", text.encode("utf-8", "replace").decode())


def excerpt(text: str, words: Iterable[str], most: int) -> tuple[str, str, str]:
    """A text around the first match: the part before, the match, and the part after; without a match, the
    beginning and two empty texts."""
    hits = (re.search(re.escape(phrase), text, re.IGNORECASE) for phrase in words)
    if (found := min((hit.span() for hit in hits if hit), default=None)) is None:
        return text[:most] + ("…" if len(text) > most else ""), "", ""
    at, end = found
    start = max(0, at - most // 3)
    return (
        ("…" if start else "") + text[start:at],
        text[at:end],
        text[end : start + most] + ("…" if len(text) > start + most else ""),
    )
