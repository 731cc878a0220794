"""A sampler for any server with OpenAI's chat completions API: vLLM, transformers serve, a hosted model."""

import asyncio
import hashlib
import resource
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from diagevo.progress import StopFlag
from diagevo.sampling.sampler import Answers, Completion, Prompt, SamplingParams
from diagevo.sampling.service import Service
from diagevo.text.escaping import storable

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_OTHER_FILES = 256  # that a process may have open besides its connections
_LOOK = 0.2  # seconds between two checks of the flag during requests


class OpenAISampler:
    """Implements `Sampler`. Requests run concurrently; each is one prompt with all its samples.

    The seed of a request is a hash of (seed, position of the prompt), so it is the same in every run;
    whether the same seed gives the same text depends on the server. `tokens`: servers count the n
    samples of a request together, so the count is divided by text length; the sum is exact.
    """

    def __init__(
        self, service: Service, model: str, *, workers: int = 32, stop: StopFlag | None = None
    ) -> None:
        """`workers`: concurrent requests."""
        self._service = service
        self._model = model
        self._workers = workers
        self._stop = StopFlag() if stop is None else stop

    def sample(
        self,
        prompts: Sequence[Prompt],
        *,
        n: int,
        params: SamplingParams,
        seed: int,
        answers: Answers | None = None,
    ) -> list[list[Completion]]:
        """If answers are stored, nothing new is asked once the run is to stop; open requests may finish
        until the stop is overdue."""
        found = answers or Answers(len(prompts), n)
        missing = found.missing()

        def to_ask() -> Iterator[int]:
            for place in missing:
                if found.kept and self._stop:
                    return
                yield place

        workers, waiting = _open_files(min(len(missing), self._workers)), to_ask()

        async def work(client: "AsyncOpenAI") -> None:
            for place in waiting:
                drawn = await self._complete(client, prompts[place], n, params, request_seed(seed, place))
                found.add({(place, sample): completion for sample, completion in enumerate(drawn)})

        async def work_off() -> None:
            async with self._service.client(workers) as client, asyncio.TaskGroup() as group:
                for _ in range(workers):
                    group.create_task(work(client))

        async def ask() -> None:
            asking = asyncio.create_task(work_off())
            while (await asyncio.wait([asking], timeout=_LOOK))[1]:
                if self._stop.overdue:
                    asking.cancel()
                    break
            with suppress(asyncio.CancelledError):
                await asking

        if missing:
            try:
                asyncio.run(ask())
            except ExceptionGroup as errors:  # a task group ends all workers at the first
                raise errors.exceptions[0] from None
        if found.missing():
            self._stop.check()
        return found.groups()

    def close(self) -> None:
        """Nothing stays open between two calls."""

    async def _complete(
        self, client: "AsyncOpenAI", prompt: Prompt, n: int, params: SamplingParams, seed: int
    ) -> list[Completion]:
        """All n samples.

        A server that returns fewer at a time is asked for the rest, with another seed. Greedy samples are
        identical, and vLLM refuses more than one.
        """
        if params.temperature == 0 and n > 1:
            return await self._complete(client, prompt, 1, params, seed) * n
        completions: list[Completion] = []
        while len(completions) < n:
            left, done = n - len(completions), len(completions)
            completions += await self._request(client, prompt, left, params, seed + done)
        return completions

    async def _request(
        self, client: "AsyncOpenAI", prompt: Prompt, n: int, params: SamplingParams, seed: int
    ) -> list[Completion]:
        fields: dict[str, Any] = {
            "model": self._model,
            "messages": [message | {"content": storable(message["content"])} for message in prompt],
            "n": n,
            "seed": seed,
            "temperature": params.temperature,
            "top_p": params.top_p if params.temperature > 0 else 1.0,
            "max_tokens": params.max_new_tokens,
        }
        answered = await self._service.complete(client, **fields)
        choices = answered.choices[:n]
        shares = _shared_out(answered.output_tokens, [len(choice.text) + 1 for choice in choices])
        return [
            Completion(text=choice.text, tokens=tokens, truncated=choice.finish_reason != "stop")
            for choice, tokens in zip(choices, shares, strict=True)
        ]


def _open_files(wanted: int) -> int:
    """The requested number of connections, limited by this process's open files: 1,024 by default, often
    more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        most = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
        wanted = min(wanted, max(1, most - _OTHER_FILES))
    return wanted


def request_seed(seed: int, place: int) -> int:
    """A seed below 2³¹ - 2¹⁶, so that the seeds of further requests for a prompt stay 32-bit."""
    digest = hashlib.blake2b(f"{seed}/{place}".encode(), digest_size=8).digest()
    return int.from_bytes(digest) % (2**31 - 2**16)


def _shared_out(total: int, weights: Sequence[int]) -> list[int]:
    """`total` in whole parts proportional to `weights`; the parts add up to it."""
    bounds, reached = [0], 0
    for weight in weights:
        reached += weight
        bounds.append(total * reached // sum(weights))
    return [high - low for low, high in pairwise(bounds)]
