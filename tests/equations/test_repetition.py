import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu
from sklearn.cluster import AgglomerativeClustering

from diagevo.equations.bleu import near_pairs, pair_distances
from diagevo.equations.repetition import clusters, distances, pair_distance, shares

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"

ADVERSARIAL = [
    "", " ", "a", "b", "a b", "b a", "a b c", "a b c d", "d c b a", "a b c d e", "a b c d e",
    "a a a a", "a a a a a a a a", "a a a a b a a a a", "a b a b a b a b", "b a b a b a b a", "A B C D",
    "a  b\tc\nd", "a b c d.", "ä ö ü ß", "ä ö ü ß é", "数学 の 問題 です", "a\u00a0b c d e",
    "a b c d e f g h i j k l",
    "l k j i h g f e d c b a", "x y z w", "x y z w a b c d", "a b c d x y z w", "the cat sat on the mat",
    "the the the the the the", "\u200b \u3000 a b c", "🙂 🙂 🙂 🙂", "a b x c d y e f z",
]  # fmt: skip


def by_sacrebleu(questions):
    size = len(questions)
    matrix = np.zeros((size, size))
    for i in range(size):
        for j in range(i + 1, size):
            matrix[i, j] = matrix[j, i] = pair_distance(questions[i], questions[j])
    return matrix


def partition(labels):
    groups: dict[int, list[int]] = {}
    for i, label in enumerate(labels):
        groups.setdefault(int(label), []).append(i)
    return sorted(groups.values())


def by_sklearn(matrix, threshold):
    model = AgglomerativeClustering(
        n_clusters=None,  # pyright: ignore[reportArgumentType]  # scikit-learn documents None here
        metric="precomputed",
        linkage="average",
        distance_threshold=threshold,
    )
    return partition(model.fit(matrix).labels_)


@pytest.fixture(scope="module")
def questions():
    path = DATA / "gsm8k_test.jsonl"
    if not path.exists():
        pytest.skip("../shared/data is not here")
    return [json.loads(line)["question"] for line in path.read_text(encoding="utf-8").splitlines()]


def test_a_hand_worked_pair():
    """Five words against four of them and one other: the fourth root of 4/5 · 3/4 · 2/3 · 1/2."""
    assert distances(["a b c d x", "a b c d y"])[0, 1] == pytest.approx(1 - (1 / 5) ** 0.25, abs=1e-15)


def test_the_brevity_penalty_falls_on_the_lower_index():
    """Four words of eight: all n-grams match, exp(1 - 8/4). Else 4/8 · 3/7 · 2/6 · 1/5, no penalty."""
    short, long = "a b c d", "a b c d e f g h"
    assert distances([short, long])[0, 1] == pytest.approx(1 - np.exp(-1), abs=1e-15)
    product = 4 / 8 * 3 / 7 * 2 / 6 * 1 / 5
    assert distances([long, short])[0, 1] == pytest.approx(1 - product**0.25, abs=1e-15)


def test_a_zero_numerator_becomes_a_tenth():
    """One word in common: 1/4 · 0.1/3 · 0.1/2 · 0.1/1."""
    expected = 1 - (1 / 4 * 0.1 / 3 * 0.1 / 2 * 0.1) ** 0.25
    assert distances(["a b c d", "a x y z"])[0, 1] == pytest.approx(expected, abs=1e-15)
    assert distances(["a b c d", "w x y z"])[0, 1] == 1.0


def test_the_same_words_are_at_distance_zero_whatever_their_number():
    assert np.array_equal(distances(["", " "]), np.zeros((2, 2)))
    assert distances(["a b", "a\tb"])[0, 1] == 0.0
    assert distances(["a b", "b a"])[0, 1] == 1.0


def test_adversarial_text_is_sacrebleus_to_twelve_places():
    assert np.abs(distances(ADVERSARIAL) - by_sacrebleu(ADVERSARIAL)).max() <= 1e-12


@settings(max_examples=60)
@given(st.lists(st.lists(st.sampled_from("abcü "), max_size=9).map(" ".join), max_size=7))
def test_any_text_is_sacrebleus_to_twelve_places(texts):
    matrix = distances(texts)
    assert matrix.shape == (len(texts), len(texts))
    assert np.array_equal(matrix, matrix.T)
    assert not matrix.size or np.abs(matrix - by_sacrebleu(texts)).max() <= 1e-12


def test_from_four_words_on_the_distance_is_nltks(questions):
    sample = questions[:40] + [text for text in ADVERSARIAL if len(text.split()) >= 4]
    smoothing = SmoothingFunction().method1
    matrix = distances(sample)
    for i, hypothesis in enumerate(sample):
        for j in range(i + 1, len(sample)):
            bleu = sentence_bleu([sample[j].split()], hypothesis.split(), smoothing_function=smoothing)
            assert abs(1 - matrix[i, j] - bleu) <= 1e-12  # pyright: ignore[reportOperatorIssue]  # a float


