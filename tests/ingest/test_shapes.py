"""Files that people have: tables of cells, rows with several samples, words for passes, tags and feedback."""

import bz2
import csv
import gzip
import io
import json
import lzma
import pickle
import shutil
import subprocess
from pathlib import Path
from typing import Any

import polars
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagevo.errors import ConfigError
from diagevo.ingest.formats import read
from diagevo.ingest.rollout_steps import IngestedRollout
from tests.ingest.conftest import DATA, complaint
from tests.ingest.test_one_sided import Home

EXAMPLES = "".join(f"Question: {n} + {n}?\nAnswer: {2 * n}\n\n" for n in range(1, 9))


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def rollouts(path: Path, on_note: Any = pytest.fail, **mapped: str) -> list[IngestedRollout]:
    found = read("jsonl", path, mapped=mapped or None, on_cut=pytest.fail, on_note=on_note)
    return [each for step in found for each in step.rollouts]


def lines(folder: Path, *rows: dict[str, Any]) -> Path:
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def table(folder: Path, name: str, *rows: dict[str, str]) -> Path:
    file, text = folder / name, io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]), delimiter="\t" if ".tsv" in name else ",")
    writer.writeheader()
    writer.writerows(rows)
    file.write_bytes(text.getvalue().encode())
    return file


@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
def test_a_table_of_cells_is_rows(tmp_path: Path, name: str) -> None:
    cells = {
        "prompt": 'a, "b"?',
        "response": "two\r\n\r\nlines\t",
        "reward": "correct",
        "answer": "",
        "group": "7",
    }
    file = table(tmp_path, name, cells, cells | {"reward": "No", "answer": "c"})
    first = IngestedRollout('a, "b"?', "two\r\n\r\nlines\t", 1.0, None, "7")
    second = IngestedRollout('a, "b"?', "two\r\n\r\nlines\t", 0.0, "c", "7")
    assert rollouts(file) == rollouts(tmp_path) == [first, second]
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().rstrip())
    assert rollouts(file) == [first, second], "with a byte order mark, and without a last newline"


CELL = st.text(st.sampled_from("\",\r\n\t ;'a\0\u00e9\ufeff\u2028\U0001f600"), max_size=12)


@given(st.lists(st.tuples(CELL.filter(bool), CELL), max_size=5))
def test_any_text_is_read_from_a_cell_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, texts: list[tuple[str, str]]
) -> None:
    file = tmp_path_factory.getbasetemp() / "any.csv"
    header = {"prompt": "a", "response": "b", "reward": "1"}
    table(file.parent, file.name, header, *({"prompt": p, "response": r, "reward": "0"} for p, r in texts))
    assert [(each.prompt, each.response) for each in rollouts(file)[1:]] == texts


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prompt,response,reward\na,b\n", "line 2 has 2 cells for 3 columns"),
        ("prompt,response,reward\na,b,c,1\n", "line 2 has 4 cells for 3 columns"),
        ('prompt,response,reward\na,"b,1\n', "line 2 is not CSV: unexpected end of data"),
        ("prompt,response,reward,reward\na,b,1,0\n", "has two columns reward"),
        ("prompt,response,reward\na,b,1\na,b,\xff\n", "line 3 is not UTF-8"),
    ],
)
def test_what_is_no_table_is_refused_with_its_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "a.csv").write_text(text, encoding="latin1")
    assert said in complaint(lambda: rollouts(tmp_path / "a.csv"))


def _arrow(rows: list[dict[str, Any]], *, parquet: bool) -> bytes:
    written = io.BytesIO()
    frame = polars.DataFrame(rows)
    frame.write_parquet(written) if parquet else frame.write_ipc(written)
    return written.getvalue()


@pytest.mark.parametrize(
    ("name", "pack", "made"),
    [
        ("a.jsonl", gzip.compress, "a.jsonl.gz"),
        ("a.jsonl.bz2", bz2.compress, "a.jsonl"),
        ("a.jsonl.xz", lzma.compress, "a.jsonl"),
        (
            "a.csv",
            lambda lines: _arrow(list(map(json.loads, lines.splitlines())), parquet=True),
            "a.csv.parquet",
        ),
        ("a", lambda lines: _arrow(list(map(json.loads, lines.splitlines())), parquet=False), "a.arrow"),
    ],
)
def test_what_is_packed_is_named_and_read_once_its_hint_is_followed(
    tmp_path: Path, name: str, pack: Any, made: str
) -> None:
    row = {"prompt": "2 + 2?", "response": "four", "reward": 1.0}
    packed = pack(lines(tmp_path, row, row | {"reward": 0.0}).read_bytes())
    (tmp_path / name).write_bytes(packed)
    with pytest.raises(ConfigError, match=f"{name} is (packed by|Parquet|Arrow)") as refused:
        rollouts(tmp_path / name)
    assert refused.value.hint
    if shutil.which(refused.value.hint.split()[0]) is None:
        pytest.skip(f"needs {refused.value.hint.split()[0]}")
    subprocess.run(refused.value.hint, shell=True, check=True)
    assert [each.reward for each in rollouts(tmp_path / made)] == [1.0, 0.0]


