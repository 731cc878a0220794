"""Servers are kept full, and asked again only for what they had not answered. An engine of known capacity
stands in (stub_engine.py), asked over real HTTP."""

import json
import resource
import sys
from collections import Counter
from pathlib import Path

import pytest

from diagevo.config.models import HardwareConfig, SamplingConfig
from diagevo.config.serving import serving
from diagevo.sampling import openai_sampler
from diagevo.sampling.openai_sampler import OpenAISampler
from diagevo.sampling.sampler import Prompt, SamplingParams
from diagevo.sampling.service import Service
from diagevo.sampling.vllm_server import VLLMServer

ENGINE = (sys.executable, str(Path(__file__).with_name("stub_engine.py")))
pytestmark = [pytest.mark.server, pytest.mark.slow]


def ask(model: Path, folder: Path, asked: int, n: int, capacity: int, *options: str) -> list[tuple[int, str]]:
    """The sequences that ran whenever a request ended, and its prompt."""
    journal = folder / "journal"
    prompts: list[Prompt] = [[{"role": "user", "content": f"q{i}"}] for i in range(asked)]
    given = ("--max-num-seqs", str(capacity), "--expect", str(asked), "--journal", str(journal), *options)
    with VLLMServer(
        model, log=folder / "log", options=given, capacity=capacity, command=ENGINE, request_timeout=60
    ) as server:
        groups = server.sample(prompts, n=n, params=SamplingParams(), seed=0)
    assert [[c.text for c in group] for group in groups] == [[f"q{i}"] * n for i in range(asked)]
    return [(load, prompt) for load, prompt in map(json.loads, journal.read_text().splitlines())]


@pytest.mark.parametrize(("asked", "n", "capacity"), [(240, 1, 96), (60, 12, 256)])
def test_an_engine_runs_at_its_limit_through_the_whole_call(
    tiny_model: Path, tmp_path: Path, asked: int, n: int, capacity: int
) -> None:
    """96 requests of one sample, or 21 of twelve: of 256 sequences 252 run, and no further one finds room."""
    limit = capacity // n * n
    loads = [load for load, _ in ask(tiny_model, tmp_path, asked, n, capacity)]
    assert len(loads) == asked
    assert loads[: asked - capacity // n + 1] == [limit] * (asked - capacity // n + 1)


def test_a_dead_server_is_asked_again_only_for_what_it_had_not_answered(
    tiny_model: Path, tmp_path: Path
) -> None:
    """Twenty requests are under way at a capacity of 16. It gives 50 of 100 answers, takes twenty more
    questions and dies: of those, and of the thirty that were never asked, each is answered once."""
    answered = ask(tiny_model, tmp_path, 100, 1, 16, "--die-after", "50", "--workers", "20")
    assert Counter(prompt for _, prompt in answered) == Counter(f"q{i}" for i in range(100))


def test_requests_follow_from_the_copies_and_n() -> None:
    def requests(n: int, **hardware: object) -> int:
        served = serving(HardwareConfig.model_validate(hardware), SamplingConfig())
        sampler = OpenAISampler(Service("http://node0:1/v1"), "m", capacity=served.capacity)
        return sampler._requests(n)

    seven = {"device": "cuda", "processes": 7, "rows_at_once": 1024}
    assert requests(12) == 27, "256 and a quarter more, twelve a request"
    assert requests(1, **seven) == 8960, "seven copies of 1,024, and a quarter more"
    assert requests(12, **seven) == 747
    assert OpenAISampler(Service("http://node0:1/v1"), "m")._requests(12) == 32, "someone else's server"


def test_a_process_may_open_as_many_connections_as_it_asks_for_or_as_it_may() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, hard))
        assert openai_sampler._open_files(40) == 40
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 300
        assert openai_sampler._open_files(700) == 700
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 956
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
