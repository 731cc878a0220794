"""Extraction (Prompt 1): every failure beside its reference, many at once, as soon as failures are observed.

Extraction is independent of order: each question carries its own failure, reference and the causes shown at
generation, as committed in the round before. So it may run while the solver still trains; answers are
recorded in the order of submission, whatever order they arrive in, and the log is the same with 1 and 64
workers. An answer waiting for an earlier one survives a kill: replies are stored by request
when they arrive.
"""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal, Protocol, Self, runtime_checkable

from diagevo.config.models import DiagnosisConfig
from diagevo.diagnosis.diagnostician import (
    PROBED,
    Computed,
    Diagnostician,
    Extraction,
    FailurePair,
    Unread,
    UnreadableReplyGuard,
)
from diagevo.diagnosis.levels.step_location import contradicted
from diagevo.errors import AGAIN, StoppedSafely
from diagevo.memory.events import CandidateScored, FailureDiagnosed, FailureObserved, SuppliedCause
from diagevo.memory.memory import Memory

STOP_POLL_SECONDS = 0.2
BATCH, BATCH_SECONDS = 64, 0.25
"""Answers are recorded in batches of this size or after this time: a transaction costs more than an event."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a phase of maintenance, in failures (consolidation: node pairs)."""

    phase: Literal["extraction", "settlement", "consolidation"]
    done: int
    total: int


_Verdict = tuple[FailureDiagnosed, Unread | None]
OnProgress = Callable[[Progress], None]
ShouldStop = Callable[[], bool]


@runtime_checkable
class Cancellable(Protocol):
    """A diagnostician whose open requests can be cancelled: waiting calls then raise StoppedSafely, and so
    does every later one until `reopen`."""

    def cancel(self) -> None: ...

    def reopen(self) -> None: ...


