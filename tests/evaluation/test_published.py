"""Every benchmark from local files with the columns of its hub set, in every format."""

import json
from pathlib import Path

import polars
import pytest

from diagevo.errors import ConfigError
from diagevo.evaluation.benchmarks import BENCHMARKS, CHOICE_INSTRUCTION, TEXT_INSTRUCTION, benchmark
from diagevo.evaluation.question_files import load

from .published import ROWS, write, write_folder

DATA = Path(__file__).parents[2] / "../shared/data"
FORMATS = ("jsonl", "json", "parquet", "csv")
REFERENCES = {
    "amc": ["504", "1.5"],
    "minerva": ["6", "2m"],
    "math500": ["2", r"\frac14"],
    "gsm8k": ["5", "1,002"],
    "olympiadbench": ["$4$", "2"],
    "mmlu_pro": ["B", "J"],
    "supergpqa": ["A", "C"],
    "bbeh": ["unknown", "a, b"],
    "validation": ["4", "B", "A"],  # of MATH only level 3 is wanted
}


def test_the_references_are_known_for_every_benchmark_but_the_shuffled_one() -> None:
    assert {entry.name for entry in BENCHMARKS} == {*REFERENCES, "gpqa_diamond"}


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("name", REFERENCES)
def test_a_benchmark_is_read_from_its_published_columns(tmp_path: Path, name: str, suffix: str) -> None:
    loaded = load(benchmark(name), [write_folder(tmp_path / suffix, suffix)])
    assert [question.reference for question in loaded.questions] == REFERENCES[name]
    assert loaded.digest == load(benchmark(name), [write_folder(tmp_path / "as", "jsonl")]).digest


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_gpqa_shows_its_options_in_an_order_that_the_seed_decides(tmp_path: Path, suffix: str) -> None:
    folder = write_folder(tmp_path, suffix)
    orders = set()
    for seed in range(12):
        first, second = load(benchmark("gpqa_diamond"), [folder], seed=seed).questions
        shown = dict(line.split(" ", 1) for line in first.text.split("\n\n")[1].splitlines())
        assert shown[f"({first.reference})"] == "this"
        assert sorted(shown.values()) == ["that", "these", "this", "those"]
        assert f"({second.reference}) yes" in second.text
        assert load(benchmark("gpqa_diamond"), [folder], seed=seed).questions == (first, second)
        orders.add(first.reference)
    assert orders == {"A", "B", "C", "D"}


def test_a_question_carries_its_options_and_how_to_answer(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, "jsonl")
    choice = load(benchmark("supergpqa"), [folder]).questions[1]
    assert choice.text == f"Which is a fish?\n\n(A) cat\n(B) dog\n(C) cod\n\n{CHOICE_INSTRUCTION}"
    assert (choice.options, choice.category) == (3, "Agronomy")
    text = load(benchmark("bbeh"), [folder]).questions[1]
    assert text.text == f"Sort b, a.\n\n{TEXT_INSTRUCTION}"
    assert load(benchmark("amc"), [folder]).questions[0].text == "How many ways to seat 3 of 9?"


