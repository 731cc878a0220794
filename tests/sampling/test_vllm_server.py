"""Process handling of the vLLM server, with a stand-in. The real one: test_contract.py, marker `vllm`."""

import json
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from diagevo.errors import ServiceError
from diagevo.sampling import vllm_server
from diagevo.sampling.model_folder import PLAIN_TEMPLATE
from diagevo.sampling.openai_sampler import OpenAISampler
from diagevo.sampling.sampler import Address, Prompt, SamplingParams
from diagevo.sampling.service import Service
from diagevo.sampling.vllm_client import VLLMClient
from diagevo.sampling.vllm_server import VLLMServer
from tests.diagnosis.server import Answer, Server
from tests.sampling.processes import alive, members, until
from tests.sampling.tiny_model import CHAT_TEMPLATE, make_tiny_model
from tests.serving import proxied

STAND_IN = (sys.executable, str(Path(__file__).with_name("stand_in_server.py")))
PROMPT: Prompt = [{"role": "user", "content": "1+1?"}]
pytestmark = [pytest.mark.server, pytest.mark.slow]


def start(folder: Path, tmp_path: Path, *options: str, **changes: Any) -> VLLMServer:
    return VLLMServer(folder, log=tmp_path / "server.log", options=options, command=STAND_IN, **changes)


def state(server: VLLMServer) -> dict[str, Any]:
    [[completion]] = server.sample([PROMPT], n=1, params=SamplingParams(), seed=0)
    return json.loads(completion.text)


def test_it_serves_the_folder_and_ends_with_everything_it_started(tiny_model: Path, tmp_path: Path) -> None:
    with start(tiny_model, tmp_path, "--spawn", str(tmp_path / "pid")) as server:
        assert state(server)["weights"] == str(tiny_model)
        child = int((tmp_path / "pid").read_text())
        assert alive(child)
    until(lambda: not alive(child))  # It ignored SIGTERM.
    assert server.pid is None


def test_two_policies_in_turn_are_served_by_one_path(tiny_model: Path, tmp_path: Path) -> None:
    """Under which vLLM finds again what it compiled; what it does of it: test_real_vllm.py."""
    other = make_tiny_model(tmp_path / "other", seed=1)
    told = []
    for folder in (tiny_model, other):
        with start(folder, tmp_path / "logs") as server:
            told.append(state(server))
    assert [each["weights"] for each in told] == [str(tiny_model), str(other)]
    assert told[0]["model"] == told[1]["model"]


def test_two_servers_get_two_ports(tiny_model: Path, tmp_path: Path) -> None:
    with start(tiny_model, tmp_path / "a") as first, start(tiny_model, tmp_path / "b") as second:
        assert first.url != second.url
        assert state(first)
        assert state(second)


def test_a_server_that_ends_before_it_is_ready_is_reported_with_the_end_of_its_log(
    tiny_model: Path, tmp_path: Path
) -> None:
    with pytest.raises(ServiceError) as caught:
        start(tiny_model, tmp_path, "--die-at-start")
    assert "exit status 3" in caught.value.message
    assert "no kernel for this device" in caught.value.message
    assert caught.value.hint is not None
    assert str(tmp_path / "server.log") in caught.value.hint


def test_a_server_that_never_gets_healthy_is_given_up_at_the_deadline(
    tiny_model: Path, tmp_path: Path
) -> None:
    with pytest.raises(ServiceError, match=r"not healthy after 1\.5 s"):
        start(tiny_model, tmp_path, "--never-healthy", startup_timeout=1.5)


def test_a_server_that_dies_is_started_again_and_the_call_is_made_again(
    tiny_model: Path, tmp_path: Path
) -> None:
    with start(tiny_model, tmp_path, "--die-once", str(tmp_path / "died")) as server:
        before = server.pid, server.url
        assert state(server)["weights"] == str(tiny_model)
        assert server.pid != before[0]
        assert server.url == before[1]  # Other processes ask it there.


def test_a_server_whose_engine_died_is_started_again_though_it_lives(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vllm_server, "_DYING", 0.5)
    with start(tiny_model, tmp_path, "--lose-engine", str(tmp_path / "lost")) as server:
        before = server.pid
        assert state(server)["weights"] == str(tiny_model)
        assert server.pid != before
        assert not alive(before or 0)


def test_a_call_of_another_process_is_answered_by_the_server_that_is_started_again(
    tiny_model: Path, tmp_path: Path
) -> None:
    with start(tiny_model, tmp_path, "--die-once", str(tmp_path / "died")) as server:
        before, client = server.pid, VLLMClient(server.servers, timeout=60)
        with ThreadPoolExecutor() as pool:
            call = pool.submit(client.sample, [PROMPT], n=1, params=SamplingParams(), seed=0)
            while not call.done():
                server.keep_up()
                time.sleep(0.05)
            [[completion]] = call.result()
        client.close()
        assert json.loads(completion.text)["weights"] == str(tiny_model)
        assert server.pid != before
        server.keep_up()


