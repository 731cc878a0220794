import random
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import diagevo
from diagevo.errors import NotFoundError
from diagevo.evaluation.benchmarks import benchmark
from diagevo.evaluation.store import EvaluationStore
from diagevo.memory.events import CheckpointEvaluated
from diagevo.memory.history import History, open_history
from diagevo.memory.transfer.fork import fork
from diagevo.report.files import FORMATS, markdown
from diagevo.report.paper_tables import GROUPS, ReportTable, RunResult, cell, results, table
from tests.memory.audit.played import CONFIG
from tests.memory.audit.random_play import play_on, play_randomly

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


GREEDY = {"a": 0.9, "b": 0.7, "k1": 0.5, "again": 0.9, "onward": 0.3, "reseeded": 0.1}
HARDWARE = {"hardware": {"device": "cuda"}, "diagnosis": {"workers": 3}}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Run a, one with another seed, one with another k, one played twice, and two forks of a."""
    root = tmp_path_factory.mktemp("replicates")
    url = f"sqlite:///{root / 'log.db'}"
    half = {**CONFIG, "schedule": {"k": "1/2"}}
    one = {**CONFIG, "schedule": {"k": "1"}}
    given: dict[str, dict[str, Any]] = {
        "a": {**half, "seed": 1},
        "b": {**half, **HARDWARE, "seed": 2},
        "k1": {**one, "seed": 3},
        "again": {**half, "seed": 1},
    }
    for name, config in given.items():
        play_randomly(url, name, 5, root=root, rounds=2, pool=4, config=config)
        _validate(url, name, root, {1: 0.01, 2: GREEDY[name]})
    for name, config in (("onward", {**one, "seed": 1}), ("reseeded", {**half, "seed": 4})):
        history = open_history(url, "a", root=root)
        fork(history, 2, name, config, root=root)
        history.close()
        with diagevo.open(url, name, root=root) as memory:
            play_on(memory, random.Random(5), rounds=1, pool=4)
        _validate(url, name, root, {3: GREEDY[name]})
    return url


def _validate(url: str, name: str, root: Path, greedy: Mapping[int, float]) -> None:
    with diagevo.open(url, name, root=root) as memory:
        for number, share in greedy.items():
            memory.evaluated(
                CheckpointEvaluated(
                    role="solver",
                    checkpoint=f"rounds/{number}",
                    benchmark="validation",
                    questions=100,
                    conditions={},
                    metrics={"greedy": share},
                ),
                number,
            )


def _results(url: str, *names: str) -> list[RunResult]:
    found = []
    for name in names:
        history = open_history(url, name)
        found += [result for result in results(history) if result.run_id == name]
        history.close()
    return found


def _rows(content: ReportTable) -> dict[str, tuple[float, int]]:
    greedy = {label: cells["Val. greedy"] for label, cells in content.rows.items()}
    return {label: (round(cell.mean, 1), cell.runs) for label, cell in greedy.items()}


def test_runs_with_other_seeds_are_replicates_wherever_they_were_played(url: str) -> None:
    content = table("main", _results(url, "a", "b"))
    assert _rows(content) == {"hand (Diag. –)": (80.0, 2)}
    assert content.note.startswith("Runs a, b, each at its best validated round: mean ± standard")


def test_runs_that_differ_in_a_setting_of_the_method_stand_apart_by_it(url: str) -> None:
    content = table("main", _results(url, "a", "b", "k1"))
    assert _rows(content) == {
        "hand (Diag. –), schedule.k 0.5": (80.0, 2),
        "hand (Diag. –), schedule.k 1": (50.0, 1),
    }
    assert "Runs a, b, k1, each" in content.note
    assert all("schedule.k 1" in form(content) for form in FORMATS.values())


def test_a_run_that_was_played_twice_is_no_replicate(url: str) -> None:
    assert _rows(table("main", _results(url, "a", "again"))) == {
        "hand (Diag. –), run a": (90.0, 1),
        "hand (Diag. –), run again": (90.0, 1),
    }


@pytest.mark.parametrize("beside", ["a", "onward"])
def test_runs_that_share_rounds_by_a_fork_stand_apart(url: str, beside: str) -> None:
    """A fork of equal settings and another seed shares two of its three rounds, with a and with a's other
    fork."""
    rows = _rows(table("main", _results(url, beside, "reseeded")))
    assert sorted(mean for mean, _ in rows.values()) == [10.0, 100 * GREEDY[beside]]
    assert {runs for _, runs in rows.values()} == {1}


def test_a_fork_says_which_rounds_were_played_with_what(url: str) -> None:
    assert list(table("k", _results(url, "k1", "a", "onward")).rows) == [
        "k = 0.5",
        "k = 0.5 in rounds 1 to 2, 1 in round 3",
        "k = 1",
    ]


def test_a_sweep_of_runs_without_a_plan_has_a_row_a_value(url: str) -> None:
    content = table("k", _results(url, "k1", "a", "b"))
    assert _rows(content) == {"k = 0.5": (80.0, 2), "k = 1": (50.0, 1)}
    assert content.differences == {}  # which of them is the full method, no plan says
    assert list(table("tau", _results(url, "a", "k1")).rows) == [
        "τ = 1.6, schedule.k 0.5",
        "τ = 1.6, schedule.k 1",
    ]


def test_an_untrained_model_is_measured_once_however_many_runs_began_with_it() -> None:
    begun = [RunResult(name, "hand, untrained", None, 0, 0, {"Val. greedy": 0.5}) for name in "ab"]
    other = RunResult("c", "hand, untrained", None, 1, 0, {"Val. greedy": 0.7})
    assert _rows(table("main", begun)) == {"hand, untrained": (50.0, 1)}
    assert _rows(table("main", [*begun, other])) == {"hand, untrained": (60.0, 2)}
    assert "60.0 ± 14.1" in markdown(table("main", [*begun, other]))  # √((10² + 10²) / 1)
