"""How a vLLM server on loopback is asked, by the process that started it or by another one."""

import time
import urllib.request
from collections.abc import Sequence

from diagevo.errors import ServiceError
from diagevo.sampling.openai_sampler import Answered, OpenAISampler, RefusedError
from diagevo.sampling.sampler import Completion, Prompt, SamplingParams

SERVED_NAME = "policy"
# Not through the proxy that a cluster's environment may name: the server is on this machine.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def is_healthy(url: str) -> bool:
    """Whether the server at `url` (without /v1) answers and its engine lives."""
    try:
        with _direct.open(f"{url}/health", timeout=5):
            return True
    except OSError:
        return False


def sampler_of(url: str, key: str, capacity: int, *, timeout: float) -> OpenAISampler:
    """What asks a server of ours, without a proxy in between."""
    return OpenAISampler(
        f"{url}/v1", SERVED_NAME, api_key=key, timeout=timeout, retries=1, capacity=capacity, own=True
    )


class VLLMClient:
    """Implements `Sampler` over a server that another process of ours started and keeps up.

    What it had not answered when it died is asked again once it is back.
    """

    def __init__(self, url: str, key: str, capacity: int, *, timeout: float = 1200.0) -> None:
        """`url`, `key`, `capacity`: the server's. `timeout`: seconds to wait for the server's return."""
        self._url = url
        self._timeout = timeout
        self._sampler = sampler_of(url, key, capacity, timeout=1800.0)

    def sample(
        self, prompts: Sequence[Prompt], *, n: int, params: SamplingParams, seed: int
    ) -> list[list[Completion]]:
        answered: Answered = {}
        was_well = False
        while len(answered) < len(prompts):
            before = len(answered)
            try:
                self._sampler.fill(answered, prompts, n=n, params=params, seed=seed)
            except RefusedError:
                raise
            except ServiceError:
                # A server that is well after a lost call may have died and come back since; one that was well
                # before the call too did not lose it, unless it gave some of the answers.
                if was_well and is_healthy(self._url):
                    raise
                self._wait()
                was_well = len(answered) == before
        return [answered[place] for place in range(len(prompts))]

    def close(self) -> None:
        self._sampler.close()

    def _wait(self) -> None:
        deadline = time.monotonic() + self._timeout
        while not is_healthy(self._url):
            if time.monotonic() > deadline:
                raise ServiceError(
                    f"{self._url} has not answered for {self._timeout:g} s.",
                    hint="The log of the vLLM server, logs/vllm.log in the run's folder, says why.",
                )
            time.sleep(1.0)
