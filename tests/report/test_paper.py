"""Every table and figure of the paper that a run can make stands in the guide by its number."""

import re
import string
from dataclasses import replace
from pathlib import Path

import pytest

from diagevo.config.loading import of_profile
from diagevo.errors import NotFoundError
from diagevo.memory.history import open_history
from diagevo.report.case import cases
from diagevo.report.figure import Figure, Missing
from diagevo.report.figures import FIGURES, draw
from diagevo.report.files import markdown
from diagevo.report.paper_tables import TITLES, TableName
from diagevo.report.report_data import Material, StageTime, Validation, spent_on
from diagevo.report.run_tables import settings_table, time_table
from tests.memory.audit import played

ROOT = Path(__file__).parents[2]
SOURCE = ROOT.parent / "shared" / "paper" / "diagevo.tex"
LABELS = {
    "intro": ("fig:intro",),
    "performance": ("fig:dynamics_perf",),
    "memory": ("fig:dynamics_memory",),
    "labels": ("fig:dynamics_label",),
    "case": ("fig:case_study",),
    "length": ("fig:props_length",),
    "diversity": ("fig:props_diversity",),
    "difficulty": ("fig:props_difficulty",),
    "coverage": ("fig:coverage", "fig:coverage_r3", "fig:coverage_r4", "fig:coverage_r5"),
    "table-main": ("tab:main_results",),
    "table-ablation": ("tab:ablation",),
    "table-grpo": ("tab:appendix_grpo",),
    "table-training": ("tab:appendix_diagevo",),
    "table-thresholds": ("tab:appendix_thresholds",),
    "table-time": ("tab:appendix_runtime",),
    "table-fixed": ("tab:ablation_fixed_ratio",),
    "table-k": ("tab:ablation_k",),
    "table-tau": ("tab:ablation_tau",),
}
NOT_OF_A_RUN = {"fig:overview", "fig:dynamics", "fig:question_properties", "tab:appendix_repro"}
"""A drawing of the method, two figures known by their parts, and a table of what other systems report."""


def numbered(source: str) -> dict[str, str]:
    """The number that LaTeX gives each label of a table or figure, appendix included."""
    found, counts = {}, {"table": 0, "figure": 0}
    floats = re.findall(r"\\begin\{(table|figure)\*?\}(.*?)\\end\{\1\*?\}", source, re.DOTALL)
    for kind, body in floats:
        counts[kind] += 1
        number = f"{kind.capitalize()} {counts[kind]}"
        parts = re.findall(r"\\begin\{subfigure\}(.*?)\\end\{subfigure\}", body, re.DOTALL)
        inner = [re.findall(r"\\label\{(.+?)\}", part)[0] for part in parts]
        for letter, label in zip(string.ascii_lowercase, inner, strict=False):
            found[label] = number + letter
        found |= {label: number for label in re.findall(r"\\label\{(.+?)\}", body) if label not in inner}
    return found


def guide() -> dict[str, str]:
    """Names of `report build --only` with the numbers that the guide gives them."""
    text = (ROOT / "docs" / "howto" / "measure.md").read_text(encoding="utf-8")
    return dict(re.findall(r"^\| `([a-z-]+)` \| ((?:Figure|Table) \d+[a-z]?) \|$", text, re.MULTILINE))


def test_the_guide_has_every_name_of_a_figure_or_table() -> None:
    assert list(guide()) == [*(entry.name for entry in FIGURES), *(f"table-{name}" for name in TITLES)]
    assert set(guide()) == set(LABELS)


def test_every_label_of_the_paper_is_known_by_its_number() -> None:
    if not SOURCE.exists():
        pytest.skip("the paper's source is not beside this checkout")
    source = SOURCE.read_text(encoding="utf-8")
    labels = set(re.findall(r"\\label\{((?:tab|fig):.+?)\}", source))
    numbers = numbered(source)
    assert set(numbers) == labels
    assert {label for own in LABELS.values() for label in own} | NOT_OF_A_RUN == labels
    for name, number in guide().items():  # the parts of Figure 6 are one figure
        assert {numbers[label].rstrip("abc" if name == "coverage" else "") for label in LABELS[name]} == {
            number
        }


def validated(material: Material, run: str, *means: float) -> Material:
    """A run whose validation came to `means` after rounds 0, 1, 2…"""
    points = tuple(
        Validation(number, "validation", 100, {"samples": 8}, {"mean_at_k": mean, "greedy": 0.9})
        for number, mean in enumerate(means)
    )
    return replace(material, run_id=run, validations=points)


def test_curves_of_one_figure_are_of_the_measure_that_most_runs_have(material: Material) -> None:
    greedy = replace(
        validated(material, "other"),
        validations=(Validation(1, "validation", 9, {}, {"greedy": 0.7}),),
    )
    figure = draw("intro", [greedy, replace(greedy, run_id="third"), material])
    assert isinstance(figure, Figure)
    assert "the greedy answers to the validation set" in figure.caption
    nothing = replace(greedy, validations=())
    assert isinstance(draw("intro", [nothing]), Missing)


def test_the_first_figure_has_lengths_as_bars_and_accuracies_as_lines(material: Material) -> None:
    figure = draw("intro", [material, validated(material, "other", 0.5, 0.6)])
    assert isinstance(figure, Figure)
    words = [row for row in figure.rows if "words" in row]
    lines = [row for row in figure.rows if "accuracy" in row]
    assert {row["run"] for row in words} == {"played", "other"}
    assert [row["accuracy"] for row in lines if row["run"] == "played"] == [60.0, 70.0, 70.0, 65.0]
    texts = [len(question.text.split()) for question in material.questions(1)]
    assert words[0]["words"] == pytest.approx(sum(texts) / len(texts))