class Diagnoser:
    """Diagnoses failures in the background. `submit` may be called from any thread; `drain` waits for the
    rest.

    Use it as a context manager around the solver's training to overlap both:

        with Diagnoser(memory, diagnostician, settings) as diagnoser:
            train(..., on_step=lambda ...: diagnoser.submit(memory_failures))
            diagnoser.drain()

    Failures of an attempt abandoned meanwhile are not recorded. The first error of a worker is
    raised by `drain` (or by the next `submit`): ServiceError, StoppedSafely.
    """

    def __init__(
        self,
        memory: Memory,
        diagnostician: Diagnostician,
        settings: DiagnosisConfig,
        *,
        on_progress: OnProgress | None = None,
        legibility: UnreadableReplyGuard | None = None,
        computed: Mapping[str, Computed] | None = None,
    ) -> None:
        self._memory = memory
        self._diagnostician = diagnostician
        self._settings = settings
        self._on_progress = on_progress
        takes = diagnostician.workers
        self._pool = ThreadPoolExecutor(
            max(1, min(settings.workers or takes, takes)), thread_name_prefix="diagnosis"
        )
        self._changed = threading.Condition()
        self._legibility = legibility or UnreadableReplyGuard()
        self._waiting: deque[FailureObserved] = deque()
        """Held back until a reply has been read."""
        self._queue: deque[Future[_Verdict]] = deque()
        self._submitted: set[tuple[str, int]] = set()
        self._probed = 0
        self._recording = False
        self._unrecorded = 0
        self._recorded_at = 0.0
        self._texts = _Texts(memory, computed or {})
        self._error: BaseException | None = None
        """Ends the recording."""
        self._refusal: BaseException | None = None
        """Stops asking; earlier answers are still recorded."""
        self.recorded = 0
        self.verdicts: Counter[str] = Counter()
        self.waited = 0.0
        """Seconds that `drain` kept the round waiting: what the overlap did not hide."""
        self.busy = 0.0
        """Seconds during which anyone waited for an answer."""
        self._busy_since: float | None = None

    def __enter__(self) -> Self:
        if isinstance(self._diagnostician, Cancellable):
            self._diagnostician.reopen()  # an abandoned attempt has cancelled it
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.cancel()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def submit(self, failures: Sequence[FailureObserved]) -> None:
        """Start on failures that the memory has observed. Returns at once; failures submitted before are
        skipped."""
        with self._changed:
            if self._error is not None:
                raise self._error
            wanted = within_cap(self._memory, failures, self._settings.failures_per_question)
            named = {(f.failure_id, f.attempt): f for f in wanted}
            fresh = [failure for key, failure in named.items() if key not in self._submitted]
            self._submitted.update(named)
            self._texts.expect(fresh)
            self._waiting.extend(fresh)
        self._ask()

    def _ask(self) -> None:
        """Ask about waiting failures: first three, and the others once a reply was read."""
        with self._changed:
            room = len(self._waiting) if self._legibility.understood else PROBED - self._probed
            if self._error is not None:
                room = 0
            asked = [self._waiting.popleft() for _ in range(min(room, len(self._waiting)))]
            self._probed += len(asked)
            futures = [self._pool.submit(self._diagnose, failure) for failure in asked]
            self._queue.extend(futures)
            if self._queue and self._busy_since is None:
                self._busy_since = time.monotonic()
        for future in futures:
            future.add_done_callback(self._record)

    def drain(self, should_stop: ShouldStop | None = None) -> None:
        """Wait until everything submitted is recorded. Raises the first error, or StoppedSafely if asked to
        stop."""
        started = time.monotonic()
        try:
            with self._changed:
                while (self._queue or self._waiting or self._recording) and self._error is None:
                    self._changed.wait(STOP_POLL_SECONDS if should_stop else None)
                    if should_stop is not None and should_stop():
                        left = len(self._queue) + len(self._waiting)
                        raise StoppedSafely(
                            f"diagnosis stopped with {left} failures to go; replies are kept",
                            hint=AGAIN,
                        )
            if self._error is not None:
                raise self._error
            self._keep(self._legibility.rest())
        except BaseException as error:
            if isinstance(error, StoppedSafely) and error is self._error:
                # The budget is spent: open requests are paid for, and their replies are stored.
                self._pool.shutdown(wait=True, cancel_futures=True)
            self.cancel()
            raise
        finally:
            self.waited += time.monotonic() - started

    def cancel(self) -> None:
        """Cancel unanswered requests; replies that arrived are stored, and nothing more is recorded."""
        with self._changed:
            self._error = self._error or StoppedSafely("diagnosis was cancelled", hint=AGAIN)
        if isinstance(self._diagnostician, Cancellable):
            self._diagnostician.cancel()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _diagnose(self, failure: FailureObserved) -> "_Verdict":
        if self._refusal is not None:
            raise self._refusal
        try:
            pair = self._texts.pair(failure)
            extraction = self._diagnostician.extract(pair)
            return diagnosed(failure, pair, extraction), extraction.unread
        except BaseException as error:
            self._refusal = self._refusal or error
            raise

    def _record(self, _: "Future[_Verdict]") -> None:
        """Append the answered head of the queue. One thread at a time does it, for everything
        that arrived meanwhile."""
        with self._changed:
            self._unrecorded += 1
            waiting = self._unrecorded < BATCH and time.monotonic() - self._recorded_at < BATCH_SECONDS
            if self._recording or (waiting and self._unrecorded < len(self._queue)):
                return
            self._recording = True
        try:
            while answered := self._answered():
                ready, error = self._legibility.sift(answered)
                self._keep(ready)
                if error is not None:
                    raise error
                self._ask()
        except BaseException as error:
            self._fail(error)

    def _keep(self, events: Sequence[FailureDiagnosed]) -> None:
        batch = still_wanted(self._memory, events)
        self._memory.diagnosed(batch)
        self.recorded += len(batch)
        self.verdicts.update(event.verdict for event in batch)
        if self._on_progress is not None and batch:
            self._on_progress(Progress("extraction", self.recorded, len(self._submitted)))

    def _answered(self) -> "list[_Verdict]":
        """Take the answered head of the queue; if there is none, recording ends in the same locked
        step."""
        batch: list[_Verdict] = []
        with self._changed:
            while self._error is None and self._queue and self._queue[0].done():
                future = self._queue.popleft()
                if future.cancelled():
                    continue
                if (error := future.exception()) is not None:
                    self._error = error
                    break
                batch.append(future.result())
            self._unrecorded -= len(batch)
            self._recorded_at = time.monotonic()
            if not self._queue and not self._waiting and self._busy_since is not None:
                self.busy += self._recorded_at - self._busy_since
                self._busy_since = None
            if not batch:
                self._recording = False
                self._changed.notify_all()
        return batch

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._error = self._error or error
            self._recording = False
            self._changed.notify_all()


