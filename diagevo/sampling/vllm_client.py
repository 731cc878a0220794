"""How vLLM servers started by DiagEvo are asked, by the process that started them or by another one."""

import re
import time
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any

from diagevo.errors import RefusedError, ServiceError
from diagevo.progress import StopFlag
from diagevo.sampling.openai_sampler import OpenAISampler, fill
from diagevo.sampling.sampler import Address, Answers, Completion, Prompt, SamplingParams
from diagevo.sampling.service import Service

SERVED_NAME = "policy"
_METRICS = 4_000_000  # bytes of them that are read


class _Unfollowed(urllib.request.HTTPRedirectHandler):
    def http_error_302(self, req: Any, fp: Any, code: int, msg: str, headers: Any) -> None:
        """Nowhere else: the answer is an error."""

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302


# Not through the proxy that a cluster's environment may name: the server is on this machine, or beside it.
_direct = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Unfollowed)


def is_healthy(url: str) -> bool:
    """Whether the server at `url` (without /v1) answers and its engine lives."""
    try:
        with _direct.open(f"{url}/health", timeout=5):
            return True
    except OSError:
        return False


def cached_tokens(url: str) -> int | None:
    """Tokens for which the engines of the vLLM at `url` (without /v1) have cache, all together, as its
    metrics say; None where it does not tell, or is no vLLM."""
    try:
        with _direct.open(f"{url}/metrics", timeout=5) as answered:
            text = answered.read(_METRICS).decode(errors="replace")
    except (OSError, ValueError):
        return None
    found = 0
    for engine in re.findall(r"^vllm:cache_config_info\{(.*)\}", text, re.MULTILINE):
        said = {name: int(number) for name, number in re.findall(r'(\w+)="(\d+)"', engine)}
        blocks = said.get("num_gpu_blocks", 0) * said.get("block_size", 0)
        found += said.get("kv_cache_size_tokens", blocks)
    return found or None


def sampler_of(server: Address, *, timeout: float, stop: StopFlag | None = None) -> OpenAISampler:
    """What asks a server started by DiagEvo, without a proxy in between."""
    url, key, capacity = server
    service = Service(f"{url}/v1", key=key, timeout=timeout, retries=1, own=True)
    return OpenAISampler(service, SERVED_NAME, capacity=capacity, stop=stop)


class VLLMClient:
    """Implements `Sampler` over servers that another process of ours started and keeps up.

    A prompt goes to the server that has room first. What a server had not answered when it died is asked of
    the others, or of itself once it is back.
    """

    def __init__(
        self,
        servers: Sequence[Address],
        *,
        timeout: float = 1200.0,
        look: Callable[[], None] = lambda: None,
        stop: StopFlag | None = None,
    ) -> None:
        """`timeout`: seconds to wait for a server's return. `look`: called while none answers; may raise."""
        self._samplers = {server.url: sampler_of(server, timeout=1800.0) for server in servers}
        self._timeout = timeout
        self._look = look
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
        found = answers or Answers(len(prompts), n)
        asked, were_well = list(self._samplers), False
        while found.missing():
            before = len(found.rows)
            samplers = [self._samplers[url] for url in asked]
            errors = fill(found, samplers, prompts, n=n, params=params, seed=seed, stop=self._stop)
            for error in errors:
                if not isinstance(error, ServiceError) or isinstance(error, RefusedError):
                    raise error
            if errors and found.missing():
                well = self._wait()
                # A server that is well after a lost call may have died and come back since; one that was well
                # before the call too did not lose it, unless some of the answers were given.
                if were_well and len(errors) == len(asked) and well == asked:
                    raise errors[0]
                were_well, asked = len(found.rows) == before, well
        return found.groups()

    def close(self) -> None:
        for sampler in self._samplers.values():
            sampler.close()

    def _wait(self) -> list[str]:
        """The servers that are well, as soon as there are any."""
        deadline = time.monotonic() + self._timeout
        while not (well := [url for url in self._samplers if is_healthy(url)]):
            self._look()
            self._stop.check_overdue()
            if time.monotonic() > deadline:
                raise ServiceError(
                    f"{', '.join(self._samplers)} has not answered for {self._timeout:g} s.",
                    hint="The log of the vLLM server, logs/vllm.log in the run's folder, says why.",
                )
            time.sleep(1.0)
        return well
