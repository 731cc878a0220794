"""Files that are none, names that are none, and a few bytes that mean gigabytes."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, get_args

import pyarrow
import pytest
import torch
from pyarrow import parquet

from diagevo.errors import ConfigError
from diagevo.ingest.formats import Format, read
from diagevo.ingest.formats.messages import messages, unpadded
from diagevo.ingest.formats.table_rows import COLUMNS, FACTOR, LEAST
from diagevo.ingest.rollout_steps import IngestedRollout, grouped
from tests.cli.program import STARTED, clean_environment, invoke, run
from tests.ingest.conftest import DATA, complaint

NAMES: dict[Format, str] = {
    "verl": "1.jsonl",
    "nemo-rl": "train_data_step1.jsonl",
    "prime-rl": "rollouts/step_1/train/effective/traces.jsonl",
    "trl": "completions_00001.parquet",
    "slime": "rollout_1.pt",
    "areal": "rollout/3/7.jsonl",
    "lm-eval": "samples_sums_2026.jsonl",
    "openai-evals": "evals.jsonl",
    "promptfoo": "results.json",
    "deepeval": "test_run_1.json",
    "langsmith": "results.csv",
    "langfuse": "items.json",
    "phoenix": "experiment.json",
    "weave": "calls.jsonl",
    "jsonl": "rollouts.jsonl",
}


def refused(format: Format, path: Path) -> str:
    with pytest.raises(ConfigError) as error:
        list(read(format, path, on_cut=pytest.fail))
    assert error.value.hint
    return error.value.message


@pytest.mark.parametrize("format", sorted({*get_args(Format)} - {"inspect"}))  # its reader is an extra
@pytest.mark.parametrize("kind", ["folder", "dangling", "loop", "fifo"])
def test_what_is_no_file_is_refused_by_name_and_never_waited_for(
    tmp_path: Path, format: Format, kind: str
) -> None:
    file = tmp_path / NAMES[format]
    file.parent.mkdir(parents=True, exist_ok=True)
    match kind:
        case "folder":
            file.mkdir()
        case "fifo":
            os.mkfifo(file)
        case "loop":
            file.symlink_to(file)
        case _:
            file.symlink_to(tmp_path / "gone")
    assert file.name in refused(format, tmp_path)


def test_steps_before_a_broken_file_are_recorded_and_the_same_command_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "rollouts"
    shutil.copytree(DATA / "verl" / "rollouts", folder)
    whole = (folder / "3.jsonl").read_text()
    (folder / "3.jsonl").write_text("no JSON\n" + whole)
    asked = ["ingest", "verl", str(folder), "--run", "v"]
    told = run(*asked, cwd=tmp_path)
    assert told.returncode == 2
    assert f"error: {folder / '3.jsonl'}, line 1 is not JSON" in told.stderr
    assert told.stderr.endswith("; 2 steps before it recorded: the same command goes on there\n")
    (folder / "3.jsonl").write_text(whole)
    steps = len(list(folder.iterdir()))
    assert run(*asked, cwd=tmp_path).stdout.startswith(f"v: {steps} steps ({steps - 2} new), ")
    (folder / "1.jsonl").write_text("no JSON\n")
    assert "recorded" not in run("ingest", "verl", str(folder), "--run", "w", cwd=tmp_path).stderr


def test_steps_that_the_log_refused_are_not_said_to_be_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The steps of one transaction stand or fall together."""
    rows = [
        {"step": n, "prompt": "2?", "response": "x" * (9 if n < 2 else 99), "reward": place}
        for n in (1, 2)
        for place in range(2)
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.setattr("diagevo.memory.log.artifacts.LONGEST_TEXT", 50)
    words = ["ingest", "jsonl", tmp_path / "a.jsonl", "--run", "v", "--db", tmp_path / "m.db"]
    done = invoke(*words)
    assert done.exit_code == 2
    assert "the log keeps texts of up to 50 bytes" in done.stderr
    assert "recorded" not in done.stderr
    monkeypatch.setattr("diagevo.memory.log.artifacts.LONGEST_TEXT", 100)
    assert "2 steps (2 new)" in invoke(*words).stdout


@pytest.mark.parametrize("format", ["trl", "jsonl"])
def test_a_path_that_is_too_long_is_not_one_that_was_written(tmp_path: Path, format: str) -> None:
    done = invoke("ingest", format, tmp_path / ("a" * 300), "--run", "v", "--db", tmp_path / "m.db")
    assert done.exit_code == 2
    assert f"cannot open {tmp_path}" in done.stderr
    assert "255" in done.stderr
    assert "space" not in done.stderr


def test_a_pipe_is_no_backup(tmp_path: Path) -> None:
    pipe = tmp_path / "backup.db"
    os.mkfifo(pipe)
    found = run("db", "restore", pipe, "--db", f"sqlite:///{tmp_path}/new.db", cwd=tmp_path)
    assert (found.returncode, "backup.db" in found.stderr) == (2, True), found.stderr
    assert "Traceback" not in found.stderr


def test_a_step_of_200_digits_is_refused(tmp_path: Path) -> None:
    (tmp_path / f"{'9' * 200}.jsonl").write_text("")
    assert "names a step above 2^31 - 1" in refused("verl", tmp_path)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("NaN", None),
        ("Infinity", "Infinity"),
        ('{"a": NaN}', '{"a": NaN}'),
        ("[1, 2]", "[1, 2]"),
        ("7", "7"),
        ("null", None),
    ],
)
def test_an_answer_that_is_no_text_is_written_and_nan_is_none(
    tmp_path: Path, value: str, said: str | None
) -> None:
    line = f'{{"input": "a", "output": "b", "gts": {value}, "score": 1.0}}\n'
    (tmp_path / "1.jsonl").write_text(line)
    [step] = read("verl", tmp_path, on_cut=pytest.fail)
    assert [rollout.answer for rollout in step.rollouts] == [said]


def test_a_reward_of_400_digits_is_refused_with_its_line(tmp_path: Path) -> None:
    line = f'{{"input": "a", "output": "b", "score": {"9" * 400}}}\n'
    (tmp_path / "1.jsonl").write_text(line)
    assert "1.jsonl, line 1: Number out of range" in refused("verl", tmp_path)


@pytest.mark.parametrize("text", ['"\\ud800"', '{"a":' * 5000 + "1" + "}" * 5000])
def test_text_that_no_log_can_keep_is_refused_with_its_line(tmp_path: Path, text: str) -> None:
    good = '{"input": "a", "output": "b", "score": 1.0}\n'
    (tmp_path / "1.jsonl").write_text(f'{good}{{"input": "a", "output": "b", "gts": {text}, "score": NaN}}\n')
    assert "1.jsonl, line 2" in refused("verl", tmp_path)


def trl_file(folder: Path, number: int = 1, **columns: object) -> Path:
    rows = {"prompt": ["a"], "completion": ["b"], "correct": [1.0], "advantage": [0.0]} | columns
    file = folder / f"completions_{number:05d}.parquet"
    parquet.write_table(pyarrow.table(rows), file)
    return file


def test_a_date_is_an_answer_and_bytes_are_none(tmp_path: Path) -> None:
    from datetime import date

    trl_file(tmp_path, answer=[date(2026, 1, 2)])
    [step] = read("trl", tmp_path, on_cut=pytest.fail)
    assert step.rollouts[0].answer == "2026-01-02"
    trl_file(tmp_path, answer=[b"\xff"])
    assert "row 1: a bytes" in refused("trl", tmp_path)
    trl_file(tmp_path, prompt=[5])
    assert "row 1: neither a text nor messages" in refused("trl", tmp_path)


@pytest.mark.parametrize(("piece", "end"), [("\\boxed{", "{}"), ("1+", "1 = {}")])
def test_a_line_without_end_is_diagnosed_in_seconds(tmp_path: Path, piece: str, end: str) -> None:
    """A hundred kilobytes of one took more than a minute of the processor, in time with their square."""
    texts = {1: piece * 16_000 + end.format(16_001), 0: piece * 16_000 + end.format(16_002)}
    rows = [json.dumps({"prompt": "q", "response": text, "reward": right}) for right, text in texts.items()]
    (tmp_path / "rows.jsonl").write_text("\n".join(rows) + "\n")
    home = {"DIAGEVO_HOME": str(tmp_path)}
    assert invoke("ingest", "jsonl", tmp_path / "rows.jsonl", "--run", "a", env=home).exit_code == 0
    began = time.process_time()
    assert invoke("diagnose", "--local", "--run", "a", env=home).exit_code == 0
    assert time.process_time() - began < 20


def test_the_names_of_a_hundred_thousand_columns_are_compared_once(tmp_path: Path) -> None:
    """Each with every other took minutes."""
    names, cells = [f"c{n}" for n in range(10**5)], ["1"] * 10**5
    file = tmp_path / "rows.csv"
    began = time.monotonic()
    file.write_text(f"prompt,response,reward,{','.join(names)}\na,b,1,{','.join(cells)}\n")
    [step] = read("jsonl", file, on_cut=pytest.fail)
    assert step.rollouts[0].response == "b"
    file.write_text(f"prompt,response,reward,{','.join(names)},c7\na,b,1,{','.join(cells)},1\n")
    assert "has two columns c7" in refused("jsonl", file)
    assert time.monotonic() - began < 20


def test_a_table_of_columns_without_end_is_refused(tmp_path: Path) -> None:
    """Two rows of 100,000 columns took minutes."""
    most: dict[str, Any] = {f"c{n}": [1.0] for n in range(COLUMNS - 4)}
    trl_file(tmp_path, **most)
    [step] = read("trl", tmp_path, reward="correct", on_cut=pytest.fail)
    assert step.rollouts[0].reward == 1
    trl_file(tmp_path, **most, another=[1.0])
    assert "it has 2,001 columns, of which at most 2,000 are read" in refused("trl", tmp_path)


def test_a_text_that_no_bundle_could_hold_is_refused_with_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Played with 1,000 bytes in place of 64 MB."""
    monkeypatch.setattr("diagevo.memory.log.artifacts.LONGEST_TEXT", 1000)
    file = tmp_path / "rows.jsonl"
    file.write_text(json.dumps({"prompt": "a", "response": "b" * 1001, "reward": 1}))
    told = invoke("ingest", "jsonl", file, "--run", "a", env={"DIAGEVO_HOME": str(tmp_path)})
    assert told.exit_code == 2
    assert "rows.jsonl: a text of 1,001 bytes cannot be kept: bbb" in told.stderr
    monkeypatch.undo()
    assert invoke("ingest", "jsonl", file, "--run", "a", env={"DIAGEVO_HOME": str(tmp_path)}).exit_code == 0


MEASURED = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:])
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["repeated", "long"])
def test_kilobytes_that_mean_gigabytes_are_an_error_with_the_files_name(tmp_path: Path, name: str) -> None:
    """Neither the program that is told nor the one that reads comes near what the file asks for (`make.py`):
    2,200 times the same MiB, and one text of a GiB."""
    shutil.copy(DATA / "hostile" / f"{name}.parquet", tmp_path / "completions_00001.parquet")
    command = [sys.executable, "-c", MEASURED, *STARTED, "ingest", "trl", str(tmp_path), "--run", "bomb"]
    env = clean_environment(DIAGEVO_HOME=str(tmp_path))
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    code, kib = done.stdout.split()[-2:]
    assert (code, "Traceback" in done.stderr) == ("2", False), done.stderr
    assert "completions_00001.parquet" in done.stderr
    assert int(kib) < 400 * 1024
    assert "bomb" not in invoke("runs", "list", env={"DIAGEVO_HOME": str(tmp_path)}).stdout


@pytest.mark.parametrize(("rows", "whole"), [(LEAST // 2**20 - 1, True), (LEAST // 2**20 + 2, False)])
def test_a_short_file_may_hold_sixteen_mib(tmp_path: Path, rows: int, whole: bool) -> None:
    text = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * rows), pyarrow.array(["a" * 2**20]))
    columns = {"completion": ["b"] * rows, "correct": [1.0] * rows, "advantage": [0.0] * rows}
    file = tmp_path / "completions_00001.parquet"
    table = pyarrow.table({"prompt": text} | columns)
    parquet.write_table(table, file, compression="zstd", write_statistics=False, store_schema=False)
    assert file.stat().st_size * FACTOR < 2**20
    if whole:
        [step] = read("trl", tmp_path, on_cut=pytest.fail)
        assert [len(r.prompt) for r in step.rollouts] == [2**20] * rows
    else:
        assert "bytes of text" in refused("trl", tmp_path)


class Runs:
    """As a pickle: a call of `os.mkdir`, as hostile ones call `os.system`."""

    def __init__(self, made: Path) -> None:
        self.made = made

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.made),)


def slime_file(folder: Path, **more: object) -> Path:
    sample = {"prompt": "a", "response": "b", "reward": 1.0, "label": "7", "group_index": 0}
    torch.save({"rollout_id": 1, "samples": [sample, sample | more]}, folder / "rollout_1.pt")
    return folder / "rollout_1.pt"


def test_a_pickle_that_wants_something_done_is_read_and_nothing_is_done(tmp_path: Path) -> None:
    """torch's own reader, as slime reads its files, does it."""
    made = tmp_path / "made"
    file = slime_file(tmp_path, metadata=Runs(made), tokens=torch.tensor([1]))
    [step] = read("slime", tmp_path, on_cut=pytest.fail)
    assert [rollout.reward for rollout in step.rollouts] == [1.0, 1.0]
    assert not made.exists()
    torch.load(file, weights_only=False)
    assert made.exists()


def test_a_tensor_or_an_object_where_a_text_or_number_is_expected_is_told_with_its_row(
    tmp_path: Path,
) -> None:
    slime_file(tmp_path, reward=torch.tensor(1.0))
    assert "row 2: a torch object where a text or number is expected" in refused("slime", tmp_path)
    slime_file(tmp_path, response=Runs(tmp_path / "made"))
    assert "row 2: a posix object where a text or number is expected" in refused("slime", tmp_path)
    assert not (tmp_path / "made").exists()


def doubled(times: int) -> list[Any]:
    value: list[Any] = ["a" * 1000]
    for _ in range(times):
        value = [value, value]
    return value


@pytest.mark.slow
def test_a_pickle_of_kilobytes_that_means_gigabytes_is_refused(tmp_path: Path) -> None:
    slime_file(tmp_path, label=doubled(30))
    assert "rollout_1.pt" in refused("slime", tmp_path)


@pytest.mark.parametrize("place", [0, 40, 200, 400, -30, -10])
def test_a_damaged_file_of_torch_is_read_or_refused(tmp_path: Path, place: int) -> None:
    file = slime_file(tmp_path)
    data = bytearray(file.read_bytes())
    data[place] ^= 0xFF
    file.write_bytes(data)
    said = complaint(lambda: list(read("slime", tmp_path, on_cut=lambda _: None)))
    assert not said or ("rollout_1.pt" in said and not said.endswith("None"))


def test_a_file_of_torch_that_is_still_written_is_left(tmp_path: Path) -> None:
    file = slime_file(tmp_path)
    file.write_bytes(file.read_bytes()[:-20])
    cut: list[str] = []
    assert list(read("slime", tmp_path, on_cut=cut.append)) == []
    assert cut == ["rollout_1.pt"]


def test_what_is_no_file_of_samples_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "rollout_1.pt"
    torch.save({"weights": torch.zeros(2)}, file)
    assert "it has no list of samples" in refused("slime", tmp_path)
    torch.save([1], file, _use_new_zipfile_serialization=False)
    assert "not a file in the format that torch saves today" in refused("slime", tmp_path)


def test_calls_and_results_of_tools_are_shown_and_none_passes_for_a_message() -> None:
    called = {"function": {"name": "find\n\nuser: no", "arguments": {"page": 3, "of_another_tool": None}}}
    table = unpadded(
        [
            {"role": "user", "content": [{"type": "text", "text": "Where?"}, {"type": "image"}]},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [called, {"name": "add", "arguments": "{}"}],
            },
            {"role": "tool", "name": "find", "content": "page 4"},
        ]
    )
    assert messages(table) == (
        "user: Where?\n[image]\n\n"
        'assistant: [tool call] find user: no({"page": 3})\n[tool call] add({})\n\n'
        "tool find: page 4"
    )


def test_two_prompts_under_one_name_are_two_groups() -> None:
    rollouts = [IngestedRollout(p, f"{p} {r}", r, None, "g1") for p in ("A", "B") for r in (1.0, 0.0)]
    assert [(g.prompt, g.responses) for g in grouped(rollouts)] == [
        ("A", ["A 1.0", "A 0.0"]),
        ("B", ["B 1.0", "B 0.0"]),
    ]


def notes(folder: Path) -> list[str]:
    said: list[str] = []
    list(read("trl", folder, on_cut=pytest.fail, on_note=said.append))
    return said


def test_an_evaluation_in_trls_files_and_batches_in_none_are_told() -> None:
    """In `trl_evaluated` every second step was evaluated; in `trl_sparse` every third was logged."""
    [evaluated] = notes(DATA / "trl_evaluated")
    assert "steps 2, 4, 6 have the same prompts" in evaluated
    [sparse] = notes(DATA / "trl_sparse")
    assert "3 steps apart" in sparse
    assert "up to 2 of 3 batches are in no file" in sparse
