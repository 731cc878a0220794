"""The embedding model that a run's vectors belong to: named by its configuration, and changed with it."""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from diagevo.errors import ConfigError, OutOfOrderError
from diagevo.memory.events import UNNAMED, Embedder, RunConfigured
from diagevo.memory.log.log import Log
from diagevo.memory.log.vectors import Embed, Vectors
from diagevo.memory.nearest.similarity import Similarity
from diagevo.memory.writer import Item, RunWriter

PORTION = 256
"""Texts that a change of the embedding model embeds and keeps at a time."""


def configuration(log: Log, run_id: str) -> RunConfigured:
    """The run's latest configuration."""
    newest = log.read(run_id, types=["RunConfigured"], newest_first=True, limit=1)
    event = next(newest).event
    assert isinstance(event, RunConfigured)
    return event


class Embedding:
    """The embedding model of a run, and what is nearest by its vectors (`similarity`)."""

    def __init__(self, writer: RunWriter, embedder: Embedder | None) -> None:
        self._run = writer
        self.embedder = embedder or UNNAMED
        self.similarity = Similarity(writer)
        if embedder is not None:
            self.check(embedder)

    @property
    def named(self) -> bool:
        """Whether the run says whose its vectors are: `diagevo.open(embedder=…)` or `configure` told it."""
        return self._run.state.embedder not in (None, UNNAMED)

    def check(self, embedder: Embedder) -> None:
        """Raise ConfigError where the run's vectors are another model's: such cosines mean nothing."""
        stored = self._run.state.embedder
        if stored not in (None, embedder):
            raise ConfigError(
                f"run {self._run.run_id} was embedded by {_spelled(stored)}, the configuration names"
                f" {_spelled(embedder)}",
                hint="use that model again, or re-embed the run: diagevo memory rebuild --embedder"
                f" --run {self._run.run_id} (and calibrate the thresholds: diagevo memory calibrate)",
            )

    def change(
        self,
        embedder: Embedder,
        embed: Embed,
        *,
        config: Mapping[str, Any] | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> int:
        """See `Memory.change_embedder`."""
        with self._run.lock:
            self._run.claim()
            state = self._run.state
            if state.open is not None:
                raise OutOfOrderError(
                    f"round {state.open.number} is open: the embedder changes between rounds",
                    hint=f"finish it with the old model, or continue from the last commit: diagevo runs fork"
                    f" {self._run.run_id} --round {state.round}"
                    if state.round
                    else "finish it with the old model, or start another run",
                )
            if state.config is None:
                raise OutOfOrderError(f"run {self._run.run_id} has no configuration yet")
            texts = [c.description for c in state.causes.values()] + [n.label for n in state.nodes.values()]
            vectors = Vectors(self._run.database, self._run.run_id, embedder)
            for start in range(0, len(texts), PORTION):
                vectors.embed(texts[start : start + PORTION], embed)
                if on_progress is not None:
                    on_progress(min(start + PORTION, len(texts)), len(texts))
            last = configuration(self._run.log, self._run.run_id)
            values = last.config if config is None else dict(config)
            if (embedder, values) != (last.embedder, last.config):
                changed = replace(last, embedder=embedder, config=values, number=last.number + 1)
                with self._run.atomic():
                    self._run.append([Item(changed)])
            return len(texts)


def _spelled(embedder: Embedder) -> str:
    if embedder == UNNAMED:
        return "a model that was never named"
    return f"{embedder.name} @ {embedder.revision or '-'} ({embedder.dimension} numbers)"
