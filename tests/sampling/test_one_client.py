"""Whoever asks a service asks through one kind of client."""

import asyncio
from pathlib import Path

import pytest

from diagevo.redaction import masked
from diagevo.sampling.bounded import async_client, client

ROOT = Path(__file__).parents[2]


def test_one_file_makes_the_clients_of_services() -> None:
    files = [*(ROOT / "diagevo").rglob("*.py"), *(ROOT / "cli").rglob("*.py")]
    makers = [
        file.name for file in files if "AsyncOpenAI(" in (text := file.read_text()) or " OpenAI(" in text
    ]
    assert makers == ["bounded.py"]


@pytest.mark.parametrize(
    ("url", "proxied"), [("http://127.0.0.1:8000/v1", False), ("http://service.example/v1", True)]
)
def test_no_proxy_stands_before_a_server_of_this_machine(url: str, proxied: bool) -> None:
    blocking = client(url, "a-key-of-some-length", 5.0, retries=2)
    looping = async_client(url, None, 5.0, retries=0)
    assert blocking._client.trust_env is looping._client.trust_env is proxied
    assert (blocking.max_retries, looping.max_retries, looping.api_key) == (2, 0, "none")
    assert "a-key-of-some-length" not in masked("it says a-key-of-some-length")
    blocking.close()
    asyncio.run(looping.close())
