"""A sampler for any server of OpenAI's chat completions: vLLM, transformers serve, a hosted model."""

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

from diagevo.errors import ServiceError
from diagevo.redaction import masked, unkeyed
from diagevo.sampling.sampler import Completion, Prompt, SamplingParams
from diagevo.texts import storable


class RefusedError(ServiceError):
    """The server answered that the request is at fault: made again, it is refused again."""


class OpenAISampler:
    """Implements `Sampler`. Requests run side by side; each is one prompt with all its samples.

    The seed of a request is a hash of (seed, place of the prompt), so it is the same in every run; whether
    the same seed gives the same text is the server's promise, not ours. `tokens`: servers count the n
    samples of a request together, so the count is shared out by length of text; the sum is exact.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str = "none",
        timeout: float = 600.0,
        retries: int = 3,
        workers: int = 32,
        extra: dict[str, Any] | None = None,
    ) -> None:
        """`retries`: further tries after a lost connection, a time-out, 408, 409, 429 or 5xx, with back-off.

        `extra`: further fields of the request that a server understands.
        """
        from diagevo.sampling.bounded import client

        self._url = base_url
        self._model = model
        self._extra = extra or {}
        key = None if api_key == "none" else api_key
        self._client = client(base_url, key, timeout, retries=retries)
        self._pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="openai-sampler")

    def sample(
        self, prompts: Sequence[Prompt], *, n: int, params: SamplingParams, seed: int
    ) -> list[list[Completion]]:
        requests = [
            self._pool.submit(self._complete, prompt, n, params, _request_seed(seed, place))
            for place, prompt in enumerate(prompts)
        ]
        try:
            return [request.result() for request in requests]
        finally:
            for request in requests:
                request.cancel()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._client.close()

    def _complete(self, prompt: Prompt, n: int, params: SamplingParams, seed: int) -> list[Completion]:
        """All n samples. A server that gives fewer at a time is asked for the rest, with another seed.

        Greedy samples are all the same, and vLLM refuses to draw more than one.
        """
        if params.temperature == 0 and n > 1:
            return self._complete(prompt, 1, params, seed) * n
        completions: list[Completion] = []
        while len(completions) < n:
            got = self._request(prompt, n - len(completions), params, seed + len(completions))
            if not got:
                raise ServiceError(
                    f"{self._url} answered for {self._model} without any choice.",
                    hint="Is it a chat model that this server can serve? See the server's log.",
                )
            completions += got
        return completions

    def _request(self, prompt: Prompt, n: int, params: SamplingParams, seed: int) -> list[Completion]:
        from openai import APIConnectionError, APIStatusError, OpenAIError

        fields: dict[str, Any] = {
            "model": self._model,
            "messages": [message | {"content": storable(message["content"])} for message in prompt],
            "n": n,
            "seed": seed,
            "temperature": params.temperature,
            "top_p": params.top_p if params.temperature > 0 else 1.0,
            "max_tokens": params.max_new_tokens,
        }
        if params.stop:
            fields["stop"] = list(params.stop)
        try:
            reply = self._client.chat.completions.create(**fields, extra_body=self._extra or None)
        except APIConnectionError as error:
            raise ServiceError(
                masked(
                    f"{self._url} cannot be reached ({type(error).__name__}: {error.__cause__ or error})."
                ),
                hint="Is the server running, and is base_url right? It ends in /v1 on most servers.",
            ) from error
        except APIStatusError as error:
            kind = ServiceError if error.status_code >= 500 else RefusedError
            raise kind(
                f"{self._url} refused a request for {self._model}: {error.status_code}"
                f" {masked(error.message)}",
                hint="Check the model's name, the key, and the length of prompts and responses.",
            ) from error
        except (OpenAIError, ValueError, RecursionError) as error:  # the last two: no JSON, or too deep
            raise ServiceError(
                f"{self._url} gave a reply that cannot be read: {masked(str(error))}"
            ) from error
        try:
            choices = [
                (storable(unkeyed(choice.message.content or "")), choice.finish_reason)
                for choice in reply.choices[:n]
            ]
            total = reply.usage.completion_tokens if reply.usage is not None else 0
            if not isinstance(total, int):
                raise TypeError("the tokens are counted in no whole number")
        except (AttributeError, TypeError) as error:  # the client does not check the shape of a reply
            raise ServiceError(
                f"{self._url} gave a reply that is no chat completion: {masked(str(reply))[:80]!r}",
                hint="Is base_url right? It ends in /v1 on most servers.",
            ) from error
        shares = _shared_out(total, [len(text) + 1 for text, _ in choices])
        return [
            Completion(text=text, tokens=tokens, truncated=reason != "stop")
            for (text, reason), tokens in zip(choices, shares, strict=True)
        ]


def _request_seed(seed: int, place: int) -> int:
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
