"""The benchmark for GPUs, on the CPU: the code runs; a shape that fails is reported and the others go on."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.benchmarks import bench_gpu
from tests.benchmarks.gpu_work import TINY


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_gpu, "OUTPUT", tmp_path / "bench-gpu.json")


@pytest.mark.slow
def test_a_shape_whose_process_dies_is_reported_and_the_next_one_is_measured() -> None:
    found = {row.name: row for row in bench_gpu.measure("cpu", [replace(TINY, name="none"), TINY])}
    phase = ("killed phase", "resume", "GRPO step", "checkpoint", "KL at step 1", "sampler against trainer")
    measured = [name for name in found if name != "sampler against trainer tiny"]
    assert measured == ["none", *(f"{name} tiny" for name in ("sampling", "update", *phase[:-1]))]
    assert (found["none"].measured, found["none"].note) == (None, "its process ended with status 1")
    assert found["KL at step 1 tiny"].met is True
    assert all((row.measured or 0) > 0 for row in found.values() if row.unit)
    written = json.loads(bench_gpu.OUTPUT.read_text())
    assert [row["name"] for row in written["rows"]] == list(found)
    assert written["card"]["name"] == "the CPU"


def test_a_process_that_takes_too_long_is_ended_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_gpu, "PATIENCE", 0.05)
    [row] = bench_gpu.measure("cpu", [TINY])
    assert (row.name, row.measured, row.note) == ("card", None, "not done after 0.05 s")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_it_says_so_and_ends_with_4(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench_gpu"])
    assert bench_gpu.main() == 4
    assert capsys.readouterr().out.startswith("no CUDA device: nothing was measured")
    assert not bench_gpu.OUTPUT.exists()
