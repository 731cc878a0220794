import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from diagevo.errors import MissingDependencyError
from diagevo.evaluation.benchmarks import BENCHMARKS, Hub, benchmark
from diagevo.evaluation.question_files import load, spread

DATA = Path(__file__).parents[2] / "../shared/data"
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason="the benchmark files of ../shared/data are not here"
)


def write_rows(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_there_are_the_papers_nine_benchmarks_and_its_validation_set() -> None:
    by_group = Counter(entry.group for entry in BENCHMARKS)
    assert by_group == {"mathematics": 5, "general": 4, "validation": 1}
    assert [(entry.name, entry.metric) for entry in BENCHMARKS if entry.samples > 1] == [("amc", "mean@32")]
    assert all(part.licence and part.hub.id for entry in BENCHMARKS for part in entry.parts)


def test_gsm8k_keeps_what_stands_behind_the_hashes(tmp_path: Path) -> None:
    file = write_rows(tmp_path / "gsm8k.jsonl", [{"question": "q", "answer": "4 #### 5 is\n#### 70,000"}])
    assert load(benchmark("gsm8k"), [file]).questions[0].reference == "70,000"


def test_the_hub_path_reads_a_data_set_that_datasets_can_read(tmp_path: Path) -> None:
    folder = tmp_path / "set"
    folder.mkdir()
    write_rows(folder / "test.jsonl", [{"problem": "1+1?", "answer": "2", "subject": "Algebra"}])
    entry = benchmark("math500")
    local = replace(entry, parts=(replace(entry.parts[0], hub=Hub(str(folder), "test")),))
    assert [(q.text, q.reference) for q in load(local).questions] == [("1+1?", "2")]


def test_a_set_that_cannot_be_had_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    entry = benchmark("math500")
    nowhere = replace(entry, parts=(replace(entry.parts[0], hub=Hub(str(tmp_path / "nothing"), "test")),))
    with pytest.raises(MissingDependencyError, match="--data"):
        load(nowhere)


def test_a_spread_takes_the_same_number_of_each_category_and_fills_up_from_the_large_ones() -> None:
    categories = ["a"] * 10 + ["b"] * 10 + ["c"] * 2
    chosen = [categories[i] for i in spread(categories, 12, seed=1)]
    assert Counter(chosen) == {"a": 5, "b": 5, "c": 2}
    assert spread(categories, 12, seed=1) == spread(categories, 12, seed=1)
    assert spread(categories, 12, seed=1) != spread(categories, 12, seed=2)


def test_the_validation_draw_is_300_and_300_over_all_subjects(tmp_path: Path) -> None:
    subjects = ["Algebra", "Counting & Probability", "Geometry", "Intermediate Algebra", "Number Theory"]
    subjects += ["Prealgebra", "Precalculus"]
    maths = [
        {"problem": f"{s} {i}?", "solution": rf"so \boxed{{{i}}}", "level": f"Level {i % 5 + 1}", "type": s}
        for s in subjects
        for i in range(150)
    ]
    general = [
        {"question": f"{s} {i}?", "choices": ["1", "2"], "answer": i % 2, "subject": f"subject {s}"}
        for s in range(57)
        for i in range(27)
    ]
    files = [write_rows(tmp_path / "m.jsonl", maths), write_rows(tmp_path / "g.jsonl", general)]
    loaded = load(benchmark("validation"), files)
    by_category = Counter(question.category for question in loaded.questions)
    assert len(loaded.questions) == 600
    assert sorted(by_category[s] for s in subjects) == [42, 43, 43, 43, 43, 43, 43]
    assert Counter(by_category[f"subject {s}"] for s in range(57)) == {5: 42, 6: 15}
    levels = {int(q.reference) % 5 + 1 for q in loaded.questions if q.kind == "answer"}
    assert levels == {3, 4}


@needs_data
def test_the_local_files_have_the_sizes_of_the_sets() -> None:
    assert len(load(benchmark("math500"), [DATA]).questions) == 500
    assert len(load(benchmark("gsm8k"), [DATA]).questions) == 1319
    assert len(load(benchmark("olympiadbench"), [DATA]).questions) == 60
    assert len(load(benchmark("mmlu_pro"), [DATA]).questions) == 56
    assert len(load(benchmark("bbeh"), [DATA]).questions) == 46
    validation = load(benchmark("validation"), [DATA]).questions
    assert Counter(question.kind for question in validation) == {"answer": 56, "choice": 57}
