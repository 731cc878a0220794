"""An OpenAI-compatible service: many requests at once, and everything a service does wrong.

One background thread runs an event loop with the `openai` client; callers wait in threads of their own.
Requests have a time limit in total. Dropped connections, stalls, half bodies, 408, 409, 429 and 5xx are tried
again with growing, jittered pauses; `Retry-After` holds all requests back; concurrency halves on 429 and 503
and grows again by one a full window of successes. What is left is a ServiceError. `cancel` breaks off
whatever is under way.
"""

import asyncio
import concurrent.futures
import random
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, TypeVar

from diagevo.errors import ConfigError, DiagEvoError, ServiceError, StoppedSafely
from diagevo.redaction import key_from, masked

if TYPE_CHECKING:
    from openai import APIStatusError, AsyncOpenAI

T = TypeVar("T")

_AGAIN = {408, 409, 425, 429}
_REFUSED = {400, 413, 415, 422, 501}


@dataclass(frozen=True, slots=True)
class Patience:
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


class Pace:
    """How many requests may be open, and from when. Lives in one event loop.

    Additive increase, multiplicative decrease: a 429 halves the limit, at most once for the requests that
    were open together; each success adds 1/limit.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.limit = float(most)
        self._open = 0
        self._not_before = 0.0
        self._last_cut = float("-inf")
        self._waiters: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> float:
        """Wait for a slot; the time at which the request starts."""
        loop = asyncio.get_running_loop()
        while True:
            if (pause := self._not_before - loop.time()) > 0:
                await asyncio.sleep(pause)
            elif self._open < max(1, int(self.limit)):
                self._open += 1
                return loop.time()
            else:
                waiter: asyncio.Future[None] = loop.create_future()
                self._waiters.append(waiter)
                await waiter

    def leave(self) -> None:
        """Give the slot back and wake as many as there is room for."""
        self._open -= 1
        room = max(1, int(self.limit)) - self._open
        while room > 0 and self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                room -= 1

    def succeeded(self) -> None:
        self.limit = min(float(self.most), self.limit + 1 / self.limit)

    def overloaded(self, started: float) -> None:
        """A request that started at `started` was answered 429 or 503."""
        if started > self._last_cut:
            self.limit = max(1.0, self.limit / 2)
            self._last_cut = asyncio.get_running_loop().time()

    def hold(self, seconds: float) -> None:
        """Nothing starts for so long."""
        self._not_before = max(self._not_before, asyncio.get_running_loop().time() + seconds)


@dataclass(frozen=True, slots=True)
class _Session:
    """What exists once the first request is made."""

    loop: asyncio.AbstractEventLoop
    client: "AsyncOpenAI"
    pace: Pace


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
        patience: Patience | None = None,
    ) -> None:
        self.where = base_url or "api.openai.com"
        self._base_url = base_url
        self._key_env = api_key_env
        self._timeout = timeout
        self._most = most
        self._patience = patience or Patience()
        self._lock = threading.Lock()
        self._session: _Session | None = None
        self._cancelled = False

    @property
    def limit(self) -> float:
        """Requests that may be open now."""
        return self._session.pace.limit if self._session is not None else float(self._most)

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

    def close(self) -> None:
        """End the background thread. Later calls raise StoppedSafely."""
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
                self._session = _Session(asyncio.new_event_loop(), client, Pace(self._most))
                run = self._session.loop.run_forever
                threading.Thread(target=run, name="endpoint", daemon=True).start()
            return self._session

    async def _persist(self, session: _Session, ask: Callable[["AsyncOpenAI"], Awaitable[T]]) -> T:
        import openai

        failed = limited = 0
        while True:
            started = await session.pace.enter()
            held = False
            try:
                async with asyncio.timeout(self._timeout):
                    answer = await ask(session.client)
                session.pace.succeeded()
                return answer
            except openai.APIStatusError as error:
                self._raise_if_final(error)
                held = self._slow_down(session.pace, error, started)
                limited += error.status_code == 429
                failed += error.status_code != 429
                problem = f"{error.status_code} {_said(error)}"
            except TimeoutError:
                failed, problem = failed + 1, f"no answer within {self._timeout:g} s"
            except (openai.APIError, BrokenAnswer, ValueError, RecursionError) as error:
                cause = error.__cause__ or error
                failed, problem = failed + 1, masked(f"{type(cause).__name__}: {cause}")
            finally:
                session.pace.leave()
            if failed >= self._patience.tries or limited >= self._patience.limited_tries:
                raise ServiceError(
                    f"{self.where} failed {failed + limited} times in a row, last: {problem[:300]}",
                    hint="see that the service is up, then go on with --resume",
                )
            if not held:
                await asyncio.sleep(self._jittered(failed + limited))

    def _raise_if_final(self, error: "APIStatusError") -> None:
        """Raise where asking again is no use."""
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

    def _slow_down(self, pace: Pace, error: "APIStatusError", started: float) -> bool:
        """Heed 429 and 503. True where the service named a time, which then holds for all requests."""
        if error.status_code not in (429, 503):
            return False
        pace.overloaded(started)
        wait = retry_after(error.response.headers)
        if wait is None:
            return False
        if wait > self._patience.longest_retry_after:
            raise ServiceError(
                f"{self.where} asks to wait {wait:.0f} s", hint="go on later with --resume"
            ) from None
        pace.hold(wait)
        return True

    def _jittered(self, failures: int) -> float:
        most = min(self._patience.longest_pause, self._patience.first_pause * 2 ** min(failures, 16))
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
    return StoppedSafely("requests to a service were broken off", hint="go on with --resume")


def _cancel_tasks() -> None:
    for task in asyncio.all_tasks():
        task.cancel()
