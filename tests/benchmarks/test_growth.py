"""`python -m benchmarks growth`: the exponent by hand, its rollouts, and what counts as too steep."""

import json
from pathlib import Path

import pytest

from benchmarks.growth import Used, _run, exponent, shown, write


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [(1.5, 10.5, 1.0), (1.5, 100.5, 2.0), (1.5, 1.5, 0.0), (0.5, 0.9, None)],
)
def test_an_exponent_is_that_of_the_time_over_a_bare_start(
    before: float, after: float, expected: float | None
) -> None:
    found = exponent(10, 100, before, after, start=0.5)
    assert found is None if expected is None else found == pytest.approx(expected)


def test_what_grows_worse_than_n_log_n_is_named() -> None:
    start = {"--version": Used(0.5)}
    few = start | {"steady": Used(1.5), "square": Used(1.5), "late": Used(1.0)}
    many = start | {"steady": Used(11.5), "square": Used(100.5), "late": Used(None, note="longer")}
    table, steep = shown({10_000: few, 100_000: many})
    assert steep == ["square"]
    assert list(table.columns[-2].cells) == ["–", "1.04", "2.00", ""]


def test_rollouts_are_of_about_800_bytes_and_no_two_are_alike(tmp_path: Path) -> None:
    write(2048, tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    assert len(lines) == len({line["response"] for line in lines}) == 2048
    assert 650 <= sum(len(json.dumps(line)) for line in lines) / 2048 <= 950
    assert 0.2 <= sum(line["reward"] == 0 for line in lines) / 2048 <= 0.3
    logged = [json.loads(line) for file in ("1", "2") for line in (tmp_path / f"steps/{file}.jsonl").open()]
    assert [line["output"] for line in logged] == [line["response"] for line in lines]


@pytest.mark.slow
def test_the_peak_of_a_command_is_its_own(tmp_path: Path) -> None:
    ballast = bytearray(300 * 2**20)
    used = _run(["--version"], tmp_path)
    assert used.seconds is not None
    assert len(ballast) > used.peak > 5 * 2**20