def test_real_questions_are_sacrebleus_to_twelve_places(questions):
    sample = questions[:60]
    assert np.abs(distances(sample) - by_sacrebleu(sample)).max() <= 1e-12


@pytest.mark.parametrize("threshold", [0.2, 0.5, 0.9])
def test_the_partition_is_scikit_learns(questions, threshold):
    rng = np.random.default_rng(7)
    texts = list(questions[:120])
    for _ in range(120):  # copies with some words changed, so that there is something to merge
        words = texts[rng.integers(120)].split()
        for _ in range(rng.integers(1, 12)):
            words[rng.integers(len(words))] = str(rng.integers(100))
        texts.append(" ".join(words))
    matrix = distances(texts)
    ours = partition(clusters(matrix, threshold))
    assert ours == by_sklearn(matrix, threshold)
    assert 1 < len(ours) < len(texts)
    sizes = {i: len(group) for group in ours for i in group}
    assert shares(texts, threshold).tolist() == [sizes[i] / len(texts) for i in range(len(texts))]


@settings(max_examples=60)
@given(st.integers(2, 12), st.integers(0, 10**6))
def test_any_partition_is_scikit_learns(size, seed):
    rng = np.random.default_rng(seed)
    matrix = np.triu(rng.random((size, size)), 1)
    matrix += matrix.T
    assert partition(clusters(matrix, 0.5)) == by_sklearn(matrix, 0.5)


@settings(max_examples=80)
@given(
    st.lists(st.lists(st.sampled_from("abc"), max_size=8).map(" ".join), min_size=1, max_size=12),
    st.sampled_from([0.2, 0.45, 0.5, 0.9, 1.0]),
)
def test_the_pairs_below_the_threshold_are_found_without_the_matrix(texts, threshold):
    """Also where no 4-gram is shared: a b c d against a b c x b c d is at 1 - 0.1^(1/4) = 0.44."""
    tokens = [text.split() for text in [*texts, "a b c d", "a b c x b c d"]]
    matrix = pair_distances(tokens)
    below = [
        (i, j) for i in range(len(tokens)) for j in range(i + 1, len(tokens)) if matrix[i, j] < threshold
    ]
    assert near_pairs(tokens, threshold) == below


@settings(max_examples=60)
@given(st.lists(st.lists(st.sampled_from("ab"), max_size=9).map(" ".join), min_size=1, max_size=14))
def test_the_shares_of_any_batch_are_those_of_its_whole_matrix(texts):
    labels = clusters(distances(texts), 0.5)
    assert shares(texts).tolist() == [np.sum(labels == label) / len(texts) for label in labels]


@pytest.mark.parametrize("threshold", [0.2, 0.5, 0.9])
def test_the_shares_by_the_kernel_are_those_by_sacrebleu(questions, threshold):
    """The two ways that `reward.bleu` names, on real questions, copies of them and unreadable ones."""
    batch = [*questions[:40], None, *questions[:5], *(f"{text} now" for text in questions[5:15]), None, "a b"]
    assert shares(batch, threshold).tolist() == shares(batch, threshold, "sacrebleu").tolist()
    assert shares(batch, threshold).max() > 1 / len(batch)


def test_a_distance_of_exactly_the_threshold_does_not_merge():
    matrix = np.array([[0.0, 0.5], [0.5, 0.0]])
    assert partition(clusters(matrix, 0.5)) == [[0], [1]] == by_sklearn(matrix, 0.5)
    assert partition(clusters(matrix, np.nextafter(0.5, 1))) == [[0, 1]]


def test_average_linkage_is_told_from_single_linkage():
    """0 and 1 merge at 0.1. 2 is at 0.4 from 0 and at 0.9 from 1: on average 0.65, so it stays alone."""
    matrix = np.array([[0, 0.1, 0.4], [0.1, 0, 0.9], [0.4, 0.9, 0]])
    assert partition(clusters(matrix, 0.5)) == [[0, 1], [2]]


def test_shares_count_every_completion_and_leave_invalid_ones_alone():
    batch = ["a b c d e", None, "a b c d e", "p q r s t", None, "a b c d e"]
    assert shares(batch).tolist() == [3 / 6, 1 / 6, 3 / 6, 1 / 6, 1 / 6, 3 / 6]


def test_nothing_one_and_only_invalid_work():
    assert distances([]).shape == (0, 0)
    assert distances(["x"]).tolist() == [[0.0]]
    assert shares([]).tolist() == []
    assert shares(["x"]).tolist() == [1.0]
    assert shares([None, None]).tolist() == [0.5, 0.5]


def test_importing_the_module_loads_neither_numba_nor_scipy_nor_sacrebleu():
    code = (
        "import sys; import diagevo.equations.repetition;"
        "print([m for m in ('numba', 'scipy', 'sacrebleu', 'torch') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "[]\n"
