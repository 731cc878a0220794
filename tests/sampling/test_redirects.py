"""A service that answers with a redirection gets nothing sent to where it points, whoever asks it."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from diagevo.config.models import DiagnosisConfig, DiagnosticianRole, EmbedderRole
from diagevo.diagnosis.embedder import OpenAIEmbedder
from diagevo.diagnosis.openai_diagnostician import OpenAIDiagnostician
from diagevo.doctor import _endpoint
from diagevo.errors import ServiceError
from diagevo.memory.log.artifacts import Artifacts
from diagevo.sampling.openai_sampler import OpenAISampler
from diagevo.sampling.sampler import SamplingParams
from diagevo.sampling.service import Service
from diagevo.sampling.vllm_client import is_healthy
from tests.diagnosis.asking import pair
from tests.memory.play import opened

pytestmark = [pytest.mark.server, pytest.mark.slow]
STATUSES = (301, 302, 303, 307, 308)
ANSWER = {
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "{}"}, "finish_reason": "stop"}],
    "data": [{"index": 0, "embedding": [1.0, 0.0]}],
}


@contextmanager
def serving(answer: Callable[[str], tuple[int, dict[str, str]]]) -> Iterator[tuple[str, list[str]]]:
    """A server on loopback and the requests that it saw, bodies too."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            seen.append(f"{self.command} {self.path} {body}")
            status, headers = answer(self.path)
            content = json.dumps(ANSWER).encode()
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", seen
    finally:
        server.shutdown()
        server.server_close()


def diagnostician(url: str, artifacts: Artifacts) -> None:
    role = DiagnosticianRole(engine="openai", model="m", base_url=url, timeout=5.0)
    asked = OpenAIDiagnostician(role, DiagnosisConfig(), artifacts, retries=0)
    try:
        asked.extract(pair())
    finally:
        asked.close()


def embedder(url: str, artifacts: Artifacts) -> None:
    role = EmbedderRole(engine="openai", model="m", dimension=2, base_url=url, timeout=5.0)
    asked = OpenAIEmbedder(role, retries=0)
    try:
        asked.embed(["my secret plan"])
    finally:
        asked.close()


def sampler(url: str, artifacts: Artifacts) -> None:
    """Also what judges, the challenger and the solver are asked through."""
    asked = OpenAISampler(Service(url, retries=0), "m", workers=1)
    params = SamplingParams(temperature=1.0, top_p=1.0, max_new_tokens=8)
    asked.sample([[{"role": "user", "content": "my secret plan"}]], n=1, params=params, seed=1)


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("ask", [diagnostician, embedder, sampler])
def test_nothing_reaches_the_second_origin(
    ask: Callable[[str, Artifacts], None], status: int, tmp_path: Path
) -> None:
    with serving(lambda path: (200, {})) as (there, second), opened(tmp_path) as memory:
        away = {"Location": f"{there}/v1/elsewhere?token=hf_abcdefghijklmnop"}
        with serving(lambda path: (status, away)) as (here, first):
            with pytest.raises(ServiceError, match=rf"answered {status} and points to {there}") as refused:
                ask(f"{here}/v1", memory.artifacts)
            assert (len(first), second) == (1, [])
    assert refused.value.exit_code == 6
    assert "hf_abcdefghijklmnop" not in str(refused.value)
    assert refused.value.hint == "if that is the service you want, use its URL as base_url"


@pytest.mark.parametrize("status", STATUSES)
def test_a_server_of_our_own_is_not_followed_either(status: int) -> None:
    with (
        serving(lambda path: (200, {})) as (there, second),
        serving(lambda path: (status, {"Location": f"{there}/health"})) as (here, first),
    ):
        assert is_healthy(there)
        assert not is_healthy(here)
    assert (len(first), len(second)) == (1, 1)


@pytest.mark.parametrize("status", STATUSES)
def test_the_doctor_says_where_it_points(status: int) -> None:
    with (
        serving(lambda path: (200, {})) as (there, second),
        serving(lambda path: (status, {"Location": f"{there}/v1"})) as (here, _),
    ):
        check = _endpoint("diagnostician", f"{here}/v1", None, "K")
    assert (check.state, second) == ("missing", [])
    assert there in check.found


def test_without_a_redirection_the_same_server_is_read(tmp_path: Path) -> None:
    """What the tests above refuse is the status, and not the answer."""
    with serving(lambda path: (200, {})) as (here, seen), opened(tmp_path) as memory:
        sampler(f"{here}/v1", memory.artifacts)
        embedder(f"{here}/v1", memory.artifacts)
    assert len(seen) == 2
