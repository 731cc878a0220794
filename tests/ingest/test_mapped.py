"""Rows of one's own shape: where their fields stand is said with `--map`, and kept with the run."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from diagevo.errors import ConfigError
from diagevo.ingest.formats import read
from diagevo.ingest.rollouts import RolloutStep, grouped
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


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.json"])
def test_fields_are_found_at_their_paths(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    text = (json.dumps(ROWS) if name.endswith(".json") else lines(ROWS)).encode()
    file.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    [step] = steps(file, CHAT)
    assert (step.number, step.source) == (1, name)
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


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ({"reward": "scores.1.value"}, r"a\.jsonl, line 1 has no scores\.1\.value, which is its reward"),
        ({"answer": "meta.truth"}, r"line 1 has no meta\.truth, which is its answer"),
        ({"step": "step"}, "line 1 has no step"),
        ({"prompt": "meta"}, "line 1: neither a text nor messages"),
        ({"reward": "meta"}, "line 1: Expected .*, got `object`"),
    ],
)
def test_a_row_without_a_mapped_field_is_told_with_its_place(
    tmp_path: Path, path: dict[str, str], said: str
) -> None:
    (tmp_path / "a.jsonl").write_text(lines(ROWS))
    with pytest.raises(ConfigError, match=said) as refused:
        steps(tmp_path, CHAT | path)
    assert refused.value.hint


def test_a_packed_file_that_is_cut_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines(ROWS).encode())[:-9])
    cut: list[str] = []
    assert list(read("jsonl", tmp_path, mapped=CHAT, on_cut=cut.append)) == []
    assert cut == ["a.jsonl.gz"]


def test_the_mapping_is_kept_with_the_run(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(lines(ROWS))
    paths = ",".join(f"{field}={path}" for field, path in CHAT.items())
    first = said_by("ingest", "jsonl", file, "--run", "chat", "--map", paths)
    assert "4 rollouts in 2 groups" in first
    assert "chat: 1 step (0 new)" in said_by("ingest", "jsonl", file, "--run", "chat")
    other = said_by("ingest", "jsonl", file, "--run", "chat", "--map", "reward=score", exit=2)
    assert "was ingested with map" in other


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


def test_a_compressed_file_that_unpacks_without_end_fills_no_memory(
    tmp_path: Path,
) -> None:
    """150 MB of one row, again and again, are 370 kB of gzip: refused after 64 MiB of them."""
    row = lines([{"prompt": "p", "response": "r" * 1000, "reward": 1}]).encode()
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(row * 150_000))
    with pytest.raises(ConfigError, match="unpacked it is more than 100 times as large"):
        steps(tmp_path / "a.jsonl.gz")
