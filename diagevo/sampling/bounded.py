"""The one place that makes a client of an OpenAI-compatible service, its answers within bounds: no endless
body, no slow drip, no compressed one that unfolds. What is sent goes to base_url and nowhere else: a
redirection is not followed."""

import socket
import time
from collections.abc import AsyncIterator
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from openai import AsyncOpenAI, DefaultAsyncHttpxClient

from diagevo.errors import ServiceError
from diagevo.redaction import masked, remember
from diagevo.texts import visible

_packages = [of.__module__.partition(".")[0] for of in DefaultAsyncHttpxClient.__mro__]
httpx: Any = import_module(next(name for name in _packages if name.startswith("httpx")))
"""The library that openai's client is made of: httpx or httpx2, by its version."""
MOST_BYTES = 64 * 2**20
"""Of one answer; 64 vectors or 32 long responses take a tenth of it."""
_IDENTITY = {"Accept-Encoding": "identity"}
_ASKED_AFTER = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 30, "TCP_KEEPCNT": 4}
"""Where a machine goes without a word, a request to it ends after three minutes and not at its time limit."""


class _Bounded(httpx.AsyncByteStream):
    def __init__(self, stream: Any, seconds: float) -> None:
        self._stream, self._seconds = stream, seconds
        self._until = time.monotonic() + seconds
        self._left = MOST_BYTES

    def _checked(self, piece: bytes) -> bytes:
        self._left -= len(piece)
        if self._left < 0:
            raise httpx.ReadError(f"the answer is longer than {MOST_BYTES >> 20} MB")
        if time.monotonic() > self._until:
            raise httpx.ReadTimeout(f"the answer was not whole after {self._seconds:g} s")
        return piece

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            yield self._checked(piece)

    async def aclose(self) -> None:
        await self._stream.aclose()


def _bound(response: Any, seconds: float) -> None:
    if response.headers.get("content-encoding", "identity") != "identity":
        raise httpx.DecodingError("the answer is compressed, which was not asked for")
    response.stream = _Bounded(response.stream, seconds)


def async_client(
    base_url: str | None, key: str | None, seconds: float, *, retries: int, connections: int = 1000,
    own: bool = False,
) -> AsyncOpenAI:  # fmt: skip
    """The openai package's client of a service, for an event loop; an answer may take `seconds` in all.

    `base_url` None is the package's own default. `own`: a server that we started; no proxy is asked for it.
    """

    async def hook(response: Any) -> None:
        _bound(response, seconds)

    limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
    # A transport of one's own knows no proxy of the environment.
    watched = httpx.AsyncHTTPTransport(limits=limits, socket_options=_watched()) if own else None
    http = DefaultAsyncHttpxClient(
        trust_env=not own and outside(base_url),
        headers=_IDENTITY,
        event_hooks={"response": [hook]},
        limits=limits,
        transport=watched,
        follow_redirects=False,
    )
    return AsyncOpenAI(
        base_url=base_url, api_key=_key(key), timeout=seconds, max_retries=retries, http_client=http
    )


def _watched() -> list[tuple[int, int, int]]:
    known = {name: seconds for name, seconds in _ASKED_AFTER.items() if hasattr(socket, name)}
    after = [(socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in known.items()]
    return [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), *after]


def outside(base_url: str | None) -> bool:
    """Whether a proxy of the environment may stand between: it cannot reach this machine's loopback."""
    return base_url is None or urlsplit(base_url).hostname not in ("127.0.0.1", "localhost", "::1")


def redirected(where: str, response: Any) -> ServiceError | None:
    """The error of an answer that points elsewhere, and names the place; None of any other."""
    if not 300 <= response.status_code < 400:
        return None
    there = visible(masked(response.headers.get("location", "")), one_line=True)[:200] or "nowhere"
    return ServiceError(
        f"{where} answered {response.status_code} and points to {there}, which is not followed: nothing was"
        " sent there",
        hint="if that is the service you mean, write its URL as base_url",
    )


def _key(key: str | None) -> str:
    """The key, masked from now on wherever it is echoed; a service of one's own may need none."""
    remember(key)
    return key or "none"
