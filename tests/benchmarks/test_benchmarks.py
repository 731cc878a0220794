"""The benchmarks. Those for GPUs, on the CPU: the code runs; a shape that fails is reported and the others go
on."""

import ast
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks import bench_audit, bench_gpu
from benchmarks.gpu_phase import planned
from benchmarks.gpu_shapes import SHAPES, TINY
from tests.cli.program import invoke
from tests.memory.audit.long_run import LongRun


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_gpu, "OUTPUT", tmp_path / "bench-gpu.json")


@pytest.mark.slow
def test_a_shape_whose_process_dies_is_reported_and_the_next_one_is_measured() -> None:
    found = {row.name: row for row in bench_gpu.measure("cpu", [replace(TINY, name="none"), TINY])}
    phase = ("killed phase", "resume", "GRPO step", "checkpoint", "KL at step 1", "sampler against trainer")
    assert list(found) == ["none", *(f"{name} tiny" for name in ("sampling", "update", *phase))]
    assert (found["none"].measured, found["none"].note) == (None, "its process ended with status 1")
    assert (found["KL at step 1 tiny"].met, found["sampler against trainer tiny"].met) == (True, True)
    assert all((row.measured or 0) > 0 for row in found.values() if row.unit)
    written = json.loads(bench_gpu.OUTPUT.read_text())
    assert [row["name"] for row in written["rows"]] == list(found)
    assert written["card"]["name"] == "the CPU"


def test_the_peak_of_a_phase_is_compared_with_its_fullest_moment() -> None:
    """Of 0.6B that is the sampling of 64 completions of 1,040 tokens: 16 bytes of each weight, their copies
    in bfloat16, a cache of three bytes a number, and logits."""
    weights, cached = 596_049_920, 2 * 28 * 1024
    cache, logits = 3 * 64 * 1040 * cached, 26 * 64 * 151_936
    assert planned(SHAPES[0], "cuda") == (16 + 2) * weights + cache + logits


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


BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_every_benchmark_gives_rows() -> None:
    for file in BENCHMARKS.glob("bench_*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        assert "rows" in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, file.name


@pytest.mark.slow
def test_what_an_auditor_asks_of_a_long_run_are_commands_of_today(tmp_path: Path) -> None:
    LongRun(tmp_path, 300, texts=True).close()
    for arguments in bench_audit.questions(tmp_path).values():
        done = invoke(*bench_audit.line(tmp_path, arguments))
        assert done.exit_code == 0, (arguments, done.output)


def test_a_command_of_an_auditor_is_measured_in_a_process_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"memory log | head": ["memory", "log"]}
    monkeypatch.setattr(bench_audit, "questions", lambda _: asked)
    [row] = bench_audit.measured(tmp_path, 300)
    assert (row.name, row.met) == ("memory log | head", True)
    assert 20 < (row.measured or 0) < bench_audit.MOST
