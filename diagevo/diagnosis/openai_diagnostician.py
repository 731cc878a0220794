"""The language-model diagnostician: four prompts to any OpenAI-compatible service, at temperature 0.

After an unusable reply the model is shown its error and asked again, at most `settings.retries` times; then
the verdict is the defined one: Prompt 1 unresolved, Prompt 2 not a duplicate, Prompt 3 a new node labelled by
the cause itself, Prompt 4 no merge. Every reply is stored by model and request when it arrives, and
reused instead of asking again; an unreadable one is never reused.

Flags on a verdict: `length` (a phrase outside 10 to 20 words, accepted), `unknown_id` (an id that was not
supplied, then no match), `both_given` (an id and a description; the id wins), `unreadable` (no usable reply),
`refused` (the service would not take the request).
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeVar

from diagevo.config.models import DiagnosisConfig, DiagnosticianRole
from diagevo.config.resources import on_this_machine
from diagevo.diagnosis.chat import Asked, Budget, Chat, Usage
from diagevo.diagnosis.diagnostician import (
    IN_A_ROW,
    DuplicateJudgement,
    Extraction,
    FailurePair,
    NodeAssignment,
    NodeContents,
    PairJudgement,
    Unread,
    unreadable,
)
from diagevo.diagnosis.endpoint import Endpoint
from diagevo.diagnosis.prompts import Decision, DiagnosisPrompts
from diagevo.diagnosis.replies import (
    AssignmentReply,
    DuplicateReply,
    ExtractionReply,
    MergeReply,
    Reading,
    TaskReply,
    read_assignment,
    read_duplicate,
    read_extraction,
    read_merge,
    read_task,
)
from diagevo.memory.events import ModelCall
from diagevo.memory.log.artifacts import Artifacts
from diagevo.memory.nearest.similarity import NodeCandidate
from diagevo.memory.state.model import KnownCause
from diagevo.sampling.sampler import Message
from diagevo.sampling.service import RETRIES, Service
from diagevo.sampling.vllm_metrics import cached_tokens

T = TypeVar("T")

_SCHEMAS: Mapping[Decision, dict[str, Any]] = {
    "extract": ExtractionReply.model_json_schema(),
    "duplicate": DuplicateReply.model_json_schema(),
    "assign": AssignmentReply.model_json_schema(),
    "merge": MergeReply.model_json_schema(),
}

OF_A_SERVICE = 16
"""Concurrent requests to a server of unknown capacity."""
MOST = 256


@dataclass(frozen=True, slots=True)
class _Tried(Generic[T]):
    """The result of the tries. `value` is None if none was usable; `flag` then says why."""

    value: T | None
    flag: str
    call: ModelCall
    unread: Unread | None = None


Decided = TypeVar("Decided", Extraction, DuplicateJudgement, NodeAssignment, PairJudgement)


def _decided(tried: _Tried[Decided], otherwise: Decided) -> Decided:
    """The result of the tries, with their cost; `otherwise` if none was readable."""
    if tried.value is None:
        return replace(otherwise, flags=(tried.flag,), call=tried.call)
    return replace(tried.value, call=tried.call)


class OpenAIDiagnostician:
    """Implements `Diagnostician`. `budget` includes what earlier processes of the run have
    spent (`chat.budget_of`). `retries`: retries of a request without an answer."""

    def __init__(
        self,
        role: DiagnosticianRole,
        settings: DiagnosisConfig,
        artifacts: Artifacts,
        prompts: Path | None = None,
        *,
        budget: Budget | None = None,
        retries: int = RETRIES,
    ) -> None:
        self._prompts = DiagnosisPrompts.load(prompts, settings.trajectory_characters)
        self._settings = settings
        self._artifacts = artifacts
        service = Service(role.base_url, key_env=role.api_key_env, timeout=role.timeout, retries=retries)
        self._endpoint = Endpoint(service, settings.workers or MOST)
        self._chat = Chat(
            self._endpoint, role, artifacts, budget or Budget(settings.max_calls, settings.max_tokens)
        )
        self._lock = threading.Lock()
        self._unread = 0
        """Consecutive unreadable decisions after extraction."""
        self.name = role.model
        self.revision = f"prompts-{self._prompts.revision}"
        self._role = role

    @property
    def workers(self) -> int:
        """As configured, or else as many as fit the cache of a vLLM on this machine."""
        return self._settings.workers or self._room

    @cached_property
    def _room(self) -> int:
        url = self._role.base_url
        if url is None or not on_this_machine(url):
            return OF_A_SERVICE
        tokens = cached_tokens(url.rstrip("/").removesuffix("/v1"))
        if tokens is None:
            return OF_A_SERVICE
        request = self._settings.trajectory_characters // 6 + self._role.max_tokens // 4
        return max(1, min(MOST, tokens // request))

    @property
    def usage(self) -> Mapping[str, Usage]:
        """Calls and tokens of this process by decision: extract, duplicate, assign, merge."""
        return self._chat.usage

    def cancel(self) -> None:
        """Cancel open requests; their callers get StoppedSafely."""
        self._endpoint.cancel()

    def reopen(self) -> None:
        """Accept requests again after `cancel`: a stage that lost a node is repeated."""
        self._endpoint.reopen()

    def close(self) -> None:
        self._endpoint.close()

    def extract(self, pair: FailurePair) -> Extraction:
        supplied = [cause.cause_id for cause in pair.known]
        task = pair.votes_are == "rewards"
        read = read_task if task else read_extraction
        schema = TaskReply.model_json_schema() if task else None
        messages = self._prompts.extract(pair)
        outcome = self._decide("extract", messages, lambda text: read(text, supplied), pair.asked, schema)
        return _decided(outcome, Extraction("unresolved", unread=outcome.unread))

    def judge_duplicate(self, description: str, candidates: Sequence[KnownCause]) -> DuplicateJudgement:
        ids = [cause.cause_id for cause in candidates]
        messages = self._prompts.duplicate(description, candidates)
        outcome = self._decide("duplicate", messages, lambda text: read_duplicate(text, ids))
        return _decided(outcome, DuplicateJudgement(False))

    def assign_node(self, description: str, shortlist: Sequence[NodeCandidate]) -> NodeAssignment:
        ids = [node.node_id for node in shortlist]
        messages = self._prompts.assign(description, shortlist)
        outcome = self._decide("assign", messages, lambda text: read_assignment(text, ids))
        return _decided(outcome, NodeAssignment(new_label=description))

    def judge_pair(self, a: NodeContents, b: NodeContents) -> PairJudgement:
        return _decided(self._decide("merge", self._prompts.merge(a, b), read_merge), PairJudgement(False))

    def _decide(
        self,
        decision: Decision,
        messages: list[Message],
        read: Callable[[str], Reading[T]],
        asked: int = 1,
        schema: dict[str, Any] | None = None,
    ) -> _Tried[T]:
        """The decision from stored replies if readable; otherwise from the service."""

        requests: list[str] = []

        def stored(messages: list[Message]) -> Asked | None:
            found = self._chat.recalled(messages, asked=asked)
            requests.extend([] if found is None else [found.request])
            return found

        def ask(messages: list[Message]) -> Asked:
            return self._chat.ask(
                decision,
                messages,
                schema or _SCHEMAS[decision],
                asked=asked,
                usable=lambda text: read(text).value is not None,
            )

        found = self._tried(decision, messages, read, stored)
        if found is not None and found.value is not None:
            self._chat.count_stored(decision, requests)
        else:
            found = self._tried(decision, messages, read, ask)
        assert found is not None
        if decision != "extract":  # whose replies are checked before they are recorded
            self._notice(found)
        return found

    def _tried(
        self,
        decision: Decision,
        messages: list[Message],
        read: Callable[[str], Reading[T]],
        ask: Callable[[list[Message]], Asked | None],
    ) -> _Tried[T] | None:
        """Ask until a reply is right, or the tries are used up; then the best reply, or nothing. None
        if `ask` has no answer.

        A soft complaint is shown once, and its reply ranks above those with other complaints.
        """
        best: Reading[T] | None = None
        call: ModelCall | None = None
        unread: Unread | None = None
        soft_shown = False
        for tries in range(1, self._settings.retries + 2):
            answer = ask(messages)
            if answer is None:
                return None
            call = self._call(decision, answer, tries, call)
            if answer.reply is None:
                return _Tried(best.value if best else None, "refused", call, Unread(None, answer.refused))
            reading = read(answer.reply.text)
            if reading.complaint is None or (reading.soft and soft_shown):
                return _Tried(reading.value, "", call)
            soft_shown |= reading.soft
            if reading.value is not None and (best is None or reading.soft or not best.soft):
                best = reading
            unread = Unread(answer.reply.text, reading.complaint)
            messages = [*messages, *self._prompts.retry(answer.reply.text, reading.complaint)]
        assert call is not None
        return _Tried(best.value if best else None, "unreadable", call, unread)

    def _notice(self, tried: _Tried[Any]) -> None:
        """Raise ServiceError if too many consecutive replies were unreadable."""
        with self._lock:
            self._unread = 0 if tried.value is not None else self._unread + 1
            if self._unread < IN_A_ROW:
                return
            self._unread = 0
        raise unreadable(f"{IN_A_ROW} replies in a row", tried.unread)

    def _call(self, decision: Decision, answer: Asked, tries: int, before: ModelCall | None) -> ModelCall:
        """The last request (which includes earlier replies) and reply, with the tokens of all tries."""
        reply = answer.reply
        return ModelCall(
            model=self.name,
            prompt=self._prompts.digest(decision),
            request=answer.request,
            reply=None if reply is None else self._artifacts.put(reply.text),
            input_tokens=(before.input_tokens if before else 0) + (reply.input_tokens if reply else 0),
            output_tokens=(before.output_tokens if before else 0) + (reply.output_tokens if reply else 0),
            tries=tries,
        )
