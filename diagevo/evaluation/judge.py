"""Concurrent requests to a served model, and the judge that uses them: a language model after the rule.

Each answer is yielded as soon as it arrives, so that a kill, or a failing service, loses only open requests.
The judge decides only what the rule rejected, and every verdict is cached. It sees the question, the
reference answer as the reference and the model's answer as the answer. (The released code of R-Zero and DARC
swaps the two.)
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TypeVar

from diagevo.errors import ServiceError, StoppedSafely
from diagevo.memory.log.artifacts import Artifacts, Reply, digest_of
from diagevo.sampling.sampler import Completion, Prompt, Sampler, SamplingParams

Key = TypeVar("Key")


def as_answered(
    sampler: Sampler,
    asks: Mapping[Key, tuple[Prompt, int]],
    *,
    n: int,
    params: SamplingParams,
    at_once: int,
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[dict[Key, list[Completion]]]:
    """Ask each (prompt, seed) separately, `at_once` at a time; yields replies as they arrive, by key. Nothing
    new is asked once `should_stop` or once a request has failed: open requests are still yielded, then
    ServiceError is raised, or StoppedSafely if the sampler cancelled requests.
    """
    waiting = iter(asks.items())
    failure: ServiceError | StoppedSafely | None = None
    running: dict[Future[list[Completion]], Key] = {}
    with ThreadPoolExecutor(at_once, thread_name_prefix="ask") as pool:
        while True:
            while failure is None and len(running) < at_once and not should_stop():
                ask = next(waiting, None)
                if ask is None:
                    break
                key, (prompt, seed) = ask
                running[pool.submit(_alone, sampler, prompt, n, params, seed)] = key
            if not running:
                break
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            answered: dict[Key, list[Completion]] = {}
            for future in done:
                key = running.pop(future)
                try:
                    answered[key] = future.result()
                except (ServiceError, StoppedSafely) as error:
                    failure = failure or error
            if answered:
                yield answered
    if failure is not None:
        raise failure


def _alone(sampler: Sampler, prompt: Prompt, n: int, params: SamplingParams, seed: int) -> list[Completion]:
    [completions] = sampler.sample([prompt], n=n, params=params, seed=seed)
    return completions


INSTRUCTION = """You compare two final answers to one question: a reference answer, which is to be taken \
as correct, and an answer to be graded. Decide whether the graded answer states the same result as the \
reference: another form of the same number, expression, set or phrase is the same; a different value, a \
missing part or an extra claim is not. Do not solve the question. Reply with one word: Yes or No."""


AT_ONCE = 64
"""Requests to a judge."""


@dataclass(frozen=True, slots=True)
class Case:
    """An answer that the rule rejected."""

    question: str
    reference: str
    answer: str


@dataclass(frozen=True, slots=True)
class Judge:
    """Asks `sampler` (any served model) at temperature 0, through the cache of replies in the database."""

    sampler: Sampler
    model: str
    artifacts: Artifacts

    @property
    def conditions(self) -> dict[str, object]:
        """What its verdicts depend on, as stored with an evaluation."""
        return {"model": self.model, "prompt": digest_of(INSTRUCTION)}

    def prompt(self, case: Case) -> Prompt:
        content = (
            f"Question:\n{case.question}\n\nReference answer: {case.reference}"
            f"\nAnswer to grade: {case.answer}"
        )
        return [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": content}]

    def equivalent(self, cases: Sequence[Case]) -> list[bool | None]:
        """For each case whether the answers are the same; None if the reply is neither Yes nor No.

        Raises ServiceError if the model cannot be reached; earlier answers stay cached.
        """
        prompts = [self.prompt(case) for case in cases]
        requests = [digest_of(json.dumps(prompt, ensure_ascii=False)) for prompt in prompts]
        replies = {r: self.artifacts.recall_reply(self.model, r) for r in dict.fromkeys(requests)}
        missing = [r for r, reply in replies.items() if reply is None]
        by_request = dict(zip(requests, prompts, strict=True))
        params = SamplingParams(temperature=0.0, top_p=1.0, max_new_tokens=16)
        asks = {request: (by_request[request], 0) for request in missing}
        for answered in as_answered(self.sampler, asks, n=1, params=params, at_once=AT_ONCE):
            for request, [completion] in answered.items():
                reply = Reply(completion.text, 0, completion.tokens)
                self.artifacts.remember_reply(self.model, request, reply)
                replies[request] = reply
        return [verdict_of(replies[request]) for request in requests]


def verdict_of(reply: Reply | None) -> bool | None:
    """Yes or no, from the reply's first word."""
    words = (reply.text if reply is not None else "").strip().casefold().split()
    first = words[0].strip(".,:;!*\"'`") if words else ""
    return {"yes": True, "no": False}.get(first)
