"""A chat-completions server on loopback over any sampler, as real HTTP as a test needs."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from diagevo.sampling.sampler import Sampler, SamplingParams
from tests.serving import Asked, reply, serving


@contextmanager
def chat_server(sampler: Sampler) -> Iterator[str]:
    """Yields the base URL. The sampler serves one request at a time."""
    one_at_a_time = threading.Lock()

    def completed(asked: Asked) -> None:
        with one_at_a_time:
            said = answer(sampler, asked.json)
        reply(asked, said)

    with serving(completed) as server:
        yield f"{server.url}/v1"


def answer(sampler: Sampler, body: dict[str, Any]) -> dict[str, Any]:
    params = SamplingParams(
        temperature=body["temperature"], top_p=body["top_p"], max_new_tokens=body["max_tokens"]
    )
    [completions] = sampler.sample([body["messages"]], n=body["n"], params=params, seed=body["seed"])
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 0,
        "model": body["model"],
        "choices": [
            {
                "index": index,
                "message": {"role": "assistant", "content": completion.text},
                "finish_reason": "length" if completion.truncated else "stop",
            }
            for index, completion in enumerate(completions)
        ],
        "usage": {
            "prompt_tokens": 1,
            "completion_tokens": sum(completion.tokens for completion in completions),
            "total_tokens": 1 + sum(completion.tokens for completion in completions),
        },
    }
