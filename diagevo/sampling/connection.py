"""The connections of openai's client, with stricter rules: no redirect is followed, an answer has a size
limit, and a success without an answer counts as a lost connection, which the client retries."""

import json
import logging
from collections.abc import AsyncIterator
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from diagevo.text.redaction import brief

_packages = [of.__module__.partition(".")[0] for of in DefaultAsyncHttpxClient.__mro__]
httpx: Any = import_module(next(name for name in _packages if name.startswith("httpx")))
"""The library that openai's client is made of: httpx or httpx2, by its version."""
_logger = logging.getLogger(__name__)
MOST_BYTES = 64 * 2**20
"""Maximum bytes of one answer; 64 vectors or 32 long responses take a tenth of it."""
_IDENTITY = {"Accept-Encoding": "identity"}


def async_client(
    base_url: str | None, key: str | None, timeout: float, *, retries: int, connections: int
) -> AsyncOpenAI:
    """The openai package's client of a service, for one event loop."""
    limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
    http = _Client(
        retries,
        trust_env=outside(base_url),
        headers=_IDENTITY,
        event_hooks={"response": [_checked]},
        limits=limits,
        follow_redirects=False,
    )
    return AsyncOpenAI(
        base_url=base_url, api_key=key or "none", timeout=timeout, max_retries=retries, http_client=http
    )


class _Client(DefaultAsyncHttpxClient):
    """Reports once that a service is unreachable, because the package retries silently."""

    def __init__(self, retries: int, **given: Any) -> None:
        super().__init__(**given)
        self._seconds = sum(min(0.5 * 2**tried, 8.0) for tried in range(retries))

    async def send(self, request: Any, **given: Any) -> Any:
        try:
            return await super().send(request, **given)
        except httpx.ConnectError:
            if self._seconds:
                where = f"{request.url.scheme}://{request.url.netloc.decode()}"
                _logger.warning("%s cannot be reached; trying again for %.0f s", where, self._seconds)
            self._seconds = 0
            raise


def outside(base_url: str | None) -> bool:
    """Whether a proxy of the environment may stand between: it cannot reach this machine's loopback."""
    return base_url is None or urlsplit(base_url).hostname not in ("127.0.0.1", "localhost", "::1")


class _AtMost(httpx.AsyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MOST_BYTES
        async for piece in self._stream:
            left -= len(piece)
            if left < 0:
                raise httpx.RemoteProtocolError(f"the answer is longer than {MOST_BYTES >> 20} MB")
            yield piece

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _checked(response: Any) -> None:
    """A hook of the client. What it raises is a lost connection to the package, which asks again."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise httpx.RemoteProtocolError("the answer is compressed, which was not requested")
    response.stream = _AtMost(response.stream)
    if response.status_code != 200:
        return
    content = await response.aread()
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not (found.get("choices") or found.get("data")):
        raise httpx.RemoteProtocolError(f"no answer in its response: {brief(content)!r}")
