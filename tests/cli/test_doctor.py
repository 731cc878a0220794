"""The doctor: what is missing, and the command that mends it."""

import http.server
import json
import threading
from collections.abc import Iterator

import pytest

from tests.cli.program import invoke


def _findings(*arguments: str, code: int) -> dict[str, dict[str, str]]:
    done = invoke("doctor", *arguments, "--json")
    assert done.exit_code == code, done.stdout + done.stderr
    return {row["name"]: row for row in json.loads(done.stdout)["data"]}


def test_a_fresh_folder_lacks_a_database_and_is_told_the_command() -> None:
    found = _findings(code=0)
    assert (found["database"]["state"], found["database"]["mend"]) == ("note", "diagevo init")
    assert found["core packages"]["state"] == "well"


def test_after_init_the_database_is_checked() -> None:
    invoke("init")
    assert _findings(code=0)["database: triggers"]["state"] == "well"


@pytest.fixture
def endpoint() -> Iterator[str]:
    """A server that asks for a key."""

    class Models(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            known = self.headers.get("Authorization") == "Bearer sesame"
            self.send_response(200 if known and self.path == "/v1/models" else 401)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Models)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    server.shutdown()
    server.server_close()
    thread.join()


def test_training_needs_endpoints_that_answer_and_take_the_key(
    endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "sesame")
    settings = [
        f"--set=roles.diagnostician={{engine: openai, base_url: '{endpoint}', api_key_env: MY_KEY}}",
        "--set=roles.embedder={engine: openai, model: some-model, base_url: 'http://127.0.0.1:9/v1'}",
        "--set=memory.theta_dup=0.5",
    ]
    found = _findings("--for", "train", *settings, code=4)
    assert found["diagnostician"]["state"] == "well"
    assert "does not answer" in found["embedder"]["found"]
    assert found["thresholds"]["state"] == "note"
    assert "text-embedding-v4" in found["thresholds"]["mend"]
    monkeypatch.setenv("MY_KEY", "wrong")
    found = _findings("--for", "train", *settings, code=4)
    assert found["diagnostician"]["mend"] == "export MY_KEY=…"


def test_the_hashing_embedder_with_a_language_models_words_is_called_useless() -> None:
    settings = ["--set=roles.diagnostician={engine: openai, base_url: 'http://127.0.0.1:9/v1'}"]
    assert "shared words only" in _findings("--for", "train", *settings, code=4)["thresholds"]["mend"]


def test_a_model_folder_that_is_none_is_named() -> None:
    found = _findings("--for", "eval", "--set=roles.solver.model=nowhere", code=4)
    assert "nowhere is not a model folder" in found["solver model"]["found"]


def test_a_configuration_that_cannot_be_read_is_a_finding() -> None:
    found = _findings("--for", "train", "--set=filter.tua=2", code=4)
    assert found["configuration"]["mend"] == "the nearest is filter.tau"