def within_cap(memory: Memory, failures: Sequence[FailureObserved], cap: int | None) -> list[FailureObserved]:
    """The first `cap` valid failures of each question, by sample, independent of earlier diagnoses. All of
    them if there is no cap."""
    now = memory.state.open
    if cap is None or now is None:
        return list(failures)
    samples: dict[str, list[int]] = {failure.question_id: [] for failure in failures}
    for failure_id, observed in list(now.failures.items()):
        if observed.question_id in samples:
            samples[observed.question_id].append(_sample(failure_id))
    last = {question: sorted(numbers)[:cap][-1] for question, numbers in samples.items() if numbers}
    return [f for f in failures if _sample(f.failure_id) <= last.get(f.question_id, -1)]


def still_wanted(memory: Memory, events: Sequence[FailureDiagnosed]) -> list[FailureDiagnosed]:
    """Without those whose attempt was abandoned since: their observations are void."""
    now = memory.state.open
    valid = now.failures if now is not None else {}
    return [e for e in events if (seen := valid.get(e.failure_id)) is not None and seen.attempt == e.attempt]


def _sample(failure_id: str) -> int:
    return int(failure_id.rpartition(".a")[2])


class _Texts:
    """Puts pairs together: texts from the artifacts, causes as they were at generation. Thread-safe.

    Failures are expected in the order in which they will be asked about, and their texts are read in
    blocks: a query costs more than a text.
    """

    def __init__(self, memory: Memory, computed: Mapping[str, Computed]) -> None:
        self._memory = memory
        self._computed = computed
        self._lock = threading.Lock()
        self._expected: deque[FailureObserved] = deque()
        self._ready: dict[tuple[str, int], FailurePair] = {}
        self._question = lru_cache(maxsize=BATCH)(memory.question)

    def expect(self, failures: Sequence[FailureObserved]) -> None:
        self._expected.extend(failures)

    def pair(self, failure: FailureObserved) -> FailurePair:
        """The pair of an expected failure. It is returned only once."""
        key = (failure.failure_id, failure.attempt)
        with self._lock:
            while key not in self._ready:
                block = [self._expected.popleft() for _ in range(min(BATCH, len(self._expected)))]
                self._read(block or [failure])
            return self._ready.pop(key)

    def _read(self, block: Sequence[FailureObserved]) -> None:
        memory, questions = self._memory, {f.question_id: self._question(f.question_id) for f in block}
        of = self._computed.get
        digests = [
            digest
            for failure in block
            for digest in (passed(failure, of(failure.failure_id)), failure.trajectory)
        ]
        texts = memory.artifacts.get_many(digests + [question.question for question in questions.values()])
        for failure in block:
            pair = pair_of(failure, questions[failure.question_id], texts, of(failure.failure_id))
            known, asked = memory.supplied(failure.question_id), memory.times_asked(failure.failure_id) + 1
            self._ready[failure.failure_id, failure.attempt] = replace(pair, known=known, asked=asked)


def passed(failure: FailureObserved, computed: Computed | None) -> str:
    """The digest of the response shown beside a failure: the nearest one that passed, if known."""
    nearest = None if computed is None or failure.against != "response" else computed.passed
    return failure.reference if nearest is None else nearest


def pair_of(
    failure: FailureObserved,
    question: CandidateScored,
    texts: Mapping[str, str],
    computed: Computed | None = None,
) -> FailurePair:
    """A failure with what it is compared with; `texts` by digest."""
    return FailurePair(
        failure_id=failure.failure_id,
        question=texts[question.question],
        label=question.label or "",
        agreeing=texts[passed(failure, computed)] if failure.against == "response" else "",
        disagreeing=texts[failure.trajectory],
        votes_are=question.votes_are,
        computed=computed,
    )


def diagnosed(failure: FailureObserved, pair: FailurePair, extraction: Extraction) -> FailureDiagnosed:
    """Its diagnosis, flagged if the step called wrong contradicts the computation."""
    step = None if pair.computed is None else pair.computed.step
    mark = None
    if extraction.step is not None and extraction.verdict in ("recurrence", "new_cause"):
        computed = None if step is None else step.text
        mark = contradicted(extraction.step, pair.disagreeing, pair.agreeing, computed)
    return FailureDiagnosed(
        failure_id=failure.failure_id,
        attempt=failure.attempt,
        supplied=[SuppliedCause(cause_id=cause.cause_id, state=cause.state) for cause in pair.known],
        verdict=extraction.verdict,
        cause_id=extraction.cause_id,
        description=extraction.description,
        flags=[*extraction.flags, *([] if mark is None else [mark])],
        call=extraction.call,
        asked=pair.asked,
        step=step,
    )
