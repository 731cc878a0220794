"""Which attention a phase trains with, with and without a GPU and what brings FlashAttention."""

import pytest
from transformers.utils import import_utils

from diagevo.errors import MissingDependencyError
from diagevo.training.attention import Attention, attention_for


@pytest.fixture(params=[True, False], ids=["loadable", "absent"])
def flash(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether flash-attn, or a kernel of the package kernels, can be loaded."""

    def is_available(kernels_fallback_ok: bool = False) -> bool:
        assert kernels_fallback_ok, "a kernel will do"
        return request.param

    monkeypatch.setattr(import_utils, "is_flash_attn_2_available", is_available)
    return request.param


@pytest.mark.parametrize("on_gpu", [True, False])
def test_auto_takes_what_is_there(flash: bool, on_gpu: bool) -> None:
    assert attention_for("auto", on_gpu=on_gpu) == ("flash_attention_2" if flash and on_gpu else "sdpa")


@pytest.mark.parametrize("asked", ["sdpa", "eager"])
def test_what_torch_brings_is_taken_as_asked(flash: bool, asked: Attention) -> None:
    assert attention_for(asked, on_gpu=True) == asked


def test_flash_attention_by_name_is_taken_or_missed(flash: bool) -> None:
    if flash:
        assert attention_for("flash_attention_2", on_gpu=True) == "flash_attention_2"
        with pytest.raises(MissingDependencyError, match="no CUDA device"):
            attention_for("flash_attention_2", on_gpu=False)
    else:
        with pytest.raises(MissingDependencyError, match="no kernel of it can be loaded"):
            attention_for("flash_attention_2", on_gpu=True)
