"""A model that is fetched from the hub, here a small server of our own that may be slow."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from diagevo.errors import MissingDependencyError, StoppedSafely
from diagevo.progress import StopFlag
from diagevo.sampling.hub import folder_of
from tests.serving import Asked, reply, serving


@dataclass
class Hub:
    """Answers 404, or with `slow` nothing before the test is over."""

    slow: bool = False
    asked: threading.Event = field(default_factory=threading.Event)
    over: threading.Event = field(default_factory=threading.Event)

    def answer(self, asked: Asked) -> None:
        self.asked.set()
        if self.slow:
            self.over.wait()
        reply(asked, b"", 404)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    hub = Hub()
    with serving(hub.answer) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        yield hub
        hub.over.set()


def test_a_download_that_hangs_is_ended_by_a_stop_at_once(hub: Hub) -> None:
    hub.slow, stop = True, StopFlag()

    def ctrl_c() -> None:
        hub.asked.wait()
        stop.set()

    threading.Thread(target=ctrl_c, daemon=True).start()
    with pytest.raises(StoppedSafely, match="stopped while somebody/model was fetched from the hub"):
        folder_of("somebody/model", None, stop)
    assert not hub.over.is_set(), "no answer came"


def test_a_model_that_cannot_be_had_says_why(hub: Hub) -> None:
    with pytest.raises(MissingDependencyError, match="somebody/model is not a model folder here") as caught:
        folder_of("somebody/model", "a" * 40, StopFlag())
    assert "hub: " in caught.value.message
    assert "404" in caught.value.message
