import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from diagevo.errors import NotFoundError
from diagevo.evaluation.benchmarks import benchmark
from diagevo.evaluation.store import EvaluationStore
from diagevo.memory.history import History, open_history
from diagevo.report.files import FORMATS, markdown
from diagevo.report.tables import GROUPS, RunResult, cell, results, table

RUNS = [
    RunResult("p.full.s0", "DiagEvo (full)", "full", 0, 5, {"Math Avg.": 0.72, "General Avg.": 0.39}),
    RunResult("p.full.s1", "DiagEvo (full)", "full", 1, 5, {"Math Avg.": 0.74, "General Avg.": 0.37}),
    RunResult("p.k.s0", "k = 0.2", "k-0.2", 0, 5, {"Math Avg.": 0.71, "General Avg.": 0.38}),
]


def test_a_cell_is_the_mean_and_the_sample_deviation_in_percent() -> None:
    known = cell([0.72, 0.74])
    assert known.mean == pytest.approx(73.0)
    assert known.deviation == pytest.approx(2**0.5)  # (1² + 1²) / (2 - 1)
    assert cell([0.5]).deviation is None


def test_the_sweep_of_k_has_the_full_method_in_its_place_and_differences_from_it() -> None:
    content = table("k", RUNS)
    assert list(content.rows) == ["k = 0.2", "DiagEvo (full)"]
    assert content.differences["k = 0.2"]["Math Avg."] == pytest.approx(-2.0)
    assert "| k = 0.2 | 71.0 (-2.0) | 38.0 (+0.0) |" in markdown(content)
    assert "| DiagEvo (full) | 73.0 ± 1.4 | 38.0 ± 1.4 |" in markdown(content)


def test_csv_keeps_the_full_precision() -> None:
    lines = FORMATS["csv"](table("k", RUNS)).splitlines()
    assert lines[0] == "method,column,mean,standard_deviation,runs,difference_from_full"
    assert lines[1].startswith("k = 0.2,Math Avg.,71.0,,1,-2.0")


def test_a_table_without_runs_says_so() -> None:
    with pytest.raises(NotFoundError, match="no measured run"):
        table("tau", RUNS[2:])


def test_a_laboratory_is_named_under_its_table() -> None:
    note = table("k", RUNS, "arithmetic").note
    assert "arithmetic world" in note
    assert "free exploration mostly writes the families of the head" in note  # the premise, in one sentence


def test_a_run_counts_at_its_best_validated_round_the_earlier_of_equals(history: History) -> None:
    start, best = results(history)
    assert best.round == 1  # greedy chooses where nothing else is configured, and is 0.9 in every round
    assert best.scores == {"Val. mean@k": 0.6, "Val. greedy": 0.9}
    assert (best.label, best.seed) == ("hand (Diag. –)", 7)
    assert (start.round, start.label) == (0, "hand, untrained")
    assert start.scores == {"Val. mean@k": 0.5, "Val. greedy": 0.9}


@pytest.fixture
def measured(history: History, tmp_path: Path) -> Iterator[History]:
    """A copy of the run whose best round was measured on the five mathematical benchmarks."""
    file = history.database.file
    assert file is not None
    copy = open_history(str(shutil.copy(file, tmp_path / "log.db")), "played", root=tmp_path)
    store = EvaluationStore(copy.database)

    def record(name: str, score: float, **changes: object) -> None:
        entry = benchmark(name)
        conditions = {
            "benchmark": name,
            "whole": True,
            "samples": entry.samples,
            "temperature": entry.temperature,
            "judge": {"model": "gpt-4o"},
            "model": "m",
            "questions": entry.questions,
            "run": "played",
            "round": 1,
            **changes,
        }
        key = store.begin(conditions)
        store.finish(key, {"score": score, "score_se": 0.03})

    for name, score in zip(GROUPS["Math Avg."], (0.5, 0.6, 0.7, 0.8, 0.9), strict=True):
        record(name, score)
    record("gsm8k", 0.1, whole=False)
    record("gsm8k", 0.2, temperature=1.0)
    record("mmlu_pro", 0.4, judge=None)
    yield copy
    copy.close()


def test_only_whole_sets_by_their_own_protocol_count(measured: History) -> None:
    _, best = results(measured)
    assert best.scores["gsm8k"] == 0.8
    assert best.scores["Math Avg."] == pytest.approx(0.7)
    assert "General Avg." not in best.scores  # one of four
    assert best.scores["mmlu_pro"] == 0.4


def test_the_main_table_is_in_the_papers_order_and_names_the_judge(measured: History) -> None:
    content = table("main", results(measured))
    assert content.columns[:7] == (*GROUPS["Math Avg."], "Math Avg.", "mmlu_pro")
    text = markdown(content)
    assert "Judge behind the rule: gpt-4o." in text
    assert "| hand (Diag. –) | 50.0 | 60.0 | 70.0 | 80.0 | 90.0 | 70.0 | 40.0 |" in text


def test_a_table_says_where_no_judge_stood_behind_the_rule(measured: History) -> None:
    _, best = results(measured)
    alone = "the rule alone decided, where the paper's mathematics have GPT-4o as judge."
    assert f" No judge: {alone}" in markdown(table("main", [replace(best, judges=("none",))]))
    both = markdown(table("main", [replace(best, judges=("none", "gpt-4o"))]))
    assert f" Judge behind the rule: gpt-4o; in part none: {alone}" in both
    assert "udge" not in markdown(table("main", [replace(best, judges=())]))  # nothing that a judge would see


def test_markdown_of_a_hostile_name_keeps_its_columns() -> None:
    runs = [replace(RUNS[0], label="a | b *c*"), *RUNS]
    line = next(line for line in markdown(table("main", runs)).splitlines() if "a " in line and "b" in line)
    assert line.startswith(r"| a \| b \*c\* |")
