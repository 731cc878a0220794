import pytest

from diagevo.errors import NotFoundError
from diagevo.memory.history import History
from diagevo.report.tables import Outcome, cell, latex, markdown, outcome, rendered, table

RUNS = [
    Outcome("p.full.s0", "DiagEvo (full)", "full", 0, 5, {"Math Avg.": 0.72, "General Avg.": 0.39}),
    Outcome("p.full.s1", "DiagEvo (full)", "full", 1, 5, {"Math Avg.": 0.74, "General Avg.": 0.37}),
    Outcome("p.k.s0", "k = 0.2", "k-0.2", 0, 5, {"Math Avg.": 0.71, "General Avg.": 0.38}),
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


def test_latex_marks_the_best_means_and_escapes_text() -> None:
    text = latex(table("k", RUNS))
    assert r"\textbf{73.0} {\scriptsize$\pm$1.4}" in text
    assert text.count(r"\textbf{38.0}") == 2  # a tie: both
    assert "±" not in text
    assert text.count("{") == text.count("}")


def test_csv_keeps_the_full_precision() -> None:
    lines = rendered(table("k", RUNS), "csv").splitlines()
    assert lines[0] == "method,column,mean,standard_deviation,runs,difference_from_full"
    assert lines[1].startswith("k = 0.2,Math Avg.,71.0,,1,-2.0")


def test_a_table_without_runs_says_so() -> None:
    with pytest.raises(NotFoundError, match="no measured run"):
        table("tau", RUNS[2:])


def test_a_laboratory_is_named_under_its_table() -> None:
    assert "arithmetic world" in table("k", RUNS, "arithmetic").note


def test_a_run_counts_at_its_best_validated_round_the_earlier_of_equals(history: History) -> None:
    found = outcome(history)
    assert found is not None
    assert found.round == 1  # greedy chooses where nothing else is configured, and is 0.9 in every round
    assert found.scores == {"Val. mean@k": 0.6, "Val. greedy": 0.9}
    assert (found.label, found.seed) == ("hand (Diag. –)", 7)
