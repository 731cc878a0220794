"""The hours of a round that are planned, reckoned by hand."""

import pytest

from benchmarks import bench_hours
from benchmarks.bench_hours import Span, drawn, hours, idle, updated


def test_answers_take_the_reading_of_weights_and_cache_and_the_last_one_comes_alone() -> None:
    """8.19e9 weights, 294,912 bytes a token over two bytes: a step of 200 rows reads 16.38 GB and
    200 × 480 × 147,456 bytes, at 2.01e12 bytes a second; 1,000 answers on ten engines are half of what they
    decode at once."""
    full = (16.38147072e9 + 200 * 480 * 147_456) / 2.01e12 + 0.004 + 200 * 16.38147072e9 / 494.5e12
    tail = (4096 - 576) * (16.38147072e9 / 2.01e12 + 0.004)
    prefill = 100 * 192 * 16.38147072e9 / 494.5e12 / 10
    assert drawn(100, 10, 10, 200, 4096) == pytest.approx(prefill + 0.5 * 576 * full + tail, rel=1e-9)


def test_an_update_is_shared_by_the_ranks() -> None:
    assert updated(2048, 8) == pytest.approx(2048 * 768 * 10 * 8_190_735_360 / 395.6e12 / 8)


def test_idle_is_what_no_span_uses() -> None:
    spans = [Span("a", 3600.0, 8), Span("b", 3600.0, 4)]
    assert (hours(spans), idle(spans)) == (2.0, 0.25)


def test_the_round_is_shorter_and_its_gpus_are_busy() -> None:
    time, share = bench_hours.rows()
    assert time.measured is not None
    assert time.reference is not None
    assert time.measured < 0.75 * time.reference
    assert share.measured is not None
    assert share.reference is not None
    assert share.measured < 10 < 40 < share.reference
