"""Requests to a chat model, each asked once: stored replies, a budget and its use, counts, and services'
peculiarities."""

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import msgspec

from diagevo.config.models import DiagnosisConfig, DiagnosticianRole
from diagevo.diagnosis.endpoint import Endpoint
from diagevo.diagnosis.replies import LONGEST_REPLY
from diagevo.errors import AGAIN, RefusedError, StoppedSafely
from diagevo.memory.events import ModelCall
from diagevo.memory.log.artifacts import Artifacts, Reply, digest_of
from diagevo.memory.log.log import Log
from diagevo.sampling.sampler import Message

_encode = msgspec.json.Encoder(order="sorted").encode


@dataclass(slots=True)
class Usage:
    """The cost of one kind of request in this process."""

    calls: int = 0
    """Answered by the service."""
    stored: int = 0
    """Answered by a stored reply."""


@dataclass(frozen=True, slots=True)
class Asked:
    request: str
    """Digest of the request."""
    reply: Reply | None
    """None if the service refused the request."""
    refused: str = ""
    """The service's message."""

    @classmethod
    def of(cls, request: str, answer: Reply | RefusedError) -> "Asked":
        if isinstance(answer, RefusedError):
            return cls(request, None, answer.message)
        return cls(request, answer)


class Budget:
    """Maximum calls and tokens of a run; `spent_…` is the use of earlier processes of the run."""

    def __init__(
        self, max_calls: int | None, max_tokens: int | None, spent_calls: int = 0, spent_tokens: int = 0
    ) -> None:
        self._max_calls, self._max_tokens = max_calls, max_tokens
        self.calls, self.tokens = spent_calls, spent_tokens
        self._lock = threading.Lock()

    def take(self) -> None:
        """Take one call. Raises StoppedSafely if the budget is spent."""
        with self._lock:
            for what, spent, most in (
                ("calls", self.calls, self._max_calls),
                ("tokens", self.tokens, self._max_tokens),
            ):
                if most is not None and spent >= most:
                    raise StoppedSafely(
                        f"the diagnostician's budget of {most} {what} is spent",
                        hint=f"raise diagnosis.max_{what}, then {AGAIN}",
                    )
            self.calls += 1

    def add_tokens(self, tokens: int) -> None:
        with self._lock:
            self.tokens += tokens


