"""A run of any length, as a real one would be: rounds of candidates, failures, matches, promotions and a
commit.

The consequences come from the memory's own decisions over a state in memory, so every check of the replay
passes.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from diagevo.memory.events import (
    CandidateScored,
    DuplicateJudged,
    Embedder,
    Event,
    FailureDiagnosed,
    FailureObserved,
    ModelCall,
    NodeAssigned,
    RunConfigured,
    SimilarCause,
    StageCompleted,
    StageStarted,
)
from diagevo.memory.events.decode import Fact
from diagevo.memory.events.records import Pending, event_id, pending
from diagevo.memory.log import heads
from diagevo.memory.log.artifacts import Artifacts, digest_of
from diagevo.memory.log.database import Database
from diagevo.memory.log.log import Log, now
from diagevo.memory.log.migrate import prepare
from diagevo.memory.state import decide, projection
from diagevo.memory.state.fold import advance
from diagevo.memory.state.model import MemoryState, OpenRound
from diagevo.memory.state.projected_schedule import Draw

DIGEST = "0123456789abcdef" * 4
GROUP = 8


class Playing:
    """Plays rounds in memory; `pendings` gives what goes into the log, in order.

    A round has about `per_round` events: a fifth candidates, half of them kept, three failures a kept
    question; new causes come until there are `causes`, later failures match them in turn. `text` gives the
    digest of a text that an event names.
    """

    def __init__(
        self, run_id: str, per_round: int, causes: int, text: Callable[[str], str] = lambda _: DIGEST
    ) -> None:
        self.state = MemoryState(run_id)
        self.closed: OpenRound | None = None
        self._questions = max(4, per_round // 8)
        self._causes = causes
        self._text = text
        self._number = 0

    def _step(self, event: Event, causation: str | None = None) -> Pending:
        wrapped = pending(self.state.run_id, self._number, event, causation)
        at = self.state.sequence + 1
        advance(self.state, Fact(wrapped.type, self._number, wrapped.event_id, at, at, event))
        return wrapped

    def _id(self, type_: str, key: str) -> str:
        return event_id(self._number, type_, key)

    def pendings(self) -> Iterator[Pending]:
        """Endless."""
        embedder = Embedder(name="none", dimension=8, revision="")
        yield self._step(RunConfigured(config={}, models={}, embedder=embedder, version="bench"))
        while True:
            self._number += 1
            yield from self._round()

    def _round(self) -> Iterator[Pending]:
        yield self._step(decide.opening(self.state, seed=self._number))
        for draw in self.state.schedule().draw(self._questions, seed=self._number):
            yield self._step(self._candidate(draw), self._id("RoundOpened", ""))
        for promoted in decide.promotions(self.state):
            yield self._step(promoted)
        yield self._step(StageStarted(stage="solver", attempt=1))
        failures = [
            f"r{self._number}.q{question}.a{sample}"
            for question in range(0, self._questions, 2)
            for sample in range(3)
        ]
        for failure_id in failures:
            yield self._step(self._observed(failure_id), self._id("CandidateScored", failure_id[:-3]))
        yield self._step(StageCompleted(stage="solver", attempt=1))
        for failure_id in failures:
            key = f"{failure_id}.solver.1"
            yield self._step(self._diagnosed(failure_id), self._id("FailureObserved", key))
        for turn, failure_id in enumerate(failures):
            yield from self._settled(failure_id, turn)
        self.closed = self.state.open
        yield self._step(decide.commitment(self.state), self._id("RoundOpened", ""))

    def _call(self, about: str) -> ModelCall:
        return ModelCall(
            model="qwen3-4b",
            prompt=self._text("the template"),
            request=self._text(f"what about {about}?"),
            reply=self._text(f"this about {about}"),
            input_tokens=900,
            output_tokens=40,
        )

    def _candidate(self, draw: Draw) -> CandidateScored:
        kept = draw.index % 2 == 0
        first = 8 if kept else 10 + (draw.index + self._number) % 3
        return CandidateScored(
            question_id=f"r{self._number}.q{draw.index}",
            question=self._text(f"question {draw.index} of round {self._number}"),
            mode=draw.mode,
            cause_id=draw.cause_id,
            stitched_cause_id=draw.stitched_cause_id,
            responses=12,
            votes=[("42", first), *([("7", 12 - first)] if first < 12 else [])],
            first=first,
            second=12 - first,
            label="42",
            verdict="kept" if kept else "too_easy",
            reference=self._text(f"how r{self._number}.q{draw.index} is answered"),
        )

    def _observed(self, failure_id: str) -> FailureObserved:
        return FailureObserved(
            failure_id=failure_id,
            question_id=failure_id[:-3],
            stage="solver",
            attempt=1,
            step=1,
            trajectory=self._text(f"how {failure_id} went wrong"),
            reference=self._text(f"how {failure_id[:-3]} is answered"),
        )

    def _diagnosed(self, failure_id: str) -> FailureDiagnosed:
        return FailureDiagnosed(
            failure_id=failure_id,
            attempt=1,
            supplied=[],
            verdict="new_cause",
            cause_id=None,
            description=f"misses the step of {failure_id}",
            call=self._call(failure_id),
        )

    def _settled(self, failure_id: str, turn: int) -> Iterator[Pending]:
        known = list(self.state.causes)
        if len(known) >= self._causes or (known and turn % 3):
            cause_id = known[(turn * 7 + self._number) % len(known)]
            judged = DuplicateJudged(
                failure_id=failure_id,
                candidates=[SimilarCause(cause_id=cause_id, similarity=0.71)],
                nearest=SimilarCause(cause_id=cause_id, similarity=0.71),
                duplicate=True,
                cause_id=cause_id,
                call=self._call(f"duplicates of {failure_id}"),
            )
            assigned = None
        else:
            judged = DuplicateJudged(
                failure_id=failure_id, candidates=[], nearest=None, duplicate=False, cause_id=None
            )
            node = None if turn % 5 == 0 or not self.state.nodes else next(reversed(self.state.nodes))
            label = None if node else f"skill of {failure_id}"
            assigned = NodeAssigned(failure_id=failure_id, shortlist=[], node_id=node, new_label=label)
        consequences = decide.settlement(self.state, failure_id, judged, assigned) if assigned is None else []
        yield self._step(judged, self._id("FailureDiagnosed", f"{failure_id}.1.1"))
        if assigned is not None:
            yield self._step(assigned, self._id("DuplicateJudged", failure_id))
            consequences = decide.settlement(self.state, failure_id, judged, assigned)
        for event in consequences:
            yield self._step(event, self._id("DuplicateJudged", failure_id))


def played_events(count: int) -> list[Pending]:
    """The first `count` events of such a run."""
    playing = Playing("a", 4000, 250).pendings()
    return [next(playing) for _ in range(count)]


class LongRun:
    """At least `events` events up to a commit, with its projections and heads, in a database of their own
    (`path`, in SQLite) or the one at `url`.

    With `texts` every event names a text of its own, which is stored too.
    """

    def __init__(
        self,
        folder: Path,
        events: int,
        *,
        per_round: int = 20_000,
        causes: int = 250,
        texts: bool = False,
        url: str = "",
        run: str = "long",
    ) -> None:
        self.path = folder / "long.db"
        self.database = Database(url or str(self.path))
        prepare(self.database, create=True)
        self.log = Log(self.database)
        waiting: list[str] = []

        def text(words: str) -> str:
            waiting.append(words)
            return digest_of(words)

        playing = Playing(run, per_round, causes, text) if texts else Playing(run, per_round, causes)
        artifacts = Artifacts(self.database)
        batch: list[Pending] = []
        written = 0
        for wrapped in playing.pendings():
            batch.append(wrapped)
            committed = wrapped.type == "RoundCommitted"
            if committed or len(batch) == 2000:
                with self.database.write() as connection:
                    artifacts.put_many(waiting)
                    waiting.clear()
                    self.log.append(run, written, batch)
                    head = self.log.head(run)
                    if committed:
                        assert playing.closed is not None
                        projection.write(connection, playing.state, playing.closed, now())
                        rows = projection.question_rows(run, playing.closed)
                        opened = projection.opened_row(
                            playing.state, playing.closed.number, playing.closed.first_sequence
                        )
                        for target, new in ((projection.QUESTION, rows), (projection.OPENED, [opened])):
                            connection.execute(target.insert(), new)
                written += len(batch)
                batch = []
                if committed:
                    assert playing.closed is not None
                    number = playing.closed.number
                    heads.append(folder / run, heads.ChainHead(number, written, head.hash))
                    if written >= events:
                        break
        self.state = playing.state

    def close(self) -> None:
        self.database.close()
