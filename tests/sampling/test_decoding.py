"""The decoding loop against transformers itself, and its draw against probabilities worked out by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import chi2_contingency

from diagevo.sampling.decoding import Decoding, _draw, draw, row_key
from diagevo.sampling.model_folder import encode_prompts, load_tokenizer

QUESTIONS = ["1+1?", "what is 12 times 3, and why?", "a", "how many primes are below 20?", "7-9?"]


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> Any:
    from transformers.models.auto.modeling_auto import AutoModelForCausalLM

    loaded: Any = AutoModelForCausalLM.from_pretrained(str(tiny_model))
    return loaded.eval()


@pytest.fixture(scope="module")
def prompts(tiny_model: Path) -> list[list[int]]:
    return encode_prompts(load_tokenizer(tiny_model), [[{"role": "user", "content": q}] for q in QUESTIONS])


def settings(**changes: Any) -> Decoding:
    values: dict[str, Any] = {
        "temperature": 1.0,
        "top_p": 0.99,
        "max_new_tokens": 40,
        "end_ids": (1,),
        "pad_id": 0,
    }
    return Decoding(**(values | changes))


def decode(
    model: Any, prompts: list[list[int]], keys: list[list[bytes]], decoding: Decoding
) -> list[list[list[int]]]:
    return [[row.ids for row in group] for group in draw(model, prompts, keys, decoding)]


def keys(prompts: list[list[int]], n: int, seed: int = 0) -> list[list[bytes]]:
    return [[row_key(seed, ids, g) for g in range(n)] for ids in prompts]


# p = 1/2, 3/10, 3/20, 1/20. A token is in the nucleus while less than top_p lies above it.
@pytest.mark.parametrize(
    ("top_p", "expected"),
    [
        (1.0, [0.5, 0.3, 0.15, 0.05]),
        (0.9, [10 / 19, 6 / 19, 3 / 19, 0]),
        (0.7, [5 / 8, 3 / 8, 0, 0]),
        (0.3, [1, 0, 0, 0]),
    ],
)
def test_a_token_is_drawn_from_the_nucleus_by_its_share_of_it(top_p: float, expected: list[float]) -> None:
    shuffled = torch.tensor([2, 0, 3, 1])
    logits = torch.log(torch.tensor([0.5, 0.3, 0.15, 0.05]))[shuffled]
    grid = (np.arange(80) + 0.5) / 80
    uniforms = np.array([(u, v) for u in grid for v in grid])
    drawn, logps = _draw(logits.expand(len(uniforms), -1), uniforms, settings(top_p=top_p))
    assert torch.allclose(logps, logits[drawn]), "before the nucleus is cut"
    shares = torch.bincount(drawn, minlength=4).double() / len(drawn)
    assert shares[shuffled.argsort()].tolist() == pytest.approx(expected, abs=1 / 80)


def test_greedy_decoding_takes_the_most_probable_token_of_a_pass_without_a_cache(
    model: Any, prompts: list[list[int]]
) -> None:
    drawn = decode(model, prompts, keys(prompts, 1), settings(temperature=0.0, max_new_tokens=12))
    for ids, [found] in zip(prompts, drawn, strict=True):
        whole = list(ids)
        for token in found:
            with torch.no_grad():
                best = int(model(torch.tensor([whole])).logits[0, -1].argmax())
            assert token == best
            whole.append(token)


def test_frequencies_are_those_of_plain_generate(model: Any, prompts: list[list[int]]) -> None:
    n = 3000
    [ours] = decode(model, prompts[:1], keys(prompts[:1], n), settings(top_p=0.8, max_new_tokens=2))
    torch.manual_seed(0)
    generated = model.generate(
        torch.tensor(prompts[:1]),
        do_sample=True,
        top_p=0.8,
        top_k=0,
        max_new_tokens=2,
        num_return_sequences=n,
    )[:, len(prompts[0]) :]
    theirs = [[t for i, t in enumerate(row) if 1 not in row[:i]] for row in generated.tolist()]
    pairs = sorted({tuple(row) for row in [*ours, *theirs]})
    table = np.array([[sum(tuple(row) == pair for row in rows) for pair in pairs] for rows in (ours, theirs)])
    common = table[:, table.sum(0) >= 20]
    assert common.sum() > n  # Most pairs are frequent enough to be compared.
    result: Any = chi2_contingency(common)
    assert result.pvalue > 1e-3


def test_a_row_is_the_same_whatever_else_is_in_its_batch(model: Any, prompts: list[list[int]]) -> None:
    together = decode(model, prompts, keys(prompts, 3), settings(max_new_tokens=16))
    alone = [
        decode(model, [ids], keys([ids], 3), settings(rows_at_once=1, max_new_tokens=16))[0]
        for ids in prompts
    ]
    threads = decode(model, prompts, keys(prompts, 3), settings(threads=2, rows_at_once=4, max_new_tokens=16))
    assert together == alone == threads


def test_rows_end_at_the_end_mark_or_at_the_limit(model: Any, prompts: list[list[int]]) -> None:
    ends = (1, 20, 21, 22)  # Further end marks, so that rows finish at different times and are dropped.
    rows = [
        ids for group in decode(model, prompts, keys(prompts, 20), settings(end_ids=ends)) for ids in group
    ]
    lengths = {len(ids) for ids in rows}
    assert len(lengths) > 10
    for ids in rows:
        assert not set(ids[:-1]) & set(ends)
        assert ids[-1] in ends or len(ids) == 40


def test_other_seeds_and_samples_give_other_rows(model: Any, prompts: list[list[int]]) -> None:
    [first] = decode(model, prompts[:1], keys(prompts[:1], 4, seed=0), settings())
    [second] = decode(model, prompts[:1], keys(prompts[:1], 4, seed=1), settings())
    assert len({tuple(ids) for ids in [*first, *second]}) == 8
