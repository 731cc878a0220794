"""Valid rows with one thing changed are read, or refused with their file and line; never anything else."""

import copy
import datetime
import json
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import Result

from diagevo.errors import ConfigError
from diagevo.ingest.formats import Format, own_rows, prime_rl, read, trainers
from diagevo.ingest.formats.rows import step_of
from diagevo.ingest.formats.table_reader import Columns, TableReader
from diagevo.ingest.rollout_steps import RolloutStep, grouped
from tests.cli.program import invoke
from tests.ingest.conftest import complaint

PLACES: dict[Format, str] = {
    "verl": "1.jsonl",
    "nemo-rl": "train_data_step1.jsonl",
    "prime-rl": "rollouts/step_1/train/effective/traces.jsonl",
    "areal": "rollout/3/7.jsonl",
    "lm-eval": "samples_sums_2026.jsonl",
    "jsonl": "rollouts.jsonl",
}
USER = {"role": "user", "content": "2 + 2?"}
CALL = {"id": "1", "name": "add", "arguments": "{}"}
ROWS: dict[Format, dict[str, Any]] = {
    "verl": {"input": "a", "output": "b", "gts": "7", "score": 1.0, "step": 1, "uid": "u_0_1"},
    "nemo-rl": {
        "content": [["a", "b"]],
        "rewards": [1.0],
        "filtered_rewards": [0.0],
        "token_ids": [[1, 2]],
        "token_loss_mask": [[0, 1]],
    },
    "prime-rl": {
        "ok": True,
        "group": {"id": "g"},
        "traces": [
            {
                "ok": True,
                "task": {"data": {"answer": "4"}},
                "agent": {"trainable": True},
                "rewards": {"right": {"score": 1.0, "weight": 1.0}},
                "nodes": [
                    {"message": USER, "sampled": False},
                    {"message": {"role": "assistant", "tool_calls": [CALL]}, "parent": 0, "sampled": True},
                    {"message": {"role": "tool", "content": "4", "name": "add"}, "parent": 1},
                ],
            }
        ],
    },
    "areal": {"task_id": 7, "sample_idx": 0, "prompt": "a\n", "completion": "b", "reward": 1.0},
    "lm-eval": {
        "doc_id": 0,
        "target": "4",
        "arguments": {"gen_args_0": {"arg_0": ["[]"], "arg_1": {"until": []}}},
        "resps": [["4"]],
        "filter": "none",
        "metrics": ["exact_match"],
        "exact_match": 1.0,
    },
    "jsonl": {"step": 1, "prompt": "a", "response": "b", "reward": 1, "answer": "7", "group": "g"},
}
ODD = [
    None,
    True,
    -1,
    2**63,
    10**400,
    1e308,
    float("nan"),
    float("-inf"),
    "",
    "\ud800",
    "x\0\u2028",
    [],
    [[]],
    {},
]
VALUES = st.sampled_from([*ODD, {"a": float("nan")}, [None], [USER], "1"]) | st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place within a row."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, each in inner for place in places(each, (*path, key)))]


def changed(row: Any, path: tuple[Any, ...], value: Any, *, gone: bool) -> Any:
    if not path:
        return value
    row = copy.deepcopy(row)
    at = row
    for key in path[:-1]:
        at = at[key]
    if gone:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    return row


def held(step: RolloutStep) -> None:
    """What is read can be kept: texts of Unicode, rewards that are numbers."""
    for group in grouped(step.rollouts):
        "".join([group.prompt, group.answer or "", group.name or "", *group.responses]).encode()
        assert all(abs(reward) < float("inf") for reward in group.rewards)


@pytest.mark.parametrize("format", PLACES)
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_line_with_one_thing_changed_is_read_or_refused_by_its_number(
    tmp_path: Path, format: Format, data: st.DataObject
) -> None:
    row = ROWS[format]
    path = data.draw(st.sampled_from(places(row)))
    other = changed(row, path, data.draw(VALUES), gone=bool(path) and data.draw(st.booleans()))
    file = tmp_path / PLACES[format]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{json.dumps(row)}\n{json.dumps(other)}\n")
    said = complaint(lambda: [held(step) for step in read(format, tmp_path, on_cut=pytest.fail)])
    assert not said or (f"{file}, line 2" in said and not said.endswith("\nNone"))


COLUMNS: list[Any] = [
    [datetime.date(2026, 1, 2)],
    [datetime.timedelta(1)],
    [Decimal("1.5")],
    [b"\xff"],
    [None],
    [float("nan")],
    [2**62],
    [True],
    ["text"],
    [[USER]],
    [[{"role": 3, "content": b"x"}]],
    [{"a": [1]}],
    [[[]]],
    polars.Series(["a"], dtype=polars.Categorical),
]


TABLES: dict[str, tuple[Format, dict[str, Any]]] = {
    "completions_00001.parquet": (
        "trl",
        {"prompt": [[USER]], "completion": ["b"], "correct": [1.0], "answer": ["7"], "advantage": [0.0]},
    ),
    "a.parquet": (
        "jsonl",
        {
            "prompt": [[USER]],
            "response": ["b"],
            "reward": [1.0],
            "answer": ["7"],
            "group": ["g"],
            "step": [1],
        },
    ),
}


