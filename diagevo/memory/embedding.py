"""What a run is made of: its configuration, and the embedding model that its vectors belong to."""

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from diagevo.errors import ConfigError, ConflictError, OutOfOrderError
from diagevo.memory.events import Embedder, RunConfigured, SimilarCause
from diagevo.memory.events.records import payload_of, storable_event
from diagevo.memory.log.database import Database
from diagevo.memory.log.vectors import Embed, Vectors
from diagevo.memory.nearest.recall import NodeCandidate
from diagevo.memory.nearest.similarity import Similarity
from diagevo.memory.writer import Item, RunWriter

UNNAMED = Embedder(name="unnamed", dimension=0, revision="")
"""The embedding model of a run that was never told one: whatever comes first, of whatever length."""

PORTION = 256
"""Texts that a change of the embedding model embeds and keeps at a time."""


class EmbeddedRun(RunWriter):
    """A run with its configuration, and its causes and nodes by their vectors."""

    def __init__(
        self,
        database: Database,
        run_id: str,
        root: Path,
        config: dict[str, Any],
        embedder: Embedder | None = None,
    ) -> None:
        super().__init__(database, run_id, root)
        self._config = config
        self._embedder = embedder or UNNAMED
        self._similarity = Similarity(self)
        if embedder is not None:
            self.check_embedder(embedder)

    def _reload(self) -> None:
        super()._reload()
        self._similarity.reset()

    def configure(self, event: RunConfigured) -> None:
        """Record the run's configuration, once. The same again is fine, another one raises ConflictError."""
        event = storable_event(event)
        with self.atomic():
            state = self.state
            if state.config is not None:
                self.check_embedder(event.embedder)
                stored = self._configuration()
                ours = {"number": event.number, "origin": event.origin, "version": event.version}
                if payload_of(stored.model_copy(update=ours)) != payload_of(event):
                    raise ConflictError(
                        f"run {self.run_id} was configured otherwise",
                        hint="a resumed run keeps its configuration; for another one: diagevo runs fork",
                    )
                return
            self._append([Item(event)])

    def _default_configuration(self) -> RunConfigured:
        """What is recorded of a run whose consumer did not call `configure`."""
        return RunConfigured(
            config=self._config, models={}, embedder=self._embedder, version=version("diagevo")
        )

    def _configuration(self) -> RunConfigured:
        """The run's latest configuration."""
        newest = self.log.read(self.run_id, types=["RunConfigured"], newest_first=True, limit=1)
        event = next(newest).event
        assert isinstance(event, RunConfigured)
        return event

    def vectors(self, texts: Sequence[str], embed: Embed) -> np.ndarray:
        """(n, d) float32 vectors of the texts; those that SQL does not hold are embedded and kept."""
        return self._similarity.vectors(texts, embed)

    def similar_causes(self, vector: np.ndarray, *, above: float | None = None) -> list[SimilarCause]:
        """Every stored cause with its cosine, best first. A cause made a moment ago is there.

        With `above` only the nearest one and those above it: fewer to build.
        """
        return self._similarity.causes(vector, above)

    def similar_nodes(self, vector: np.ndarray, k: int) -> list[NodeCandidate]:
        """The k nodes whose nearest member is nearest, best first."""
        return self._similarity.nodes(vector, k)

    @property
    def names_embedder(self) -> bool:
        """Whether the run says whose its vectors are: `diagevo.open(embedder=…)` or `configure` told it."""
        return self.state.embedder not in (None, (UNNAMED.name, UNNAMED.dimension, UNNAMED.revision))

    def check_embedder(self, embedder: Embedder) -> None:
        """Raise ConfigError where the run's vectors are another model's: such cosines mean nothing."""
        if self.state.embedder is None:
            return
        stored, given = self.state.embedder, (embedder.name, embedder.dimension, embedder.revision)
        if stored != given:
            raise ConfigError(
                f"run {self.run_id} was embedded by {_spelled(stored)}, the configuration names"
                f" {_spelled(given)}",
                hint="go back to that model, or embed the run anew: diagevo memory rebuild --embedder"
                f" --run {self.run_id} (and calibrate the thresholds: diagevo memory calibrate)",
            )

    def change_embedder(
        self,
        embedder: Embedder,
        embed: Embed,
        *,
        config: Mapping[str, Any] | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> int:
        """Embed every cause and node label with another model, and record that the run belongs to it now.

        Between rounds only; decisions of the past stay. The vectors come first, in portions that are kept,
        and the event that switches to them last: killed in between, the run is still the old model's, and
        called again this goes on. `config` is the configuration that names the model, where one does. With
        the run's own model it makes the vectors that are missing. Returns the number of texts.
        """
        with self._lock:
            self.claim()
            state = self.state
            if state.open is not None:
                raise OutOfOrderError(
                    f"round {state.open.number} is open: the embedder changes between rounds",
                    hint=f"finish it with the old model, or go on from the last commit: diagevo runs fork"
                    f" {self.run_id} --round {state.round}"
                    if state.round
                    else "finish it with the old model, or start another run",
                )
            if state.config is None:
                raise OutOfOrderError(f"run {self.run_id} has no configuration yet")
            texts = [c.description for c in state.causes.values()] + [n.label for n in state.nodes.values()]
            vectors = Vectors(
                self.database, self.run_id, embedder.name, embedder.dimension, embedder.revision
            )
            for start in range(0, len(texts), PORTION):
                vectors.embed(texts[start : start + PORTION], embed)
                if on_progress is not None:
                    on_progress(min(start + PORTION, len(texts)), len(texts))
            last = self._configuration()
            values = last.config if config is None else dict(config)
            if (embedder, values) != (last.embedder, last.config):
                changed = {"embedder": embedder, "config": values, "number": last.number + 1}
                with self.atomic():
                    self._append([Item(last.model_copy(update=changed))])
            return len(texts)

    def rebuild_index(self) -> int:
        """Make the index of vectors again from SQL. The number of causes in it; 0 where so few need none."""
        with self._lock:
            self.claim()
            return self._similarity.rebuild()

    def node_pairs(self, theta: float, embed: Embed) -> list[tuple[str, str, float]]:
        """Pairs of nodes with cosine above theta, by falling similarity, then ids; the lower id first."""
        return self._similarity.node_pairs(theta, embed)


def _spelled(embedder: tuple[str, int, str]) -> str:
    name, dimension, revision = embedder
    if embedder == (UNNAMED.name, UNNAMED.dimension, UNNAMED.revision):
        return "a model that was never named"
    return f"{name} @ {revision or '-'} ({dimension} numbers)"
