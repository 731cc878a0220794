"""What a bundle's events say, and whether its other files agree. Nothing of a bundle is believed before."""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from diagevo.errors import DiagEvoError, StoreError
from diagevo.memory.audit.seen import Seen
from diagevo.memory.events import RunConfigured
from diagevo.memory.events.named import named_texts
from diagevo.memory.events.records import GENESIS, Recorded
from diagevo.memory.transfer.bundle_files import EXPORT_AGAIN, Form, Reader
from diagevo.memory.transfer.bundle_rows import EventRow, ReplyRow, TextRow, VectorRow
from diagevo.memory.transfer.bundle_texts import embedded, model_of, requests

Values = dict[str, Any]


class Contents:
    """The rows of a bundle, each checked as it is read. The events come first: they say what else belongs.

    Every method raises StoreError at the first row that is not what was written.
    """

    def __init__(self, folder: Path, form: Form, run_id: str, rows: dict[str, int]) -> None:
        self.folder, self._run_id, self._rows = folder, run_id, rows
        self._reader = Reader(folder, form)
        self.head, self.sequence, self.round = GENESIS, 0, 0
        """Of the events that were read so far."""
        self._models: dict[str, int] = {}
        """Embedding models of the run, with the length of their vectors."""
        self._named, self._known = Seen(), Seen()
        self._missing = 0
        """Texts that the events name and that were not read."""

    def close(self) -> None:
        self._reader.close()
        self._named.close()
        self._known.close()

    def _read(self, kind: str) -> Iterator[Any]:
        return self._reader.rows(kind, self._rows[kind])

    def _refuse(self, kind: str, row: int, what: str) -> StoreError:
        return StoreError(f"row {row} of {kind} in the bundle {self.folder} {what}", hint=EXPORT_AGAIN)

    def events(self) -> Iterator[Recorded]:
        """The events, each against its hash, its predecessor and its id."""
        row: EventRow
        for number, row in enumerate(self._read("events"), start=1):
            recorded = Recorded(**msgspec.structs.asdict(row))
            if why := self._fault(recorded, number):
                raise StoreError(
                    f"event {number} of the bundle {self.folder} is not what was written: {why}",
                    hint=EXPORT_AGAIN,
                )
            self.head, self.sequence = recorded.hash, number
            if recorded.type == "RoundCommitted":
                self.round = recorded.round
            yield recorded

    def _fault(self, recorded: Recorded, number: int) -> str | None:
        if recorded.run_id != self._run_id:
            return f"it is an event of run {recorded.run_id}"
        try:
            event = recorded.event
            values = msgspec.json.decode(recorded.payload, type=Values)
        except (DiagEvoError, ValueError, RecursionError) as error:
            return str(error).splitlines()[0]
        if not self._known.add(recorded.event_id):
            return "it is there twice"
        if isinstance(event, RunConfigured):
            self._models[model_of(event.embedder)] = event.embedder.dimension
        for _, digest in named_texts(recorded.type, recorded.schema_version, recorded.payload):
            self._missing += self._named.add(f"text\n{digest}")
        for key in requests(recorded.type, values):
            self._named.add("\n".join(("reply", *key)))
        for (hash_,) in embedded(recorded.type, values):
            self._named.add(f"vector\n{hash_}")
        return None

    def texts(self) -> Iterator[Values]:
        """The texts, each against its digest, and all that the events name."""
        row: TextRow
        for number, row in enumerate(self._read("texts"), start=1):
            if hashlib.sha256(row.content).hexdigest() != row.digest:
                raise self._refuse("texts", number, "is not the text of its digest")
            try:
                row.content.decode()
            except UnicodeDecodeError as error:
                raise self._refuse("texts", number, "is not UTF-8") from error
            yield self._once("texts", number, row, row.digest)
            self._missing -= f"text\n{row.digest}" in self._named
        if self._missing:
            raise self._lacking()

    def _lacking(self) -> StoreError:
        """The first event that names a text which the bundle does not have."""
        number, event, field, digest = next(
            (number, row, field, digest)
            for number, row in enumerate(self._read("events"), start=1)
            for field, digest in named_texts(row.type, row.schema_version, row.payload)
            if f"texts\n{digest}" not in self._known
        )
        return StoreError(
            f"event {number} of the bundle {self.folder}, {event.type} of round {event.round}, names a text"
            f" that the bundle lacks: {field} {digest}",
            hint=EXPORT_AGAIN,
        )

    def replies(self) -> Iterator[Values]:
        """The replies, each one that an event names."""
        row: ReplyRow
        for number, row in enumerate(self._read("replies"), start=1):
            if "\n".join(("reply", row.model, row.request, row.text)) not in self._named:
                raise self._refuse("replies", number, "is a reply that no event of the bundle names")
            yield self._once("replies", number, row, f"{row.model}\n{row.request}")

    def vectors(self) -> Iterator[Values]:
        """The vectors, each of a model of the run and of a text that an event names, of its length and
        finite."""
        row: VectorRow
        for number, row in enumerate(self._read("vectors"), start=1):
            if row.model not in self._models or f"vector\n{row.text_hash}" not in self._named:
                raise self._refuse("vectors", number, "is a vector that no event of the bundle asks for")
            if not self._models[row.model]:  # a model that was never named: whatever comes first
                self._models[row.model] = len(row.vector) // 4
            length = self._models[row.model]
            if not row.vector or len(row.vector) != 4 * length:
                raise self._refuse("vectors", number, f"has {len(row.vector)} bytes, not {4 * length}")
            if not np.isfinite(np.frombuffer(row.vector, dtype="<f4")).all():
                raise self._refuse("vectors", number, "is not finite")
            yield self._once("vectors", number, row, f"{row.model}\n{row.text_hash}")

    def _once(self, kind: str, number: int, row: msgspec.Struct, key: str) -> Values:
        if not self._known.add(f"{kind}\n{key}"):
            raise self._refuse(kind, number, "is there twice")
        return msgspec.structs.asdict(row)
