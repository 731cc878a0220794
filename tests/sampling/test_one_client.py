"""Whoever asks a service asks through one kind of client."""

import asyncio
from pathlib import Path

import pytest

from diagevo.redaction import masked
from diagevo.sampling.bounded import async_client

ROOT = Path(__file__).parents[2]


def test_one_file_makes_the_clients_of_services() -> None:
    files = [*(ROOT / "diagevo").rglob("*.py"), *(ROOT / "cli").rglob("*.py")]
    makers = [
        file.name for file in files if "AsyncOpenAI(" in (text := file.read_text()) or " OpenAI(" in text
    ]
    assert makers == ["bounded.py"]


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
    found = async_client(url, "a-key-of-some-length", 5.0, retries=2, own=own)
    assert found._client.trust_env is proxied
    assert found.max_retries == 2
    assert "a-key-of-some-length" not in masked("it says a-key-of-some-length")
    asyncio.run(found.close())
    keyless = async_client(url, None, 5.0, retries=0)
    assert keyless.api_key == "none"
    asyncio.run(keyless.close())
