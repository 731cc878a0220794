"""What a consumer calls: verbs that append facts and the consequences that follow from them.

Every verb is one transaction; `atomic()` joins several. The state in memory and the log move together:
where a transaction fails, the state is folded again from the log. One writer a run (`lease.py`); a `Memory`
takes the lease with its first write, so that reading needs none. Thread-safe.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from diagevo.errors import (
    ConfigError,
    ConflictError,
    InconsistentError,
    NotFoundError,
    OutOfOrderError,
    StoreError,
)
from diagevo.memory import decide, heads, lease, projection
from diagevo.memory.artifacts import Artifacts
from diagevo.memory.database import Database
from diagevo.memory.decode import Fact
from diagevo.memory.events import (
    Artifact,
    CandidateScored,
    CausePromoted,
    CheckpointEvaluated,
    DuplicateJudged,
    Embedder,
    Event,
    FailureDiagnosed,
    FailureObserved,
    NodeAssigned,
    NodePairJudged,
    NodesMerged,
    RoundCommitted,
    RunConfigured,
    SimilarCause,
    StageAbandoned,
    StageCompleted,
    StageStarted,
)
from diagevo.memory.log import Log, now
from diagevo.memory.model import Cause, KnownCause, MemoryState, Node, Round
from diagevo.memory.recall import NodeCandidate
from diagevo.memory.records import event_id, payload_of, pending
from diagevo.memory.schedule import Schedule
from diagevo.memory.similarity import Similarity
from diagevo.memory.state import advance, unsettled
from diagevo.memory.vectors import Embed, Vectors

UNNAMED = Embedder(name="unnamed", dimension=0, revision="")
"""The embedding model of a run that was never told one: whatever comes first, of whatever length."""

PORTION = 256
"""Texts that a change of the embedding model embeds and keeps at a time."""


@dataclass(frozen=True, slots=True)
class StageStatus:
    """Where a stage of the open round stands. `attempt` is the latest one, 0 where there was none."""

    status: Literal["not_started", "running", "completed"]
    attempt: int
    artifacts: tuple[Artifact, ...] = ()


@dataclass(frozen=True, slots=True)
class _Item:
    """An event to append, with what it follows from and its round (None: the open one)."""

    event: Event
    cause: str | None = None
    round: int | None = None


class Memory:
    """The event-sourced memory of one run. Made by `diagevo.open`."""

    def __init__(
        self,
        database: Database,
        run_id: str,
        root: Path,
        config: dict[str, Any],
        embedder: Embedder | None = None,
    ) -> None:
        self.run_id = run_id
        self.root = root
        self.database = database
        self.log = Log(database)
        self.artifacts = Artifacts(database)
        self.state: MemoryState = projection.load(self.log, run_id)
        self._config = config
        self._embedder = embedder or UNNAMED
        self._lock = threading.RLock()
        self._fence: int | None = None
        self._renewal: lease.Renewal | None = None
        self._depth = 0
        self._dirty = False
        self._broken: Exception | None = None
        self._after: list[Callable[[], None]] = []
        self._similarity = Similarity(self)
        if embedder is not None:
            self.check_embedder(embedder)

    @property
    def folder(self) -> Path:
        """The run's folder: chain heads, vector index, and whatever the run itself keeps there."""
        return self.root / self.run_id

    def claim(self, *, takeover: bool = False) -> None:
        """Become the run's writer now. Raises StoreError, naming the holder, where somebody else is."""
        with self._lock:
            if self._fence is None or takeover:
                self._fence = lease.acquire(self.log, self.run_id, takeover=takeover)
                self._stop_renewing()
                self._renewal = lease.Renewal(self.database, self.run_id, self._fence)
                self._reload_if_behind()

    @contextmanager
    def atomic(self) -> Iterator[None]:
        """Several verbs in one transaction: all or nothing, the state too."""
        with self._lock:
            if self._depth:
                yield
                return
            self.claim()
            self._depth, self._dirty, self._broken, self._after = 1, False, None, []
            try:
                with self.database.write():
                    yield
                    if self._broken is not None:
                        raise self._broken
            except BaseException:
                self._depth = 0
                if self._dirty:
                    self._reload()
                raise
            self._depth = 0
            for action in self._after:
                action()

    def _append(self, items: Sequence[_Item]) -> list[bool]:
        """Append and fold; whether each event was new. Within `atomic()`."""
        open_round = self.state.open.number if self.state.open else self.state.round
        wrapped = [
            pending(self.run_id, open_round if i.round is None else i.round, i.event, i.cause) for i in items
        ]
        with self.database.write() as connection:
            done = self.log.append(
                self.run_id, self.state.sequence, wrapped, fence=self._fence, connection=connection
            )
        self._dirty = True
        sequence = self.state.sequence
        for item, p, position, fresh in zip(items, wrapped, done.positions, done.fresh, strict=True):
            if not fresh:
                continue
            sequence += 1
            try:
                advance(self.state, Fact(p.type, p.round, p.event_id, sequence, position, item.event))
            except InconsistentError as error:
                refused = error.message.partition(": ")[2]
                self._broken = OutOfOrderError(f"{p.type} {item.event.key()} refused: {refused}".strip())
                raise self._broken from error
        return list(done.fresh)

    def _reload(self) -> None:
        self.state = projection.load(self.log, self.run_id)
        self._similarity.reset()

    def _reload_if_behind(self) -> None:
        if self.log.head(self.run_id).sequence != self.state.sequence:
            self._reload()

    def _id(self, type_: str, key: str, round: int | None = None) -> str:
        return event_id(self.run_id, self._round().number if round is None else round, type_, key)

    def _round(self) -> Round:
        if self.state.open is None:
            raise OutOfOrderError(
                f"run {self.run_id}: no round is open", hint=f"open_round({self.state.round + 1}) comes next"
            )
        return self.state.open

    def configure(self, event: RunConfigured) -> None:
        """Record the run's configuration, once. The same again is fine, another one raises ConflictError."""
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
            self._append([_Item(event)])

    def _default_configuration(self) -> RunConfigured:
        """What is recorded of a run whose consumer did not call `configure`."""
        from diagevo import __version__

        return RunConfigured(config=self._config, models={}, embedder=self._embedder, version=__version__)

    def _configuration(self) -> RunConfigured:
        """The run's latest configuration."""
        newest = self.log.read(self.run_id, types=["RunConfigured"], newest_first=True, limit=1)
        event = next(newest).event
        assert isinstance(event, RunConfigured)
        return event

    def open_round(self, round: int, *, seed: int | None = None) -> Schedule:
        """Open a round and give its schedule; an open round gives the same schedule again.

        A run without a configuration gets that of `diagevo.open`, or the paper's values.
        """
        with self.atomic():
            state = self.state
            if state.open is not None and state.open.number == round:
                return self.schedule(round)
            if state.open is not None or round != state.round + 1:
                where = (
                    f"round {state.open.number} is open"
                    if state.open
                    else f"round {state.round} was committed"
                )
                raise OutOfOrderError(f"round {round} cannot be opened: {where}")
            if state.config is None:
                self._append([_Item(self._default_configuration())])
            event = decide.opening(self.state, self.state.settings.seed if seed is None else seed)
            self._append([_Item(event, round=round)])
            return self.schedule(round)

    def schedule(self, round: int) -> Schedule:
        """The schedule of any opened round, or of the next one."""
        state = self.state
        if state.open is not None and state.open.number == round:
            schedule = state.open_schedule()
            assert schedule is not None
            return schedule
        if state.open is None and round == state.round + 1:
            return state.next_schedule()
        if not 1 <= round <= state.round:
            raise NotFoundError(f"run {self.run_id} has no round {round}; {state.round} are committed")
        return self.as_of(round - 1).next_schedule()

    def as_of(self, round: int) -> MemoryState:
        """The state right after the commit of a round; round 0 is the empty memory."""
        if not 0 <= round <= self.state.round:
            raise NotFoundError(f"run {self.run_id} has no round {round}; {self.state.round} are committed")
        if round == 0:
            return MemoryState(self.run_id, config=self.state.config, settings=self.state.settings)
        return projection.load(self.log, self.run_id, round=round)

    def commit(self) -> RoundCommitted:
        """Close the open round: event, projections and snapshot in one transaction. → ε and p of the next."""
        with self.atomic() as _, self.database.write() as connection:
            closed = self._round()
            event = decide.commitment(self.state)
            self._append([_Item(event, self._id("RoundOpened", ""))])
            projection.write(connection, self.state, closed, now())
            head = self.log.head(self.run_id, connection)
            line = heads.ChainHead(closed.number, self.state.sequence, self.state.position, head.hash)
            self._after.append(lambda: heads.append(self.folder, line))
            self._after.append(self._similarity.committed)
            return event

    def evaluated(self, event: CheckpointEvaluated, round: int) -> None:
        """Record a measurement of the policy after `round` (0: before any training). At any time."""
        with self.atomic():
            self._append([_Item(event, round=round)])

    def stage(self, stage: str) -> StageStatus:
        """Where a stage of the open round stands; an abandoned one is not started."""
        found = self._round().stages.get(stage)
        if found is None:
            return StageStatus("not_started", 0)
        artifacts = tuple(Artifact(path=path, sha256=digest) for path, digest in found.artifacts)
        return StageStatus(
            "not_started" if found.status == "abandoned" else found.status, found.attempt, artifacts
        )

    def start_stage(self, stage: str) -> int:
        """Begin a stage; its attempt. While an attempt is open this gives that one again."""
        with self.atomic():
            status = self.stage(stage)
            if status.status == "running":
                return status.attempt
            if status.status == "completed":
                raise OutOfOrderError(f"stage {stage} of round {self._round().number} is complete")
            event = StageStarted(stage=stage, attempt=status.attempt + 1)
            self._append([_Item(event, self._id("RoundOpened", ""))])
            return event.attempt

    def complete_stage(
        self, stage: str, artifacts: Sequence[Artifact] = (), seconds: float | None = None
    ) -> None:
        """End a stage, with the files it leaves behind. The same again is fine."""
        with self.atomic():
            status = self.stage(stage)
            if status.status == "completed" and status.artifacts == tuple(artifacts):
                return
            attempt = self.start_stage(stage)
            event = StageCompleted(stage=stage, attempt=attempt, artifacts=list(artifacts), seconds=seconds)
            self._append([_Item(event, self._id("StageStarted", f"{stage}.{attempt}"))])

    def abandon_stage(self, stage: str, *, after_step: int) -> None:
        """Give up the running attempt: what was observed past `after_step` is void and will be observed
        again."""
        with self.atomic():
            status = self.stage(stage)
            if status.status != "running":
                raise OutOfOrderError(f"stage {stage} is not under way", hint="nothing has to be abandoned")
            event = StageAbandoned(stage=stage, attempt=status.attempt, after_step=after_step)
            self._append([_Item(event, self._id("StageStarted", f"{stage}.{status.attempt}"))])

    def score(self, candidates: Sequence[CandidateScored]) -> list[CausePromoted]:
        """Record the votes of all candidates of the round, then the promotions that follow (Equations 6, 7).

        The same candidates again give the same promotions; others raise OutOfOrderError.
        """
        with self.atomic():
            now_, opened = self._round(), self._id("RoundOpened", "")
            scored = {c.question_id for c in candidates}
            if now_.candidates and now_.candidates.keys() != scored:
                raise OutOfOrderError(f"the candidates of round {now_.number} were scored already")
            fresh = self._append([_Item(c, opened) for c in candidates])
            if not any(fresh):
                number = now_.number
                told = self.log.read(self.run_id, types=["CausePromoted"], rounds=(number, number))
                return [r.event for r in told if isinstance(r.event, CausePromoted)]
            promoted = decide.promotions(self.state)
            self._append([_Item(p, now_.tallies[p.cause_id].event_id) for p in promoted])
            return promoted

    def observe(self, failures: Sequence[FailureObserved]) -> None:
        """Record failed optimization trajectories. The same again is fine."""
        with self.atomic():
            now_ = self._round()
            items = [
                _Item(f, self._id("CandidateScored", f.question_id))
                for f in failures
                if not _same_observation(now_, f)
            ]
            if items and not all(self._append(items)):
                raise OutOfOrderError("an observation of an abandoned attempt stays void")

    def undiagnosed(self, *, again: bool = False) -> list[FailureObserved]:
        """Valid failures without a diagnosis, by question and sample; with `again` also the unresolved
        ones."""
        with self._lock:
            now_ = self._round()
            waiting = [
                f
                for f in now_.failures
                if f not in now_.diagnoses or (again and now_.diagnoses[f].verdict == "unresolved")
            ]
            return [_observed(now_, f) for f in sorted(waiting, key=_order)]

    def asked(self, failure_id: str) -> int:
        """How often the failure's valid observation was diagnosed: `asked` of the next diagnosis is one
        more."""
        diagnosis = self._round().diagnoses.get(failure_id)
        return 0 if diagnosis is None else diagnosis.asked

    def diagnosed(self, events: Sequence[FailureDiagnosed]) -> None:
        """Record diagnoses, in any order, any time after the observation. The same again is fine."""
        with self.atomic():
            now_ = self._round()
            items = []
            for event in events:
                observation = now_.failures.get(event.failure_id)
                stage = "solver" if observation is None else observation.stage
                key = f"{event.failure_id}.{stage}.{event.attempt}"
                items.append(_Item(event, self._id("FailureObserved", key)))
            if items:
                self._append(items)

    def unsettled(self) -> list[FailureDiagnosed]:
        """Diagnosed failures not yet put down to a cause, by question number and sample."""
        with self._lock:
            now_ = self._round()
            waiting = set(unsettled(now_))
            if not waiting:
                return []
            latest: dict[str, FailureDiagnosed] = {}
            for record in self.log.read(
                self.run_id, types=["FailureDiagnosed"], rounds=(now_.number, now_.number)
            ):
                event = record.event
                assert isinstance(event, FailureDiagnosed)
                if event.failure_id in waiting:
                    latest[event.failure_id] = event
            return [latest[f] for f in sorted(waiting, key=_order)]

    def settle(
        self, failure_id: str, *, judged: DuplicateJudged | None = None, assigned: NodeAssigned | None = None
    ) -> None:
        """Put one diagnosed failure down to a cause: the facts and their consequences, in one transaction.

        A recurrence takes neither fact. A new cause takes `judged`, and `assigned` exactly where it is no
        duplicate.
        """
        with self.atomic():
            now_ = self._round()
            diagnosis = now_.diagnoses.get(failure_id)
            if diagnosis is None:
                raise OutOfOrderError(f"{failure_id} has no diagnosis")
            if failure_id in now_.settled:
                raise OutOfOrderError(f"{failure_id} is counted already")
            _check_settlement(failure_id, diagnosis.verdict, judged, assigned)
            diagnosed = self._id("FailureDiagnosed", f"{failure_id}.{diagnosis.attempt}.{diagnosis.asked}")
            items, cause = [], diagnosed
            if judged is not None:
                items.append(_Item(judged, cause))
                cause = self._id("DuplicateJudged", judged.key())
            if assigned is not None:
                items.append(_Item(assigned, cause))
                cause = self._id("NodeAssigned", assigned.key())
            for event in decide.settlement(self.state, failure_id, judged, assigned):
                items.append(_Item(event, cause))
                cause = self._id(type(event).__name__, event.key())
            self._append(items)

    def judge_nodes(self, judged: NodePairJudged) -> None:
        """Record whether two nodes are one skill, and merge them where they are: the lower id survives."""
        with self.atomic():
            items = [_Item(judged)]
            if judged.merge:
                for node_id in judged.nodes:
                    self.node(node_id)
                survivor, absorbed = self.state.pair(*judged.nodes)
                label = judged.label or self.state.nodes[survivor].label
                merged = NodesMerged(survivor=survivor, absorbed=absorbed, label=label)
                items.append(_Item(merged, self._id("NodePairJudged", judged.key())))
            self._append(items)

    def node_pair_refused(self, a: str, b: str) -> bool:
        """Whether the two nodes were judged to be two, with the contents that they have now."""
        first, second = self.state.pair(a, b)
        refused = self.state.refused.get(f"{first}.{second}")
        return refused is not None and refused == self.state.fingerprint(first, second)

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
            vectors = Vectors(self.database, embedder.name, embedder.dimension, embedder.revision)
            for start in range(0, len(texts), PORTION):
                vectors.embed(texts[start : start + PORTION], embed)
                if on_progress is not None:
                    on_progress(min(start + PORTION, len(texts)), len(texts))
            last = self._configuration()
            values = last.config if config is None else dict(config)
            if (embedder, values) != (last.embedder, last.config):
                changed = {"embedder": embedder, "config": values, "number": last.number + 1}
                with self.atomic():
                    self._append([_Item(last.model_copy(update=changed))])
            return len(texts)

    def rebuild_index(self) -> int:
        """Make the index of vectors again from SQL. The number of causes in it; 0 where so few need none."""
        with self._lock:
            self.claim()
            return self._similarity.rebuild()

    def node_pairs(self, theta: float, embed: Embed) -> list[tuple[str, str, float]]:
        """Pairs of nodes with cosine above theta, by falling similarity, then ids; the lower id first."""
        return self._similarity.node_pairs(theta, embed)

    def cause(self, cause_id: str) -> Cause:
        """A cause as it is now. Raises NotFoundError."""
        if cause_id not in self.state.causes:
            raise NotFoundError(f"run {self.run_id} has no cause {cause_id}")
        return self.state.causes[cause_id]

    def node(self, node_id: str) -> Node:
        """A node as it is now. Raises NotFoundError, naming the survivor of a merged one."""
        if node_id in self.state.absorbed:
            raise NotFoundError(f"node {node_id} was merged into {self.state.absorbed[node_id][0]}")
        if node_id not in self.state.nodes:
            raise NotFoundError(f"run {self.run_id} has no node {node_id}")
        return self.state.nodes[node_id]

    def question(self, question_id: str) -> CandidateScored:
        """A scored candidate of any round. Raises NotFoundError."""
        round_ = question_id.partition(".")[0].removeprefix("r")
        if not round_.isdigit():
            raise NotFoundError(f"{question_id} is no question's id", hint="questions are named like r3.q318")
        event = self.log.by_id(event_id(self.run_id, int(round_), "CandidateScored", question_id)).event
        assert isinstance(event, CandidateScored)
        return event

    def supplied(self, question_id: str) -> tuple[KnownCause, ...]:
        """Causes that the question's writer was given, in their state as committed in the round before."""
        now_ = self._round()
        candidate = now_.candidates.get(question_id)
        if candidate is None:
            raise NotFoundError(f"round {now_.number} has no candidate {question_id}")
        shown = [c for c in (candidate.cause_id, candidate.stitched_cause_id) if c is not None]
        return tuple(KnownCause(c, now_.causes[c].state, now_.causes[c].description) for c in shown)

    def close(self) -> None:
        """Give the lease back and close the connections."""
        with self._lock:
            self._stop_renewing()
            if self._fence is not None:
                lease.release(self.log, self.run_id, self._fence)
                self._fence = None
            self.database.close()

    def _stop_renewing(self) -> None:
        if self._renewal is not None:
            self._renewal.stop()
            self._renewal = None

    def __enter__(self) -> "Memory":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except StoreError:
            if kind is None:  # else what went wrong first is told; the lease of a process that ended is free
                raise


