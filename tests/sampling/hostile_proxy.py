"""A proxy that counts who comes to it, and serves nobody."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest


@contextmanager
def proxied(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Within, the environment names it for everything. Yields the addresses that it was asked for."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(502)

        do_POST = do_CONNECT = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        for spelt in (name, name.upper()):
            monkeypatch.setenv(spelt, f"http://127.0.0.1:{server.server_address[1]}")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    try:
        yield asked
    finally:
        server.shutdown()
        server.server_close()