@pytest.mark.skipif(not DATA.is_dir(), reason="the benchmark files of ../shared/data are not here")
@pytest.mark.parametrize("suffix", ["parquet", "csv"])
@pytest.mark.parametrize(("name", "size"), [("math500", 500), ("gsm8k", 1319)])
def test_a_whole_set_is_the_same_in_every_format(tmp_path: Path, name: str, size: int, suffix: str) -> None:
    rows = [json.loads(line) for line in (DATA / f"{name}_test.jsonl").read_text().splitlines()]
    loaded = load(benchmark(name), [write(tmp_path / f"{name}.{suffix}", rows)])
    assert len(loaded.questions) == size == benchmark(name).questions
    assert loaded.digest == load(benchmark(name), [DATA]).digest


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("amc", {"answer": None}, r"amc, row 2: no column answer; there are: id, question, answer, url"),
        ("minerva", {"problem": " "}, "minerva, row 2: the question is empty"),
        ("minerva", {"answer": ""}, "minerva, row 2: the reference answer is empty"),
        ("olympiadbench", {"final_answer": "4"}, "olympiadbench, row 2: a list is needed, not 4"),
        ("olympiadbench", {"final_answer": []}, "olympiadbench, row 2: "),
        ("mmlu_pro", {"options": ["1"]}, "mmlu_pro, row 2: the right option is number 10 of 1"),
        ("mmlu_pro", {"answer": "AB"}, "mmlu_pro, row 2: column answer should hold a letter, not 'AB'"),
        ("supergpqa", {"options": "cat, dog"}, "supergpqa, row 2: a list is needed as JSON, not 'cat, dog'"),
        ("gpqa_diamond", {"Incorrect Answer 2": None}, "gpqa_diamond, row 2: no column Incorrect Answer 2"),
    ],
)
def test_a_wrong_column_names_the_row_and_what_is_there(
    tmp_path: Path, name: str, change: dict[str, object], says: str
) -> None:
    first, second = ROWS[name]
    file = write(tmp_path / f"{name}.jsonl", [first, second | change])
    with pytest.raises(ConfigError, match=says) as raised:
        load(benchmark(name), [file])
    assert benchmark(name).parts[0].hub.id in (raised.value.hint or "")


def test_a_solution_without_a_box_and_a_missing_level_are_named(tmp_path: Path) -> None:
    first, _ = ROWS["math_train"]
    other = write(tmp_path / "mmlu_val.jsonl", ROWS["mmlu_val"])
    for change, says in (
        ({"solution": "4"}, "has no box"),
        ({"level": None}, "row 1: no column level"),
        ({"type": None}, "math_train: rows without the column type or subject"),
    ):
        file = write(tmp_path / "math_train.jsonl", [first | change])
        with pytest.raises(ConfigError, match=says):
            load(benchmark("validation"), [file, other])


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.jsonl", b'{"question": 1}\n[1, 2]\n', r"a\.jsonl, row 2: not an object with columns"),
        ("a.json", b'{"question": 1}', "does not hold a list of rows"),
        ("a.json", b"[", r"a\.json cannot be read"),
        ("a.jsonl", b'{"problem": \n', "line 1"),
        ("a.jsonl", b"\xff\xfe", r"a\.jsonl cannot be read"),
        ("a.csv", b"question,answer\n\xff,1\n", r"a\.csv cannot be read"),
        ("a.parquet", b"no parquet at all", r"a\.parquet cannot be read"),
        ("a.txt", b"x", "rows cannot be read from .txt"),
    ],
)
def test_a_file_that_is_not_what_its_name_says(tmp_path: Path, name: str, content: bytes, says: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=says):
        load(benchmark("amc"), [tmp_path / name])


def test_a_set_of_two_parts_needs_two_files_or_a_folder(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, "csv")
    one = folder / "math_train.csv"
    with pytest.raises(ConfigError, match="one file for each of math_train, mmlu_val, not from 1"):
        load(benchmark("validation"), [one])
    assert (
        load(benchmark("validation"), [one, folder / "mmlu_val.csv"]).source == "math_train.csv, mmlu_val.csv"
    )
    (folder / "math_train.csv").unlink()
    with pytest.raises(ConfigError, match="should hold one file for math_train; found none"):
        load(benchmark("validation"), [folder])


def test_a_benchmark_without_its_category_is_read_without(tmp_path: Path) -> None:
    rows = [{key: value for key, value in row.items() if key != "subfield"} for row in ROWS["olympiadbench"]]
    loaded = load(benchmark("olympiadbench"), [write(tmp_path / "olympiadbench.jsonl", rows)])
    assert [(q.reference, q.category) for q in loaded.questions] == [("$4$", None), ("2", None)]


def test_an_empty_file_is_no_benchmark(tmp_path: Path) -> None:
    polars.DataFrame({"question": [], "answer": []}).write_csv(tmp_path / "amc.csv")
    with pytest.raises(ConfigError, match="holds no question"):
        load(benchmark("amc"), [tmp_path])
