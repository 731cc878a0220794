"""Which GPUs a process of ours may see."""

import pytest

from diagevo.errors import ConfigError
from diagevo.sampling.supervised import only_gpus


def test_gpus_are_counted_among_those_that_a_batch_system_lent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert only_gpus((1, 3)) == {"CUDA_VISIBLE_DEVICES": "1,3"}
    assert only_gpus(()) == {}
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,7,GPU-8932")
    assert only_gpus((1, 3)) == {"CUDA_VISIBLE_DEVICES": "5,GPU-8932"}
    with pytest.raises(ConfigError, match="GPU 4 is named"):
        only_gpus((4,))
