"""`diagnose --local` against known causes: adjusted Rand index on runs of the arithmetic world, whose rules
name the cause of each failure, and on failures in words, code and tool calls with a known mistake.

The weight and the distance were chosen on seed 0; the other seed and the texts were looked at afterwards.
"""

import os
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import AgglomerativeClustering
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.metrics import adjusted_rand_score

from benchmarks.mistakes import MISTAKES, mistakes
from benchmarks.rows import Row, cpu_seconds
from diagevo.config.models import EmbedderRole
from diagevo.diagnosis.embedder import embedder_for
from diagevo.diagnosis.grouping import APART, FailedResponse, features, group, linkage, parting

SEEDS = (0, 77)
MINILM = Path(".lm/models/all-MiniLM-L6-v2")
"""Made by `make lm`; with the extra `local-embedder` it is measured too."""
ASKED = 0.5
MANY = 10_000


def rows() -> list[Row]:
    found: list[Row] = []
    for seed in SEEDS:
        found += _measured(f"arithmetic, seed {seed}", _played(seed))
    found += _measured("texts, code, tools", mistakes(0))
    every = [failure for failure, _ in mistakes(1, MANY // len(MISTAKES))]
    seconds = cpu_seconds(lambda: group(every, {}))
    name = f"grouping {len(every):,} failures"
    found.append(Row(name, seconds, "s", None, "", None, "≤ 60", seconds <= 60))
    return found


def _measured(name: str, labelled: Sequence[tuple[FailedResponse, str]]) -> list[Row]:
    failures, causes = [failure for failure, _ in labelled], [cause for _, cause in labelled]
    partings = [parting(failure) for failure in failures]
    ours = _labels(linkage(features(failures, partings), range(len(failures))), len(failures))
    asked = [failure.question for failure in failures]
    parted = [f"{q}\n{each.passed}\n{each.failed}" for q, each in zip(asked, partings, strict=True)]
    reached = adjusted_rand_score(causes, ours)
    made = f"{len(failures)} failures, {len(set(causes))} causes, {len(set(ours))} groups"
    line = f"Rand index, {name}"
    found: list[Row] = []
    if MINILM.exists():
        embedder = embedder_for(
            EmbedderRole(engine="sentence-transformers", model=str(MINILM), dimension=384)
        )
        near = linkage(features(failures, partings, embedder), range(len(failures)))
        index = adjusted_rand_score(causes, _labels(near, len(failures)))
        found.append(_row(f"{line}: ours, with MiniLM", index, "", None))
    return [
        *found,
        _row(f"{line}: ours", reached, f"≥ {ASKED}", reached >= ASKED, made),
        _row(f"{line}: TF-IDF of the question", adjusted_rand_score(causes, _plain(asked)), "", None),
        _row(f"{line}: and of the differing lines", adjusted_rand_score(causes, _plain(parted)), "", None),
    ]


def _row(name: str, value: float, target: str, met: bool | None, note: str = "") -> Row:
    return Row(name, value, "", None, "", None, target, met, note)


def _plain(texts: Iterable[str]) -> Sequence[int]:
    """Average linkage over cosines of plain TF-IDF."""
    near = TfidfVectorizer().fit_transform(texts)
    average: Any = AgglomerativeClustering
    clustering = average(
        n_clusters=None, distance_threshold=2 * APART, metric="precomputed", linkage="average"
    )
    return clustering.fit_predict(np.maximum(1 - (near @ near.T).toarray(), 0))


def _labels(groups: Iterable[Sequence[int]], size: int) -> list[int]:
    labels = [0] * size
    for label, places in enumerate(groups):
        for place in places:
            labels[place] = label
    return labels


def _played(seed: int) -> list[tuple[FailedResponse, str]]:
    """Three rounds of the arithmetic world: failures with the causes that its rules named."""
    with tempfile.TemporaryDirectory() as folder:
        train = "from diagevo.cli.main import app; app()"
        command = [
            sys.executable,
            "-c",
            train,
            "train",
            "--rounds",
            "3",
            "--seed",
            str(seed),
            "--run",
            "a",
            "-q",
        ]
        environment = {**os.environ, "DIAGEVO_HOME": folder}
        subprocess.run(command, check=True, env=environment, cwd=folder, stdout=subprocess.DEVNULL)
        log = sqlite3.connect(Path(folder) / "diagevo.db")
        try:
            query = "SELECT question, reference, trajectory, cause_id FROM v_trajectory WHERE cause_id > ''"
            return [(FailedResponse(*texts), cause) for *texts, cause in log.execute(query)]
        finally:
            log.close()
