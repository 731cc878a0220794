"""Diagnosis against a real model server: `transformers serve` on loopback with the small arithmetic model.

The model knows arithmetic and nothing else, so its replies are nonsense: it is found out after three, and the
memory is as it was.
"""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

import pytest

from diagevo.arithmetic import WEIGHTS
from diagevo.config.models import DiagnosisConfig, DiagnosticianRole, MemoryConfig
from diagevo.diagnosis.embedder import HashingEmbedder
from diagevo.diagnosis.maintain import maintain
from diagevo.diagnosis.openai_diagnostician import OpenAIDiagnostician
from diagevo.errors import ServiceError
from diagevo.sampling.supervised import free_port
from tests.diagnosis.rounds import DIMENSION, Question, memory_now, open_memory, play

pytestmark = [pytest.mark.server, pytest.mark.slow]
PATIENCE_SECONDS = 500


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a running server."""
    port = free_port("127.0.0.1")
    log = tmp_path_factory.mktemp("serve") / "log"
    command = [str(Path(sys.executable).parent / "transformers"), "serve", str(WEIGHTS), "--device", "cpu"]
    with log.open("w") as output:
        server = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)], stdout=output, stderr=subprocess.STDOUT
        )
    try:
        _wait(f"http://127.0.0.1:{port}/health", server, log)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait(30)


def _wait(url: str, server: subprocess.Popen[bytes], log: Path) -> None:
    direct = build_opener(ProxyHandler({}))
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            direct.open(url, timeout=5).read()
            return
        except (URLError, OSError):
            if server.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"transformers serve did not start:\n{log.read_text()[-3000:]}")
            time.sleep(0.5)


def test_nonsense_from_a_real_server_leaves_a_sound_memory(tmp_path: Path, served: str):
    role = DiagnosticianRole(engine="openai", model=str(WEIGHTS), base_url=served, max_tokens=48, timeout=120)
    settings = DiagnosisConfig(retries=1, workers=4, trajectory_characters=200)
    embedder = HashingEmbedder(DIMENSION)
    questions = [
        Question([f"{a}+{b}={a + b + 1} so \\boxed{{{a + b + 1}}}" for b in (3, 8)], text=f"What is {a}+b?")
        for a in (14, 27, 55)
    ]
    with open_memory(tmp_path) as memory:
        play(memory, 1, questions)
        asked = OpenAIDiagnostician(role, settings, memory.artifacts)
        with pytest.raises(ServiceError, match="the first 3 replies of the diagnostician could not be read"):
            maintain(memory, asked, embedder, settings, MemoryConfig())
        asked.close()
        assert not list(memory.log.read("a", types=["FailureDiagnosed"]))
        assert memory.undiagnosed() != []
        assert (memory.state.failures, memory_now(memory)) == (0, {})
