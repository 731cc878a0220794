"""A model that is fetched from the hub, here a small server of our own that may be slow."""

import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from diagevo.errors import MissingDependencyError, StoppedSafely
from diagevo.progress import StopFlag
from diagevo.sampling.hub import folder_of


class Hub(ThreadingHTTPServer):
    """Answers 404, or with `slow` nothing before the test is over."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.slow = False
        self.asked, self.over = threading.Event(), threading.Event()


class Answers(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, Hub)
        self.server.asked.set()
        if self.server.slow:
            self.server.over.wait(60)
        self.send_error(404)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    server = Hub()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    yield server
    server.over.set()
    server.shutdown()
    server.server_close()


def test_a_download_that_hangs_is_ended_by_a_stop_at_once(hub: Hub) -> None:
    hub.slow, stop = True, StopFlag()
    asked_at: list[float] = []

    def ctrl_c() -> None:
        assert hub.asked.wait(60)
        asked_at.append(time.monotonic())
        stop.set()

    threading.Thread(target=ctrl_c, daemon=True).start()
    with pytest.raises(StoppedSafely, match="stopped while somebody/model was fetched from the hub"):
        folder_of("somebody/model", None, stop)
    assert time.monotonic() - asked_at[0] < 10


def test_a_model_that_cannot_be_had_says_why(hub: Hub) -> None:
    with pytest.raises(MissingDependencyError, match="somebody/model is not a model folder here") as caught:
        folder_of("somebody/model", "a" * 40, StopFlag())
    assert "hub: " in caught.value.message
    assert "404" in caught.value.message
