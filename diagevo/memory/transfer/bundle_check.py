"""What a bundle's events say, and whether its other tables agree. Nothing of a bundle is believed before."""

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from diagevo.errors import StoreError
from diagevo.memory.audit.seen import Seen
from diagevo.memory.events import Event, RunConfigured
from diagevo.memory.events.named_texts import named_texts
from diagevo.memory.events.records import GENESIS, Recorded
from diagevo.memory.log.vectors import model_of, text_hash
from diagevo.memory.transfer.bundle_file import EXPORT_AGAIN, Stranger
from diagevo.memory.transfer.bundle_texts import embedded

Rows = Iterator[dict[str, Any]]


class Contents:
    """The rows of a bundle, each checked as it is read. The events come first: they say what else belongs.

    Every method raises StoreError at the first row that is not what was written.
    """

    def __init__(self, bundle: Stranger) -> None:
        self._bundle, self._run = bundle, bundle.run()
        self.run_id: str = self._run["run_id"]
        self._models: dict[str, int] = {}
        """Embedding models of the run, with the length of their vectors."""
        self._named = Seen()
        """What the events name; a text that was read is taken out."""
        self._texts = 0
        """Texts that were not read."""

    def close(self) -> None:
        self._named.close()

    def events(self) -> Iterator[Recorded]:
        """The events, up to the end that the bundle names. What each says is judged by whoever takes it
        (`copying`), who gives it to `note`."""
        head, number = GENESIS, 0
        for number, row in enumerate(self._bundle.rows("event"), start=1):
            recorded = Recorded(*row)
            if recorded.run_id != self.run_id:
                raise self._bundle.refusal("event", number, f"is an event of run {recorded.run_id}")
            yield recorded
            head = recorded.hash
        sequence, hash_ = self._run["sequence"], self._run["hash"]
        if not number or (number, head) != (sequence, hash_):
            ends = f"the bundle {self._bundle.path} ends at event {number} in {head[:12]}…"
            raise StoreError(f"{ends}; its run says {sequence} in {hash_[:12]}…", hint=EXPORT_AGAIN)

    def note(self, event: Event) -> None:
        """What else an event, which was taken, asks for."""
        if isinstance(event, RunConfigured):
            self._models[model_of(event.embedder)] = event.embedder.dimension
        for _, digest in named_texts(event):
            self._texts += self._named.add(f"text\n{digest}")
        if (text := embedded(event)) is not None:
            self._named.add(f"vector\n{text_hash(text)}")

    def texts(self) -> Rows:
        """The texts, each against its digest, and all that the events name."""
        for number, row in enumerate(self._bundle.rows("artifact"), start=1):
            digest, content = row
            if hashlib.sha256(content).hexdigest() != digest:
                raise self._bundle.refusal("artifact", number, "is not the text of its digest")
            try:
                content.decode()
            except UnicodeDecodeError as error:
                raise self._bundle.refusal("artifact", number, "is not UTF-8") from error
            if not self._named.remove(f"text\n{digest}"):
                raise self._bundle.refusal("artifact", number, "is a text that no event names")
            self._texts -= 1
            yield dict(row)
        if self._texts:
            raise self._lacking()

    def _lacking(self) -> StoreError:
        """The first event that names a text which the bundle does not have."""
        number, event, field, digest = next(
            (number, event, field, digest)
            for number, row in enumerate(self._bundle.rows("event"), start=1)
            for event in (Recorded(*row),)
            for field, digest in named_texts(event.event)
            if f"text\n{digest}" in self._named
        )
        return StoreError(
            f"event {number} of the bundle {self._bundle.path}, {event.type} of round {event.round}, names a"
            f" text that the bundle lacks: {field} {digest}",
            hint=EXPORT_AGAIN,
        )

    def vectors(self) -> Rows:
        """The vectors, each of a model of the run and of a text that an event names, of its length and
        finite."""
        for number, row in enumerate(self._bundle.rows("vector"), start=1):
            model, hash_, vector = row
            if model not in self._models or f"vector\n{hash_}" not in self._named:
                raise self._bundle.refusal("vector", number, "is a vector that no event asks for")
            if not self._models[model]:  # a model that was never named: whatever comes first
                self._models[model] = len(vector) // 4
            length = 4 * self._models[model]
            if not vector or len(vector) != length:
                raise self._bundle.refusal("vector", number, f"has {len(vector)} bytes, not {length}")
            if not np.isfinite(np.frombuffer(vector, dtype="<f4")).all():
                raise self._bundle.refusal("vector", number, "is not finite")
            yield dict(row)
