"""One contract for every sampler: n, seed, top-p, stop and truncation mean the same in all of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from diagevo.sampling.engine import EngineSampler
from diagevo.sampling.openai_sampler import OpenAISampler
from diagevo.sampling.sampler import Prompt, Sampler, SamplingParams
from diagevo.sampling.service import Service
from diagevo.sampling.transformers_sampler import TransformersSampler
from tests.sampling.loopback import chat_server
from tests.sampling.real_vllm import REAL_VLLM, engine_inside, engine_of, make_wide_model

PROMPTS: list[Prompt] = [
    [{"role": "user", "content": "1+1?"}],
    [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why?"}],
    [{"role": "user", "content": "1+1?"}],
]


@pytest.fixture(
    scope="module",
    params=[
        "transformers",
        pytest.param("openai", marks=pytest.mark.server),
        pytest.param("vllm", marks=REAL_VLLM),
    ],
)
def sampler(
    request: pytest.FixtureRequest, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Sampler]:
    if request.param == "vllm":
        wide = make_wide_model(tmp_path_factory.mktemp("vllm") / "model")
        with engine_inside():
            yield EngineSampler(wide, engine_of(wide))
        return
    local = TransformersSampler(tiny_model)
    if request.param == "transformers":
        yield local
    else:
        with chat_server(local) as url:
            client = OpenAISampler(Service(url, retries=0), "tiny")
            yield client
            client.close()
    local.close()


def test_each_prompt_gets_its_n_completions_in_order(sampler: Sampler) -> None:
    params = SamplingParams(max_new_tokens=8)
    found = sampler.sample(PROMPTS, n=3, params=params, seed=1)
    assert [len(completions) for completions in found] == [3, 3, 3]
    texts = [completion.text for completions in found for completion in completions]
    assert len(set(texts)) == 9  # Also where the same prompt is given twice.


def test_the_same_seed_gives_the_same_completions_and_another_one_others(sampler: Sampler) -> None:
    params = SamplingParams(max_new_tokens=8)
    first = sampler.sample(PROMPTS, n=2, params=params, seed=7)
    assert sampler.sample(PROMPTS, n=2, params=params, seed=7) == first
    assert sampler.sample(PROMPTS, n=2, params=params, seed=8) != first


def test_temperature_zero_is_greedy(sampler: Sampler) -> None:
    params = SamplingParams(temperature=0.0, max_new_tokens=6)
    [[a, b]] = sampler.sample(PROMPTS[:1], n=2, params=params, seed=0)
    [[c]] = sampler.sample(PROMPTS[:1], n=1, params=params, seed=5)
    assert a.text == b.text == c.text


def test_a_tiny_nucleus_is_greedy_too(sampler: Sampler) -> None:
    greedy = sampler.sample(PROMPTS, n=1, params=SamplingParams(temperature=0.0, max_new_tokens=6), seed=0)
    narrow = sampler.sample(PROMPTS, n=1, params=SamplingParams(top_p=1e-6, max_new_tokens=6), seed=3)
    assert [c.text for [c] in narrow] == [c.text for [c] in greedy]


def test_a_response_that_reaches_the_limit_is_truncated(sampler: Sampler) -> None:
    params = SamplingParams(temperature=0.0, max_new_tokens=5)
    [[completion]] = sampler.sample(PROMPTS[:1], n=1, params=params, seed=0)
    assert completion.truncated
    assert completion.tokens == 5


def test_no_prompts_give_no_completions(sampler: Sampler) -> None:
    assert sampler.sample([], n=4, params=SamplingParams(), seed=0) == []
