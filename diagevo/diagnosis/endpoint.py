"""A service that threads ask, and whose open requests can be broken off.

One background thread runs the event loop of the client; callers wait in threads of their own.
"""

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from diagevo.errors import AGAIN, StoppedSafely
from diagevo.sampling.service import ChatCompletion, Service

if TYPE_CHECKING:
    from openai import AsyncOpenAI

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Session:
    """What exists once the first request is made."""

    loop: asyncio.AbstractEventLoop
    client: "AsyncOpenAI"


class Endpoint:
    """One service. Thread-safe; `close` when done.

    A request raises RefusedError, ServiceError, ConfigError where there is no key for it, and StoppedSafely
    after `cancel`.
    """

    def __init__(self, service: Service, connections: int) -> None:
        self.where = service.where
        self._service = service
        self._connections = connections
        self._lock = threading.Lock()
        self._session: _Session | None = None
        self._cancelled = self._closed = False

    def complete(self, **fields: Any) -> ChatCompletion:
        return self._run(lambda client: self._service.complete(client, **fields))

    def embed(self, **fields: Any) -> list[list[float]]:
        """Vectors in the order of the texts."""
        return self._run(lambda client: self._service.embed(client, **fields))

    def cancel(self) -> None:
        """Break off every request under way; they and all later ones raise StoppedSafely."""
        with self._lock:
            self._cancelled = True
            if self._session is not None:
                self._session.loop.call_soon_threadsafe(_cancel_tasks)

    def reopen(self) -> None:
        """Take requests again after `cancel`, once all who waited have heard of it."""
        with self._lock:
            self._cancelled = self._closed

    def close(self) -> None:
        """End the background thread. Later calls raise StoppedSafely."""
        self._closed = True
        self.cancel()
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            asyncio.run_coroutine_threadsafe(session.client.close(), session.loop).result(timeout=5)
            session.loop.call_soon_threadsafe(session.loop.stop)

    def _run(self, ask: Callable[["AsyncOpenAI"], Coroutine[Any, Any, T]]) -> T:
        session = self._started()
        future = asyncio.run_coroutine_threadsafe(ask(session.client), session.loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise _cancelled() from None
        except BaseException:
            future.cancel()
            raise

    def _started(self) -> _Session:
        with self._lock:
            if self._cancelled:
                raise _cancelled()
            if self._session is None:
                client = self._service.client(self._connections)
                self._session = _Session(asyncio.new_event_loop(), client)
                run = self._session.loop.run_forever
                threading.Thread(target=run, name="endpoint", daemon=True).start()
            return self._session


def _cancelled() -> StoppedSafely:
    return StoppedSafely("requests to a service were broken off", hint=AGAIN)


def _cancel_tasks() -> None:
    for task in asyncio.all_tasks():
        task.cancel()
