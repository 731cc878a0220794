"""A server on loopback that answers as a test tells it, and keeps what it was asked."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


@dataclass(frozen=True, slots=True)
class Asked:
    """A request; its body read."""

    handler: BaseHTTPRequestHandler
    method: str
    path: str
    body: bytes

    @property
    def authorization(self) -> str:
        return self.handler.headers["Authorization"]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(slots=True)
class Serving:
    url: str
    asked: list[Asked] = field(default_factory=list)


def reply(asked: Asked, body: Any, status: int = 200, **headers: str) -> None:
    """Send bytes as they are, and anything else as JSON. A header's name has _ for -."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    asked.handler.send_response(status)
    for name, value in (
        {"Content_Type": "application/json", "Content_Length": str(len(content))} | headers
    ).items():
        asked.handler.send_header(name.replace("_", "-"), value)
    asked.handler.end_headers()
    asked.handler.wfile.write(content)


@contextmanager
def serving(answer: Callable[[Asked], None]) -> Iterator[Serving]:
    """Runs until the block ends, several requests at a time; `answer` sends the reply of each."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked = Asked(self, self.command, self.path, body)
            server.asked.append(asked)
            answer(asked)

        do_POST = do_HEAD = do_CONNECT = do_GET

        def log_message(self, format: str, *args: object) -> None: ...

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    http.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients hang up on purpose
    server = Serving(f"http://127.0.0.1:{http.server_port}")
    thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


@contextmanager
def proxied(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Asked]]:
    """Within, the environment names a proxy for everything that serves nobody. Yields what it was asked."""
    with serving(lambda asked: reply(asked, "no", 502)) as proxy:
        for name in ("http_proxy", "https_proxy", "all_proxy"):
            for spelt in (name, name.upper()):
                monkeypatch.setenv(spelt, proxy.url)
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        yield proxy.asked
