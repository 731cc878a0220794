"""What a consumer calls: verbs that append facts and the consequences that follow from them.

Every verb is one transaction; `atomic()` joins several (`writer.py`). What concerns the configuration and the
vectors is in `embedding.py`. Thread-safe.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from diagevo.errors import (
    ConflictError,
    NotFoundError,
    OutOfOrderError,
)
from diagevo.memory.embedding import EmbeddedRun
from diagevo.memory.events import (
    Artifact,
    CandidateScored,
    CausePromoted,
    CheckpointEvaluated,
    DuplicateJudged,
    FailureDiagnosed,
    FailureObserved,
    NodeAssigned,
    NodePairJudged,
    NodesMerged,
    RoundCommitted,
    StageAbandoned,
    StageCompleted,
    StageStarted,
    number_of,
)
from diagevo.memory.events.records import event_id
from diagevo.memory.log import heads
from diagevo.memory.log.log import now
from diagevo.memory.state import decide, projection
from diagevo.memory.state.fold import unsettled
from diagevo.memory.state.model import Cause, KnownCause, MemoryState, Node, Round
from diagevo.memory.state.schedule import Schedule
from diagevo.memory.writer import Item


@dataclass(frozen=True, slots=True)
class StageStatus:
    """Where a stage of the open round stands. `attempt` is the latest one, 0 where there was none."""

    status: Literal["not_started", "running", "completed"]
    attempt: int
    artifacts: tuple[Artifact, ...] = ()


class Memory(EmbeddedRun):
    """The event-sourced memory of one run. Made by `diagevo.open`."""

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
                self._append([Item(self._default_configuration())])
            event = decide.opening(self.state, self.state.settings.seed if seed is None else seed)
            self._append([Item(event, round=round)])
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
        return self._before(round).next_schedule()

    def as_of(self, round: int) -> MemoryState:
        """The state right after the commit of a round; round 0 is the empty memory."""
        if not 0 <= round <= self.state.round:
            raise NotFoundError(f"run {self.run_id} has no round {round}; {self.state.round} are committed")
        if round == 0:
            return self._before(1) if self.state.round or self.state.open else self.state.copy()
        return projection.load(self.log, self.run_id, round=round)

    def _before(self, round: int) -> MemoryState:
        """The state that an opened round was opened in: as committed, and as configured since."""
        opened = self.log.by_id(self._id("RoundOpened", "", round))
        return projection.load(self.log, self.run_id, sequence=opened.sequence - 1)

    def commit(self) -> RoundCommitted:
        """Close the open round: event, projections and snapshot in one transaction. → ε and p of the next."""
        with self.atomic() as _, self.database.write() as connection:
            closed = self._round()
            event = decide.commitment(self.state)
            self._append([Item(event, self._id("RoundOpened", ""))])
            projection.write(connection, self.state, closed, now())
            head = self.log.head(self.run_id, connection)
            line = heads.ChainHead(closed.number, self.state.sequence, self.state.position, head.hash)
            self._after.append(lambda: heads.append(self.folder, line))
            self._after.append(self._similarity.committed)
            return event

    def evaluated(self, event: CheckpointEvaluated, round: int) -> None:
        """Record a measurement of the policy after `round` (0: before any training). At any time."""
        with self.atomic():
            self._append([Item(event, round=round)])

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
            self._append([Item(event, self._id("RoundOpened", ""))])
            return event.attempt

    def complete_stage(
        self,
        stage: str,
        artifacts: Sequence[Artifact] = (),
        seconds: float | None = None,
        *,
        parts: Mapping[str, float] | None = None,
        reward: float | None = None,
    ) -> None:
        """End a stage, with the files it leaves behind, its time and its reward. The same again is fine."""
        with self.atomic():
            status = self.stage(stage)
            if status.status == "completed" and status.artifacts == tuple(artifacts):
                return
            attempt = self.start_stage(stage)
            event = StageCompleted(
                stage=stage,
                attempt=attempt,
                artifacts=list(artifacts),
                seconds=seconds,
                parts=dict(parts or {}),
                reward=reward,
            )
            self._append([Item(event, self._id("StageStarted", f"{stage}.{attempt}"))])

    def abandon_stage(self, stage: str, *, after_step: int, seconds: float | None = None) -> None:
        """Give up the running attempt: what was observed past `after_step` is void and will be observed
        again. `seconds`: how long it ran, where that is known."""
        with self.atomic():
            status = self.stage(stage)
            if status.status != "running":
                raise OutOfOrderError(f"stage {stage} is not under way", hint="nothing has to be abandoned")
            event = StageAbandoned(
                stage=stage, attempt=status.attempt, after_step=after_step, seconds=seconds
            )
            self._append([Item(event, self._id("StageStarted", f"{stage}.{status.attempt}"))])

    def score(self, candidates: Sequence[CandidateScored]) -> list[CausePromoted]:
        """Record the votes of all candidates of the round, then the promotions that follow (Equations 6, 7).

        The same candidates again give the same promotions; others raise OutOfOrderError.
        """
        with self.atomic():
            now_, opened = self._round(), self._id("RoundOpened", "")
            scored = {c.question_id for c in candidates}
            if now_.candidates and now_.candidates.keys() != scored:
                raise OutOfOrderError(f"the candidates of round {now_.number} were scored already")
            fresh = self._append([Item(c, opened) for c in candidates])
            if not any(fresh):
                number = now_.number
                told = self.log.read(self.run_id, types=["CausePromoted"], rounds=(number, number))
                return [r.event for r in told if isinstance(r.event, CausePromoted)]
            promoted = decide.promotions(self.state)
            last = {c.cause_id: c.event_id for c in now_.candidates.values() if c.verdict != "invalid"}
            self._append([Item(p, last[p.cause_id]) for p in promoted])
            return promoted

    def observe(self, failures: Sequence[FailureObserved]) -> None:
        """Record failed optimization trajectories. The same again is fine."""
        with self.atomic():
            now_ = self._round()
            items = [
                Item(f, self._id("CandidateScored", f.question_id))
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
            items: list[Item] = []
            for event in events:
                observation = now_.failures.get(event.failure_id)
                stage = "solver" if observation is None else observation.stage
                key = f"{event.failure_id}.{stage}.{event.attempt}"
                items.append(Item(event, self._id("FailureObserved", key)))
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
            items: list[Item] = []
            cause = diagnosed
            if judged is not None:
                items.append(Item(judged, cause))
                cause = self._id("DuplicateJudged", judged.key())
            if assigned is not None:
                items.append(Item(assigned, cause))
                cause = self._id("NodeAssigned", assigned.key())
            for event in decide.settlement(self.state, failure_id, judged, assigned):
                items.append(Item(event, cause))
                cause = self._id(type(event).__name__, event.key())
            self._append(items)

    def judge_nodes(self, judged: NodePairJudged) -> None:
        """Record whether two nodes are one skill, and merge them where they are: the lower id survives."""
        with self.atomic():
            items = [Item(judged)]
            if judged.merge:
                for node_id in judged.nodes:
                    self.node(node_id)
                survivor, absorbed = self.state.pair(*judged.nodes)
                label = judged.label or self.state.nodes[survivor].label
                merged = NodesMerged(survivor=survivor, absorbed=absorbed, label=label)
                items.append(Item(merged, self._id("NodePairJudged", judged.key())))
            self._append(items)

    def node_pair_refused(self, a: str, b: str) -> bool:
        """Whether the two nodes were judged to be two, with the contents that they have now."""
        first, second = self.state.pair(a, b)
        refused = self.state.refused.get(f"{first}.{second}")
        return refused is not None and refused == self.state.fingerprint(first, second)

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
        if not round_.isdecimal():
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


def _order(failure_id: str) -> tuple[int, ...]:
    """r3.q318.a5 → (3, 318, 5): by question number and sample."""
    return tuple(number_of(part) for part in failure_id.split("."))


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
    if _observed(now_, failure.failure_id) == failure.model_copy(update={"right": None}):
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