def test_a_call_that_was_lost_is_made_once_more_where_the_server_is_well_again_by_then() -> None:
    """A call is tried twice, so the server drops it, and then the call that was made once more too."""
    with Server(lambda _, before: Answer("2", manner="drop" if before < 2 else "whole")) as server:
        client = VLLMClient([Address(server.url.removesuffix("/v1"), "key", 1)])
        [[completion]] = client.sample([PROMPT], n=1, params=SamplingParams(), seed=0)
        assert (completion.text, len(server.requests)) == ("2", 3)
        server.behave = lambda *_: Answer(manner="drop")
        with pytest.raises(ServiceError, match="gave no answer"):
            client.sample([PROMPT], n=1, params=SamplingParams(), seed=0)
        assert len(server.requests) == 3 + 4
        client.close()


def test_what_one_of_two_servers_drops_is_asked_of_the_other() -> None:
    with Server(lambda *_: Answer("one")) as one, Server(lambda *_: Answer(manner="drop")) as two:
        client = VLLMClient([Address(server.url.removesuffix("/v1"), "key", 1) for server in (one, two)])
        groups = client.sample([PROMPT] * 6, n=1, params=SamplingParams(), seed=0)
        client.close()
    assert [completion.text for [completion] in groups] == ["one"] * 6
    assert len(one.requests) == 6
    assert two.requests, "both were asked"


def test_a_server_that_keeps_dying_is_given_up_by_those_who_keep_it_up_and_those_who_ask(
    tiny_model: Path, tmp_path: Path
) -> None:
    with start(tiny_model, tmp_path, "--die-always", restarts=0) as server:
        client = VLLMClient(server.servers, timeout=0.5)
        with pytest.raises(ServiceError, match=r"has not answered for 0\.5 s"):
            client.sample([PROMPT], n=1, params=SamplingParams(), seed=0)
        client.close()
        with pytest.raises(ServiceError, match=r"SIGKILL.* not restarted"):
            server.keep_up()


def test_a_server_answers_only_those_who_have_its_key(tiny_model: Path, tmp_path: Path) -> None:
    with start(tiny_model, tmp_path) as server:
        client = VLLMClient([Address(server.url, "another key", 256)])
        with pytest.raises(ServiceError, match="401"):
            client.sample([PROMPT], n=1, params=SamplingParams(), seed=0)
        client.close()


def test_a_request_that_is_at_fault_is_not_made_again(tiny_model: Path, tmp_path: Path) -> None:
    with start(tiny_model, tmp_path) as server, pytest.raises(ServiceError, match="refused the request"):
        server.sample([[]], n=1, params=SamplingParams(), seed=0)
    with Server(lambda *_: Answer(status=400)) as refusing:
        client = VLLMClient([Address(refusing.url.removesuffix("/v1"), "key", 1)])
        with pytest.raises(ServiceError, match="refused the request"):
            client.sample([[]], n=1, params=SamplingParams(), seed=0)
        client.close()
        assert len(refusing.requests) == 1


def test_our_own_server_is_never_reached_through_a_proxy(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it listens: on a cluster that is no loopback. A service of others at the same address is
    asked through the proxy, so it stands there."""
    with (
        proxied(monkeypatch) as asked,
        start(tiny_model, tmp_path, startup_timeout=30.0, host="127.0.0.2") as server,
    ):
        assert state(server)["weights"] == str(tiny_model)
        client = VLLMClient(server.servers)
        assert len(client.sample([PROMPT] * 3, n=2, params=SamplingParams(), seed=0)) == 3
        client.close()
        server.keep_up()
        assert asked == []
        other = OpenAISampler(Service(f"{server.url}/v1", retries=0), "policy")
        with pytest.raises(ServiceError, match="502"):
            other.sample([PROMPT], n=1, params=SamplingParams(), seed=0)
        assert [one.path for one in asked] == [f"{server.url}/v1/chat/completions"]


def test_a_model_is_served_with_the_template_and_the_end_marks_that_are_read_here(
    tiny_model: Path, tmp_path: Path
) -> None:
    bare = make_tiny_model(tmp_path / "bare", chat_template=False)
    with start(bare, tmp_path / "logs") as server:
        assert Path(state(server)["template"]).read_text(encoding="utf-8") == PLAIN_TEMPLATE
    with start(tiny_model, tmp_path / "logs") as server:
        assert Path(state(server)["template"]).read_text(encoding="utf-8") == CHAT_TEMPLATE
        told = json.loads((Path(state(server)["generation"]) / "generation_config.json").read_text())
    assert told == {"eos_token_id": [1]}  # and nothing else: no top-k of the model's


def test_a_server_that_keeps_dying_is_reported(tiny_model: Path, tmp_path: Path) -> None:
    with start(tiny_model, tmp_path, "--die-always") as server, pytest.raises(ServiceError) as caught:
        state(server)
    assert "SIGKILL" in caught.value.message
    assert caught.value.message.endswith("(EngineCore) RuntimeError: the engine died")  # Not what came after.


def test_it_ends_when_its_parent_is_killed(tiny_model: Path, tmp_path: Path) -> None:
    program = (
        "import os, signal; from pathlib import Path; from diagevo.sampling.vllm_server import VLLMServer\n"
        f"folder, log = Path({str(tiny_model)!r}), Path({str(tmp_path / 'log')!r})\n"
        f"server = VLLMServer(folder, log=log, command={STAND_IN!r})\n"
        "print(server.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    parent = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert parent.returncode == -signal.SIGKILL
    until(lambda: not alive(int(parent.stdout)))
    assert not members(int(parent.stdout))