class Chat:
    """One chat model. Thread-safe. Identical concurrent requests are sent once."""

    def __init__(
        self, endpoint: Endpoint, role: DiagnosticianRole, artifacts: Artifacts, budget: Budget
    ) -> None:
        self._endpoint = endpoint
        self._role = role
        self._artifacts = artifacts
        self._budget = budget
        self._lock = threading.Lock()
        self._open: dict[str, Future[Reply | RefusedError]] = {}
        self._structured = role.structured_output != "off"
        self._structured_works = role.structured_output == "on"
        self._parameters: dict[str, Any] = {"max_tokens": role.max_tokens, "temperature": 0}
        self._answered: set[str] = set()
        """Requests of this process that have an answer."""
        self.usage: defaultdict[str, Usage] = defaultdict(Usage)

    def recalled(self, messages: Sequence[Message], *, asked: int = 1) -> Asked | None:
        """Only the stored reply, if there is one; it counts once it is used (`count_stored`)."""
        request = digest_of(self._question(messages, asked))
        reply = self._artifacts.recall_reply(self._role.model, request)
        return None if reply is None else Asked(request, reply)

    def count_stored(self, kind: str, requests: Sequence[str]) -> None:
        """Count these requests as answered by their stored replies."""
        with self._lock:
            self.usage[kind].stored += sum(request not in self._answered for request in requests)
            self._answered.update(requests)

    def _question(self, messages: Sequence[Message], asked: int) -> str:
        question: dict[str, Any] = {
            "messages": list(messages),
            "max_tokens": self._role.max_tokens,
            "temperature": 0,
        }
        if asked > 1:
            question["asked"] = asked
        return _encode(question).decode()

    def ask(
        self,
        kind: str,
        messages: Sequence[Message],
        schema: Mapping[str, Any],
        *,
        asked: int = 1,
        usable: Callable[[str], bool] = lambda _: True,
    ) -> Asked:
        """Ask, or find the stored reply, if it is `usable`. `asked` above 1 makes it a different request,
        to be asked again.

        Raises ServiceError, StoppedSafely.
        """
        request = self._artifacts.put(self._question(messages, asked))
        mine = None
        with self._lock:
            if (future := self._open.get(request)) is None:
                self._open[request] = mine = future = Future()
        if mine is None:
            return Asked.of(request, future.result())
        try:
            mine.set_result(self._answer(kind, request, messages, schema, usable))
        except BaseException as error:
            mine.set_exception(error)
            raise
        finally:
            with self._lock:
                del self._open[request]
        return Asked.of(request, mine.result())

    def _answer(
        self,
        kind: str,
        request: str,
        messages: Sequence[Message],
        schema: Mapping[str, Any],
        usable: Callable[[str], bool],
    ) -> Reply | RefusedError:
        stored = self._artifacts.recall_reply(self._role.model, request)
        if stored is not None and usable(stored.text):
            self.count_stored(kind, [request])
            return stored
        self._budget.take()
        try:
            reply = self._from_service(messages, kind, schema)
        except RefusedError as refused:
            return refused
        self._artifacts.remember_reply(self._role.model, request, reply, instead=stored is not None)
        self._budget.add_tokens(reply.input_tokens + reply.output_tokens)
        with self._lock:
            self._answered.add(request)
            self.usage[kind].calls += 1
        return reply

    def _from_service(self, messages: Sequence[Message], kind: str, schema: Mapping[str, Any]) -> Reply:
        """Ask in the form that the service accepts: with a schema if it can, with the parameters it knows."""
        while True:
            structured, parameters = self._structured, self._parameters
            try:
                reply = self._create(messages, kind, schema)
            except RefusedError as refused:
                if self._adapted(refused.message, structured, parameters):
                    continue
                raise
            if structured:
                self._structured_works = True
            return reply

    def _adapted(self, refusal: str, structured: bool, parameters: Mapping[str, Any]) -> bool:
        """Whether the refused request is worth sending in another form."""
        with self._lock:
            if structured != self._structured or parameters is not self._parameters:
                return True  # another thread has adapted meanwhile
            if "max_completion_tokens" in refusal and "max_tokens" in parameters:
                self._parameters = {"max_completion_tokens": self._role.max_tokens, "temperature": 0}
                return True
            if "temperature" in refusal and "temperature" in parameters:
                self._parameters = {key: value for key, value in parameters.items() if key != "temperature"}
                return True
            if structured and not self._structured_works:
                self._structured = False
                return True
            return False

    def _create(self, messages: Sequence[Message], kind: str, schema: Mapping[str, Any]) -> Reply:
        wish: dict[str, Any] = {**self._parameters, "messages": list(messages)}
        if self._structured:
            described = {"name": kind, "strict": True, "schema": schema}
            wish["response_format"] = {"type": "json_schema", "json_schema": described}
        answered = self._endpoint.complete(model=self._role.model, **wish)
        text = answered.choices[0].text[:LONGEST_REPLY]
        return Reply(text, answered.input_tokens, answered.output_tokens)


DECISIONS = {
    "FailureDiagnosed": "extract",
    "DuplicateJudged": "duplicate",
    "NodeAssigned": "assign",
    "NodePairJudged": "merge",
}
"""The event that records each decision of the diagnostician."""


def spent(log: Log, run_id: str) -> tuple[int, int]:
    """Replies of a model, including retries, and their tokens. A reply that served several failures
    counts once; a prefetched one that was not needed is in no event, and does not count."""
    calls = tokens = 0
    seen: set[str] = set()
    for recorded in log.read(run_id, types=list(DECISIONS)):
        call: ModelCall | None = getattr(recorded.event, "call", None)
        if call is not None and call.request not in seen:
            seen.add(call.request)
            calls += call.tries
            tokens += call.input_tokens + call.output_tokens
    return calls, tokens


def budget_of(log: Log, run_id: str, settings: DiagnosisConfig) -> Budget:
    """The run's budget and what is spent. Without a limit the log is not read."""
    if settings.max_calls is None and settings.max_tokens is None:
        return Budget(None, None)
    return Budget(settings.max_calls, settings.max_tokens, *spent(log, run_id))
