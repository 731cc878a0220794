"""What a bundle's events say, and whether its other tables agree. Nothing of a bundle is believed before."""

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from diagevo.errors import DiagEvoError, StoreError
from diagevo.memory.audit.seen import Seen
from diagevo.memory.events import RunConfigured
from diagevo.memory.events.decode import read
from diagevo.memory.events.named_texts import named_texts
from diagevo.memory.events.records import GENESIS, Recorded
from diagevo.memory.transfer.bundle_file import (
    EXPORT_AGAIN,
    BundledEvent,
    BundledReply,
    BundledVector,
    Stranger,
    TextRow,
)
from diagevo.memory.transfer.bundle_texts import embedded, model_of, requests

Values = dict[str, Any]


class Contents:
    """The rows of a bundle, each checked as it is read. The events come first: they say what else belongs.

    Every method raises StoreError at the first row that is not what was written.
    """

    def __init__(self, bundle: Stranger) -> None:
        self._bundle, self._run = bundle, bundle.run()
        self.run_id = self._run.run_id
        self._models: dict[str, int] = {}
        """Embedding models of the run, with the length of their vectors."""
        self._named, self._known = Seen(), Seen()
        self._missing = 0
        """Texts that the events name and that were not read."""

    def close(self) -> None:
        self._named.close()
        self._known.close()

    def events(self) -> Iterator[Recorded]:
        """The events, up to the end that the bundle names. What each says is judged by whoever takes it
        (`copying`)."""
        head, number = GENESIS, 0
        row: BundledEvent
        for number, row in enumerate(self._bundle.rows("event"), start=1):
            recorded = Recorded(**msgspec.structs.asdict(row))
            if recorded.run_id != self.run_id:
                raise self._bundle.refusal("event", number, f"is an event of run {recorded.run_id}")
            yield recorded
            self._note(recorded)
            head = recorded.hash
        if (number, head) != (self._run.sequence, self._run.hash):
            ends = f"the bundle {self._bundle.path} ends at event {number} in {head[:12]}…"
            said = f"; its run says {self._run.sequence} in {self._run.hash[:12]}…"
            raise StoreError(ends + said, hint=EXPORT_AGAIN)

    def _note(self, recorded: Recorded) -> None:
        """What else an event, which was taken, asks for."""
        event = recorded.event
        if isinstance(event, RunConfigured):
            self._models[model_of(event.embedder)] = event.embedder.dimension
        for _, digest in named_texts(event):
            self._missing += self._named.add(f"text\n{digest}")
        try:
            values = msgspec.json.decode(recorded.payload, type=Values)
        except (DiagEvoError, ValueError, RecursionError):
            return
        for key in requests(recorded.type, values):
            self._named.add("\n".join(("reply", *key)))
        for (hash_,) in embedded(recorded.type, values):
            self._named.add(f"vector\n{hash_}")

    def texts(self) -> Iterator[Values]:
        """The texts, each against its digest, and all that the events name."""
        row: TextRow
        for number, row in enumerate(self._bundle.rows("artifact"), start=1):
            if hashlib.sha256(row.content).hexdigest() != row.digest:
                raise self._bundle.refusal("artifact", number, "is not the text of its digest")
            try:
                row.content.decode()
            except UnicodeDecodeError as error:
                raise self._bundle.refusal("artifact", number, "is not UTF-8") from error
            if f"text\n{row.digest}" not in self._named:
                raise self._bundle.refusal("artifact", number, "is a text that no event names")
            self._missing -= 1
            yield self._once("artifact", number, row, row.digest)
        if self._missing:
            raise self._lacking()

    def _lacking(self) -> StoreError:
        """The first event that names a text which the bundle does not have."""
        number, event, field, digest = next(
            (number, row, field, digest)
            for number, row in enumerate(self._bundle.rows("event"), start=1)
            for field, digest in named_texts(read(row.type, row.schema_version, row.payload))
            if f"artifact\n{digest}" not in self._known
        )
        return StoreError(
            f"event {number} of the bundle {self._bundle.path}, {event.type} of round {event.round}, names a"
            f" text that the bundle lacks: {field} {digest}",
            hint=EXPORT_AGAIN,
        )

    def replies(self) -> Iterator[Values]:
        """The replies, each one that an event names."""
        row: BundledReply
        for number, row in enumerate(self._bundle.rows("reply"), start=1):
            if "\n".join(("reply", row.model, row.request, row.text)) not in self._named:
                raise self._bundle.refusal("reply", number, "is a reply that no event names")
            yield self._once("reply", number, row, f"{row.model}\n{row.request}")

    def vectors(self) -> Iterator[Values]:
        """The vectors, each of a model of the run and of a text that an event names, of its length and
        finite."""
        row: BundledVector
        for number, row in enumerate(self._bundle.rows("vector"), start=1):
            if row.model not in self._models or f"vector\n{row.text_hash}" not in self._named:
                raise self._bundle.refusal("vector", number, "is a vector that no event asks for")
            if not self._models[row.model]:  # a model that was never named: whatever comes first
                self._models[row.model] = len(row.vector) // 4
            length = self._models[row.model]
            if not row.vector or len(row.vector) != 4 * length:
                raise self._bundle.refusal("vector", number, f"has {len(row.vector)} bytes, not {4 * length}")
            if not np.isfinite(np.frombuffer(row.vector, dtype="<f4")).all():
                raise self._bundle.refusal("vector", number, "is not finite")
            yield self._once("vector", number, row, f"{row.model}\n{row.text_hash}")

    def _once(self, table: str, number: int, row: msgspec.Struct, key: str) -> Values:
        if not self._known.add(f"{table}\n{key}"):
            raise self._bundle.refusal(table, number, "is there twice")
        return msgspec.structs.asdict(row)