@pytest.mark.parametrize(
    ("begins", "said"),
    [
        (b"PK\3\4", "a workbook or another ZIP archive"),
        (b"\xd0\xcf\x11\xe0", "a workbook of an old Excel"),
        (pickle.dumps({"rows": []}), "a pickle"),
        (b"SQLite format 3\0", "a database"),
    ],
)
def test_what_is_no_text_is_not_taken_for_one_of_another_encoding(
    tmp_path: Path, begins: bytes, said: str
) -> None:
    for name in ("a.csv", "a.xlsx", "a.jsonl"):
        (tmp_path / name).write_bytes(begins + b"\n\x93\n")
        with pytest.raises(ConfigError, match=f"{name} is {said}") as refused:
            rollouts(tmp_path / name)
        assert "iconv" not in (refused.value.hint or "")


def test_a_cell_of_json_is_looked_into_only_by_a_path(tmp_path: Path) -> None:
    chat = json.dumps([{"role": "user", "content": "Hi?"}, {"role": "assistant", "content": "Ho."}])
    file = table(tmp_path, "a.csv", {"m": chat, "response": '{"a": 1}', "score.x": "1"})
    [found] = rollouts(file, prompt="m.0.content", reward="score.x")
    assert (found.prompt, found.response, found.reward) == ("Hi?", '{"a": 1}', 1.0)


def test_a_row_of_several_samples_is_several_rollouts(tmp_path: Path) -> None:
    samples = [
        {"content": "4", "score": 1, "why": "right"},
        {"content": "5", "score": 0, "why": "off by one"},
    ]
    file = lines(tmp_path, {"prompt": "2 + 2?", "samples": samples}, {"prompt": "3?", "samples": []})
    found = rollouts(file, response="samples.*.content", reward="samples.*.score", feedback="samples.*.why")
    assert found == [
        IngestedRollout("2 + 2?", "4", 1.0, feedback="right"),
        IngestedRollout("2 + 2?", "5", 0.0, feedback="off by one"),
    ]
    file = lines(tmp_path, {"prompt": "2 + 2?", "said": ["4", "5"], "ok": [True]})
    mapped = {"response": "said.*", "reward": "ok.*"}
    assert "line 1: its samples do not match: 2 in said, 1 in ok" in complaint(
        lambda: rollouts(file, **mapped)
    )
    assert "has no samples" in complaint(lambda: rollouts(file, **{**mapped, "reward": "samples.*.score"}))
    file = lines(tmp_path, {"prompt": "2 + 2?", "said": ["4", "5"], "ok": [True, "maybe"]})
    assert "line 1, sample 1: its reward is not a number" in complaint(lambda: rollouts(file, **mapped))


def test_words_for_passes_and_failures_are_rewards(tmp_path: Path) -> None:
    words = [
        "correct",
        "Incorrect",
        "YES",
        "no",
        "pass",
        "FAIL",
        "true",
        "False",
        "passed",
        "failed",
        "C",
        "I",
        "N",
        "P",
    ]
    file = lines(tmp_path, *({"prompt": "a", "response": "b", "reward": word} for word in words))
    assert [each.reward for each in rollouts(file)] == [*[1.0, 0.0] * 5, 1.0, 0.0, 0.0, 0.5]


def test_a_row_may_lack_feedback_and_tags_that_others_have(tmp_path: Path) -> None:
    """A pass has no test log; a name that no row has is a mistake."""
    failed = {"prompt": "2 + 2?", "response": "5", "reward": 0, "log": "off by one", "topic": "sums"}
    file = lines(tmp_path, {"prompt": "2 + 2?", "response": "4", "reward": 1}, failed)
    assert rollouts(file, feedback="log", tags="topic") == [
        IngestedRollout("2 + 2?", "4", 1.0),
        IngestedRollout("2 + 2?", "5", 0.0, feedback="off by one", tags=("sums",)),
    ]
    assert "has no why in any row, which is its feedback" in complaint(lambda: rollouts(file, feedback="why"))