class ReadsOn(TableReader):
    """Its program reads a file that is refused to the end: a start for each takes ten times as long."""

    def read(self, file: Path, columns: Sequence[str]) -> tuple[Columns, Iterator[bytes]]:
        if self._reading:
            said = self._started().stdout
            assert said is not None
            lines = iter(said.readline, b"")
            self._reading = not any(line == b"null\n" or line.startswith(b"[") for line in lines)
        return super().read(file, columns)


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_a_column_of_another_type_is_read_or_refused_by_its_row(tmp_path: Path, name: str) -> None:
    format, right = TABLES[name]
    file = tmp_path / name
    with ReadsOn() as tables:

        def take() -> None:
            if format == "trl":
                held(trainers.trl(file, 1, "correct", tables))
            else:
                held(step_of(1, name, [one for _, one in own_rows.RowReader({}, tables).rollouts(file)]))

        for field in right:
            for column in COLUMNS:
                polars.DataFrame(right | {field: column}, strict=False).write_parquet(file)
                said = complaint(take)
                assert not said or str(file) in said


@pytest.mark.slow
@pytest.mark.parametrize("place", [4, 5, 100, -5, -60])
@pytest.mark.parametrize("name", [*TABLES, "a.arrow"])
def test_a_damaged_table_is_read_or_refused(tmp_path: Path, name: str, place: int) -> None:
    file = tmp_path / name
    format, columns = TABLES.get(name, TABLES["a.parquet"])
    table = polars.DataFrame({field: column * 50 for field, column in columns.items()}, strict=False)
    table.write_ipc_stream(file) if file.suffix == ".arrow" else table.write_parquet(file)
    data = bytearray(file.read_bytes())
    data[place] ^= 0xFF
    file.write_bytes(data)
    said = complaint(lambda: [held(step) for step in read(format, file, on_cut=pytest.fail)])
    assert not said or str(file) in said


SAMPLE: dict[str, Any] = {
    "group_index": 0,
    "rollout_id": 1,
    "prompt": [USER],
    "response": "b",
    "label": "7",
    "reward": {"acc": 1.0, "form": None},
}


@pytest.mark.slow
@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_sample_of_slime_with_one_thing_changed_is_read_or_refused_by_its_row(
    tmp_path: Path, tables: TableReader, data: st.DataObject
) -> None:
    path = data.draw(st.sampled_from(places(SAMPLE)[1:]))
    other = changed(SAMPLE, path, data.draw(VALUES), gone=data.draw(st.booleans()))
    file = tmp_path / "rollout_1.pt"
    torch.save({"rollout_id": 1, "samples": [SAMPLE | {"rollout_id": 2}, other]}, file)
    said = complaint(lambda: held(trainers.slime(file, 1, "acc+0.1*form", tables)))
    assert not said or (f"{file}, row 2" in said or f"{file} cannot be read" in said)


@pytest.fixture(scope="module")
def tables() -> Iterator[TableReader]:
    with ReadsOn() as reader:
        yield reader


def test_a_parent_that_comes_later_is_no_conversation(tmp_path: Path) -> None:
    row = copy.deepcopy(ROWS["prime-rl"])
    row["traces"][0]["nodes"][1]["parent"] = 2
    folder = tmp_path / "step_1" / "train" / "effective"
    folder.mkdir(parents=True)
    (folder / "traces.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(ConfigError, match="line 1: node 1 has a parent"):
        prime_rl.EpisodeReader(None).load(folder / "traces.jsonl", 1)


@pytest.mark.parametrize(("name", "place"), [("a.jsonl", "line 2"), ("a.parquet", "row 2")])
def test_nothing_is_kept_of_a_file_that_is_refused_and_a_second_try_goes_on(
    tmp_path: Path, name: str, place: str
) -> None:
    rows = [{"step": step, "prompt": "a", "response": "b", "reward": "1"} for step in (1, 2)]
    env, file = {"DIAGEVO_HOME": str(tmp_path)}, tmp_path / name

    def ingest(rewards: list[str]) -> Result:
        found = [row | {"reward": reward} for row, reward in zip(rows, rewards, strict=True)]
        if file.suffix == ".parquet":
            polars.DataFrame(found).write_parquet(file)
        else:
            file.write_text("".join(json.dumps(row) + "\n" for row in found))
        return invoke("ingest", "jsonl", file, "--run", "kept", env=env)

    refused = ingest(["1", "good"])
    assert refused.exit_code == 2
    assert f"{name}, {place}" in " ".join(refused.output.split())
    assert "kept" not in invoke("runs", "list", env=env).stdout
    mended = ingest(["1", "0"])
    assert mended.exit_code == 0, mended.output
    assert "2 steps (2 new), 2 rollouts in 2 groups" in mended.output
