"""The recipe: batches, the optimizer, and that a seed gives one set of weights."""

from itertools import islice
from pathlib import Path

import pytest
import torch

from diagevo.arithmetic.corpus import documents
from diagevo.sampling.sampler import Prompt, SamplingParams
from diagevo.sampling.transformers_sampler import TransformersSampler
from studies import pretrain as recipe
from studies.muon import Muon, orthogonalised
from studies.pretrain import BATCH_TOKENS, PretrainingPhase, batches, pretrain, save, train_phase
from studies.small_model import build_model, build_tokenizer

pytestmark = pytest.mark.slow

TINY = (
    PretrainingPhase(2, 0.35, 2 * BATCH_TOKENS, 1e-2, 1e-2),
    PretrainingPhase(1, 1.0, BATCH_TOKENS, 4e-3, 0.0),
)


@pytest.fixture(autouse=True)
def _small_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe, "_POOL", 256)


def test_a_seed_gives_one_set_of_weights_and_a_folder_that_samples(tmp_path: Path) -> None:
    first, tokenizer = pretrain(TINY, seed=5)
    second, _ = pretrain(TINY, seed=5)
    other, _ = pretrain(TINY, seed=6)
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    assert not torch.equal(first.lm_head.weight, other.lm_head.weight)
    save(first, tokenizer, tmp_path / "weights")
    sampler = TransformersSampler(tmp_path / "weights")
    prompt: Prompt = [{"role": "user", "content": "double 9 , add 4 and double again"}]
    rows = sampler.sample([prompt], n=2, params=SamplingParams(max_new_tokens=5), seed=0)
    assert [len(row) for row in rows] == [2]


def test_the_last_phase_from_stored_weights_is_the_last_phase_of_the_whole(tmp_path: Path) -> None:
    whole, tokenizer = pretrain(TINY, seed=5)
    begun = build_model(tokenizer, seed=5)
    train_phase(begun, tokenizer, TINY[0], seed=5002)
    save(begun, tokenizer, tmp_path)
    tuned, _ = pretrain(TINY[1:], seed=5, start=tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(whole.parameters(), tuned.parameters(), strict=True))


def test_prompts_and_padding_are_no_targets() -> None:
    tokenizer = build_tokenizer()
    mark = tokenizer.convert_tokens_to_ids("<|assistant|>")
    for ids_B_T, targets_B_T in islice(batches(tokenizer, 0, documents(0, 1.0)), 5):
        assert ids_B_T.numel() <= BATCH_TOKENS
        for ids, targets in zip(ids_B_T.tolist(), targets_B_T.tolist(), strict=True):
            start = ids.index(mark) + 1
            end = start + ids[start:].index(tokenizer.eos_token_id) + 1
            assert targets[:start] == [-100] * start
            assert targets[start:end] == ids[start:end]
            assert targets[end:] == [-100] * (len(ids) - end)


def test_the_model_has_about_six_hundred_thousand_parameters() -> None:
    model = build_model(build_tokenizer(), seed=0)
    assert 600_000 < sum(parameter.numel() for parameter in model.parameters()) < 700_000


def test_orthogonalised_matrices_have_singular_values_near_one() -> None:
    matrices = torch.randn(3, 24, 8, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonalised(matrices))
    assert values.shape == (3, 8)
    assert 0.6 < values.min() <= values.max() < 1.3


@pytest.mark.parametrize("shape", [(24, 8), (8, 24), (16, 16)])
def test_our_muon_steps_as_torchs_does(shape: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(1)
    ours = torch.nn.Parameter(torch.randn(*shape, generator=generator))
    theirs = torch.nn.Parameter(ours.detach().clone())
    before = ours.detach().clone()
    mine = Muon([ours], lr=1e-2)
    torchs = torch.optim.Muon(
        [theirs], lr=1e-2, weight_decay=0.01, momentum=0.95, adjust_lr_fn="match_rms_adamw"
    )
    for _ in range(4):
        gradient = torch.randn(*shape, generator=generator)
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        mine.step()
        torchs.step()
    moved = (ours - before).norm()
    assert moved > 0.01
    # torch orthogonalises in bfloat16: equal to about two digits.
    assert (ours - theirs).norm() < 0.02 * moved
