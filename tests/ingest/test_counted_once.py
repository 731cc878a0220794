"""What stands twice: a tag counts once, a repeated row with its number, each of two models alone."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from diagevo.ingest.recording import IngestSummary, Recorder, events_of
from diagevo.ingest.rollout_steps import IngestedRollout, RolloutStep, grouped
from diagevo.memory.audit.verify import verify
from diagevo.memory.history import open_history
from diagevo.memory.memory import Memory
from diagevo.memory.transfer.bundle import check_bundle, export_bundle, import_bundle
from tests.ingest.conftest import SETTINGS
from tests.ingest.test_one_sided import Home

TAGGED = {"step": 1, "prompt": "q", "tags": ["x", "x", "", "y"]}
PAIR = [TAGGED | {"response": "a", "reward": 1}, TAGGED | {"response": "b", "reward": 0}]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def rates(home: Home) -> dict[str, tuple[int, int]]:
    found = json.loads(home.run("runs", "show", "own", "--json").stdout)["data"]["pass_rates"]["tags"]
    return {each["tag"]: (each["passes"], each["rollouts"]) for each in found}


def test_a_tag_that_stands_twice_in_a_row_is_counted_once(home: Home) -> None:
    assert home.ingest(PAIR).exit_code == 0
    assert rates(home) == {"x": (1, 2), "y": (1, 2)}


STEP = RolloutStep(1, "1.jsonl", [IngestedRollout("q", f"{n}", float(n), tags=("x", "x")) for n in range(2)])


def before(memory: Memory) -> None:
    """The step as it was recorded when tags were not each once."""
    groups = grouped(STEP.rollouts)
    events = events_of(memory.artifacts.put_many, 1, STEP.source, groups, SETTINGS.pass_at)
    memory.ingested([replace(event, tags=["x", "x"]) for event in events], 1)


def test_a_log_that_has_a_tag_twice_counts_it_once_and_takes_the_same_files_again(memory: Memory) -> None:
    before(memory)
    with memory.database.read() as connection:
        found = connection.exec_driver_sql("SELECT tag, rollouts FROM v_tag").all()
    assert [tuple(row) for row in found] == [("x", 2)]
    assert verify(memory.log, memory.run_id, memory.folder).faults == []
    report = IngestSummary()
    Recorder(memory, SETTINGS).record([STEP], report)
    assert (report.steps, report.new_steps) == (1, 0)


def exported(tmp_path: Path) -> Path:
    history = open_history(f"sqlite:///{tmp_path / 'log.db'}", "a")
    export_bundle(history, history.end, tmp_path / "bundle")
    history.close()
    return tmp_path / "bundle"


def test_a_log_that_has_a_tag_twice_is_exported_and_read_as_it_was(memory: Memory, tmp_path: Path) -> None:
    """Its chain forbids to mend it, and the tags of a group are a set wherever they are read."""
    before(memory)
    bundle = exported(tmp_path)
    check_bundle(bundle)
    import_bundle(bundle, memory.database, "again", root=tmp_path / "runs")
    with memory.database.read() as connection:
        found = connection.exec_driver_sql(
            "SELECT run_id, tag, rollouts, passes FROM v_tag ORDER BY run_id"
        ).all()
    assert [tuple(row) for row in found] == [("a", "x", 2, 1), ("again", "x", 2, 1)]
    assert verify(memory.log, "again", tmp_path / "runs" / "again").faults == []


def answered(*rows: tuple[str | None, int]) -> list[dict[str, Any]]:
    named = [{} if model is None else {"model": model} for model, _ in rows]
    return [
        {"prompt": "2 + 2?", "response": f"{place}", "reward": reward, "tags": "sums"} | named[place]
        for place, (_, reward) in enumerate(rows)
    ]


@pytest.mark.parametrize("name", ["model", "engine", "provider", "model.name", "model.id"])
def test_two_models_are_not_compared_with_each_other(home: Home, name: str) -> None:
    """One passes what the other fails: no reference, a pass rate of each, and a line that says so."""
    rows = answered(("a", 1), ("b", 0), ("a", 1), ("b", 0))
    first, _, within = name.partition(".")
    for row in rows:
        model = row.pop("model")
        row[first] = {within: model, "temperature": 1} if within else model
    said = home.ingest(rows).stdout
    assert "4 rollouts in 2 groups" in said
    assert "0  with passes and failures" in said
    assert "2  models named in a step, a tag and groups for each: a, b" in said
    assert rates(home) == {"model=a": (2, 2), "model=b": (0, 2), "sums": (2, 4)}


@pytest.mark.parametrize("rows", [[("a", 1), ("a", 0)], [(None, 1), (None, 0)]])
def test_one_model_is_no_tag(home: Home, rows: list[tuple[str | None, int]]) -> None:
    said = home.ingest(answered(*rows)).stdout
    assert "2 rollouts in 1 group" in said
    assert "models" not in said
    assert rates(home) == {"sums": (1, 2)}


def test_a_checkpoint_a_step_is_no_tag(home: Home) -> None:
    """A training may name the checkpoint that a step was sampled from."""
    rows = [
        row | {"step": n, "model": f"checkpoint-{n}"}
        for n in (1, 2)
        for row in answered((None, 1), (None, 0))
    ]
    said = home.ingest(rows).stdout
    assert "4 rollouts in 2 groups" in said
    assert "models" not in said
    assert rates(home) == {"sums": (2, 4)}


def test_rows_that_are_the_same_in_every_field_are_counted_and_told(home: Home) -> None:
    """Within a step; another id is another row."""
    rows = [PAIR[0], PAIR[1], PAIR[1], PAIR[1] | {"id": 7}, PAIR[1] | {"id": 7}, PAIR[1] | {"step": 2}]
    done = home.ingest(rows, "--json")
    assert json.loads(done.stdout)["data"]["repeated"] == 2
    said = home.ingest(rows).stdout
    assert "2  identical to an earlier row, and counted all the same: retries?" in said
    assert "6 rollouts" in said
