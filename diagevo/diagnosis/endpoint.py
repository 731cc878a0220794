"""An OpenAI-compatible service: many requests at once, and everything a service does wrong.

One background thread runs an event loop with the `openai` client; callers wait in threads of their own.
Requests have a time limit in total. Dropped connections, stalls, half bodies, 408, 409, 429 and 5xx are tried
again with growing, jittered pauses, in which a request keeps its place among those that may be open, so that
a crowded service is asked less; `Retry-After` holds all requests back. What is left is a ServiceError.
`cancel` breaks off whatever is under way. The client's own retries are off: they know one request at a time.
"""

import asyncio
import concurrent.futures
import random
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeVar

from diagevo.errors import AGAIN, ConfigError, DiagEvoError, ServiceError, StoppedSafely
from diagevo.redaction import key_from, masked

if TYPE_CHECKING:
    from openai import APIStatusError, AsyncOpenAI

T = TypeVar("T")

_AGAIN = {408, 409, 425, 429}
_REFUSED = {400, 413, 415, 422, 501}


@dataclass(frozen=True, slots=True)
class Backoff:
    """How long a failing service is tried. Seconds."""

    tries: int = 6
    """Requests that may fail, one after another, before the service counts as gone."""
    limited_tries: int = 30
    """Requests that may be answered 429."""
    first_pause: float = 0.5
    longest_pause: float = 30.0
    longest_retry_after: float = 300.0


class RequestRefused(Exception):
    """The service will not answer this request (400, 413, 415, 422, 501); the message is the service's."""


class BrokenAnswer(Exception):
    """A success without a usable body: half of one, no choices, HTML."""


@dataclass(slots=True)
class _Session:
    """What exists once the first request is made."""

    loop: asyncio.AbstractEventLoop
    client: "AsyncOpenAI"
    places: asyncio.Semaphore
    not_before: float = 0.0
    """Time of the loop until which the service wants no request."""


class Endpoint:
    """One service. Thread-safe; `close` when done.

    `base_url` None is the `openai` package's own default. The key comes from the environment variable
    `api_key_env`, never from a configuration; a service on an address of one's own may need none.
    """

    def __init__(
        self,
        base_url: str | None,
        api_key_env: str,
        timeout: float,
        most: int,
        backoff: Backoff | None = None,
    ) -> None:
        self.where = base_url or "api.openai.com"
        self._base_url = base_url
        self._key_env = api_key_env
        self._timeout = timeout
        self._most = most
        self._backoff = backoff or Backoff()
        self._lock = threading.Lock()
        self._session: _Session | None = None
        self._cancelled = self._closed = False

    def call(self, ask: Callable[["AsyncOpenAI"], Awaitable[T]]) -> T:
        """Run `ask(client)` until it succeeds, from any thread.

        Raises RequestRefused, ServiceError, and StoppedSafely after `cancel`.
        """
        session = self._started()
        future = asyncio.run_coroutine_threadsafe(self._persist(session, ask), session.loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise _cancelled() from None
        except BaseException:
            future.cancel()
            raise

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

    def _started(self) -> _Session:
        with self._lock:
            if self._cancelled:
                raise _cancelled()
            if self._session is None:
                client = _client(self._base_url, self._key_env, self._timeout)
                self._session = _Session(asyncio.new_event_loop(), client, asyncio.Semaphore(self._most))
                run = self._session.loop.run_forever
                threading.Thread(target=run, name="endpoint", daemon=True).start()
            return self._session

    async def _persist(self, session: _Session, ask: Callable[["AsyncOpenAI"], Awaitable[T]]) -> T:
        import openai

        failed, limited, again_at = 0, 0, 0.0
        async with session.places:
            while True:
                while (pause := max(again_at, session.not_before) - session.loop.time()) > 0:
                    await asyncio.sleep(pause)
                asked_to_wait = 0.0
                try:
                    async with asyncio.timeout(self._timeout):
                        return await ask(session.client)
                except openai.APIStatusError as error:
                    self._raise_if_final(error)
                    asked_to_wait = retry_after(error.response.headers) or 0.0
                    limited += error.status_code == 429
                    failed += error.status_code != 429
                    problem = f"{error.status_code} {_said(error)}"
                except TimeoutError:
                    failed, problem = failed + 1, f"no answer within {self._timeout:g} s"
                except (openai.APIError, BrokenAnswer, ValueError, RecursionError) as error:
                    cause = error.__cause__ or error
                    failed, problem = failed + 1, masked(f"{type(cause).__name__}: {cause}")
                self._raise_if_hopeless(failed, limited, problem, asked_to_wait)
                until = session.loop.time() + asked_to_wait
                session.not_before = max(session.not_before, until)
                again_at = until + self._jittered(failed + limited)

    def _raise_if_hopeless(self, failed: int, limited: int, problem: str, asked_to_wait: float) -> None:
        if failed >= self._backoff.tries or limited >= self._backoff.limited_tries:
            raise ServiceError(
                f"{self.where} failed {failed + limited} times in a row, last: {problem[:300]}",
                hint=f"see that the service is up, then {AGAIN}",
            )
        if asked_to_wait > self._backoff.longest_retry_after:
            raise ServiceError(f"{self.where} asks to wait {asked_to_wait:.0f} s", hint=f"wait, then {AGAIN}")

    def _raise_if_final(self, error: "APIStatusError") -> None:
        """Raise where asking again is no use."""
        from diagevo.sampling.bounded import redirected

        if (elsewhere := redirected(self.where, error.response)) is not None:
            raise elsewhere from None
        status, said = error.status_code, _said(error)
        if status in (401, 403):
            raise ServiceError(
                f"{self.where} refused the key ({status}): {said}",
                hint=f"put a valid key into the environment variable {self._key_env}",
            ) from None
        if status in _REFUSED:
            raise RequestRefused(f"{status}: {said}") from None
        if error.code == "insufficient_quota" or (status not in _AGAIN and status < 500):
            raise ServiceError(
                f"{self.where} answered {status}: {said}",
                hint="check base_url and model of the role, and the account",
            ) from None

    def _jittered(self, failures: int) -> float:
        most = min(self._backoff.longest_pause, self._backoff.first_pause * 2 ** min(failures, 16))
        return random.uniform(most / 4, most)


def retry_after(headers: Any) -> float | None:
    """Seconds of a `Retry-After-Ms` or `Retry-After` header, in seconds or as a date; None where there is
    none."""
    try:
        if (milliseconds := headers.get("retry-after-ms")) is not None:
            return max(0.0, float(milliseconds) / 1000)
        if (text := headers.get("retry-after")) is None:
            return None
        try:
            return max(0.0, float(text))
        except ValueError:
            return max(0.0, (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds())
    except (TypeError, ValueError):
        return None


def _client(base_url: str | None, key_env: str, timeout: float) -> "AsyncOpenAI":
    from diagevo.sampling.bounded import async_client

    key = key_from(key_env)
    if not key and base_url is None:
        raise ConfigError(
            f"the environment variable {key_env} holds no key for api.openai.com",
            hint=f"export {key_env}=…, or set base_url of the role to a service of your own",
        )
    return async_client(base_url, key, timeout, retries=0)


def _said(error: "APIStatusError") -> str:
    """The service's own words, on one line. Some echo the key."""
    body = error.body
    if isinstance(body, dict):
        body = body.get("message") or body.get("detail") or body
    return masked(" ".join(str(body or error.message).split()))[:300]


def _cancelled() -> DiagEvoError:
    return StoppedSafely("requests to a service were broken off", hint=AGAIN)


def _cancel_tasks() -> None:
    for task in asyncio.all_tasks():
        task.cancel()
