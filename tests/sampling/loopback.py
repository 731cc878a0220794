"""A chat-completions server on loopback over any sampler, as real HTTP as a test needs."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from diagevo.sampling.sampler import Sampler, SamplingParams


@contextmanager
def chat_server(sampler: Sampler) -> Iterator[str]:
    """Yields the base URL. The sampler serves one request at a time."""
    one_at_a_time = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with one_at_a_time:
                status, reply = answer(sampler, body)
            payload = json.dumps(reply).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        server.server_close()


def answer(sampler: Sampler, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    params = SamplingParams(
        temperature=body["temperature"],
        top_p=body["top_p"],
        max_new_tokens=body["max_tokens"],
    )
    [completions] = sampler.sample([body["messages"]], n=body["n"], params=params, seed=body["seed"])
    return 200, {
        "id": "c",
        "object": "chat.completion",
        "created": 0,
        "model": body["model"],
        "choices": [
            {
                "index": index,
                "message": {"role": "assistant", "content": completion.text},
                "finish_reason": "length" if completion.truncated else "stop",
            }
            for index, completion in enumerate(completions)
        ],
        "usage": {
            "prompt_tokens": 1,
            "completion_tokens": sum(completion.tokens for completion in completions),
            "total_tokens": 1 + sum(completion.tokens for completion in completions),
        },
    }
