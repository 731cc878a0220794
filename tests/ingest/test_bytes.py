"""What is no text, or says a thing twice or not at all, in every reader: refused with its file and line."""

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagevo.errors import ConfigError
from diagevo.ingest.formats import Format, read
from diagevo.ingest.formats.messages import messages
from diagevo.ingest.rollout_steps import IngestedRollout
from tests.ingest.conftest import complaint


def test_lines_that_are_empty_are_no_rows(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        "\n" * 1000 + json.dumps({"prompt": "q", "response": "b", "reward": 1}) + "\n\n"
    )
    [step] = read("jsonl", tmp_path / "a.jsonl", on_cut=pytest.fail, on_note=pytest.fail)
    assert step.rollouts == [IngestedRollout("q", "b", 1.0)]


ROWS: dict[str, tuple[Format, str, dict[str, Any]]] = {
    "jsonl": ("jsonl", "a.jsonl", {"prompt": "é?", "response": "b", "reward": 1.0}),
    "gz": ("jsonl", "a.jsonl.gz", {"prompt": "é?", "response": "b", "reward": 1.0}),
    "array": ("jsonl", "a.json", {"prompt": "é?", "response": "b", "reward": 1.0}),
    "verl": ("verl", "1.jsonl", {"input": "é?", "output": "b", "gts": "7", "score": 1.0}),
    "nemo-rl": ("nemo-rl", "train_data_step1.jsonl", {"content": ["é?", "b"], "rewards": 1.0}),
    "areal": (
        "areal",
        "rollout/1/1.jsonl",
        {"task_id": 1, "prompt": "é?", "completion": "b", "reward": 1.0},
    ),
    "lm-eval": (
        "lm-eval",
        "samples_sums_2026.jsonl",
        {
            "doc_id": 1,
            "arguments": {"gen_args_0": {"arg_0": "é?"}},
            "resps": [["b"]],
            "filter": "none",
            "metrics": ["em"],
            "em": 1.0,
        },
    ),
    "prime-rl": (
        "prime-rl",
        "step_1/train/effective/traces.jsonl",
        {
            "ok": True,
            "traces": [
                {
                    "rewards": {"r": {"score": 1.0}},
                    "nodes": [
                        {"message": {"role": "user", "content": "é?"}},
                        {"message": {"role": "assistant", "content": "b"}, "parent": 0, "sampled": True},
                    ],
                }
            ],
        },
    ),
}
REWARD = {"verl": "score", "nemo-rl": "rewards", "lm-eval": "em", "prime-rl": "ok"}


def line_of(reader: str) -> bytes:
    return json.dumps(ROWS[reader][2], ensure_ascii=False).encode()


def rollouts(reader: str, folder: Path, *lines: bytes) -> list[IngestedRollout]:
    """What the reader reads of a file with these lines."""
    format, name, _ = ROWS[reader]
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    text = b"".join(line + b"\n" for line in lines)
    if reader == "array":
        text = b"[" + b",".join(lines) + b"]"
    file.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    path = file if reader == "array" else folder
    return [each for step in read(format, path, on_cut=pytest.fail) for each in step.rollouts]


def refused(reader: str, folder: Path, *lines: bytes) -> str:
    said = complaint(lambda: rollouts(reader, folder, *lines))
    assert Path(ROWS[reader][1]).name in said.splitlines()[0], said
    return said


@pytest.mark.parametrize("reader", ROWS)
@given(data=st.data())
def test_a_byte_that_is_no_text_is_refused_with_its_line(reader: str, data: st.DataObject) -> None:
    line = line_of(reader)
    place = data.draw(st.integers(0, len(line) - 1))
    bad = (
        line[:place] + data.draw(st.sampled_from([b"\xff", b"\xc3", b"\x80", b"\xed\xa0\x80"])) + line[place:]
    )
    with tempfile.TemporaryDirectory() as folder:
        said = refused(reader, Path(folder), line, bad)
    assert (
        ", line 1 is not UTF-8: byte" in said if reader == "array" else ", line 2 is not UTF-8: byte" in said
    )


@pytest.mark.parametrize("reader", ROWS)
@pytest.mark.parametrize("spelled", ['"{}": ', '"{}":', '"{}"  : ', '"\\u{:04x}{}": '])
def test_a_key_that_stands_twice_is_refused(reader: str, spelled: str, tmp_path: Path) -> None:
    name = REWARD.get(reader, "reward")
    key = spelled.format(ord(name[0]), name[1:]) if "u{" in spelled else spelled.format(name)
    for extra in (
        f"{{{key}true, ".encode() + line_of(reader)[1:],
        line_of(reader)[:-1] + f", {key}true}}".encode(),
    ):
        said = refused(reader, tmp_path, extra)
        assert f"it has {name} twice" in said


