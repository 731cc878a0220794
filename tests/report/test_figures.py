import itertools
import json
import sys
from dataclasses import replace

import numpy as np
import pytest
from msgspec import structs
from sklearn.decomposition import PCA

from diagevo.diagnosis.embedder import HashingEmbedder
from diagevo.errors import MissingDependencyError
from diagevo.evaluation.oracle import LabelAccuracy
from diagevo.evaluation.store import Evaluation
from diagevo.report.figure import (
    CHANGES,
    MODES,
    SERIES,
    STATES,
    Entry,
    Figure,
    Missing,
    lightness,
    span,
    themed,
)
from diagevo.report.figures import FIGURES, draw
from diagevo.report.files import svg
from diagevo.report.report_data import Material
from diagevo.report.report_wording import distinct_pairs, principal_axes


def drawn(name: str, material: Material) -> Figure:
    result = draw(name, [material], HashingEmbedder(64))
    assert isinstance(result, Figure), result
    return result


@pytest.mark.parametrize("entry", FIGURES, ids=lambda entry: entry.name)
def test_what_a_figure_lacks_is_known_without_the_library_that_draws(
    material: Material, entry: Entry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a page can say it."""
    whole = draw(entry.name, [material])
    monkeypatch.setitem(sys.modules, "altair", None)
    found = draw(entry.name, [material])
    if isinstance(found, Missing):
        assert found == whole
    else:
        assert isinstance(whole, Figure)
        assert found.rows == whole.rows
        with pytest.raises(MissingDependencyError, match="altair"):
            found.chart()


def test_the_memory_lifecycle_counts_states_and_changes(material: Material) -> None:
    rows = drawn("memory", material).rows
    counts = {name: [r["count"] for r in rows if r.get("series") == name] for name in STATES}
    assert counts["Active"] == [3, 2, 3, 3]
    assert counts["Mastered"] == [0, 1, 1, 1]
    changes = {
        n: [r["causes"] for r in rows if r.get("change") == n] for n in ("created", "promoted", "reactivated")
    }
    assert changes == {"created": [3, 0, 1, 0], "promoted": [0, 1, 2, 1], "reactivated": [0, 0, 2, 1]}


@pytest.mark.parametrize("name", ["performance", "length", "diversity"])
def test_a_caption_names_every_run_that_is_drawn_and_no_other(material: Material, name: str) -> None:
    another, empty = replace(material, run_id="another"), Material("empty", material.configuration)
    result = draw(name, [material, another, empty])
    assert isinstance(result, Figure)
    assert "Run played, solver hand. Beside it: run another." in result.caption
    assert "empty" not in result.caption


def test_performance_has_the_greedy_line_and_the_colder_baseline(material: Material) -> None:
    rows = drawn("performance", material).rows
    series = {row["series"] for row in rows}
    assert series == {"mean@8, T = 1", "greedy", "base model, T = 0.77"}
    third = next(r for r in rows if r["series"] == "mean@8, T = 1" and r["round"] == 2)
    assert (third["accuracy"], third["low"], third["high"]) == (70.0, 68.0, 72.0)


def test_every_figure_is_drawn_or_says_what_is_missing_and_who_supplies_it(material: Material) -> None:
    results = {entry.name: draw(entry.name, [material], HashingEmbedder(64)) for entry in FIGURES}
    assert [name for name, r in results.items() if isinstance(r, Missing)] == ["difficulty"]
    for result in results.values():
        if isinstance(result, Missing):
            assert str(result.command).startswith("diagevo ")
        else:
            assert result.rows
            assert "Run played" in result.caption
    nothing = Material("empty", None)
    assert all(isinstance(draw(entry.name, [nothing]), Missing) for entry in FIGURES)


@pytest.mark.slow
def test_a_figure_that_lacks_nothing_can_be_drawn(material: Material) -> None:
    """So for a run with everything, one without a cause, and one of few questions."""
    configured = material.configuration
    assert configured is not None
    hashing = structs.replace(configured.embedder, name=HashingEmbedder.name, dimension=64)
    full = replace(material, configuration=structs.replace(configured, embedder=hashing))
    free = replace(full, causes=(), promotions=(), seconds=(), validations=())
    few = replace(free, rounds=free.rounds[:1], candidates=free.candidates[:2])
    for run in (full, free, few):
        results = [draw(entry.name, [run]) for entry in FIGURES]
        specifications = [result.chart().to_dict() for result in results if isinstance(result, Figure)]
        assert len(specifications) >= 3
        assert all(specification["$schema"] for specification in specifications)


def test_the_next_round_of_a_run_is_its_trainers(material: Material) -> None:
    last = material.rounds[-1].round
    assert material.next_round == f"diagevo train --run {material.run_id} --resume --rounds {last + 1}"
    assert Material("new", None).next_round == "diagevo train --run new --resume"
    theirs = Material("theirs", None, ingested=True)
    assert "train" not in theirs.next_round
    assert "diagevo ingest FORMAT PATH --run theirs" in theirs.next_round


def test_the_coverage_of_an_unknown_embedder_is_not_made_up(material: Material) -> None:
    result = draw("coverage", [material])
    assert isinstance(result, Missing)
    assert result.command == "diagevo report build --run played --embed"


@pytest.mark.parametrize("family", [STATES, MODES, CHANGES], ids=["states", "modes", "changes"])
def test_colours_of_a_family_stay_apart_in_grey(family: dict[str, str]) -> None:
    for a, b in itertools.combinations(family, 2):
        lighter, darker = sorted((lightness(family[a]), lightness(family[b])), reverse=True)
        assert (lighter + 0.05) / (darker + 0.05) > 1.15, (a, b)


def test_lightness_is_the_luminance_of_the_standard() -> None:
    assert lightness("#FFFFFF") == pytest.approx(1.0)
    assert lightness("#000000") == 0.0
    assert lightness("#00FF00") == pytest.approx(0.7152)


def test_a_state_has_the_same_colour_in_every_figure(material: Material) -> None:
    for name in ("memory", "case"):
        text = str(themed(drawn(name, material).chart()))
        assert STATES["Active"] in text
        assert STATES["Mastered"] in text


def test_labels_without_answers_name_the_step_that_comes_next(material: Material) -> None:
    unknown = tuple(replace(candidate, label_true=None) for candidate in material.candidates)
    drawn = LabelAccuracy(1, 9, 0, None, None)
    for labels in ((), (drawn,)):
        result = draw("labels", [replace(material, candidates=unknown, labels=labels)])
        assert isinstance(result, Missing)
        assert result.command == "diagevo eval labels --run played --check check.csv"


def test_the_trained_solver_on_its_rounds_questions_is_a_line_of_its_own(material: Material) -> None:
    def measured(name: str, share: float) -> Evaluation:
        metrics = {"score": 0.5, "score_se": 0.1, "majority": share, "majority_se": 0.05}
        conditions = {"samples": 12, "whole": True}
        return Evaluation("e", "played", 2, name, "m", conditions, 10, 10, metrics, "t", "t")

    # Earlier versions measured another run's questions too; these make no line.
    both = (measured("selfplay.r2", 0.75), measured("selfplay.r2@other", 0.5), measured("selfplay.r1", 0.9))
    rows = drawn("labels", replace(material, evaluations=both)).rows
    found = {row["series"]: row["accuracy"] for row in rows if row["series"].startswith("after")}
    assert found == {"after training": 75.0}


def test_no_line_has_the_colour_of_a_state_or_a_mode() -> None:
    assert not {*SERIES} & {*STATES.values(), *MODES.values()}
    assert (CHANGES["promoted"], CHANGES["reactivated"]) == (STATES["Mastered"], STATES["Active"])


def test_an_axis_leaves_room_but_not_beyond_its_unit() -> None:
    assert span([70, 90]).domain == pytest.approx([68.6, 91.4])
    assert span([99.0, 99.8], most=100).domain[1] == pytest.approx(99.856)
    assert span([50, 99.9], most=100).domain[1] == 100
    assert span([3.0]).domain == pytest.approx([2.85, 3.15])  # one round
    assert span([0.0], zero=True).domain == [0.0, 1.0]


def test_runs_beside_each_other_are_named_and_told_apart(material: Material) -> None:
    other = replace(material, run_id="other")
    for name in ("performance", "labels", "length", "diversity"):
        result = draw(name, [material, other])
        assert isinstance(result, Figure)
        assert "Beside it: run other." in result.caption
        assert {row["run"] for row in result.rows if "run" in row} == {"played", "other"}
        spec = str(themed(result.chart()))
        assert "['played', 'other']" in spec  # the order of the legend


def test_a_validation_of_another_trainer_is_drawn_with_what_it_has(material: Material) -> None:
    bare = [replace(v, conditions={}, metrics={"greedy": v.metrics["greedy"]}) for v in material.validations]
    figure = draw("performance", [replace(material, validations=tuple(bare))])
    assert isinstance(figure, Figure)
    assert {(row["series"], row["low"], row["high"], row["standard_error"]) for row in figure.rows} == {
        ("greedy", 90.0, 90.0, None)
    }
    assert "recorded no mean_at_k" in figure.caption
    assert "its standard error was not recorded" in figure.caption
    empty = [replace(v, metrics={"reward": 0.1}) for v in material.validations]
    missing = draw("performance", [replace(material, validations=tuple(empty))])
    assert isinstance(missing, Missing)
    assert missing.reason == "the validations recorded neither greedy nor mean_at_k"


def test_a_picture_of_hostile_texts_is_drawn_and_shows_them(material: Material) -> None:
    """The converter ends the whole process at such a character."""
    hostile = [replace(c, description=f"\0\x07\x1b[31m\ufffe\u202e{c.description}") for c in material.causes]
    figure = draw("case", [replace(material, causes=tuple(hostile))])
    assert isinstance(figure, Figure)
    assert "\x1b" not in svg(themed(figure.chart()))
    assert "␀␇␛[31m" in json.dumps(themed(figure.chart()), ensure_ascii=False)


def test_diversity_is_the_share_of_different_pairs():
    """a-b, b-a, a-b and c-d: four pairs, three of them different."""
    assert distinct_pairs(["a b a b", "c d"]) == 75.0


def test_a_pair_never_reaches_over_the_end_of_a_question():
    assert distinct_pairs(["a b", "c d"]) == 100.0
    assert distinct_pairs(["a", "b"]) == 0.0


def test_points_on_a_line_lie_on_the_first_axis():
    """(0,0), (3,4), (6,8): centred at (3,4), 5 apart along (0.6, 0.8), whose largest entry is positive."""
    plane, shares = principal_axes(np.array([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]]))
    assert np.allclose(plane, [[-5, 0], [0, 0], [5, 0]], atol=1e-12)
    assert np.allclose(shares, [100, 0])


def test_the_plane_is_scikit_learns_but_for_the_sign():
    rng = np.random.default_rng(3)
    vectors = rng.normal(size=(50, 12)) * np.arange(1, 13)
    fitted = PCA(2).fit(vectors)
    plane, shares = principal_axes(vectors)
    assert np.allclose(np.abs(plane), np.abs(fitted.transform(vectors)), atol=1e-9)
    assert np.allclose(shares, 100 * fitted.explained_variance_ratio_)


def test_the_sign_is_fixed_whatever_the_order_of_the_rows():
    rng = np.random.default_rng(4)
    vectors = rng.normal(size=(30, 6))
    order = rng.permutation(30)
    assert np.allclose(principal_axes(vectors)[0][order], principal_axes(vectors[order])[0], atol=1e-9)


def test_a_mirrored_cloud_is_mirrored_in_the_plane():
    vectors = np.random.default_rng(5).normal(size=(20, 5))
    assert np.allclose(principal_axes(-vectors)[0], -principal_axes(vectors)[0], atol=1e-9)


def test_one_question_and_one_dimension_work():
    assert principal_axes(np.ones((1, 4)))[0].tolist() == [[0.0, 0.0]]
    assert principal_axes(np.array([[1.0], [3.0]]))[0].tolist() == [[-1.0, 0.0], [1.0, 0.0]]
