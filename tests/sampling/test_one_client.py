"""Whoever asks a service asks through one kind of client."""

import asyncio
from pathlib import Path

import pytest

from diagevo.errors import ServiceError
from diagevo.sampling.service import Service
from diagevo.text.redaction import masked

ROOT = Path(__file__).parents[2]


def test_one_file_makes_the_clients_of_services() -> None:
    files = [*(ROOT / "diagevo").rglob("*.py"), *(ROOT / "cli").rglob("*.py")]
    makers = [
        file.name for file in files if "AsyncOpenAI(" in (text := file.read_text()) or " OpenAI(" in text
    ]
    assert makers == ["connection.py"]


@pytest.mark.parametrize(
    ("url", "proxied"), [("http://127.0.0.1:8000/v1", False), ("http://service.example/v1", True)]
)
def test_no_proxy_stands_before_a_server_of_this_machine(url: str, proxied: bool) -> None:
    found = Service(url, key="a-key-of-some-length", timeout=5.0, retries=2).client(4)
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
