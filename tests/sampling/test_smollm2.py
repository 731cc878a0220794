"""A language model that people know, as `make lm` makes it from a package (examples/smollm2.py)."""

from pathlib import Path

import pytest

from diagevo.sampling.engine import EngineSampler
from diagevo.sampling.model_folder import encode_prompts, end_ids, load_tokenizer
from diagevo.sampling.sampler import Prompt, SamplingParams
from diagevo.sampling.transformers_sampler import TransformersSampler
from tests.sampling.real_vllm import REAL_VLLM, engine_of

FOLDER = Path(__file__).parents[2] / ".lm" / "models" / "SmolLM2-135M-Instruct"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FOLDER.is_dir(), reason=f"{FOLDER} is not here; make it: make lm"),
]
QUESTION = "What is the capital of France?"


def test_its_turns_end_and_padding_is_no_text() -> None:
    tokenizer = load_tokenizer(FOLDER)
    assert end_ids(FOLDER, tokenizer) == (2,)
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<|im_end|>", "<|im_end|>")
    [ids] = encode_prompts(tokenizer, [[{"role": "user", "content": QUESTION}]])
    text = tokenizer.decode(ids)
    assert text.endswith(f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n")


def test_a_chat_turn_ends_by_itself_and_knows_something() -> None:
    """Short and long prompts in one batch, so that one is padded: the answer is the same."""
    sampler = TransformersSampler(FOLDER, threads=1)
    params = SamplingParams(temperature=0.0, top_p=1.0, max_new_tokens=40)
    asked: list[Prompt] = [
        [{"role": "user", "content": QUESTION}],
        [{"role": "user", "content": f"Please say: {QUESTION}"}],
    ]
    [alone], _ = sampler.sample([asked[0], asked[1]], n=1, params=params, seed=0)
    [again] = sampler.sample([asked[0]], n=1, params=params, seed=0)[0]
    assert "Paris" in alone.text
    assert not alone.truncated
    assert "<|im_end|>" not in alone.text
    assert again.text == alone.text


ASKED = (
    "What is the capital of {}?",
    "Name three things that {} is known for.",
    "Write one sentence about the weather in {}.",
    "Is {} larger than Italy? Answer in a few words.",
)
PLACES = ("France", "Japan", "Peru", "Kenya", "Norway", "India", "Canada", "Egypt", "Chile", "Vietnam")
"""Forty prompts."""


@pytest.mark.vllm
@REAL_VLLM[1]
@pytest.mark.usefixtures("an_engine_inside")
def test_vllm_gives_the_same_greedy_answers() -> None:
    """In float32 on both sides; where two words are nearly as likely, the order of a sum decides."""
    prompts: list[Prompt] = [
        [{"role": "user", "content": text.format(place)}] for text in ASKED for place in PLACES
    ]
    greedy = SamplingParams(temperature=0.0, top_p=1.0, max_new_tokens=32)
    sampler = TransformersSampler(FOLDER, threads=1)
    expected = [group[0] for group in sampler.sample(prompts, n=1, params=greedy, seed=0)]
    sampler.close()
    served = EngineSampler(FOLDER, engine_of(FOLDER))
    found = [group[0] for group in served.sample(prompts, n=1, params=greedy, seed=0)]
    same = sum(a == b for a, b in zip(expected, found, strict=True))
    print(f"{same} of {len(prompts)} greedy answers of 32 tokens are the same")
    assert len({answer.text for answer in found}) > len(prompts) / 2
    assert same >= 0.95 * len(prompts)
