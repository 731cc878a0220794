"""The benchmarks. The script for a GPU, on the CPU: its parts run, and one that fails is reported."""

import ast
import json
import sqlite3
from contextlib import ExitStack, closing
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from benchmarks import bench_audit, bench_log, bench_views, gpu, gpu_shapes
from benchmarks.gpu_shapes import SMALLEST, run_of
from diagevo.memory.read.views import ABOUT
from tests.cli.program import invoke
from tests.memory.audit.long_run import LongRun


@pytest.mark.slow
def test_each_part_of_the_script_for_a_gpu_is_a_record_and_one_that_fails_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the CPU, with a fault: a phase that begins again whatever was saved."""
    monkeypatch.setattr(gpu, "PROGRAM", "tests.benchmarks.broken_parts")
    parts, written = ["install", "engine", "resume", "fsdp"], tmp_path / "found.json"
    monkeypatch.setattr(gpu, "OUTPUT", written)
    assert gpu.main(parts) == 1
    records = {record["part"]: record for record in json.loads(written.read_text())}
    assert list(records) == list(gpu.MINUTES)
    said = {name: record["status"] for name, record in records.items() if name in parts}
    ours = "done" if find_spec("vllm") else "skipped"
    assert said == {"install": "done", "engine": ours, "resume": "failed", "fsdp": "done"}, records
    assert records["resume"]["why"] == "RuntimeError: it did not go on from the second step"
    assert records["resume"]["figures"]["killed_after_s"] > 0, "what was found before is kept"
    assert records["install"]["figures"]["torch"] == torch.__version__
    assert (records["decode"]["status"], records["decode"]["why"]) == ("skipped", "not asked for")
    found = records["fsdp"]["figures"]
    assert (found["backend"], found["first_kl"]) == ("gloo", pytest.approx(0, abs=1e-6))
    assert 0 < found["checkpoint"] - 12 * 590_656 < 50_000
    assert found["sdpa_tokens_a_s"] > 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["resume"] == "failed"


def test_a_part_that_takes_too_long_is_ended_and_reported(tmp_path: Path) -> None:
    found = gpu.played("install", tmp_path, 0.05)
    assert (found["status"], found["why"]) == ("failed", "not done after 0.05 s")


def test_a_part_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        gpu.main(["engines"])
    assert ended.value.code == 2
    assert "no part is called engines; there are: install, engine, phase" in capsys.readouterr().err


def test_the_peak_of_a_phase_is_compared_with_its_fullest_moment() -> None:
    """Of 0.6B that is the sampling of 64 completions of 1,536 tokens: 16 bytes of each weight, their copies
    in bfloat16, a cache of three bytes a number, and logits; a vLLM has its share of the card instead."""
    weights, cached = 596_049_920, 2 * 28 * 1024
    cache, logits = 3 * 64 * 1536 * cached, 26 * 64 * 151_936
    assert gpu_shapes.planned(run_of(SMALLEST), SMALLEST) == (16 + 2) * weights + cache + logits
    colocated = run_of(SMALLEST, colocate_vllm=True)
    assert gpu_shapes.planned(colocated, SMALLEST, 80e9) == 16 * weights + 0.3 * 80e9


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


@pytest.mark.slow
def test_every_view_of_an_ingested_and_diagnosed_run_is_measured(tmp_path: Path) -> None:
    rows = bench_views.measured(400, tmp_path)
    assert [row.name for row in rows] == [f"{view} of 400 rollouts" for view in ABOUT]
    assert next(row for row in rows if row.name.startswith("v_group ")).note == "50 rows"


def test_the_sides_of_an_append_write_the_same_events(tmp_path: Path) -> None:
    written = []
    with ExitStack() as closing_:
        appends = bench_log._Appends(tmp_path, 50, 100, closing_)
        for side in (appends.raw, appends.ours, appends.sqlmodel):
            side()()
            with closing(sqlite3.connect(tmp_path / f"{appends._made}.db")) as log:
                written.append(log.execute("SELECT type, payload FROM event ORDER BY position").fetchall())
    assert len(written[0]) == 100
    assert written[0] == written[1] == written[2]