@pytest.mark.parametrize("reader", ROWS)
def test_half_a_surrogate_pair_is_refused_in_words(reader: str, tmp_path: Path) -> None:
    said = refused(reader, tmp_path, line_of(reader).replace("é".encode(), b"\\ud83d"))
    assert "half a surrogate pair, \\ud83d, is no text" in said


@pytest.mark.parametrize("reader", [each for each in ROWS if each not in ("gz", "array")])
def test_a_reward_that_is_infinite_is_none(reader: str, tmp_path: Path) -> None:
    for spelled in (b"1e999", b"-1e999", b"Infinity", b"NaN"):
        assert rollouts(reader, tmp_path, line_of(reader).replace(b"1.0", spelled)) == []


@pytest.mark.parametrize("reader", [each for each in ROWS if each != "nemo-rl"])
def test_a_reward_in_a_list_is_refused(reader: str, tmp_path: Path) -> None:
    """NeMo-RL alone writes each field as a batch of one."""
    assert refused(reader, tmp_path, line_of(reader).replace(b"1.0", b"[1.0]"))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_reward_that_is_written_as_text_is_read_as_written(value: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        line = line_of("jsonl").replace(b"1.0", f'" {value!r} "'.encode())
        assert [each.reward for each in rollouts("jsonl", Path(folder), line)] == [value]


@pytest.mark.parametrize(
    "text", ["1_0", "0x1", "1 0", "١", "1,5", "1.", "tensor(1_0)", "tensor()", "", "--1", "1e"]
)
def test_a_text_that_only_a_programming_language_takes_for_a_number_is_refused(
    text: str, tmp_path: Path
) -> None:
    line = line_of("jsonl").replace(b"1.0", json.dumps(text).encode())
    if text == "1.":
        assert [each.reward for each in rollouts("jsonl", tmp_path, line)] == [1.0]
    else:
        assert "its reward is not a number" in refused("jsonl", tmp_path, line)


def test_a_verl_file_whose_rows_are_of_another_step_than_its_name_is_refused(tmp_path: Path) -> None:
    lines = [line_of("verl")[:-1] + f', "step": {step}}}'.encode() for step in (1, 9)]
    assert "line 2: its step is 9, and the file is named after step 1" in refused("verl", tmp_path, *lines)


@pytest.mark.parametrize(
    "message",
    [{"role": "user"}, {"role": "assistant", "tool_calls": []}],
)
def test_a_message_without_content_is_refused(message: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="neither a text nor messages with role and content"):
        messages([message])
    row = ROWS["jsonl"][2] | {"prompt": [message]}
    assert "a message has role and content" in refused("jsonl", tmp_path, json.dumps(row).encode())


def test_a_message_may_call_a_tool_or_think_and_say_nothing() -> None:
    assert messages([{"role": "assistant", "tool_calls": [{"name": "add"}]}]) == "[tool call] add({})"
    assert messages([{"role": "assistant", "reasoning_content": "Hm."}]) == "<think>\nHm.\n</think>"
    assert messages([{"role": "assistant", "content": None}]) == ""


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_a_file_of_empty_lines_is_given_up_soon(name: str, tmp_path: Path) -> None:
    """2 GB of newlines pack into 2 MB."""
    opened: Any = gzip.open if name.endswith(".gz") else open
    with opened(tmp_path / name, "wb") as file:
        file.write(line_of("jsonl") + b"\n" * 40_000_000)
    said = complaint(lambda: list(read("jsonl", tmp_path, on_cut=pytest.fail)))
    assert f"{name}, line 10" in said
    assert "most of it is empty lines" in said


def test_empty_lines_between_rows_are_none(tmp_path: Path) -> None:
    line = line_of("jsonl")
    assert len(rollouts("jsonl", tmp_path, *[line, b"", b"  "] * 50)) == 50


def test_an_evaluation_that_only_predicted_has_no_reward(tmp_path: Path) -> None:
    line = line_of("lm-eval").replace(b'["em"]', b'["bypass"]').replace(b'"em": 1.0', b'"bypass": 999')
    assert "--predict_only: nothing says whether it is right" in refused("lm-eval", tmp_path, line)
