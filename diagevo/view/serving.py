"""How the pages are served: HTTP/1.1 with bounds on what a stranger's connection may take.

uvicorn gives no time for a request's head, and its other protocol no bound on one: `--host` opens the port to
machines that need no token to connect.
"""

import asyncio
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

HEAD_SECONDS = 10.0
"""Within which the head of a request must be there."""
HEAD_BYTES = 16_384
CONNECTIONS = 500
"""At once; more are answered with 503."""


class PunctualProtocol(H11Protocol):
    """Closes a connection on which the head of a request does not arrive in time."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Wait for a head unless a request is being answered. A byte more does not make the wait longer."""
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            self._stop_waiting()
        elif self._waiting is None:
            self._waiting = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None


def served(app: ASGIApp, **more: Any) -> uvicorn.Server:
    """A server of the pages; `more` is uvicorn's."""
    config = uvicorn.Config(
        app,
        http=PunctualProtocol,
        ws="none",
        lifespan="off",
        server_header=False,
        h11_max_incomplete_event_size=HEAD_BYTES,
        limit_concurrency=CONNECTIONS,
        **more,
    )
    return uvicorn.Server(config)
