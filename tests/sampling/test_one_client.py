"""Whoever asks a service asks through one kind of client."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from diagevo.errors import ServiceError
from diagevo.sampling.openai_sampler import OpenAISampler
from diagevo.sampling.sampler import SamplingParams
from diagevo.sampling.service import Service
from diagevo.text.redaction import masked
from tests.diagnosis.server import Answer, Server

ROOT = Path(__file__).parents[2]


def test_one_file_makes_the_clients_of_services() -> None:
    files = [*(ROOT / "diagevo").rglob("*.py"), *(ROOT / "cli").rglob("*.py")]
    makers = [
        file.name for file in files if "AsyncOpenAI(" in (text := file.read_text()) or " OpenAI(" in text
    ]
    assert makers == ["connection.py"]


@pytest.mark.parametrize(
    ("url", "own", "proxied"),
    [
        ("http://127.0.0.1:8000/v1", False, False),
        ("http://service.example/v1", False, True),
        ("http://node0:8000/v1", True, False),
    ],
)
def test_no_proxy_stands_before_a_server_of_this_machine_or_of_our_own(
    url: str, own: bool, proxied: bool
) -> None:
    found = Service(url, key="a-key-of-some-length", timeout=5.0, retries=2, own=own).client(4)
    assert found._client.trust_env is proxied
    assert found.max_retries == 2
    assert "a-key-of-some-length" not in masked("it says a-key-of-some-length")
    asyncio.run(found.close())
    keyless = Service(url).client(4)
    assert keyless.api_key == "none"
    asyncio.run(keyless.close())


def test_a_service_that_cannot_be_reached_is_told_at_the_first_try(caplog: pytest.LogCaptureFixture) -> None:
    """Port 9 of this machine takes no connection. The two pauses are 0.5 and 1 s."""

    async def ask() -> None:
        service = Service("http://127.0.0.1:9/v1", key="none", retries=2)
        async with service.client(1) as client:
            await service.complete(client, model="m", messages=[])

    with pytest.raises(ServiceError, match="cannot be reached") as refused:
        asyncio.run(ask())
    assert not str(refused.value.hint).endswith(".")
    assert caplog.messages == ["http://127.0.0.1:9 cannot be reached; trying again for 2 s"]


def test_a_machine_of_ours_that_is_gone_without_a_word_is_noticed_while_it_is_asked() -> None:
    """The kernel asks after it: timer 2 of a connection in /proc/net/tcp. Nobody asks after a stranger's."""
    found: list[bool] = []

    def watched() -> bool:
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        port = int(server.url.removesuffix("/v1").rpartition(":")[2])
        return any(row[2].endswith(f":{port:04X}") and row[5].startswith("02:") for row in rows)

    def behave(request: dict[str, Any], before: int) -> Answer:
        deadline = time.monotonic() + (60.0 if not found else 0.5)
        while not (seen := watched()) and time.monotonic() < deadline:
            time.sleep(0.01)
        found.append(seen)
        return Answer("yes")

    with Server(behave) as server:
        for own in (True, False):
            sampler = OpenAISampler(Service(server.url, own=own), "policy")
            sampler.sample([[{"role": "user", "content": "?"}]], n=1, params=SamplingParams(), seed=0)
    assert found == [True, False]