def _spelled(embedder: tuple[str, int, str]) -> str:
    name, dimension, revision = embedder
    if embedder == (UNNAMED.name, UNNAMED.dimension, UNNAMED.revision):
        return "a model that was never named"
    return f"{name} @ {revision or '-'} ({dimension} numbers)"


def _order(failure_id: str) -> tuple[int, ...]:
    """r3.q318.a5 → (3, 318, 5): by question number and sample."""
    return tuple(int(part[1:]) for part in failure_id.split("."))


def _observed(now_: Round, failure_id: str) -> FailureObserved:
    o = now_.failures[failure_id]
    return FailureObserved(
        failure_id=failure_id,
        question_id=o.question_id,
        stage=o.stage,
        attempt=o.attempt,
        step=o.step,
        trajectory=o.trajectory,
        reference=o.reference,
    )


def _same_observation(now_: Round, failure: FailureObserved) -> bool:
    """Whether this observation is recorded already. Another one of a valid failure raises ConflictError."""
    if failure.failure_id not in now_.failures:
        return False
    if _observed(now_, failure.failure_id) == failure:
        return True
    raise ConflictError(
        f"{failure.failure_id} was observed otherwise",
        hint="a stage that is done again must be abandoned first: abandon_stage(stage, after_step=...)",
    )


def _check_settlement(
    failure_id: str, verdict: str, judged: DuplicateJudged | None, assigned: NodeAssigned | None
) -> None:
    if verdict not in ("recurrence", "new_cause"):
        raise OutOfOrderError(f"{failure_id} is {verdict}: there is no cause to count it under")
    if verdict == "recurrence" and (judged is not None or assigned is not None):
        raise OutOfOrderError(f"{failure_id} is a recurrence: nothing is left to judge")
    if verdict == "new_cause" and judged is None:
        raise OutOfOrderError(f"{failure_id} needs a judgement on duplicates")
    if judged is not None and judged.duplicate == (assigned is not None):
        raise OutOfOrderError(f"{failure_id}: a node is assigned exactly where the cause is no duplicate")
    for fact in (judged, assigned):
        if fact is not None and fact.failure_id != failure_id:
            raise OutOfOrderError(f"a fact about {fact.failure_id} cannot settle {failure_id}")
