"""Plain ways to the same: what a method must beat, given the number of modes where they need one."""

import random
import re
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import HDBSCAN, AgglomerativeClustering
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.preprocessing import normalize

from benchmarks.causes.rows import LabelledRow
from benchmarks.causes.scores import modes

MINILM = Path(".lm/models/all-MiniLM-L6-v2")
"""Made by `make lm`."""
MOST = 5_000
"""Failures that are linked with each other: distances grow with the square."""
_WORD = r"(?u)[^\W_]+|[^\w\s]"
_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")

Labels = list[Hashable | None]


def baselines(rows: Sequence[LabelledRow], minilm: Path = MINILM) -> dict[str, Labels]:
    """The label that each baseline gives each row; None for rows that passed, or that it leaves out."""
    places = [place for place, row in enumerate(rows) if row.failed][:MOST]
    kinds = max(len(modes(rows)), 2)
    found: dict[str, Labels] = {}

    def spread(labels: Sequence[Any]) -> Labels:
        by_place = dict(zip(places, labels, strict=True))
        return [by_place.get(place) for place in range(len(rows))]

    if len(places) <= kinds:
        return {}
    texts = [f"{rows[place].question}\n{rows[place].text}" for place in places]
    found["TF-IDF + agglomerative"] = spread(_linked(_tfidf(texts), kinds))
    found["TF-IDF of lines no pass has"] = spread(_linked(_tfidf(_unlike(rows, places)), kinds))
    found["class TF-IDF"] = spread(_linked(_by_class(rows, places), kinds))
    if minilm.exists():
        vectors = _sentences([rows[place].text for place in places], minilm)
        groups = HDBSCAN(min_cluster_size=max(3, len(places) // 50)).fit_predict(vectors)
        found["MiniLM + HDBSCAN"] = spread([None if label < 0 else int(label) for label in groups])
    rng = random.Random(0)
    found["random groups"] = spread([rng.randrange(kinds) for _ in places])
    return found


def _tfidf(texts: Sequence[str]) -> np.ndarray:
    vectorizer: Any = TfidfVectorizer
    return vectorizer(token_pattern=_WORD, sublinear_tf=True).fit_transform(texts).toarray()


def _unlike(rows: Sequence[LabelledRow], places: Sequence[int]) -> list[str]:
    """Of each failed response the lines that no passing response to its prompt has."""
    known: dict[str, set[str]] = {}
    for row in rows:
        if not row.failed:
            known.setdefault(row.question, set()).update(row.text.splitlines())
    failed = [rows[place] for place in places]
    return ["\n".join(set(row.text.splitlines()) - known.get(row.question, set())) for row in failed]


def _by_class(rows: Sequence[LabelledRow], places: Sequence[int]) -> np.ndarray:
    """Terms of each failed response, weighted by what they say of failing: BERTopic's class TF-IDF
    (arXiv:2203.05794) of two classes, numbers masked; the share that the class of passes has is taken off."""
    masked = [_NUMBER.sub("#", row.text) for row in rows]
    vectorizer: Any = CountVectorizer
    counts = vectorizer(token_pattern=_WORD, ngram_range=(1, 2), max_features=20_000).fit_transform(masked)
    failed = np.array([row.failed for row in rows])
    classes = np.vstack([np.asarray(counts[~failed].sum(axis=0)), np.asarray(counts[failed].sum(axis=0))])
    shares = classes / np.maximum(classes.sum(axis=1, keepdims=True), 1)
    weight = shares * np.log(1 + classes.sum(axis=1).mean() / np.maximum(classes.sum(axis=0), 1))
    telling = np.maximum(weight[1] - weight[0], 0)
    return np.asarray((counts[list(places)] > 0).multiply(telling).toarray())


def _sentences(texts: Sequence[str], minilm: Path) -> np.ndarray:
    from sentence_transformers import SentenceTransformer

    return SentenceTransformer(str(minilm), device="cpu").encode(
        list(texts), batch_size=32, normalize_embeddings=True, show_progress_bar=False
    )


def _linked(vectors: np.ndarray, kinds: int) -> Sequence[int]:
    """Ward's linkage, cut at the true number of modes: better than anybody could choose it."""
    return AgglomerativeClustering(n_clusters=kinds, linkage="ward").fit_predict(normalize(vectors))


def lines(rows: Sequence[LabelledRow]) -> dict[str, list[int | None]]:
    """The line that each plain rule names, in failed rows that have a wrong line."""
    passing: dict[str, list[str]] = {}
    for row in rows:
        if not row.failed:
            passing.setdefault(row.question, []).append(row.text)
    return {
        name: [
            rule(row.question, passing.get(row.question, []), row.text.splitlines())
            if row.failed and row.wrong_line is not None
            else None
            for row in rows
        ]
        for name, rule in LINES.items()
    }


def _differs(question: str, passed: Sequence[str], lines: Sequence[str]) -> int:
    """The first line that no passing response has at its place."""
    known = [text.splitlines() for text in passed]
    for place, line in enumerate(lines):
        if not any(place < len(each) and each[place].strip() == line.strip() for each in known):
            return place
    return len(lines) - 1


def _new_number(question: str, passed: Sequence[str], lines: Sequence[str]) -> int:
    """The first line with a number that is known neither from the question nor from a passing response."""
    known = {_value(number) for text in (question, *passed) for number in _NUMBER.findall(text)}
    for place, line in enumerate(lines):
        numbered = re.sub(r"^\s*(?:step\s*)?\d+\s*[.:)]", "", line, flags=re.IGNORECASE)
        if any(_value(number) not in known for number in _NUMBER.findall(numbered)):
            return place
    return len(lines) - 1


def _value(number: str) -> float:
    try:
        return float(number.replace(",", ""))
    except ValueError:
        return float("nan")


Rule = Callable[[str, Sequence[str], Sequence[str]], int]
LINES: dict[str, Rule] = {
    "first line that differs": _differs,
    "last line": lambda _, __, lines: len(lines) - 1,
    "middle line": lambda _, __, lines: (len(lines) - 1) // 2,
    "first line with a new number": _new_number,
}