def test_the_case_study_is_one_cause_from_its_failure_to_its_promotion(material: Material) -> None:
    first = cases(material)[0]
    figure = draw("case", [material])
    assert isinstance(figure, Figure)
    curve = [row for row in figure.rows if "round" in row]
    promoted = next(
        p
        for p in material.promotions
        if (p.cause_id, p.round) == (first.promotion.cause_id, curve[-1]["round"])
    )
    assert curve[-1]["exact"] == str(promoted.consistency)
    assert curve[-1]["questions"] == promoted.questions
    assert [row["state"] for row in curve] == ["Active"] * (len(curve) - 1) + ["Mastered"]
    told = [row["text"] for row in figure.rows if "text" in row]
    origin = material.origins[promoted.cause_id]
    assert told[0].startswith(f"(a) {origin} failed on: ")
    failed, compared = material.trajectories[origin]
    assert failed
    assert compared != failed
    assert told[1:3] == [f"    what failed: {failed}", f"    what it was compared with: {compared}"]
    assert f"diagevo memory why {promoted.cause_id} --run played --full" in figure.caption


def test_a_promotion_counts_the_questions_since_the_one_before(material: Material) -> None:
    """c2 is promoted in round 3, fails again and is promoted in 4: the second case begins after the first."""
    by_place = {(case.promotion.cause_id, case.promotion.round): case for case in cases(material)}
    assert by_place["c2", 4].rounds == [4]
    assert set(by_place["c2", 3].rounds) <= {1, 2, 3}


def test_the_tables_of_settings_have_the_papers_numbers_in_its_order(tmp_path: Path) -> None:
    """Rows and values from the paper's source; beside them a run of the embedded profile."""
    if not SOURCE.exists():
        pytest.skip("the paper's source is not beside this checkout")
    config = of_profile("embedded").config.model_dump(mode="json")
    played.play(f"sqlite:///{tmp_path / 'log.db'}", "mine", root=tmp_path, rounds=1, config=config)
    history = open_history(str(tmp_path / "log.db"), "mine", root=tmp_path)
    source = SOURCE.read_text(encoding="utf-8")
    labels: dict[TableName, str] = {"grpo": "grpo", "training": "diagevo", "thresholds": "thresholds"}
    for name, label in labels.items():
        body = source.partition(f"\\label{{tab:appendix_{label}}}")[2].partition(r"\midrule")[2]
        lines = body.partition(r"\bottomrule")[0].strip().splitlines()
        values = [line.rpartition("&")[2].strip().rstrip("\\").strip(" $") for line in lines]
        numbers = [float(re.sub(r" \\times 10\^\{(-?\d+)\}", r"e\1", value)) for value in values]
        rows = settings_table(name, history).rows
        mine = [cells["the paper"].mean for label, cells in rows.items() if ", solver" not in label]
        assert mine == numbers
    text = markdown(settings_table("grpo", history))
    assert "| Learning rate, solver | 1e-06 | 0.0004 |" in text
    assert "| Learning rate, challenger | 1e-06 | 0.0004 |" in text
    assert "| Relative confidence threshold τ | 1.6 | 1.6 |" in markdown(
        settings_table("thresholds", history)
    )
    history.close()


def test_the_time_table_has_the_papers_shares_beside_the_runs(material: Material) -> None:
    """The solver's stage took 40 s: 4 s of them waited for extraction, and 9 s more ran beside training. An
    attempt that was abandoned took 10 s; between the stages 2 s went, and 0.5 s to the schedule; all in all
    100 s."""
    parts = {"extraction": 4.0, "beside training": 9.0, "orchestration": 2.0, "scheduling": 0.5}
    done = StageTime(1, "solver", "completed", 40.0, parts)
    parts = {"extraction": 1.0, "deduplication": 2.0, "assignment": 3.0, "consolidation": 3.5}
    diagnosed = StageTime(1, "diagnosis", "completed", 10.0, parts)
    given_up = StageTime(1, "solver", "abandoned", 10.0, None)
    spent = [*spent_on(done), *spent_on(diagnosed), *spent_on(given_up), ("votes", 37.5)]
    content = time_table(replace(material, seconds=tuple((1, part, s) for part, s in spent)))
    own = {part: cells["time (%)"].mean for part, cells in content.rows.items() if "time (%)" in cells}
    assert own == {
        "challenger optimization": 0.0,
        "candidate generation": 0.0,
        "labels and filtering": 37.5,
        "solver optimization": 36.0,
        "diagnosis and memory, in all": 14.5,
        "– error-cause extraction": 5.0,
        "– deduplication and node assignment": 5.0,
        "– skill-node consolidation": 3.5,
        "– state and frequency update, scheduling": 1.0,
        "other orchestration": 2.0,
        "abandoned attempts": 10.0,
    }
    assert "9 s of it ran beside" in content.note
    text = markdown(content)
    assert "| Component | time (%) | seconds | the paper (%) |" in text
    assert "| labels and filtering | 37.5 | 37.5 | 30.3 |" in text
    assert "| other orchestration | 2.0 | 2.0 | 0.1 |" in text
    old = markdown(time_table(replace(material, seconds=((1, "votes", 90.0),))))
    assert "| other orchestration | – | – | 0.1 |" in old
    with pytest.raises(NotFoundError, match="has recorded its time"):
        time_table(replace(material, seconds=()))
