"""Clients that never finish what they say: what they take of the server, and for how long."""

import asyncio
import socket
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from diagevo.memory.log.database import Database
from diagevo.view import serving
from diagevo.view.site import View
from tests.view.conftest import TOKEN, Served
from tests.view.conftest import serving as running

SLOW = 300
PATIENCE = 60.0
"""Seconds that a busy machine may take: what is open longer is never closed."""
WHOLE = b"GET /x HTTP/1.1\r\nHost: localhost\r\n"


@pytest.fixture
def hasty(database: Database, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    """A server that waits one second for a head."""
    monkeypatch.setattr(serving, "HEAD_SECONDS", 1.0)
    with running(database, folder) as server:
        yield server


def _connected(server: Served) -> socket.socket:
    address = urlsplit(server.base)
    assert address.hostname is not None
    return socket.create_connection((address.hostname, address.port or 80), timeout=60)


def _seconds_until_closed(connection: socket.socket, said: bytes) -> float:
    """How long it stays open while a byte goes out every tenth of a second."""
    began = time.monotonic()
    try:
        connection.sendall(said)
        while time.monotonic() - began < PATIENCE:
            connection.settimeout(0.1)
            try:
                if not connection.recv(4096):
                    break
            except TimeoutError:
                connection.sendall(b"a")
    except (ConnectionError, BrokenPipeError):
        pass
    return time.monotonic() - began


@pytest.mark.parametrize("said", [b"", b"G", b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "])
def test_a_head_that_does_not_come_ends_its_connection(hasty: Served, said: bytes) -> None:
    with closing(_connected(hasty)) as connection:
        assert 0.8 < _seconds_until_closed(connection, said) < PATIENCE


@pytest.mark.parametrize(
    ("first", "then"),
    [(WHOLE + b"\r\n", b"GET / HTTP/1.1\r\n"), (WHOLE + b"Content-Length: 100000\r\n\r\n", b"a")],
    ids=["the second head", "a body that nobody asked for"],
)
def test_what_follows_a_head_has_no_longer(hasty: Served, first: bytes, then: bytes) -> None:
    with closing(_connected(hasty)) as connection:
        connection.sendall(first)
        assert b" 403 " in connection.recv(4096)
        assert _seconds_until_closed(connection, then) < PATIENCE


def test_a_page_that_takes_longer_than_a_head_may_is_not_cut_off(
    hasty: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(*_: object) -> str:
        time.sleep(1.5)
        return "slow"

    with httpx.Client(base_url=hasty.base, trust_env=False) as client:
        client.get("", params={"token": TOKEN})
        monkeypatch.setattr(View, "render", slow)
        assert client.get("played/index.html", timeout=60).text == "slow"


def test_an_endless_head_is_refused_at_its_bound(served: Served) -> None:
    line = b"X-Padding: " + b"a" * 65_536 + b"\r\n"
    sent = 0
    with closing(_connected(served)) as connection, suppress(ConnectionError):
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        while sent < 120_000_000:
            connection.sendall(line)
            sent += len(line)
    assert sent < 20_000_000, "what the sockets of both ends hold may be on its way"


@pytest.mark.slow
def test_200_clients_at_once_are_all_answered(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "HEAD_SECONDS", 60.0)  # clients and server share one interpreter here

    async def all_of_them() -> list[int]:
        async with httpx.AsyncClient(
            base_url=served.base, trust_env=False, timeout=60, limits=httpx.Limits(max_connections=None)
        ) as client:
            await client.get("", params={"token": TOKEN})
            pages = ["played/index.html", "static/view.js", "played/causes/c1.html", "nowhere.html"]
            answers = await asyncio.gather(*(client.get(page) for page in pages * 50))
        return [answer.status_code for answer in answers]

    assert asyncio.run(all_of_them()) == [200, 200, 200, 404] * 50


@pytest.mark.slow
def test_300_slow_connections_keep_nobody_out_and_are_gone_after_their_time(hasty: Served) -> None:
    address = urlsplit(hasty.base)

    async def slow() -> float:
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        began = time.monotonic()
        writer.write(b"GET / HTTP/1.1\r\nX: ")
        await reader.read()
        writer.close()
        return time.monotonic() - began

    async def all_of_them() -> tuple[list[float], int]:
        waiting = [asyncio.create_task(slow()) for _ in range(SLOW)]
        await asyncio.sleep(0.2)
        async with httpx.AsyncClient(trust_env=False, timeout=60) as client:
            answer = await client.get(hasty.base)
        async with asyncio.timeout(PATIENCE):
            return await asyncio.gather(*waiting), answer.status_code

    lasted, status = asyncio.run(all_of_them())
    assert status == 403
    assert len(lasted) == SLOW
