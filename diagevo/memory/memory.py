"""The public API of the memory: verbs that append facts and their consequences.

Every verb is one transaction; `atomic()` joins several. It appends through the run's writer (`writer.py`).
Thread-safe.

Long, but one file: it is one class, and each of its verbs is a few lines that check, decide, append.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from fractions import Fraction
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from msgspec import structs

from diagevo.equations.policy import BUILT_IN, Policy, epsilon_of
from diagevo.errors import (
    ConfigError,
    ConflictError,
    NotFoundError,
    OutOfOrderError,
    StoreError,
)
from diagevo.memory.arguments import checked, refuse_blank, refuse_other_stage
from diagevo.memory.events import (
    UNNAMED,
    Artifact,
    CandidateScored,
    Cause,
    CauseAdded,
    CauseDismissed,
    CausePromoted,
    CauseReinstated,
    CauseRenamed,
    CheckpointEvaluated,
    DuplicateJudged,
    Embedder,
    FailureAssigned,
    FailureDiagnosed,
    FailureObserved,
    FailureUnassigned,
    GroupIngested,
    IdGiven,
    Node,
    NodeAssigned,
    NodePairJudged,
    NodesMerged,
    PhaseMeasured,
    PlacedFailure,
    RoundCommitted,
    RoundOpened,
    RoundsSuperseded,
    RunConfigured,
    SimilarCause,
    StageAbandoned,
    StageCompleted,
    StageStarted,
    StepTrained,
)
from diagevo.memory.events.decode import Fact
from diagevo.memory.events.records import event_id, payload_of
from diagevo.memory.history import VoidedAttempts, fact_of
from diagevo.memory.log.database import Database
from diagevo.memory.own_ids import Numbering, failure_of, named_so, question_of
from diagevo.memory.state import decide, projection
from diagevo.memory.state.assignments import Move, causes_of, diagnosed_as, moves
from diagevo.memory.state.effects import unsettled
from diagevo.memory.state.fold import STAGES
from diagevo.memory.state.model import KnownCause, MemoryState, OpenRound, Stage, played_again
from diagevo.memory.state.projected_schedule import Schedule
from diagevo.memory.state.stored_config import own_policy_of, read_today, unread
from diagevo.memory.writer import Item, RunWriter
from diagevo.progress import WARM_START
from diagevo.text.escaping import shortened, storable

if TYPE_CHECKING:
    import numpy as np

    from diagevo.memory.log.vectors import Embed
    from diagevo.memory.nearest.similarity import NodeCandidate, Similarity

LONGEST_LINE = 500
"""Maximum characters of a person's description or reason: half a dozen lines of a terminal."""
_QUESTION = re.compile(r"r([0-9]{1,9})\.q[0-9]+")
_FAILURE = re.compile(r"r([0-9]{1,9})\.q[0-9]+\.a[0-9]+")
PORTION = 256
"""Texts that `change_embedder` embeds and stores at a time."""


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
        """`config` is the configuration of a run if nobody calls `configure`."""
        self.run_id = run_id
        self.root = root
        self.database = database
        self._run = RunWriter(database, run_id, root)
        self.log = self._run.log
        self.artifacts = self._run.artifacts
        self._config = config
        self._own_policy = own_policy_of(config)  # named by the user
        self._load_policy = cache(_loaded)
        self._embedder = embedder or UNNAMED
        if embedder is not None:
            self.check_embedder(embedder)

    @cached_property
    def _similarity(self) -> "Similarity":
        from diagevo.memory.nearest.similarity import Similarity  # numpy: an ingest needs none

        return Similarity(self._run)

    @property
    def state(self) -> MemoryState:
        """The state as of now."""
        return self._run.state

    @property
    def folder(self) -> Path:
        """The run's folder: chain heads, vector index, and whatever the run itself keeps there."""
        return self._run.folder

    def claim(self) -> None:
        """Take the run's writer lock now instead of at the first write.

        Raises:
            HeldError: Another process is the writer; the message names it.
        """
        self._run.claim()

    def atomic(self) -> AbstractContextManager[None]:
        """Run several verbs in one transaction: all or nothing, including the state."""
        return self._run.atomic()

    def close(self) -> None:
        """Save the chain's head outside the database, release the run's lock and close the connections."""
        self._run.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.close()
        except StoreError:
            if kind is None:  # else the first error is the one to report
                raise

    @checked
    def configure(self, event: RunConfigured) -> None:
        """Record the run's configuration, once. Idempotent.

        Args:
            event: The method's settings, the models by role, and the embedder.

        Raises:
            ConflictError: The run was configured differently.
            ConfigError: The run has another embedder, its policy cannot be loaded, or `memory`, `schedule`,
                `filter` or `round` has an unknown key.
        """
        if unknown := unread(event.config):
            from diagevo.config.sources import no_such_key

            raise no_such_key(tuple(unknown[0].split(".")), "memory.configure")
        with self.atomic():
            if self.state.config is None:
                self.check_embedder(event.embedder)
                if (policy := own_policy_of(event.config)) is not None:
                    self._load_policy(policy)
                self._run.append([Item(event)])
                return
            self.check_embedder(event.embedder)
            stored = self._configured()
            ours = {"number": event.number, "origin": event.origin, "version": event.version}
            if payload_of(structs.replace(stored, **ours)) != payload_of(event):
                raise ConflictError(
                    f"run {self.run_id} was configured differently",
                    hint="a resumed run keeps its configuration; for another one: diagevo runs fork",
                )

    def _record_default_config(self) -> None:
        """Configure a run that has no configuration with the one it was opened with. Within `atomic()`."""
        if self.state.config is not None:
            return
        default = RunConfigured(
            config=self._config,
            models={},
            embedder=self._embedder,
            version=version("diagevo"),
        )
        self._run.append([Item(default)])

    def _configured(self) -> RunConfigured:
        """The latest configuration. `OutOfOrderError` if none is recorded."""
        newest = self.log.read(self.run_id, types=["RunConfigured"], newest_first=True, limit=1)
        event = next((stored.event for stored in newest), None)
        if event is None:
            raise OutOfOrderError(
                f"run {self.run_id} has no configuration yet",
                hint="memory.configure(event) records the first one",
            )
        assert isinstance(event, RunConfigured)
        return read_today(event, self.run_id)

    @property
    def config(self) -> Mapping[str, Any]:
        """The run's recorded configuration, or the one it was opened with while none is recorded."""
        return self._config if self.state.config is None else self.state.config

    @checked
    def reconfigure(self, config: Mapping[str, Any]) -> None:
        """Record a new configuration if it differs from the current one.

        Args:
            config: The whole configuration, not only what changes.

        Raises:
            OutOfOrderError: A round is open and the change affects it (the diagnostician may change at any
                time), or the run was never configured.
        """
        with self.atomic():
            last = self._configured()
            if config != last.config:
                changed = structs.replace(last, config=dict(config), number=last.number + 1)
                self._run.append([Item(changed)])

    @property
    def played_by_train(self) -> bool:
        """Whether `diagevo train` plays the run: its configuration names a challenger."""
        return self.state.config is not None and "challenger" in self._configured().models

    @property
    def names_embedder(self) -> bool:
        """Whether the run's embedder is known, from `diagevo.open(embedder=…)` or `configure`."""
        return self._own_embedder not in (None, UNNAMED)

    @property
    def _own_embedder(self) -> Embedder | None:
        """The run's embedder, None while undecided."""
        if self.state.config is not None:
            return self.state.embedder
        return None if self._embedder == UNNAMED else self._embedder

    @checked
    def check_embedder(self, embedder: Embedder) -> None:
        """Refuse an embedder other than the run's: cosines between vectors of two models mean nothing.

        Raises:
            ConfigError: The run has another embedder.
        """
        stored = self._own_embedder
        if self.state.config is None and stored not in (None, embedder):
            raise ConfigError(
                f"run {self.run_id} was opened with the embedder {_spelled(stored)}, the configuration names"
                f" {_spelled(embedder)}",
                hint="give the same one to both, or leave embedder out of diagevo.open",
            )
        if stored not in (None, embedder):
            raise ConfigError(
                f"run {self.run_id} was embedded by {_spelled(stored)}, the configuration names"
                f" {_spelled(embedder)}",
                hint="use that model again, or re-embed the run: diagevo memory rebuild --embedder"
                f" --run {self.run_id} (and calibrate the thresholds: diagevo memory calibrate)",
            )

    def change_embedder(
        self,
        embedder: Embedder,
        embed: "Embed",
        *,
        config: Mapping[str, Any] | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> int:
        """Embed every cause and node label with another model, and switch the run to it.

        Past decisions stay. Vectors are stored first, in batches, and the event that switches to them last.
        If this is interrupted, the run keeps its old model, and calling it again continues. With the run's
        own model it adds missing vectors.

        Args:
            embedder: The model's name, revision and dimension.
            embed: Called with a batch of texts; returns an array (m, d).
            config: The configuration that names the model, if there is one.
            on_progress: Called with the numbers of texts done and in total.

        Returns:
            The number of texts.

        Raises:
            OutOfOrderError: A round is open.
        """
        with self._run.lock:
            self.claim()
            state = self.state
            if state.open is not None:
                raise OutOfOrderError(
                    f"round {state.open.number} is open: the embedder changes between rounds",
                    hint=f"finish it with the old model, or continue from the last commit: diagevo runs fork"
                    f" {self.run_id}@{state.round}"
                    if state.round
                    else "finish it with the old model, or start another run",
                )
            self._configured()  # refused where there is none
            texts = [state.found_as(c) for c in state.causes.values()] + [
                n.label for n in state.nodes.values()
            ]
            from diagevo.memory.log.vectors import Vectors

            vectors = Vectors(self.database, self.run_id, embedder)
            for start in range(0, len(texts), PORTION):
                vectors.embed(texts[start : start + PORTION], embed)
                if on_progress is not None:
                    on_progress(min(start + PORTION, len(texts)), len(texts))
            last = self._configured()
            values = last.config if config is None else dict(config)
            if (embedder, values) != (last.embedder, last.config):
                changed = structs.replace(last, embedder=embedder, config=values, number=last.number + 1)
                with self.atomic():
                    self._run.append([Item(changed)])
            return len(texts)

    def vectors(self, texts: Sequence[str], embed: "Embed") -> "np.ndarray":
        """Vectors of texts. Those not in the database are embedded and stored.

        Args:
            texts: n texts.
            embed: Called with the texts that have no vector yet; returns an array (m, d).

        Returns:
            (n, d) float32, in the order of `texts`.
        """
        return self._similarity.vectors(texts, embed)

    def similar_causes(self, vector: "np.ndarray", *, above: float | None = None) -> list[SimilarCause]:
        """Every stored cause with its cosine, best first, including one created a moment ago.

        Args:
            vector: (d,), of length 1.
            above: Only the nearest cause, and those whose cosine is above this.
        """
        return self._similarity.causes(vector, above)

    def similar_nodes(self, vector: "np.ndarray", k: int) -> "list[NodeCandidate]":
        """The k nodes whose nearest member is nearest, best first.

        Args:
            vector: (d,), of length 1.
            k: Maximum number of nodes.
        """
        return self._similarity.nodes(vector, k)

    def node_pairs(self, theta: float, embed: "Embed") -> list[tuple[str, str, float]]:
        """Pairs of nodes that may be the same skill.

        Args:
            theta: the cosine that a pair must exceed.
            embed: called with node labels that have no vector yet.

        Returns:
            (lower id, higher id, cosine) by falling cosine, then by ids.
        """
        return self._similarity.node_pairs(theta, embed)

    def rebuild_index(self) -> int:
        """Rebuild the vector index from SQL.

        Returns the number of causes in it; 0 if there are too few to need one.
        """
        with self._run.lock:
            self.claim()
            return self._similarity.rebuild()

    @checked
    def open_round(self, round: int, *, seed: int | None = None) -> Schedule:
        """Open a round. A run without a configuration gets that of `diagevo.open`, or the paper's values.

        Args:
            round: the number after the last committed round, or that of the open round.
            seed: the seed of the draws (default: the configuration's).

        Returns:
            The schedule of the round; for an open round the same schedule again.

        Raises:
            OutOfOrderError: another round is open, or `round` does not come next.
            ConflictError: the round is open with another seed.
        """
        with self.atomic():
            state = self.state
            if state.open is not None and state.open.number == round:
                if seed not in (None, state.open.seed):
                    raise ConflictError(
                        f"round {round} was opened with seed {state.open.seed}, not {seed}",
                        hint="leave the seed out: an open round keeps its own",
                    )
                return self.schedule(round)
            if state.open is not None or round != state.round + 1:
                comes = state.round + 1
                where = f"round {state.open.number} is open" if state.open else f"round {comes} comes next"
                do = f"commit it first: round {comes}" if state.open else f"open_round({comes})"
                raise OutOfOrderError(f"round {round} cannot be opened: {where}", hint=do)
            self._record_default_config()
            state = self.state
            policy_epsilon = None if (policy := self.policy()) is None else epsilon_of(policy, state.known())
            event = decide.opening(state, state.settings.seed if seed is None else seed, policy_epsilon)
            self._run.append([Item(event, round=round)])
            return self.schedule(round)

    @checked
    def schedule(self, round: int) -> Schedule:
        """The schedule of any opened round, or of the next one.

        Args:
            round: From 1 to the round after the last commit.

        Returns:
            ε as a `Fraction`, and the causes with f as committed in the round before.

        Raises:
            NotFoundError: There is no such round yet.
        """
        state = self.state
        if state.open is not None and state.open.number == round:
            return state.schedule(self.policy())
        if state.open is None and round == state.round + 1:
            policy = self.policy()
            epsilon = state.epsilon if policy is None else epsilon_of(policy, state.known())
            return replace(state.schedule(policy), epsilon=epsilon)
        if not 1 <= round <= state.round:
            raise NotFoundError(f"run {self.run_id} has no round {round}; {state.round} are committed")
        before, opened = self._before(round)
        return replace(before.schedule(self.policy(before)), epsilon=Fraction(opened.epsilon))

    def policy(self, state: MemoryState | None = None) -> Policy | None:
        """The custom policy that the configuration names, now or in `state`.

        Returns: The
            policy; None for a built-in one. Raises:

        ConfigError: It
            cannot be loaded, or the run was imported and the user did not name it too.
        """
        config = (state or self.state).config
        name = own_policy_of(self._config if config is None else config)
        if name is None:
            return None
        if self._own_policy is None and self.log.imported(self.run_id) is not None:
            raise ConfigError(
                f"run {self.run_id} was imported, and code that it names is not run: schedule.policy {name}",
                hint="read that file; if you trust it, name it in your own configuration",
            )
        return self._load_policy(self._own_policy or name)

    @checked
    def allow_policy(self, policy: str) -> None:
        """Record that the user names this policy, so that an imported run may use it."""
        self._own_policy = None if policy in BUILT_IN else policy

    @checked
    def as_of(self, round: int) -> MemoryState:
        """The state right after the commit of a round.

        Args:
            round: a committed round; 0 is the empty memory.

        Raises:
            NotFoundError: the round is not committed.
        """
        if not 0 <= round <= self.state.round:
            raise NotFoundError(f"run {self.run_id} has no round {round}; {self.state.round} are committed")
        if round == 0:
            return self._before(1)[0] if self.state.round or self.state.open else self.state.copy()
        if not self.log.known(self.run_id, [self._run.id_of("RoundCommitted", "", round)]):
            raise NotFoundError(
                f"round {round} of run {self.run_id} was never committed",
                hint=f"superseded while it was open, by round {played_again(self.state.superseded)[round]}",
            )
        return projection.load(self.log, self.run_id, round=round)

    def _before(self, round: int) -> tuple[MemoryState, RoundOpened]:
        """The state in which a round was opened, including configurations since the last commit, and its
        schedule."""
        opened = self.log.by_id(self.run_id, self._run.id_of("RoundOpened", "", round))
        assert isinstance(opened.event, RoundOpened)
        return projection.load(self.log, self.run_id, sequence=opened.sequence - 1), opened.event

    @checked
    def commit(self, *, undiagnosed: Literal["refuse", "keep"] = "refuse") -> RoundCommitted:
        """Commit the open round: event, projections and snapshot in one transaction.

        Args:
            undiagnosed: What to do if failures are not diagnosed: refuse the commit, or keep them for
                later. Kept failures count under no cause until `assign` names one.

        Returns:
            The commit, with F and ε of the next round as exact texts such as "1/3".

        Raises:
            OutOfOrderError: no round is open, or it is not complete, for example with failures that nobody
                diagnosed, or diagnoses that are not counted.
        """
        with self.atomic():
            now_ = self._run.opened()
            left = [failure for failure in now_.failures if failure not in now_.diagnoses]
            refused = undiagnosed == "refuse" and self.config.get("diagnosis", {}).get("enabled", True)
            if left and refused:
                raise OutOfOrderError(
                    f"{len(left)} of {len(now_.failures)} failures are not diagnosed, first {left[0]}",
                    hint='diagnose them, or keep them for later: commit(undiagnosed="keep"). Those that shall'
                    " never count have the verdict unresolved",
                )
            self.promote()
            policy_epsilon = (
                None if (policy := self.policy()) is None else epsilon_of(policy, self.state.known())
            )
            event = decide.commitment(self.state, policy_epsilon)
            self._run.append([Item(event, self._run.id_of("RoundOpened", ""))])
            self._run.keep_head()
            self._run.after.append(self._similarity.committed)
            return event

    @checked
    def supersede(self, first: int, reason: str) -> RoundsSuperseded:
        """Supersede the rounds from `first` on, an open one included.

        The memory is again as it was when `first` was opened. The rounds stay in the log, and ids and round
        numbers continue. The caller plays them again (`ingest.rounds.Rounds.supersede`).

        Args:
            first: the first round that no longer counts.
            reason: why, for the log.

        Raises:
            NotFoundError: there is no such round, or it is superseded already.
        """
        with self.atomic():
            counted = [one.round for one in self.state.began]
            if first not in counted:
                again = played_again(self.state.superseded).get(first)
                raise NotFoundError(
                    f"run {self.run_id} has no round {first}"
                    if again is None
                    else f"round {first} of run {self.run_id} is superseded by round {again}",
                    hint=f"rounds that count: {', '.join(map(str, counted)) or 'none'}",
                )
            before, last = self._before(first), self.state.last_opened
            event = decide.superseding(*before, first, last, storable(reason))
            self._run.append([Item(event, round=event.last)])
            self._similarity.reset()
            return event

    @checked
    def rename(self, cause_id: str, description: str) -> CauseRenamed:
        """Correct a cause's description. Its id, state, frequency and vector stay; `why` shows the old one.

        Args:
            cause_id: The cause.
            description: The new description.

        Raises:
            NotFoundError: There is no such cause.
            ConfigError: The description is empty, too long, or more than one line.
            OutOfOrderError: A round is open, or the description is unchanged.
        """
        refuse_no_line("description", description)
        with self.atomic():
            before = self.cause(cause_id).description
            number = len(self.state.renamed) + 1
            event = CauseRenamed(number=number, cause_id=cause_id, description=description, before=before)
            self._run.append([Item(event, round=self.state.round)])
            self._run.keep_head()
            return event

    @checked
    def dismiss(self, cause_id: str, because: str, by: str) -> CauseDismissed:
        """Dismiss a cause that is not the model's fault. It leaves F, ε, p and the schedule. Later failures
        are still counted under it but do not reactivate it.

        Args:
            cause_id: The cause.
            because: The reason, which `why` shows.
            by: Who dismisses it.

        Raises:
            NotFoundError: There is no such cause.
            ConfigError: The reason is empty, too long or more than one line, or the cause is already
                dismissed.
            OutOfOrderError: A round is open.
        """
        refuse_no_line("reason", because)
        refuse_no_line("name", by)
        with self.atomic():
            if self.cause(cause_id).state == "dismissed":
                raise ConfigError(
                    f"{cause_id} is dismissed already", hint=f"why: diagevo memory why {cause_id}"
                )
            number = self.state.dismissals + 1
            event = CauseDismissed(number=number, cause_id=cause_id, because=because, by=by)
            self._run.append([Item(event, round=self.state.round)])
            self._run.keep_head()
            return event

    @checked
    def reinstate(self, cause_id: str, by: str) -> CauseReinstated:
        """Undo a dismissal. The cause becomes Active with the failures counted since, or Mastered if it has
        none.

        Args:
            cause_id: The cause.
            by: Who undoes it.

        Raises:
            NotFoundError: There is no such cause.
            ConfigError: The cause is not dismissed.
            OutOfOrderError: A round is open.
        """
        refuse_no_line("name", by)
        with self.atomic():
            if (cause := self.cause(cause_id)).state != "dismissed":
                raise ConfigError(f"{cause_id} is not dismissed", hint=f"it is {cause.state.capitalize()}")
            event = CauseReinstated(number=self.state.dismissals + 1, cause_id=cause_id, by=by)
            self._run.append([Item(event, round=self.state.round)])
            self._run.keep_head()
            return event

    @checked
    def add_cause(self, description: str, failure_id: str, by: str) -> CauseAdded:
        """Add a cause in your own words. No failure is counted under it until one is assigned to it.

        It goes under the skill node of the failure's cause, or under a new one if it has none.

        Args:
            description: The
            description. failure_id: A failure that shows it.
            by: Who adds it.

        Raises:
            NotFoundError: There is no such failure.
            ConfigError: The description is not one line, is too long, or is that of a stored cause.
            OutOfOrderError: A round is open.
        """
        refuse_no_line("description", description)
        refuse_no_line("name", by)
        with self.atomic():
            state = self.state
            if known := [c.cause_id for c in state.causes.values() if c.description == description]:
                raise ConfigError(
                    f"{known[0]} already has this description", hint=f"assign failures to {known[0]}"
                )
            observed = self._observation(self._failure_id(failure_id), superseded=True)
            failure_id = observed.event.failure_id
            counts = bool(state.counted([observed.round]))
            cause_id = self._placed([failure_id])[failure_id][1] if counts else None
            event = CauseAdded(
                cause_id=f"c{state.next_cause}",
                description=description,
                node_id=f"n{state.next_node}" if cause_id is None else state.causes[cause_id].node_id,
                label=description if cause_id is None else None,
                failure_id=failure_id,
                by=by,
            )
            self._run.append([Item(event, round=state.round)])
            self._run.keep_head()
            return event

    @checked
    def assign(
        self, failures: Sequence[str], cause_id: str, by: str, note: str | None = None
    ) -> list[FailureAssigned]:
        """Assign failures to a cause, whatever their diagnosis says: each is counted there, as a match of
        its own round would be, and no longer under its old cause. Repeating an assignment changes nothing.

        Args:
            failures: Their ids.
            cause_id: The cause.
            by: Who assigns them.
            note: Why.

        Returns:
            The recorded events, for failures that were not assigned to it before.

        Raises:
            NotFoundError: There is no such cause or failure, or its round is superseded.
            ConfigError: The note is not one line, or is too long.
            OutOfOrderError: A round is open.
        """
        refuse_no_line("name", by)
        if note is not None:
            refuse_no_line("note", note)
        with self.atomic():
            self.cause(cause_id)
            found = self._placed(map(self._failure_id, failures))
            stands = {f for f, was in self._said().items() if was == cause_id}
            to = {failure_id: (cause_id, note, False) for failure_id in found if failure_id not in stands}
            return [e for e in self._move(found, to, by) if isinstance(e, FailureAssigned)]

    @checked
    def unassign(self, failures: Sequence[str], by: str) -> list[FailureAssigned | FailureUnassigned]:
        """Undo the assignment of failures: each goes back to its diagnosed cause, or to none.

        Args:
            failures: Their ids.
            by: Who undoes it.

        Raises:
            NotFoundError: There is no such failure, or its round is superseded.
            ConfigError: Nobody assigned it.
            OutOfOrderError: A round is open.
        """
        refuse_no_line("name", by)
        with self.atomic():
            found, before = self._placed(map(self._failure_id, failures)), self._said()
            if unsaid := [failure_id for failure_id in found if failure_id not in before]:
                raise ConfigError(
                    f"nobody assigned {unsaid[0]} to a cause", hint=f"see: diagevo memory why {unsaid[0]}"
                )
            to: dict[str, tuple[str | None, str | None, bool]] = {
                failure_id: (diagnosed_as(self.log, self.state, failure_id, placed.round), None, True)
                for failure_id, (placed, _) in found.items()
            }
            return self._move(found, to, by)

    @checked
    def causes_of(self, failures: Sequence[str]) -> dict[str, str | None]:
        """The cause that each failure is counted under now; None for a slip or an undiagnosed failure.

        Args:
            failures: Their ids.

        Raises:
            NotFoundError: There is no such failure, or its round is superseded.
        """
        ours = {given: self._failure_id(given) for given in failures}
        placed = self._placed(ours.values())
        return {given: placed[failure_id][1] for given, failure_id in ours.items()}

    @checked
    def diagnosed_as(self, failures: Sequence[str]) -> dict[str, str | None]:
        """The cause under which each failure's diagnosis counted it, ignoring later assignments.

        Args:
            failures: Their ids.

        Raises:
            NotFoundError: There is no such failure, or its round is superseded.
        """
        ours = {given: self._failure_id(given) for given in failures}
        placed = self._placed(ours.values())
        return {
            given: diagnosed_as(self.log, self.state, failure_id, placed[failure_id][0].round)
            for given, failure_id in ours.items()
        }

    def _said(self) -> dict[str, str]:
        """The cause of each failure with an assignment that was not undone."""
        last = {fact.event.failure.failure_id: fact.event for fact in moves(self.log, self.run_id)}
        return {
            failure_id: event.cause_id
            for failure_id, event in last.items()
            if isinstance(event, FailureAssigned) and not event.undo
        }

    def _move(
        self,
        found: Mapping[str, tuple[PlacedFailure, str | None]],
        to: Mapping[str, tuple[str | None, str | None, bool]],
        by: str,
    ) -> list[Move]:
        """Move failures from their causes to those in `to`, each with a note and whether that undoes an
        assignment."""
        events: list[Move] = []
        for failure_id, (cause_id, note, undo) in to.items():
            placed, before = found[failure_id]
            number = self.state.assignments + len(events) + 1
            if before is not None:  # even to its own cause: from now on it is the person's label
                events.append(FailureUnassigned(number=number, cause_id=before, failure=placed, by=by))
                number += 1
            if cause_id is not None:
                events.append(
                    FailureAssigned(
                        number=number, cause_id=cause_id, failure=placed, by=by, note=note, undo=undo
                    )
                )
        if events:
            self._run.append([Item(event, round=self.state.round) for event in events])
            self._run.keep_head()
        return events

    def _failure_id(self, id_: str) -> str:
        """Our id of a failure of any round, given by our id or its trainer's."""
        ours = failure_of(self.state.open, id_)
        if ours != id_ or _FAILURE.fullmatch(id_):
            return ours
        return named_so(self.log, self.run_id, id_).get("failure", id_)

    def _placed(self, failures: Iterable[str]) -> dict[str, tuple[PlacedFailure, str | None]]:
        """Failures of rounds that count, each with its cause."""
        now = causes_of(moves(self.log, self.run_id))
        found: dict[str, tuple[PlacedFailure, str | None]] = {}
        for failure_id in dict.fromkeys(failures):
            observed = self._observation(failure_id)
            scored = self.question(observed.event.question_id)
            placed = PlacedFailure(
                failure_id=failure_id,
                round=observed.round,
                trajectory=observed.event.trajectory,
                question=scored.question,
                responses=scored.responses,
                first=scored.first,
            )
            if failure_id in now:
                found[failure_id] = placed, now[failure_id]
            else:
                found[failure_id] = placed, diagnosed_as(self.log, self.state, failure_id, observed.round)
        return found

    def _observation(self, failure_id: str, *, superseded: bool = False) -> Fact[FailureObserved]:
        """The observation of a failure that counts, or whose round is `superseded`. Raises NotFoundError if
        there is none."""
        named = _FAILURE.fullmatch(failure_id)
        if named is None:
            raise NotFoundError(
                f"{shortened(failure_id)} is not the id of a failure",
                hint="failures are named like r3.q318.a5, or as their trainer named them",
            )
        round, question = int(named[1]), failure_id.rpartition(".")[0]
        if not superseded and (again := played_again(self.state.superseded).get(round)) is not None:
            raise NotFoundError(
                f"round {round} of run {self.run_id} is superseded by round {again}",
                hint=f"list those of it: diagevo memory log --type FailureObserved --round {again}",
            )
        given_up = VoidedAttempts()
        for fact in self.log.chosen(self.run_id, [StageAbandoned], (round, round)):
            given_up.add(fact.round, fact.event)
        asked = event_id(round, CandidateScored.__name__, question)
        for recorded in self.log.read(self.run_id, causation_id=asked):
            event = recorded.event
            if (
                isinstance(event, FailureObserved)
                and event.failure_id == failure_id
                and not given_up.void(round, event)
            ):
                return fact_of(recorded, FailureObserved)
        raise NotFoundError(
            f"run {self.run_id} has no failure {failure_id}",
            hint=f"list those of a round: diagevo memory log --type FailureObserved --round {round}",
        )

    @checked
    def evaluated(self, event: CheckpointEvaluated, round: int) -> None:
        """Record a measurement of the policy after `round` (0: before any training). Allowed at any
        time; idempotent."""
        with self.atomic():
            self._record_default_config()
            self._run.append([Item(event, round=round)])

    @checked
    def ingested(self, groups: Sequence[GroupIngested], round: int) -> None:
        """Record groups of another trainer's rollouts for `round`. Allowed at any time; idempotent.

        A run without a configuration gets that of `diagevo.open`.

        Raises:
            ConfigError: A step's groups are incomplete or not numbered from 0.
            OutOfOrderError: The round was already opened without these groups.
        """
        with self.atomic():
            places = Counter[tuple[int, int]]()
            for group in groups:
                key = group.attempt, group.step
                if group.group != places[key]:
                    raise ConfigError(
                        f"group {group.group} of step {group.step} is not {places[key]}, which comes next",
                        hint="give all groups of a step in one call, numbered from 0",
                    )
                places[key] += 1
            first = self.state.batch(self.state.last_opened + 1)
            ids = [self._run.id_of("GroupIngested", group.key(), round) for group in groups]
            if round < first and len(set(self.log.known(self.run_id, ids))) < len(ids):
                raise OutOfOrderError(
                    f"round {round} cannot take groups: its rollouts are played",
                    hint=f"the next round that can is {first}",
                )
            self._record_default_config()
            self._run.append([Item(group, round=round) for group in groups])

    @checked
    def stage(self, stage: str) -> Stage:
        """The status of a stage of the open round; an abandoned one counts as not started."""
        refuse_other_stage(stage, (*STAGES, WARM_START))
        found = self._run.opened().stages.get(stage, Stage("not_started", 0))
        return Stage("not_started", found.attempt) if found.status == "abandoned" else found

    @checked
    def start_stage(self, stage: str) -> int:
        """Begin a stage of the open round.

        Returns:
            The attempt's number, from 1. If one is running already, its number.

        Raises:
            OutOfOrderError: No round is open, or the stage is complete.
        """
        with self.atomic():
            status = self.stage(stage)
            if status.status == "running":
                return status.attempt
            if status.status == "completed":
                raise OutOfOrderError(f"stage {stage} of round {self._run.opened().number} is complete")
            if stage == "solver":
                self.promote()
            event = StageStarted(stage=stage, attempt=status.attempt + 1)
            self._run.append([Item(event, self._run.id_of("RoundOpened", ""))])
            return event.attempt

    @checked
    def complete_stage(
        self,
        stage: str,
        artifacts: Sequence[Artifact] = (),
        seconds: float | None = None,
        *,
        parts: Mapping[str, float] | None = None,
        reward: float | None = None,
    ) -> None:
        """End a stage. Idempotent.

        Args:
            stage: Its name.
            artifacts: The files it produced.
            seconds: Wall time.
            parts: Wall time of its parts, in seconds.
            reward: The mean reward of training, over its completions.
        """
        with self.atomic():
            status = self.stage(stage)
            attempt = status.attempt if status.status == "completed" else self.start_stage(stage)
            event = StageCompleted(
                stage=stage,
                attempt=attempt,
                artifacts=list(artifacts),
                seconds=seconds,
                parts=dict(parts or {}),
                reward=reward,
            )
            if any(self._run.append([Item(event, self._run.id_of("StageStarted", f"{stage}.{attempt}"))])):
                self._run.keep_head()

    @checked
    def step_trained(self, event: StepTrained) -> None:
        """Record a step of the running training attempt. Idempotent."""
        with self.atomic():
            started = self._run.id_of("StageStarted", f"{event.stage}.{event.attempt}")
            self._run.append([Item(event, started)])

    @checked
    def phase_measured(self, event: PhaseMeasured) -> None:
        """Record the measurements of the running training attempt. Idempotent."""
        with self.atomic():
            started = self._run.id_of("StageStarted", f"{event.stage}.{event.attempt}")
            self._run.append([Item(event, started)])

    @checked
    def abandon_stage(
        self, stage: str, *, after_step: int, seconds: float | None = None, reason: str | None = None
    ) -> None:
        """Abandon the running attempt. Idempotent.

        Args:
            stage: Its name.
            after_step: The last step that counts; failures observed after it are void and observed again.
            seconds: How long the attempt ran, if known.
            reason: Why it was abandoned.

        Raises:
            OutOfOrderError: The stage is not running.
        """
        with self.atomic():
            status = self.stage(stage)
            if status.status == "completed" or status.attempt == 0:
                raise OutOfOrderError(f"stage {stage} is not running", hint="nothing has to be abandoned")
            event = StageAbandoned(
                stage=stage,
                attempt=status.attempt,
                after_step=after_step,
                seconds=seconds,
                reason=reason,
            )
            key = f"{stage}.{status.attempt}"
            self._run.append([Item(event, self._run.id_of("StageStarted", key))])

    @checked
    def score(self, candidates: Sequence[CandidateScored]) -> list[CausePromoted]:
        """Record votes of candidates of the round: all at once, some, or one by one, in any order.

        Promotions wait for the last candidate (`promote`). Idempotent.

        Args:
            candidates: Of the open round.

        Returns:
            The promotions that the votes so far would give.

        Raises:
            ConflictError: A candidate was scored before with other content.
            OutOfOrderError: No round is open, its promotions or failures are recorded already, or a
                candidate's counts, label or verdict do not follow from its votes.
        """
        with self.atomic():
            now_, opened = self._run.opened(), self._run.id_of("RoundOpened", "")
            numbering = Numbering(now_, (c.question_id for c in candidates))
            candidates = [
                structs.replace(each, question_id=numbering.question(each.question_id)) for each in candidates
            ]
            batch = self.state.batch(now_.number)
            waits = self.log.chosen(self.run_id, [GroupIngested], (batch, batch))
            if (
                any(each.votes_are == "answers" for each in candidates)
                and next(iter(waits), None) is not None
            ):
                raise OutOfOrderError(
                    f"round {now_.number} is made of rollouts that were ingested for it",
                    hint=f"play it with: diagevo diagnose --run {self.run_id}",
                )
            self._run.append([Item(c, opened) for c in candidates])
            scored = {c.question_id: self._run.id_of("CandidateScored", c.key()) for c in candidates}
            self._give_ids(numbering, scored)
            return self._promoted() + decide.promotions(self.state)

    @checked
    def promote(self) -> list[CausePromoted]:
        """End the scoring of the round: record the promotions that its votes give (Equations 6, 7).

        The first failure, the solver's stage and the commit do this too. Idempotent.

        Returns:
            The promotions.

        Raises:
            OutOfOrderError: No round is open.
        """
        with self.atomic():
            now_ = self._run.opened()
            promoted = decide.promotions(self.state)
            last = {c.cause_id: c.question_id for c in now_.candidates.values() if c.verdict != "invalid"}
            follows = [self._run.id_of("CandidateScored", last[p.cause_id]) for p in promoted]
            self._run.append([Item(p, cause) for p, cause in zip(promoted, follows, strict=True)])
            return self._promoted()

    def _promoted(self) -> list[CausePromoted]:
        """The promotions recorded in the open round."""
        if not (now_ := self._run.opened()).promoted:
            return []
        found = self.log.read(self.run_id, types=["CausePromoted"], rounds=(now_.number, now_.number))
        return [one.event for one in found if isinstance(one.event, CausePromoted)]

    @checked
    def observe(self, failures: Sequence[FailureObserved]) -> None:
        """Record failed optimization trajectories. Idempotent.

        Args:
            failures: failures on kept questions of the open round.

        Raises:
            ConflictError: a failure is recorded already with other content.
            OutOfOrderError: a failure does not fit the round, for example its question was not kept.
        """
        with self.atomic():
            now_ = self._run.opened()
            numbering = Numbering(now_, (f.failure_id for f in failures))
            failures = [self._fitting(failure, numbering) for failure in failures]
            for failure in failures:
                if now_.failures.get(failure.failure_id, failure) != failure:
                    raise ConflictError(
                        f"{failure.failure_id} was already observed with other content",
                        hint="abandon a stage before repeating it: abandon_stage(stage, after_step=...)",
                    )
            if failures and not now_.failures:
                self.promote()
            self._run.append([Item(f, self._run.id_of("CandidateScored", f.question_id)) for f in failures])
            observed = {f.failure_id: self._run.id_of("FailureObserved", f.key()) for f in failures}
            self._give_ids(numbering, observed)
            if any(f.failure_id not in self._run.opened().failures for f in failures):
                raise OutOfOrderError("an observation of an abandoned attempt stays void")

    def _give_ids(self, numbering: Numbering, follows: Mapping[str, str]) -> None:
        """Record a trainer's own ids, each after the event that it names."""
        given = numbering.own_ids.items()
        self._run.append([Item(IdGiven(named=ours, own_id=own), follows[ours]) for ours, own in given])

    def _fitting(self, failure: FailureObserved, numbering: Numbering) -> FailureObserved:
        """An observation with our ids. Raises ConfigError for a bad id, stage or step."""
        now_ = self._run.opened()
        question_id = question_of(now_, failure.question_id)
        if question_id not in now_.candidates:
            raise OutOfOrderError(
                f"round {now_.number} has no candidate {shortened(question_id)}",
                hint="score it first, under this id",
            )
        failure_id = numbering.failure(failure.failure_id, question_id)
        failure = structs.replace(failure, failure_id=failure_id, question_id=question_id)
        refuse_other_stage(failure.stage, STAGES)
        question = self._run.opened().candidates.get(failure.question_id)
        if failure.step < 1 and question is not None and question.votes_are == "answers":
            raise ConfigError(f"{failure.failure_id} is of step 0", hint="steps of training count from 1")
        return failure

    @checked
    def own_id(self, id_: str) -> str:
        """The trainer's own id of a question or failure of the open round; our id if it has none."""
        return self._run.opened().own_ids.get(id_, id_)

    @checked
    def undiagnosed(self, *, again: bool = False) -> list[FailureObserved]:
        """Valid failures without a diagnosis, by question and sample; with `again` also the unresolved
        ones."""
        with self._run.lock:
            now_ = self._run.opened()
            waiting = [
                f
                for f in now_.failures
                if f not in now_.diagnoses or (again and now_.diagnoses[f].verdict == "unresolved")
            ]
            return [now_.failures[f] for f in sorted(waiting, key=_by_question)]

    @checked
    def times_asked(self, failure_id: str) -> int:
        """How often the failure was diagnosed since its valid observation. The next diagnosis has an `asked`
        one higher."""
        now_ = self._run.opened()
        diagnosis = now_.diagnoses.get(failure_of(now_, failure_id))
        return 0 if diagnosis is None else diagnosis.asked

    @checked
    def diagnosed(self, events: Sequence[FailureDiagnosed]) -> None:
        """Record diagnoses. Idempotent.

        Args:
            events: diagnoses of observed failures, in any order and at any time after the observation.

        Raises:
            OutOfOrderError: a diagnosis does not fit its failure or the causes supplied.
        """
        with self.atomic():
            now_ = self._run.opened()
            items: list[Item] = []
            for event in events:
                refuse_blank(f"the description of {event.failure_id}", event.description)
                event = structs.replace(event, failure_id=failure_of(now_, event.failure_id))
                observation = now_.failures.get(event.failure_id)
                stage = "solver" if observation is None else observation.stage
                key = f"{event.failure_id}.{stage}.{event.attempt}"
                items.append(Item(event, self._run.id_of("FailureObserved", key)))
            if items:
                self._run.append(items)

    @checked
    def unsettled(self) -> list[FailureDiagnosed]:
        """Diagnosed failures not yet assigned to a cause, by question number and sample."""
        with self._run.lock:
            now_ = self._run.opened()
            return [now_.diagnoses[f] for f in sorted(unsettled(now_), key=_by_question)]

    @checked
    def settle(
        self, failure_id: str, *, judged: DuplicateJudged | None = None, assigned: NodeAssigned | None = None
    ) -> None:
        """Assign one diagnosed failure to a cause: facts and consequences, in one transaction.

        Idempotent.

        Args:
            failure_id: a diagnosed failure of the open round.
            judged: for a new cause, whether it duplicates a stored one. None for a recurrence.
            assigned: the node of a new cause that is no duplicate. None otherwise.

        Raises:
            OutOfOrderError: the failure has no diagnosis, or the facts do not fit it.
        """
        with self.atomic():
            now_ = self._run.opened()
            failure_id = failure_of(now_, failure_id)
            if judged is not None:
                judged = structs.replace(judged, failure_id=failure_of(now_, judged.failure_id))
            if assigned is not None:
                assigned = structs.replace(assigned, failure_id=failure_of(now_, assigned.failure_id))
            diagnosis = _settled_by(now_, failure_id, judged, assigned)
            items: list[Item] = []
            key = f"{failure_id}.{diagnosis.attempt}.{diagnosis.asked}"
            cause = self._run.id_of("FailureDiagnosed", key)
            if judged is not None:
                items.append(Item(judged, cause))
                cause = self._run.id_of("DuplicateJudged", judged.key())
            if assigned is not None:
                refuse_blank(f"the label of the node of {failure_id}", assigned.new_label)
                items.append(Item(assigned, cause))
                cause = self._run.id_of("NodeAssigned", assigned.key())
            if failure_id not in now_.settled:
                for event in decide.settlement(self.state, failure_id, judged, assigned):
                    items.append(Item(event, cause))
                    cause = self._run.id_of(type(event).__name__, event.key())
            self._run.append(items)

    @checked
    def judge_nodes(self, judged: NodePairJudged) -> None:
        """Record whether two nodes are one skill, and merge them if they are. Idempotent.

        Args:
            judged: the judgement on the pair. The lower id survives a merge.
        """
        with self.atomic():
            refuse_blank(f"the label of {' and '.join(judged.nodes)}", judged.label)
            items = [Item(judged)]
            if judged.merge and not self.log.known(
                self.run_id, [self._run.id_of("NodePairJudged", judged.key())]
            ):
                for node_id in judged.nodes:
                    self.node(node_id)
                survivor, absorbed = self.state.pair(*judged.nodes)
                label = judged.label or self.state.nodes[survivor].label
                merged = NodesMerged(survivor=survivor, absorbed=absorbed, label=label)
                items.append(Item(merged, self._run.id_of("NodePairJudged", judged.key())))
            self._run.append(items)

    @checked
    def node_pair_refused(self, a: str, b: str) -> bool:
        """Whether the two nodes, with their current contents, were judged to be different."""
        first, second = self.state.pair(self.node(a).node_id, self.node(b).node_id)
        refused = self.state.refused.get(f"{first}.{second}")
        return refused is not None and refused == self.state.fingerprint(first, second)

    @checked
    def cause(self, cause_id: str) -> Cause:
        """A cause as it is now.

        Raises:
            NotFoundError: There is none of this id.
        """
        if cause_id not in self.state.causes:
            raise NotFoundError(f"run {self.run_id} has no cause {cause_id}")
        return self.state.causes[cause_id]

    @checked
    def node(self, node_id: str) -> Node:
        """A node as it is now.

        Raises:
            NotFoundError: There is none of this id, or it was merged; the message names the survivor.
        """
        if node_id in self.state.absorbed:
            raise NotFoundError(f"node {node_id} was merged into {self.state.absorbed[node_id][0]}")
        if node_id not in self.state.nodes:
            raise NotFoundError(f"run {self.run_id} has no node {node_id}")
        return self.state.nodes[node_id]

    @checked
    def question(self, question_id: str) -> CandidateScored:
        """A scored candidate of any round.

        Raises:
            NotFoundError: There is none of this id.
        """
        ours = question_of(self.state.open, question_id)
        if not (named := _QUESTION.fullmatch(ours)):
            ours = named_so(self.log, self.run_id, ours).get("question", ours)
            named = _QUESTION.fullmatch(ours)
        if named is None:
            raise NotFoundError(
                f"{shortened(question_id)} is not the id of a question",
                hint="questions are named like r3.q318, or as their trainer named them",
            )
        event = self.log.by_id(self.run_id, event_id(int(named[1]), "CandidateScored", ours)).event
        assert isinstance(event, CandidateScored)
        return event

    @checked
    def supplied(self, question_id: str) -> tuple[KnownCause, ...]:
        """The causes given to the question's writer, as committed in the round before."""
        now_ = self._run.opened()
        candidate = now_.candidates.get(question_of(now_, question_id))
        if candidate is None:
            raise NotFoundError(f"round {now_.number} has no candidate {question_id}")
        shown = [c for c in (candidate.cause_id, candidate.stitched_cause_id) if c is not None]
        return tuple(self.state.known_cause(now_.causes[c]) for c in shown)


def _loaded(policy: str) -> Policy:
    from diagevo.memory.policy_file import load  # few runs name a custom policy

    return load(policy)


def refuse_no_line(what: str, text: str) -> None:
    """Raises ConfigError for a text that is not one printable line."""
    if not text.strip():
        raise ConfigError(f"the {what} is empty", hint="write one line")
    if found := next((c for c in text if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")), None):
        raise ConfigError(
            f"the {what} must be one line of text: it has {found!r}",
            hint="leave out line breaks, control characters and bytes that are not UTF-8",
        )
    if len(text) > LONGEST_LINE:
        raise ConfigError(
            f"the {what} has {len(text):,} characters, at most {LONGEST_LINE} are allowed",
            hint="make it shorter",
        )


def _by_question(failure_id: str) -> tuple[list[int], str]:
    """r3.q318.a5 → (3, 318, 5): by question number and sample. Old logs may have other ids."""
    return [int(number) for number in re.findall(r"[0-9]+", failure_id)], failure_id


def _settled_by(
    now: OpenRound, failure_id: str, judged: DuplicateJudged | None, assigned: NodeAssigned | None
) -> FailureDiagnosed:
    """The diagnosis that these facts settle. Raises OutOfOrderError if they cannot."""
    diagnosis = now.diagnoses.get(failure_id)
    if diagnosis is None:
        raise OutOfOrderError(f"{failure_id} has no diagnosis")
    verdict = diagnosis.verdict
    if verdict not in ("recurrence", "new_cause"):
        raise OutOfOrderError(f"{failure_id} is {verdict}: there is no cause to count it under")
    if verdict == "recurrence" and (judged is not None or assigned is not None):
        raise OutOfOrderError(f"{failure_id} is a recurrence: there is nothing to judge")
    if verdict == "new_cause" and judged is None:
        raise OutOfOrderError(f"{failure_id} needs a judgement on duplicates")
    if judged is not None and judged.duplicate == (assigned is not None):
        raise OutOfOrderError(f"{failure_id}: a node is assigned exactly where the cause is no duplicate")
    for fact in (judged, assigned):
        if fact is not None and fact.failure_id != failure_id:
            raise OutOfOrderError(f"a fact about {fact.failure_id} cannot settle {failure_id}")
    return diagnosis


def _spelled(embedder: Embedder) -> str:
    if embedder == UNNAMED:
        return "a model that was never named"
    return f"{embedder.name} @ {embedder.revision or '-'} ({embedder.dimension} numbers)"
