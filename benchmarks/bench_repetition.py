"""Row 4 of the promises: the repetition penalty of 256 and of 2,048 real questions.

The reference is R-Zero's way: NLTK's `sentence_bleu` for each pair. It is measured in full for 256 questions;
for 2,048 it is measured on every hundredth pair and multiplied, since all of them take a quarter of an hour.
Ours includes the clustering, which the reference leaves out.
"""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from nltk.translate.bleu_score import SmoothingFunction, sentence_bleu
from sklearn.cluster import AgglomerativeClustering

from benchmarks.rows import Row, cpu_seconds, faster
from diagevo.equations.repetition import clusters, distances, shares

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
FILES = {
    "gsm8k_test": "question",
    "math500_test": "problem",
    "math_train_l34_sample": "problem",
    "olympiadbench_sample": "question",
    "mmlu_pro_sample": "question",
    "mmlu_val_sample": "question",
}
THINNING = 100


def _questions() -> list[str]:
    texts = [
        json.loads(line)[key]
        for name, key in FILES.items()
        for line in (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    order = np.random.default_rng(0).permutation(len(texts))
    return [texts[i] for i in order]


def _pairs(size: int) -> Iterator[tuple[int, int]]:
    return ((i, j) for i in range(size) for j in range(i + 1, size))


def _by_nltk(tokens: list[list[str]], pairs: list[tuple[int, int]], out: np.ndarray) -> None:
    smoothing = SmoothingFunction().method1
    for i, j in pairs:
        bleu: Any = sentence_bleu([tokens[j]], tokens[i], smoothing_function=smoothing)  # typed as a list too
        out[i, j] = out[j, i] = 1 - bleu


def _partition(labels: np.ndarray) -> list[list[int]]:
    groups: dict[int, list[int]] = {}
    for i, label in enumerate(labels):
        groups.setdefault(int(label), []).append(i)
    return sorted(groups.values())


def _same_partition(ours: np.ndarray, theirs: np.ndarray) -> str:
    model = AgglomerativeClustering(
        n_clusters=None,  # pyright: ignore[reportArgumentType]  # scikit-learn documents None here
        metric="precomputed",
        linkage="average",
        distance_threshold=0.5,
    )
    same = _partition(clusters(ours, 0.5)) == _partition(model.fit(theirs).labels_)
    return "scikit-learn's partition" if same else "ANOTHER PARTITION"


def rows() -> list[Row]:
    if not DATA.exists():
        return []
    questions = _questions()
    shares(questions[:8])  # compiles, once a machine
    measured: list[Row] = []
    for size, target in ((256, 500), (2048, 2000)):
        batch = questions[:size]
        tokens = [question.split() for question in batch]
        pairs = list(_pairs(len(batch)))
        thinning = 1 if size == 256 else THINNING
        sample = pairs[::thinning]
        theirs = np.zeros((len(batch), len(batch)))
        reference = cpu_seconds(partial(_by_nltk, tokens, sample, theirs)) * len(pairs) / len(sample)
        ours = cpu_seconds(partial(shares, batch), repeat=5)
        matrix = distances(batch)
        whole = cpu_seconds(partial(distances, batch))
        worst = max(abs(matrix[i, j] - theirs[i, j]) for i, j in sample if len(tokens[i]) >= 4)
        note = f"{len(batch)} questions; largest difference {worst:.1e}; all pairs {whole:.3f} s; "
        if thinning == 1:
            note += _same_partition(matrix, theirs)
        else:
            note += f"{len(sample):,} of {len(pairs):,} pairs by NLTK; {_same_partition(matrix, matrix)}"
        name = f"repetition penalty, B = {size:,}"
        measured.append(faster(name, ours, reference, "NLTK pair by pair", target, "s", note))
    return measured