def test_tags_are_texts_and_what_is_no_text_has_its_name(tmp_path: Path) -> None:
    row = {
        "prompt": "a",
        "response": "b",
        "reward": 1,
        "topic": "algebra",
        "meta": {"level": 3, "of": ["x", "y"]},
    }
    file = lines(tmp_path, row)
    tags = {"topic": ["algebra"], "topic+meta.level": ["algebra", "level=3"], "meta.of": ["x", "y"]}
    for path, expected in {**tags, "meta": ["level=3", "of=x", "of=y"]}.items():
        assert [list(each.tags) for each in rollouts(file, tags=path)] == [expected]
    assert "has no kind" in complaint(lambda: rollouts(file, tags="kind"))
    file = lines(tmp_path, row | {"tags": "long" * 100})
    assert "its tags is not a text of up to 200 characters" in complaint(lambda: rollouts(file))


def test_the_pass_rate_of_each_tag_is_shown(home: Home) -> None:
    found = [
        {"prompt": f"{kind} {n}", "response": f"{n} {r}", "reward": r, "kind": kind}
        for kind, rewards in (("sums", (1, 1)), ("signs", (1, 0)), ("<b>odd</b>", (0, 0)))
        for n in range(2)
        for r in rewards
    ]
    assert home.ingest(found, "--map", "tags=kind").exit_code == 0
    rates = json.loads(home.run("runs", "show", "own", "--json").stdout)["data"]["pass_rates"]["tags"]
    assert [(each["tag"], each["passes"], each["rollouts"]) for each in rates] == [
        ("<b>odd</b>", 0, 4),
        ("signs", 2, 4),
        ("sums", 4, 4),
    ]
    shown = home.run("runs", "show", "own").stdout.splitlines()
    assert ["tag", "signs", "0.500", "0.095", "0.905", "2", "4", "2"] in [line.split() for line in shown]
    home.run("view", "--export", str(home.path / "pages"))
    page = (home.path / "pages" / "own" / "index.html").read_text()
    assert "Pass rate by tag" in page
    assert "&lt;b&gt;odd&lt;/b&gt;" in page


def test_a_prompt_that_holds_its_response_is_named_as_that(tmp_path: Path) -> None:
    said = [f"I add the numbers one by one, and come to {n}." for n in range(4)]
    turns = [[{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": each}] for each in said]
    file = lines(tmp_path, *({"messages": each, "reward": n % 2} for n, each in enumerate(turns)))
    notes: list[str] = []
    assert len(rollouts(file, notes.append, prompt="messages", response="messages.-1.content")) == 4
    assert "4 of 4 prompts end with their own response" in notes[0]
    assert rollouts(file, prompt="messages.0.content", response="messages.-1.content")


def test_an_array_beside_lines_is_not_left_out_in_silence(tmp_path: Path) -> None:
    (tmp_path / "more.json").write_text("[]")
    with pytest.raises(ConfigError) as error:
        rollouts(tmp_path)
    assert error.value.hint == f"name a JSON array alone: {tmp_path / 'more.json'}"
    lines(tmp_path, {"prompt": "a", "response": "b", "reward": 1})
    notes: list[str] = []
    assert len(rollouts(tmp_path, notes.append)) == 1
    assert "more.json is not read beside the other files" in notes[0]


def test_the_epochs_of_an_evaluation_are_no_steps(tmp_path: Path) -> None:
    rows = [{"prompt": "a", "response": "b", "reward": 1, "epoch": n} for n in (1, 2)]
    assert len(rollouts(lines(tmp_path, *rows))) == 2


def test_examples_before_every_prompt_are_left_out_of_lists(home: Home) -> None:
    found = [
        {"prompt": f"{EXAMPLES}Question: {n} + 1?\nAnswer:", "response": f"{n} {r}", "reward": r}
        for n in range(20, 24)
        for r in (0, 1)
    ]
    assert home.ingest(found).exit_code == 0
    shown = home.run("runs", "show", "own").stdout
    assert "…Question: 20 + 1?" in shown
    assert "Question: 1 + 1?" not in shown
    assert "on “Question: 20 + 1? ⏎ Answer:”" in shown


def test_two_models_in_one_folder_of_lm_eval_are_refused(tmp_path: Path) -> None:
    shutil.copytree(DATA / "lm_eval", tmp_path, dirs_exist_ok=True)
    dates = [file.stem.rpartition("_")[2] for file in sorted(tmp_path.glob("samples_*.jsonl"))]
    for date, model in zip(dates, ["small", "small", "large", "small"], strict=True):
        (tmp_path / f"results_{date}.json").write_text(json.dumps({"model_name": model, "date": 1.5}))
    said = complaint(lambda: list(read("lm-eval", tmp_path, reward="exact_match,boxed", on_cut=pytest.fail)))
    assert "evaluations of several models: large, small" in said
    (tmp_path / f"results_{dates[2]}.json").write_text(json.dumps({"model_name": "small"}))
    [step] = read("lm-eval", tmp_path, reward="exact_match,boxed", on_cut=pytest.fail)
    assert len(step.rollouts) == 32
