"""What the server gives to whom: the token, foreign names, methods, headers, pages that are not there, and
clients that are many or never finish what they say."""

import asyncio
import http.client
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import httpx
import pytest

from diagevo.view.server import is_ours, names
from tests.view.conftest import TOKEN, Served


@pytest.fixture(scope="module")
def client(served: Served) -> Iterator[httpx.Client]:
    """A client that has opened the address once, as a browser does."""
    with httpx.Client(base_url=served.base, trust_env=False) as opened:
        answer = opened.get("", params={"token": TOKEN})
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        yield opened


def test_the_token_becomes_a_strict_cookie_and_leaves_the_address(served: Served) -> None:
    with httpx.Client(base_url=served.base, trust_env=False) as client:
        assert client.get("played/index.html").status_code == 403
        assert client.get("", params={"token": "another"}).status_code == 403
        answer = client.get("played/index.html", params={"token": TOKEN})
        assert (answer.status_code, answer.headers["location"]) == (303, "/played/index.html")
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        assert TOKEN not in cookie
        assert client.get("played/index.html").status_code == 200


@pytest.mark.parametrize(
    "path",
    ["//evil.example/", "///evil.example", "/%2Fevil.example/", "/%5Cevil.example/", "/\\evil.example/"],
)
def test_the_token_leads_nowhere_but_here(served: Served, path: str) -> None:
    """Sent as it stands: a client of the library would even the slashes."""
    connection = http.client.HTTPConnection(urlsplit(served.base).netloc, timeout=10)
    connection.request("GET", f"{path}?token={TOKEN}")
    answer = connection.getresponse()
    assert (answer.status, urljoin(served.base, answer.headers["location"]).startswith(served.base)) == (
        303,
        True,
    )
    connection.close()


def test_a_name_that_is_not_ours_is_refused_before_anything_is_read(client: httpx.Client) -> None:
    assert client.get("", headers={"Host": "evil.example"}).status_code == 400
    assert client.get("", headers={"Host": "localhost:9999"}).status_code == 200, "a tunnel has another port"
    assert client.get("", headers={"Host": "localhost.evil.example"}).status_code == 400
    assert client.get("", headers={"Host": "127.0.0.1.evil.example"}).status_code == 400


@pytest.mark.parametrize(
    ("host", "header", "ours"),
    [
        ("127.0.0.1", "127.0.0.1:80", True),
        ("127.0.0.1", "[::1]:80", True),
        ("127.0.0.1", "192.168.1.4", False),  # loopback alone was opened
        ("0.0.0.0", "192.168.1.4:8080", True),  # an address cannot be turned to another machine
        ("0.0.0.0", "evil.example:8080", False),
        ("box.lan", "box.lan:8080", True),
        ("127.0.0.1", "[::1", False),
        ("127.0.0.1", "", False),
        ("127.0.0.1", "localhost.", False),
        ("127.0.0.1", "LOCALHOST", True),
        ("127.0.0.1", "user@evil.example", False),
        ("127.0.0.1", "localhost@evil.example", False),
        ("127.0.0.1", "evil.example#localhost", False),
        ("127.0.0.1", "evil.example/localhost", False),
        ("127.0.0.1", "localhost,evil.example", False),
        ("127.0.0.1", "0.0.0.0", False),
        ("127.0.0.1", "127.0.0.1.nip.io", False),
        ("0.0.0.0", "evil.example", False),
        ("box.lan", "box.lan.evil.example", False),
    ],
)
def test_which_names_are_ours_follows_from_where_it_listens(host: str, header: str, ours: bool) -> None:
    assert is_ours(header, names(host)) is ours


def test_nothing_can_be_written(client: httpx.Client) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert client.request(method, "played/index.html").status_code == 405
    assert client.head("played/index.html").status_code == 200


def test_every_answer_forbids_foreign_scripts_frames_and_guesses(client: httpx.Client) -> None:
    for path in ("", "played/index.html", "static/view.js", "nowhere.html", "nowhere"):
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"


@pytest.mark.parametrize(
    "path",
    [
        "nowhere.html",
        "nobody/index.html",
        "played/causes/c999.html",
        "played/nodes/n999.html",
        "played/questions/r9.q9.html",
        "played/failures/r1.q0.a999.html",
        "played/rounds/99.html",
        "played/rounds/0.html",
        "played/log/Nothing.html",
        "played/causes/c" + "9" * 4000 + ".html",
        "played/causes.p999999999.html",
        "played/causes.p2.html",
        "played/log.p2.html",
        "..%2f..%2fetc%2fpasswd.html",
        "static/../site.py",
        "static/%2e%2e/site.py",
        "nobody/progress.json",
    ],
)
def test_what_is_not_there_is_a_404_that_says_so(client: httpx.Client, path: str) -> None:
    assert client.get(path).status_code == 404


def test_what_the_run_tells_is_sent_once(client: httpx.Client, folder_of_progress: str) -> None:
    first = client.get(folder_of_progress)
    assert first.json() == {"round": 1}
    again = client.get(folder_of_progress, headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.fixture
def folder_of_progress(folder: Path) -> Iterator[str]:
    file = folder / "played" / "progress.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text('{"round": 1}', encoding="utf-8")
    yield "played/progress.json"
    file.unlink()


def _connected(server: Served) -> socket.socket:
    address = urlsplit(server.base)
    assert address.hostname is not None
    return socket.create_connection((address.hostname, address.port or 80), timeout=60)


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
def test_200_clients_at_once_are_all_answered(served: Served) -> None:
    async def all_of_them() -> list[int]:
        own = httpx.Limits(max_connections=None, max_keepalive_connections=0)  # each has a connection
        async with httpx.AsyncClient(base_url=served.base, trust_env=False, timeout=60, limits=own) as client:
            await client.get("", params={"token": TOKEN})
            pages = ["played/index.html", "static/view.js", "played/causes/c1.html", "nowhere.html"]
            answers = await asyncio.gather(*(client.get(page) for page in pages * 50))
        return [answer.status_code for answer in answers]

    assert asyncio.run(all_of_them()) == [200, 200, 200, 404] * 50


@pytest.mark.slow
def test_300_connections_that_say_nothing_keep_nobody_out(served: Served) -> None:
    with ExitStack() as open_:
        for _ in range(300):
            open_.enter_context(closing(_connected(served))).sendall(b"GET / HTTP/1.1\r\nX: ")
        assert httpx.get(served.base, trust_env=False, timeout=60).status_code == 403
