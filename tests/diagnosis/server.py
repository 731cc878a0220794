"""An OpenAI-compatible server on loopback that answers as it is told, and misbehaves as services do."""

import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server does with one request."""

    text: str | None = None
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    stall: float = 0.0
    """Seconds before anything is sent."""
    manner: str = "whole"
    """whole, drop (close without a word), half (half a body), html, or a body that is JSON but no
    completion."""
    body: Any = None
    """Sent as it is in place of a completion."""


Behaviour = Callable[[dict[str, Any], int], Answer]
"""Request and how often this very request came before → what to do."""


@dataclass
class Server:
    """Runs while it is open as a context manager. `behave` may be replaced at any time."""

    behave: Behaviour
    requests: list[dict[str, Any]] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)
    open: int = 0
    most_open: int = 0

    def __enter__(self) -> Self:
        self._lock = threading.Lock()
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:  # /health
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def do_POST(self) -> None:
                owner.handle(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._http.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients hang up on purpose
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def handle(self, handler: BaseHTTPRequestHandler) -> None:
        raw = handler.rfile.read(int(handler.headers["Content-Length"])).decode()
        request = json.loads(raw)
        request["path"] = handler.path
        key = json.dumps([request.get("messages"), request.get("input")])
        with self._lock:
            before = self.seen.get(key, 0)
            self.seen[key] = before + 1
            self.requests.append(request)
            self.open += 1
            self.most_open = max(self.most_open, self.open)
        try:
            self._send(handler, self.behave(request, before), request)
        finally:
            with self._lock:
                self.open -= 1

    def _send(self, handler: BaseHTTPRequestHandler, answer: Answer, request: dict[str, Any]) -> None:
        if answer.stall:
            time.sleep(answer.stall)
        if answer.manner == "drop":
            _hang_up(handler)
            return
        if answer.manner == "html":
            body, kind = b"<html>Bad gateway</html>", "text/html"
        elif answer.body is not None:
            body, kind = json.dumps(answer.body).encode(), "application/json"
        elif answer.status != 200:
            error = {"error": {"message": answer.text or "no", "type": "x", "code": None}}
            body, kind = json.dumps(error).encode(), "application/json"
        else:
            body, kind = json.dumps(completion(answer.text, request)).encode(), "application/json"
        handler.send_response(answer.status)
        handler.send_header("Content-Type", kind)
        handler.send_header("Content-Length", str(len(body)))
        for name, value in answer.headers:
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body[: len(body) // 2] if answer.manner == "half" else body)
        if answer.manner == "half":
            handler.wfile.flush()
            _hang_up(handler)


def _hang_up(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def completion(text: str | None, request: dict[str, Any]) -> dict[str, Any]:
    """A chat completion as services send it: 7 tokens in, 3 out."""
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": request.get("model"),
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }
