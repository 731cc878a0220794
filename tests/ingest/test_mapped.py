"""Rows of one's own shape: where their fields stand is said with `--map`, and kept with the run."""

import gzip
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pandas
import pytest
import torch
from backports import zstd
from datasets import Dataset, DatasetDict
from hypothesis import given
from hypothesis import strategies as st

from diagevo.errors import ConfigError, MissingDependencyError
from diagevo.ingest.formats import read
from diagevo.ingest.formats.messages import messages
from diagevo.ingest.rollout_steps import RolloutStep, grouped
from tests.cli.program import invoke

CHAT: dict[str, str] = {
    "prompt": "messages.0.content",
    "response": "messages.-1.content",
    "reward": "scores.0.value",
    "group": "meta.id",
    "answer": "meta.gold",
}


def chat(id: int, said: str, value: float) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": f"{id} + {id}?"}, {"role": "assistant", "content": said}],
        "scores": [{"value": value}],
        "meta": {"id": id, "gold": 2 * id},
    }


ROWS = [chat(1, "2", 1), chat(1, "3", 0), chat(2, "4", 1), chat(2, "5", 0)]


def said_by(*arguments: str | Path, exit: int = 0) -> str:
    db = Path(str(arguments[2])).parent / "m.db"
    result = invoke(*arguments, "--db", db)
    assert result.exit_code == exit, result.output
    return " ".join(result.output.split())


def steps(path: Path, mapped: dict[str, str] | None = None) -> list[RolloutStep]:
    return list(read("jsonl", path, mapped=mapped, on_cut=pytest.fail))


def lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def written(folder: Path, name: str, rows: list[dict[str, Any]]) -> Path:
    """Rows in the kind of file that its name says; a name without an ending is a data set's folder."""
    file = folder / name
    match file.suffix:
        case ".parquet":
            Dataset.from_list(rows).to_parquet(str(file))
        case "":
            Dataset.from_list(rows).save_to_disk(file)
        case ".json":
            file.write_text(json.dumps(rows))
        case ".gz":
            file.write_bytes(gzip.compress(lines(rows).encode()))
        case ".zst":
            file.write_bytes(zstd.compress(lines(rows).encode()))
        case _:
            file.write_text(lines(rows))
    return file


SAVED = "data-00000-of-00001.arrow"


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.jsonl.zst", "a.json", "a.parquet", "saved"])
def test_fields_are_found_at_their_paths(tmp_path: Path, name: str) -> None:
    [step] = steps(written(tmp_path, name, ROWS), CHAT)
    assert (step.number, step.source) == (1, name if "." in name else SAVED)
    assert [(g.name, g.prompt, g.answer, g.responses, g.rewards) for g in grouped(step.rollouts)] == [
        ("1", "1 + 1?", "2", ["2", "3"], [1.0, 0.0]),
        ("2", "2 + 2?", "4", ["4", "5"], [1.0, 0.0]),
    ]


def test_prompt_and_response_may_be_messages(tmp_path: Path) -> None:
    call = {"role": "assistant", "tool_calls": [{"function": {"name": "add", "arguments": '{"a": 1}'}}]}
    row = {"prompt": [{"role": "user", "content": "1 + 1?"}], "response": [call], "reward": 0}
    (tmp_path / "a.jsonl").write_text(lines([row]))
    [rollout] = steps(tmp_path)[0].rollouts
    assert (rollout.prompt, rollout.response) == ("1 + 1?", '[tool call] add({"a": 1})')


def test_a_data_set_is_read_by_its_own_list_and_a_split_is_asked_for(tmp_path: Path) -> None:
    """What `map` caches lies beside what was saved, and shards come in order."""
    rows = [{"prompt": f"{n}?", "response": "a", "reward": n % 2, "step": n} for n in range(4)]
    splits = DatasetDict({"train": Dataset.from_list(rows)})
    splits.save_to_disk(tmp_path / "all", num_shards={"train": 2})
    with pytest.raises(ConfigError, match="holds the splits train") as refused:
        steps(tmp_path / "all")
    assert refused.value.hint == f"name one: {tmp_path / 'all' / 'train'}"
    folder = tmp_path / "all" / "train"
    (folder / "cache-1.arrow").write_bytes((folder / "data-00000-of-00002.arrow").read_bytes())
    assert [(step.number, len(step.rollouts)) for step in steps(folder)] == [(0, 1), (1, 1), (2, 1), (3, 1)]


@pytest.mark.parametrize(
    ("said", "reward"),
    [
        ("1", 1.0),
        (" -0.5 ", -0.5),
        ("C", 1.0),
        ("P", 0.5),
        ("I", 0.0),
        ("N", 0.0),
        ("True", 1.0),
        ("false", 0.0),
        ("nan", None),
        (str(torch.tensor(1.0, dtype=torch.bfloat16)), 1.0),
        ("tensor(0.5000)", 0.5),
        ("tensor(0., device='cuda:0')", 0.0),
    ],
)
def test_a_reward_that_is_written_as_text_is_its_number(
    tmp_path: Path, said: str, reward: float | None
) -> None:
    file = written(tmp_path, "a.jsonl", [{"prompt": "a", "response": "b", "reward": said}])
    [step] = steps(file)
    assert [rollout.reward for rollout in step.rollouts] == ([] if reward is None else [reward])


@pytest.mark.parametrize("said", ["", "c", "good", "1/2", "tensor([1., 0.])", "tensor(1, 2)"])
def test_a_text_that_is_plainly_no_number_is_refused_with_its_line(tmp_path: Path, said: str) -> None:
    row = {"prompt": "a", "response": "b"}
    file = written(tmp_path, "a.jsonl", [row | {"reward": "1"}, row | {"reward": said}])
    with pytest.raises(ConfigError, match=r"a\.jsonl, line 2: its reward is not a number"):
        steps(file)


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_rewards_are_summed_with_weights_and_one_that_is_none_counts_for_nothing(
    tmp_path: Path, name: str
) -> None:
    parts = [(1.0, 0.5), (0.0, 1.0), (None, 1.0), (1.0, float("nan")), (None, None)]
    rows = [{"prompt": "a", "response": "b", "s": {"right": x, "form": y}} for x, y in parts]
    [step] = read("jsonl", written(tmp_path, name, rows), reward="s.right+0.1*s.form", on_cut=pytest.fail)
    assert [rollout.reward for rollout in step.rollouts] == [1.05, 0.1, 0.1, 1.0]
    assert step.unscored == 1
    [step] = read("jsonl", tmp_path / name, mapped={"reward": "-2*s.form"}, on_cut=pytest.fail)
    assert [rollout.reward for rollout in step.rollouts] == [-1.0, -2.0, -2.0]


@pytest.mark.parametrize("reward", ["a+", "a+b*c", "+a", "nan*a", "2*"])
def test_a_sum_that_is_none_is_refused(tmp_path: Path, reward: str) -> None:
    file = written(tmp_path, "a.jsonl", ROWS)
    with pytest.raises(ConfigError, match="neither a field nor a sum of fields"):
        list(read("jsonl", file, reward=reward, on_cut=pytest.fail))


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ({"reward": "scores.1.value"}, r"a\.jsonl, line 1 has no scores\.1\.value, which is its reward"),
        ({"answer": "meta.truth"}, r"line 1 has no meta\.truth, which is its answer"),
        ({"step": "step"}, "line 1 has no step"),
        ({"prompt": "meta"}, "line 1: its prompt is not a text or messages"),
        ({"reward": "meta"}, "line 1: its reward is not one number: "),
    ],
)
def test_a_row_without_a_mapped_field_is_told_with_its_place(
    tmp_path: Path, path: dict[str, str], said: str
) -> None:
    (tmp_path / "a.jsonl").write_text(lines(ROWS))
    with pytest.raises(ConfigError, match=said) as refused:
        steps(tmp_path, CHAT | path)
    assert refused.value.hint


def test_a_table_without_a_mapped_column_is_told_with_those_that_it_has(tmp_path: Path) -> None:
    file = written(tmp_path, "a.parquet", ROWS)
    with pytest.raises(ConfigError, match=r"a\.parquet has no score, which is its reward") as refused:
        steps(file, CHAT | {"reward": "score"})
    assert "its fields: messages, meta, scores" in str(refused.value.hint)
    with pytest.raises(ConfigError, match=r"a\.parquet, row 1 has no scores\.1, which is its reward"):
        steps(file, CHAT | {"reward": "scores.1"})


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.jsonl.zst", "a.parquet"])
def test_a_packed_file_that_is_cut_is_told(tmp_path: Path, name: str) -> None:
    file = written(tmp_path, name, ROWS)
    file.write_bytes(file.read_bytes()[:-9])
    cut: list[str] = []
    assert list(read("jsonl", tmp_path, mapped=CHAT, on_cut=cut.append)) == []
    assert cut == [name]


def test_what_is_no_zstandard_is_told_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.zst").write_text(lines(ROWS))
    with pytest.raises(ConfigError, match=r"a\.jsonl\.zst cannot be read"):
        steps(tmp_path)


def test_without_zstandard_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, "a.jsonl.zst", ROWS)
    for module in ("backports", "compression"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDependencyError) as missing:
        steps(file)
    assert missing.value.hint == "run: pip install 'diagevo[zst]'"


def test_the_mapping_is_kept_with_the_run(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(lines(ROWS))
    paths = ",".join(f"{field}={path}" for field, path in CHAT.items())
    first = said_by("ingest", "jsonl", file, "--run", "chat", "--map", paths)
    assert "4 rollouts in 2 groups" in first
    assert "chat: 1 step (0 new)" in said_by("ingest", "jsonl", file, "--run", "chat")
    other = said_by("ingest", "jsonl", file, "--run", "chat", "--map", "reward=score", exit=2)
    named = ",".join(sorted(paths.split(",")))
    assert f"was ingested with map = {named}, not reward=score" in " ".join(other.split())
    other = said_by("ingest", "jsonl", file, "--run", "chat", "--reward", "marks", exit=2)
    assert "was ingested with reward = nothing, not marks" in " ".join(other.split())


@pytest.mark.parametrize(
    ("format", "map", "said"),
    [
        ("jsonl", "promt=a", "--map promt=a: expected FIELD=PATH"),
        ("jsonl", "prompt", "--map prompt: expected FIELD=PATH"),
        ("verl", "prompt=a", "--map is for jsonl"),
    ],
)
def test_a_mapping_that_is_none_is_refused(tmp_path: Path, format: str, map: str, said: str) -> None:
    assert said in said_by("ingest", format, tmp_path, "--run", "a", "--map", map, exit=2)


def test_nothing_read_is_an_error_and_one_answer_each_is_told(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text("")
    assert "no rollout was found in" in said_by("ingest", "jsonl", file, "--run", "a", exit=2)
    file.write_text(lines([ROWS[0] | {"scores": [{"value": None}]}]))
    paths = ",".join(f"{field}={path}" for field, path in CHAT.items())
    said = said_by("ingest", "jsonl", file, "--run", "a", "--map", paths, exit=2)
    assert "1 rollout without a reward" in said
    file.write_text(lines(ROWS[::2]))
    said = said_by("ingest", "jsonl", file, "--run", "b", "--map", paths)
    assert "every question was answered once: nothing to compare" in said


@pytest.mark.slow
@pytest.mark.parametrize("pack", [gzip, zstd])
def test_a_compressed_file_that_unpacks_without_end_fills_no_memory(tmp_path: Path, pack: Any) -> None:
    """150 MB of one row, again and again, are 370 kB of gzip: refused after 64 MiB of them."""
    row = lines([{"prompt": "p", "response": "r" * 1000, "reward": 1}]).encode()
    file = tmp_path / f"a.jsonl.{'gz' if pack is gzip else 'zst'}"
    file.write_bytes(pack.compress(row * 150_000))
    with pytest.raises(ConfigError, match="unpacked it is more than 100 times as large"):
        steps(file)


def test_two_stars_of_one_path_are_refused(tmp_path: Path) -> None:
    row = {"prompt": "2?", "s": [{"t": ["2", "3"], "r": [1, 0]}]}
    (tmp_path / "a.jsonl").write_text(json.dumps(row))
    map = "response=s.*.t.*,reward=s.*.r.*"
    said = said_by("ingest", "jsonl", tmp_path / "a.jsonl", "--run", "a", "--map", map, exit=2)
    assert "has two stars" in said


def test_the_hint_for_a_list_of_samples_loses_none(tmp_path: Path) -> None:
    """Followed as it stands; the place of one alone is named last."""
    (tmp_path / "a.jsonl").write_text(json.dumps({"prompt": "2?", "response": ["2", "3"], "reward": [1, 0]}))
    words = ["ingest", "jsonl", tmp_path / "a.jsonl", "--run", "a"]
    assert "--map reward=reward.*" in said_by(*words, exit=2)
    map = "reward=reward.*"
    assert "--map response=response.*" in said_by(*words, "--map", map, exit=2)
    said = said_by(*words, "--map", f"{map},response=response.*")
    assert "2 rollouts in 1 group" in said


@pytest.mark.parametrize("end", [-1, -2, 1])
@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet", "a.csv"])
def test_a_prompt_may_be_all_messages_but_the_last(tmp_path: Path, name: str, end: int) -> None:
    """As Python slices them, and nothing between the two is left out."""
    said = [
        ("system", "Be brief."),
        ("user", "1 + 1?"),
        ("assistant", "2"),
        ("user", "Sure?"),
        ("assistant", "Yes"),
    ]
    all_of_them = [{"role": role, "content": content} for role, content in said]
    map = {"prompt": f"messages.:{end}", "response": f"messages.{end}:"}
    if name.endswith("csv"):
        (tmp_path / name).write_text(
            pandas.DataFrame([{"messages": json.dumps(all_of_them), "reward": 1}]).to_csv()
        )
    else:
        written(tmp_path, name, [{"messages": all_of_them, "reward": 1}])
    notes = list[str]()
    [step] = read("jsonl", tmp_path / name, mapped=map, on_cut=notes.append, on_note=notes.append)
    [rollout] = step.rollouts
    assert rollout.prompt == messages(all_of_them[:end])
    assert rollout.response == messages(all_of_them[end:])
    assert notes == []


@given(st.integers(-7, 7) | st.none(), st.integers(-7, 7) | st.none(), st.integers(1, 5))
def test_a_slice_is_pythons_and_an_empty_one_is_missing(
    first: int | None, last: int | None, size: int
) -> None:
    said = [{"role": "user", "content": f"<{n}>"} for n in range(size)]
    path = f"{'' if first is None else first}:{'' if last is None else last}"
    with TemporaryDirectory() as folder:
        (Path(folder) / "a.jsonl").write_text(lines([{"m": said, "response": "a", "reward": 1}]))
        if not said[first:last]:
            with pytest.raises(ConfigError, match=f"has no m.{path}, which is its prompt"):
                steps(Path(folder), {"prompt": f"m.{path}"})
            return
        [step] = steps(Path(folder), {"prompt": f"m.{path}"})
    assert step.rollouts[0].prompt == messages(said[first:last])


@pytest.mark.parametrize("role", ["role", "from"])
def test_a_role_takes_its_messages_and_maps_add_up(tmp_path: Path, role: str) -> None:
    """Wherever they stand; an option that is given twice says both."""
    said = [
        ("system", "Be brief."),
        ("user", "2 + 2?"),
        ("assistant", "4"),
        ("user", "and 3?"),
        ("assistant", "7"),
    ]
    turns = [{role: who, "content": text} for who, text in said]
    (tmp_path / "a.jsonl").write_text(lines([{"m": turns, "ok": n} for n in (0, 1)]))
    [step] = steps(tmp_path, {"prompt": "m.user", "response": "m.assistant.-1.content", "reward": "ok"})
    assert [(one.prompt, one.response) for one in step.rollouts] == [
        (messages([turns[1], turns[3]]), "7")
    ] * 2
    with pytest.raises(ConfigError, match=r"has no m\.tool, which is its prompt"):
        steps(tmp_path, {"prompt": "m.tool", "response": "m.assistant", "reward": "ok"})
    words = ["--map", "prompt=m.user,response=m.assistant", "--map", "reward=ok"]
    assert "2 rollouts in 1 group" in said_by("ingest", "jsonl", tmp_path / "a.jsonl", "--run", "a", *words)


def test_messages_between_those_that_are_mapped_are_reported(tmp_path: Path) -> None:
    short = chat(1, "2", 1)
    long = short | {"messages": [{"role": "system", "content": "Be brief."}, *short["messages"]]}
    for rows, found in ([short] * 2, 0), ([short, long, long], 2):
        (tmp_path / "a.jsonl").write_text(lines(rows))
        notes = list[str]()
        list(read("jsonl", tmp_path / "a.jsonl", mapped=CHAT, on_cut=notes.append, on_note=notes.append))
        assert [note for note in notes if f"not read, in {found} rows" in note] == notes
        assert len(notes) == bool(found)
    all_of_it = CHAT | {"prompt": "messages.:-1"}  # as the note says
    assert list(
        read("jsonl", tmp_path / "a.jsonl", mapped=all_of_it, on_cut=notes.append, on_note=pytest.fail)
    )


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.parquet"])
def test_texts_beside_the_prompt_and_the_response_are_reported_unless_they_are_mapped(
    tmp_path: Path, name: str
) -> None:
    rows: list[dict[str, Any]] = [
        {
            "prompt": "Q",
            "response": str(i),
            "reward": i,
            "system": "Be brief.",
            "reasoning": ["Hm.", ""][i],
            "n": "a b",
        }
        for i in range(2)
    ]
    if name == "a.jsonl":
        (tmp_path / name).write_text(lines(rows))
    elif name == "a.csv":
        pandas.DataFrame(rows).to_csv(tmp_path / name, index=False)
    else:
        pandas.DataFrame(rows).to_parquet(tmp_path / name)
    for mapped, said in ({}, "system (2), reasoning (1):"), ({"feedback": "reasoning"}, "system (2):"):
        notes = list[str]()
        list(read("jsonl", tmp_path / name, mapped=mapped, on_cut=pytest.fail, on_note=notes.append))
        assert len(notes) == 1
        assert f"not read, with the rows that have it: {said}" in notes[0]


@pytest.mark.parametrize("step", [2**31 - 1, 2**31, 1_764_000_000_000])
def test_a_step_that_is_read_can_be_recorded(tmp_path: Path, step: int) -> None:
    """A time in milliseconds is no step."""
    rows = [{"prompt": "2?", "response": f"{n}", "reward": n, "step": step} for n in range(2)]
    (tmp_path / "a.jsonl").write_text(lines(rows))
    words = ["ingest", "jsonl", tmp_path / "a.jsonl", "--run", "a"]
    if step < 2**31:
        assert "1 step (1 new)" in said_by(*words)
    else:
        assert "line 1: its step is not a whole number from 0 to 2^31 - 1" in said_by(*words, exit=2)
