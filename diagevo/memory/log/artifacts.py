"""Texts by their SHA-256, and a language model's replies by request: stored once, never changed. Thread-
safe."""

import hashlib
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlalchemy import Insert, delete, select

from diagevo.errors import ChangedTextError, ConfigError, NotFoundError
from diagevo.memory.events.records import LONGEST_TEXT
from diagevo.memory.log.database import CACHE, Database, in_list, insert_into, insert_missing, list_param
from diagevo.memory.log.prepared import Prepared
from diagevo.memory.log.tables import ARTIFACT, REPLY
from diagevo.text.escaping import one_line, storable, utf8


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's reply and its cost."""

    text: str
    input_tokens: int
    output_tokens: int


def digest_of(text: str) -> str:
    """SHA-256 of the text's UTF-8 bytes, in hex."""
    return hashlib.sha256(utf8(text)).hexdigest()


def is_text(content: Any, digest: str) -> bool:
    """Whether these bytes are the text with this digest. (A damaged file may contain anything.)"""
    whole = isinstance(content, bytes) and hashlib.sha256(content).hexdigest() == digest
    return whole and no_text(content) is None


def no_text(content: bytes) -> str | None:
    """Why no writer could have stored these bytes as a text; None if one could."""
    if b"\0" in content:
        return "holds a NUL"
    try:
        content.decode()
    except UnicodeDecodeError:
        return "is not UTF-8"
    return None


def upsert_text(database: Database) -> Insert:
    """An INSERT of texts that match their digests. Different content under a digest is damage, and is
    replaced."""
    add = insert_into(database.dialect, ARTIFACT)
    given = add.excluded.content
    return add.on_conflict_do_update(
        index_elements=[ARTIFACT.c.digest], set_={"content": given}, where=ARTIFACT.c.content != given
    )


class Artifacts:
    """Writes are transactions of their own: a text without an event harms nobody, an event without its text
    does."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._remember = insert_missing(database, REPLY)

    @cached_property
    def _put(self) -> Prepared:
        return Prepared(self._database.engine, upsert_text(self._database), ["digest", "content"])

    @cached_property
    def _stored(self) -> Prepared:
        one_of = in_list(self._database, ARTIFACT.c.digest, "digests")
        query = select(ARTIFACT.c.digest, ARTIFACT.c.content).where(one_of)
        return Prepared(self._database.engine, query, ["digests"])

    @cached_property
    def _known(self) -> Prepared:
        one_of = in_list(self._database, ARTIFACT.c.digest, "digests")
        return Prepared(self._database.engine, select(ARTIFACT.c.digest).where(one_of), ["digests"])

    def put(self, text: str) -> str:
        """Store a text and return its digest.

        Raises ConfigError for anything that is not a text, else as `put_many` does.
        """
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(
                f"put takes a text, not {type(text).__name__}", hint="memory.artifacts.put(TEXT)"
            )
        return self.put_many([text])[0]

    def put_many(self, texts: Sequence[str]) -> list[str]:
        """Store texts in one transaction and return their digests, in order. Raises ConfigError if one is
        too long for a bundle."""
        for text in texts:
            if len(text) > LONGEST_TEXT // 4 and (size := len(utf8(text))) > LONGEST_TEXT:
                raise ConfigError(
                    f"a text of {size:,} bytes cannot be kept: {one_line(text[:80])}…",
                    hint=f"the log keeps texts of up to {LONGEST_TEXT:,} bytes",
                )
        digests = [digest_of(text) for text in texts]
        missing = dict(zip(digests, texts, strict=True))
        for known in self._right(list(missing)):
            del missing[known]
        if missing:
            with self._database.write() as connection:
                self._put.many(connection, [(d, utf8(t)) for d, t in sorted(missing.items())])
        return digests

    def unstored(self, digests: Sequence[str]) -> list[str]:
        """Digests without a stored text."""
        if not digests:
            return []
        with self._database.read() as connection:
            known = {digest for (digest,) in self._known.all(connection, list_param(self._database, digests))}
        return [digest for digest in digests if digest not in known]

    def _right(self, digests: Sequence[str]) -> set[str]:
        """Digests whose text is stored and matches."""
        with self._database.read() as connection:
            stored = self._stored.all(connection, list_param(self._database, digests))
        return {digest for digest, content in stored if is_text(content, digest)}

    def get(self, digest: str) -> str:
        """The text with a digest. Raises NotFoundError; ChangedTextError if the stored bytes do not
        match."""
        return self.get_many([digest])[digest]

    def get_many(self, digests: Sequence[str]) -> dict[str, str]:
        """Texts by digest, in one read. Raises as `get` does."""
        found = self.kept(digests)
        if missing := next((digest for digest in digests if digest not in found), None):
            raise NotFoundError(f"no text with digest {missing}")
        return found

    def kept(self, digests: Sequence[str]) -> dict[str, str]:
        """Those of the texts that are stored, in one read. Raises ChangedTextError as `get` does."""
        wanted = list(dict.fromkeys(digests))
        with self._database.read() as connection:
            found: dict[str, Any] = dict(self._stored.all(connection, list_param(self._database, wanted)))
        for digest, content in found.items():
            if not is_text(content, digest):
                raise ChangedTextError(digest)
        return {digest: content.decode() for digest, content in found.items()}

    def recall_reply(self, model: str, request: str) -> Reply | None:
        """The earlier reply of `model` to this request (a digest)."""
        query = select(REPLY.c.text, REPLY.c.input_tokens, REPLY.c.output_tokens)
        query = query.where(REPLY.c.model == storable(model), REPLY.c.request == request)
        with self._database.read() as connection:
            row = connection.execute(query).one_or_none()
        return None if row is None else Reply(self.get(row.text), row.input_tokens, row.output_tokens)

    def remember_reply(self, model: str, request: str, reply: Reply, *, instead: bool = False) -> None:
        """Keep a reply; the first one to a request stays, unless this one comes `instead`."""
        model = storable(model)
        row = {
            "model": model,
            "request": request,
            "text": self.put(reply.text),
            "input_tokens": reply.input_tokens,
            "output_tokens": reply.output_tokens,
        }
        with self._database.write() as connection:
            if instead:
                connection.execute(delete(REPLY).where(REPLY.c.model == model, REPLY.c.request == request))
            connection.execute(self._remember, row)


class DigestSet:
    """A set of texts, by 16-byte digests, in a temporary database that disappears when it is closed."""

    def __init__(self) -> None:
        self._file = sqlite3.connect("", isolation_level=None)  # without a name: a private temporary file
        self._file.execute(f"PRAGMA cache_size = -{CACHE >> 10}")
        self._file.execute("CREATE TABLE seen (key BLOB PRIMARY KEY) WITHOUT ROWID")
        self._file.execute("BEGIN")

    def add(self, key: str) -> bool:
        """Whether the key is new."""
        return self._file.execute("INSERT OR IGNORE INTO seen VALUES (?)", (_short(key),)).rowcount > 0

    def remove(self, key: str) -> bool:
        """Whether the key was there."""
        return self._file.execute("DELETE FROM seen WHERE key = ?", (_short(key),)).rowcount > 0

    def __contains__(self, key: str) -> bool:
        return self._file.execute("SELECT 1 FROM seen WHERE key = ?", (_short(key),)).fetchone() is not None

    def close(self) -> None:
        self._file.close()


def _short(key: str) -> bytes:
    return hashlib.blake2b(key.encode(), digest_size=16).digest()
