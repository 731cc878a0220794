import subprocess
import sys

import numpy as np
import pytest
from sklearn.decomposition import PCA

from diagevo.selfplay.properties import coverage, diversity, principal_axes, properties


def test_diversity_is_the_share_of_different_pairs():
    """a-b, b-a, a-b and c-d: four pairs, three of them different."""
    assert diversity(["a b a b", "c d"]) == 75.0


def test_a_pair_never_reaches_over_the_end_of_a_question():
    assert diversity(["a b", "c d"]) == 100.0
    assert diversity(["a", "b"]) is None


def test_each_round_has_its_length_and_diversity():
    frame = properties([2, 1, 2, 1], ["a b c", "x y", "a b c d e", "x y"])
    assert frame.rows() == [(1, 2, 2.0, 50.0), (2, 2, 4.0, pytest.approx(100 * 4 / 6))]
    assert frame.columns == ["round", "questions", "words", "diversity"]


def test_no_questions_give_an_empty_frame_of_the_same_columns():
    assert properties([], []).columns == ["round", "questions", "words", "diversity"]
    assert coverage([], [], np.zeros((0, 8))).columns == ["round", "mode", "x", "y"]


def test_points_on_a_line_lie_on_the_first_axis():
    """(0,0), (3,4), (6,8): centred at (3,4), 5 apart along (0.6, 0.8), whose largest entry is positive."""
    plane = principal_axes(np.array([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]]))
    assert np.allclose(plane, [[-5, 0], [0, 0], [5, 0]], atol=1e-12)


def test_the_plane_is_scikit_learns_but_for_the_sign():
    rng = np.random.default_rng(3)
    vectors = rng.normal(size=(50, 12)) * np.arange(1, 13)
    ours, theirs = principal_axes(vectors), PCA(2).fit_transform(vectors)
    assert np.allclose(np.abs(ours), np.abs(theirs), atol=1e-9)


def test_the_sign_is_fixed_whatever_the_order_of_the_rows():
    rng = np.random.default_rng(4)
    vectors = rng.normal(size=(30, 6))
    order = rng.permutation(30)
    assert np.allclose(principal_axes(vectors)[order], principal_axes(vectors[order]), atol=1e-9)


def test_a_mirrored_cloud_is_mirrored_in_the_plane():
    vectors = np.random.default_rng(5).normal(size=(20, 5))
    assert np.allclose(principal_axes(-vectors), -principal_axes(vectors), atol=1e-9)


def test_one_question_and_one_dimension_work():
    assert principal_axes(np.ones((1, 4))).tolist() == [[0.0, 0.0]]
    assert principal_axes(np.array([[1.0], [3.0]])).tolist() == [[-1.0, 0.0], [1.0, 0.0]]


def test_coverage_keeps_round_and_mode_beside_each_point():
    frame = coverage([3, 4], ["free", "targeted"], np.array([[0.0, 0.0], [3.0, 4.0]], dtype=np.float32))
    assert frame.select("round", "mode").rows() == [(3, "free"), (4, "targeted")]
    assert np.allclose(frame["x"].to_numpy(), [-2.5, 2.5])


def test_importing_the_module_does_not_load_polars():
    code = "import sys; import diagevo.selfplay.properties; print('polars' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
