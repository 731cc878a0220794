"""An OpenAI-compatible server on loopback that answers as it is told, and misbehaves as services do."""

import json
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from tests.serving import Asked, reply, serving


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
    """Runs while it is open as a context manager. `behave` may be replaced at any time.

    `at`: a number of requests, and what is done when so many have come, before one more is taken.
    """

    behave: Behaviour
    at: tuple[int, Callable[[], object]] | None = None
    requests: list[dict[str, Any]] = field(default_factory=list)
    seen: dict[str, int] = field(default_factory=dict)
    open: int = 0
    most_open: int = 0

    def __enter__(self) -> Self:
        self._lock = threading.Lock()
        self._serving = serving(self.handle)
        self.url = f"{self._serving.__enter__().url}/v1"
        return self

    def __exit__(self, *_: object) -> None:
        self._serving.__exit__(None, None, None)

    def handle(self, asked: Asked) -> None:
        if asked.method == "GET":  # /health
            reply(asked, b"")
            return
        request = asked.json | {"path": asked.path}
        key = json.dumps([request.get("messages"), request.get("input")])
        with self._lock:
            before = self.seen.get(key, 0)
            self.seen[key] = before + 1
            self.requests.append(request)
            if self.at is not None and len(self.requests) == self.at[0]:
                self.at[1]()
            self.open += 1
            self.most_open = max(self.most_open, self.open)
        try:
            self._send(asked, self.behave(request, before), request)
        finally:
            with self._lock:
                self.open -= 1

    def _send(self, asked: Asked, answer: Answer, request: dict[str, Any]) -> None:
        if answer.stall:
            time.sleep(answer.stall)
        headers = {name.replace("-", "_"): value for name, value in answer.headers}
        body: Any = answer.body
        if answer.manner == "html":
            body, headers["Content_Type"] = b"<html>Bad gateway</html>", "text/html"
        elif body is None and answer.status != 200:
            body = {"error": {"message": answer.text or "no", "type": "x", "code": None}}
        elif body is None:
            body = completion(answer.text, request)
        if answer.manner == "half":
            whole = json.dumps(body).encode()
            headers["Content_Length"] = str(len(whole))
            body = whole[: len(whole) // 2]
        if answer.manner != "drop":
            reply(asked, body, answer.status, **headers)
        if answer.manner in ("drop", "half"):
            asked.handler.wfile.flush()
            asked.handler.close_connection = True
            asked.handler.connection.shutdown(socket.SHUT_RDWR)


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
