"""Figures that other systems report: read from a CSV, marked in the table, never counted as runs."""

import re
from pathlib import Path

import pytest

from diagevo.errors import ConfigError, NotFoundError
from diagevo.report.reported import baselines, read_reported, with_reported
from diagevo.report.scores import RunResult
from diagevo.report.table_text import latex, markdown
from diagevo.report.tables import table

ROOT = Path(__file__).parents[2]
SOURCE = ROOT.parent / "shared" / "paper" / "diagevo.tex"
OTHERS = """solver,method,source,GSM8K,Math Avg.,General Avg.,Overall
Qwen3-8B-Base,R-Zero,DARC,92.1,67.6,36.3,53.7
Qwen3-8B-Base,SPICE,DARC,93.8,67.9,36.5,53.9
Qwen3-8B-Base,Base,DARC,,63.3,33.1,49.9
"""
SOLVER = "Qwen/Qwen3-8B-Base"
SCORES = {"gsm8k": 0.923, "Math Avg.": 0.678, "General Avg.": 0.362, "Overall": 0.538}
RUNS = [
    RunResult("a", f"{SOLVER}, R-Zero", None, 0, 4, SCORES, solver=SOLVER, system="R-Zero"),
    RunResult("b", f"{SOLVER} (Diag. 4B)", None, 0, 5, {"Math Avg.": 0.723}, solver=SOLVER, system="DiagEvo"),
]


def given(folder: Path, text: str = OTHERS) -> Path:
    file = folder / "others.csv"
    file.write_text(text, encoding="utf-8")
    return file


def test_reported_rows_stand_in_the_main_table_marked_and_named(tmp_path: Path) -> None:
    content = with_reported(table("main", RUNS), RUNS, read_reported(given(tmp_path)))
    text = markdown(content)
    assert "| Qwen3-8B-Base: SPICE† | 93.8 | 67.9 | 36.5 | 53.9 |" in text
    assert "| Qwen3-8B-Base: Base† | – | 63.3 | 33.1 | 49.9 |" in text
    assert "| Qwen/Qwen3-8B-Base, R-Zero | 92.3 | 67.8 | 36.2 | 53.8 |" in text
    assert "† Reported, not measured here (DARC)." in text
    assert r"SPICE$\dagger$" in latex(content)
    assert "R-Zero†" not in text  # measured here
    assert not content.differences


def test_the_baselines_are_reported_beside_reproduced_where_both_are_known(tmp_path: Path) -> None:
    """The paper's row of Qwen3-8B-Base: R-Zero 67.6, 36.3, 53.7 reported, 67.8, 36.2, 53.8 reproduced."""
    content = baselines(RUNS, read_reported(given(tmp_path)))
    assert list(content.rows) == [
        "Qwen3-8B-Base: R-Zero (reported)",
        "Qwen3-8B-Base: R-Zero (reproduced)",
    ]
    assert "| Qwen3-8B-Base: R-Zero (reproduced) | 67.8 | 36.2 | 53.8 |" in markdown(content)
    with pytest.raises(NotFoundError, match="both reported and measured"):
        baselines(RUNS[1:], read_reported(given(tmp_path)))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "there is no column solver"),
        ("solver,method\nq,SPICE\n", "there is no column source"),
        ("solver,method,source,GSM9K\nq,m,s,1\n", "there is no column 'GSM9K' in the table"),
        ("solver,method,source,GSM8K\n", "has no line below its head"),
        ("solver,method,source,GSM8K\nq,m,s,high\n", "line 2: 'high' is not a percentage"),
        ("solver,method,source,GSM8K\nq,m,s,101\n", "line 2: '101' is not a percentage"),
        ("solver,method,source,GSM8K\nq,m,s,nan\n", "line 2: 'nan' is not a percentage"),
        ("solver,method,source,GSM8K\n,m,s,1\n", "line 2: no solver"),
        ("solver,method,source,GSM8K\nq,m,s\n", "line 2: not as many cells as the head"),
        ("solver,method,source,GSM8K\nq,m,s,1,2\n", "line 2: not as many cells as the head"),
        ("solver,method,source,GSM8K\nq,m,s,1\nq,m,t,2\n", "q: m is given twice"),
        ('solver,method,source,GSM8K\nq,m,"s,1\n', "cannot be read as CSV"),
    ],
)
def test_a_csv_that_is_wrong_is_refused_with_its_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_reported(given(tmp_path, text))
    assert says in caught.value.message


def test_a_file_that_is_not_there_or_not_text_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.csv cannot be read as CSV: No such file"):
        read_reported(tmp_path / "none.csv")
    (tmp_path / "others.csv").write_bytes(b"solver,method,source\n\xff")
    with pytest.raises(ConfigError, match="cannot be read as CSV"):
        read_reported(tmp_path / "others.csv")


def test_the_example_has_what_the_paper_reports_of_others() -> None:
    reported = {
        (each.solver, each.method): each.scores for each in read_reported(ROOT / "examples/reported.csv")
    }
    assert len(reported) == 17  # 4 + 4 + 3 of Table 1, Base and R-Zero of three solvers of Table 7
    assert reported["Qwen3-8B-Base", "DARC"]["Overall"] == 56.3
    assert reported["OctoThinker-8B-Hybrid-Base", "R-Zero"] == {
        "Math Avg.": 46.4,
        "General Avg.": 21.2,
        "Overall": 35.2,
    }
    if not SOURCE.exists():
        pytest.skip("the paper's source is not beside this checkout")
    lines = [line for line in SOURCE.read_text(encoding="utf-8").splitlines() if r"$^{\dagger}$ &" in line]
    numbers = [[float(n) for n in re.findall(r"(?<![\d.])\d+\.\d(?!\d)", line)] for line in lines]
    ours = [scores for (_, method), scores in reported.items() if method not in ("Base", "R-Zero")]
    assert sorted(sorted(scores.values()) for scores in ours) == sorted(map(sorted, numbers))
