import numpy as np
from sklearn.decomposition import PCA

from diagevo.report.wording import distinct_pairs, principal_axes


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
