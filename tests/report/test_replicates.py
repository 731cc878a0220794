"""Only replicates are averaged: real runs and forks, with made-up accuracies."""

import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import diagevo
from diagevo.memory.events import CheckpointEvaluated
from diagevo.memory.history import open_history
from diagevo.memory.transfer.fork import fork
from diagevo.report.files import FORMATS, markdown
from diagevo.report.tables import ReportTable, RunResult, results, table
from tests.memory.audit.played import CONFIG
from tests.memory.audit.random_play import play_on, play_randomly

GREEDY = {"a": 0.9, "b": 0.7, "k1": 0.5, "again": 0.9, "onward": 0.3, "reseeded": 0.1}
HARDWARE = {"hardware": {"device": "cuda"}, "diagnosis": {"workers": 3}}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Run a, one with another seed, one with another k, one played twice, and two forks of a."""
    root = tmp_path_factory.mktemp("replicates")
    url = f"sqlite:///{root / 'log.db'}"
    half = {**CONFIG, "schedule": {"k": "1/2"}}
    one = {**CONFIG, "schedule": {"k": "1"}}
    given: dict[str, dict[str, Any]] = {
        "a": {**half, "seed": 1},
        "b": {**half, **HARDWARE, "seed": 2},
        "k1": {**one, "seed": 3},
        "again": {**half, "seed": 1},
    }
    for name, config in given.items():
        play_randomly(url, name, 5, root=root, rounds=2, pool=4, config=config)
        _validate(url, name, root, {1: 0.01, 2: GREEDY[name]})
    for name, config in (("onward", {**one, "seed": 1}), ("reseeded", {**half, "seed": 4})):
        history = open_history(url, "a", root=root)
        fork(history, 2, name, config, root=root)
        history.close()
        with diagevo.open(url, name, root=root) as memory:
            play_on(memory, random.Random(5), rounds=1, pool=4)
        _validate(url, name, root, {3: GREEDY[name]})
    return url


def _validate(url: str, name: str, root: Path, greedy: Mapping[int, float]) -> None:
    with diagevo.open(url, name, root=root) as memory:
        for number, share in greedy.items():
            memory.evaluated(
                CheckpointEvaluated(
                    role="solver",
                    checkpoint=f"rounds/{number}",
                    benchmark="validation",
                    questions=100,
                    conditions={},
                    metrics={"greedy": share},
                ),
                number,
            )


def _results(url: str, *names: str) -> list[RunResult]:
    found = []
    for name in names:
        history = open_history(url, name)
        found += [result for result in results(history) if result.run_id == name]
        history.close()
    return found


def _rows(content: ReportTable) -> dict[str, tuple[float, int]]:
    greedy = {label: cells["Val. greedy"] for label, cells in content.rows.items()}
    return {label: (round(cell.mean, 1), cell.runs) for label, cell in greedy.items()}


def test_runs_with_other_seeds_are_replicates_wherever_they_were_played(url: str) -> None:
    content = table("main", _results(url, "a", "b"))
    assert _rows(content) == {"hand (Diag. –)": (80.0, 2)}
    assert content.note.startswith("Runs a, b, each at its best validated round: mean ± standard")


def test_runs_that_differ_in_a_setting_of_the_method_stand_apart_by_it(url: str) -> None:
    content = table("main", _results(url, "a", "b", "k1"))
    assert _rows(content) == {
        "hand (Diag. –), schedule.k 0.5": (80.0, 2),
        "hand (Diag. –), schedule.k 1": (50.0, 1),
    }
    assert "Runs a, b, k1, each" in content.note
    assert all("schedule.k 1" in form(content) for form in FORMATS.values())


def test_a_run_that_was_played_twice_is_no_replicate(url: str) -> None:
    assert _rows(table("main", _results(url, "a", "again"))) == {
        "hand (Diag. –), run a": (90.0, 1),
        "hand (Diag. –), run again": (90.0, 1),
    }


@pytest.mark.parametrize("beside", ["a", "onward"])
def test_runs_that_share_rounds_by_a_fork_stand_apart(url: str, beside: str) -> None:
    """A fork of equal settings and another seed shares two of its three rounds, with a and with a's other
    fork."""
    rows = _rows(table("main", _results(url, beside, "reseeded")))
    assert sorted(mean for mean, _ in rows.values()) == [10.0, 100 * GREEDY[beside]]
    assert {runs for _, runs in rows.values()} == {1}


def test_a_fork_says_which_rounds_were_played_with_what(url: str) -> None:
    assert list(table("k", _results(url, "k1", "a", "onward")).rows) == [
        "k = 0.5",
        "k = 0.5 in rounds 1 to 2, 1 in round 3",
        "k = 1",
    ]


def test_a_sweep_of_runs_without_a_plan_has_a_row_a_value(url: str) -> None:
    content = table("k", _results(url, "k1", "a", "b"))
    assert _rows(content) == {"k = 0.5": (80.0, 2), "k = 1": (50.0, 1)}
    assert content.differences == {}  # which of them is the full method, no plan says
    assert list(table("tau", _results(url, "a", "k1")).rows) == [
        "τ = 1.6, schedule.k 0.5",
        "τ = 1.6, schedule.k 1",
    ]


def test_an_untrained_model_is_measured_once_however_many_runs_began_with_it() -> None:
    begun = [RunResult(name, "hand, untrained", None, 0, 0, {"Val. greedy": 0.5}) for name in "ab"]
    other = RunResult("c", "hand, untrained", None, 1, 0, {"Val. greedy": 0.7})
    assert _rows(table("main", begun)) == {"hand, untrained": (50.0, 1)}
    assert _rows(table("main", [*begun, other])) == {"hand, untrained": (60.0, 2)}
    assert "60.0 ± 14.1" in markdown(table("main", [*begun, other]))  # √((10² + 10²) / 1)
