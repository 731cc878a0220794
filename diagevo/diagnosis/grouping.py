"""Failures grouped by likeness, without a language model, and each group named by what sets it apart.

Two failures are alike where their questions are (a sentence model, else TF-IDF with numbers masked), and
where they part alike from the response that passed: at a step of the same form, by another result, other
numbers or another step. Groups come from average linkage over cosines; their names from class-based TF-IDF,
as BERTopic has it (arXiv:2203.05794).
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from diagevo.diagnosis.embedder import Embedder
from diagevo.errors import extra
from diagevo.text.escaping import one_line
from diagevo.text.steps import END, parted, steps

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

PARTING = 0.6
"""Weight of how two responses part beside that of the question."""
APART = 0.3
"""Mean cosine distance from which two groups stay apart."""
MOST = 5_000
"""Failures that are linked with each other, as memory grows with the square. Others join a group or none."""
SHORT = 12
"""Tokens of a step whose form is looked at as a whole."""
NAMED = 3
"""Words that name a group."""
SHOWN = 60
"""Characters of a step in a group's name."""
PREFIX = "grouped: "
"""How the description of such a cause begins on every screen."""

_TOKEN = re.compile(r"[^\W\d_]+|\d+(?:[.,]\d+)*|[^\w\s]")
KINDS: Mapping[str, tuple[str, str]] = {
    "stops": ("stops before the last step", "doing every step"),
    "goes on": ("goes on after the last step", "ending in time"),
    "result": ("gets another result in a step", "working out a step"),
    "numbers": ("uses other numbers in a step", "choosing the numbers of a step"),
    "step": ("takes another step", "choosing the next step"),
}
"""How a failure parts from the response that passed: in words, and the skill behind it."""


@dataclass(frozen=True, slots=True)
class FailedResponse:
    """A response that failed, beside one to the same question that passed."""

    question: str
    passed: str
    failed: str


@dataclass(frozen=True, slots=True)
class Parting:
    """The first step in which the two differ."""

    kind: str
    passed: str
    failed: str
    marks: tuple[str, ...]
    """What can be counted of it."""


def group(
    failures: Sequence[FailedResponse], known: Mapping[int, str], embedder: Embedder | None = None
) -> list[tuple[str, str] | None]:
    """The group of each failure, by the description of its cause, and the label of its node.

    Args:
        failures: All of a run.
        known: Descriptions of those that have a cause, by place. Others join a cause whose failures they are
            near to on average, else make groups of their own.
        embedder: Of the questions, in place of TF-IDF.

    Returns:
        By place; None for a failure that is like no other.

    Raises:
        MissingDependencyError: scikit-learn is not installed.
    """
    if not failures:
        return []
    partings = [parting(failure) for failure in failures]
    rows = features(failures, partings, embedder)
    found: list[tuple[str, str] | None] = [None] * len(failures)
    causes: dict[str, list[int]] = defaultdict(list)
    for place, description in known.items():
        causes[description].append(place)
    left = [place for place in range(len(failures)) if place not in known]
    for place, description in _joined(rows, left, causes).items():
        found[place] = description, KINDS[partings[place].kind][1]
    left = [place for place in left if found[place] is None]
    linked = left[:: -(-len(left) // MOST)] if left else []
    groups = [places for places in linkage(rows, linked) if len(places) > 1]
    names = dict(zip(_names(failures, partings, rows, groups, set(causes)), groups, strict=True))
    for name, places in names.items():
        kind = Counter(partings[place].kind for place in places).most_common(1)[0][0]
        for place in places:
            found[place] = name, KINDS[kind][1]
    rest = sorted(set(left) - set(linked))
    for place, description in _joined(rows, rest, names).items():
        found[place] = description, KINDS[partings[place].kind][1]
    return found


def parting(failure: FailedResponse) -> Parting:
    """How the response that failed parts from the one that passed."""
    passed = steps(failure.passed)
    at, right, wrong = parted(failure.passed, failure.failed)
    forms = [_form(right), _form(wrong)]
    numbers = [_numbers(right), _numbers(wrong)]
    marks = [f"at {min(at, 4)}", f"left {min(len(passed) - at, 4)}"]
    marks += [f"{name} {''.join(form)}" for name, form in zip("+-", forms, strict=True) if len(form) <= SHORT]
    marks += [f"{name} {token}" for name, form in zip("+-", _only(*forms), strict=True) for token in form]
    if wrong is END or right is END:
        kind = "stops" if wrong is END else "goes on"
    elif forms[0] != forms[1]:
        kind = "step"
    elif numbers[0][:-1] == numbers[1][:-1]:
        kind = "result"
        marks += _size(numbers[0], numbers[1][-1])
    else:
        kind = "numbers"
        marks += ["swapped"] if sorted(numbers[0][:-1]) == sorted(numbers[1][:-1]) else []
    return Parting(kind, right, wrong, (kind, *marks))


def features(
    failures: Sequence[FailedResponse], partings: Sequence[Parting], embedder: Embedder | None = None
) -> "csr_matrix":
    """(failures, terms): rows of length 1, so that their products are cosines."""
    with extra("local", "grouping by likeness"):
        from scipy.sparse import csr_matrix, hstack
        from sklearn.feature_extraction.text import TfidfVectorizer

    vectors: Any = TfidfVectorizer  # its stubs take no function
    if embedder is None:
        asked = vectors(analyzer=lambda failure: _form(failure.question) or [""]).fit_transform(failures)
    else:
        places = {question: place for place, question in enumerate({f.question: None for f in failures})}
        asked = csr_matrix(embedder.embed(list(places)))[[places[f.question] for f in failures]]
    parted = vectors(analyzer=lambda each: each.marks).fit_transform(partings)
    return csr_matrix(hstack([asked * (1 - PARTING) ** 0.5, parted * PARTING**0.5]))


def linkage(rows: "csr_matrix", places: Sequence[int]) -> list[list[int]]:
    """Groups of places, by average linkage."""
    from sklearn.cluster import AgglomerativeClustering

    if len(places) < 2:
        return [[place] for place in places]
    near = rows[list(places)]
    average: Any = AgglomerativeClustering
    clustering = average(n_clusters=None, distance_threshold=APART, metric="precomputed", linkage="average")
    labels = clustering.fit_predict(np.maximum(1 - (near @ near.T).toarray(), 0))
    groups: dict[int, list[int]] = defaultdict(list)
    for place, label in zip(places, labels, strict=True):
        groups[int(label)].append(place)
    return sorted(groups.values())


def _joined(rows: "csr_matrix", places: Sequence[int], groups: Mapping[str, Sequence[int]]) -> dict[int, str]:
    """Those of the places that are near enough to a group on average, with the nearest."""
    if not places or not groups:
        return {}
    names = list(groups)
    centres = np.vstack([np.asarray(rows[list(groups[name])].mean(axis=0)) for name in names])
    cosines = np.asarray(rows[list(places)] @ centres.T)
    best = cosines.argmax(axis=1)
    return {
        place: names[best[row]] for row, place in enumerate(places) if cosines[row, best[row]] >= 1 - APART
    }


def _names(
    failures: Sequence[FailedResponse],
    partings: Sequence[Parting],
    rows: "csr_matrix",
    groups: Sequence[Sequence[int]],
    taken: set[str],
) -> list[str]:
    """A description a group, none twice: how its failures part, its words, and the most central of them."""
    from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

    words = [
        Counter(w for place in places for w in _form(failures[place].question) if w.isalpha() and len(w) > 1)
        for places in groups
    ]
    total: Counter[str] = sum(words, Counter[str]())
    mean = total.total() / max(len(groups), 1)
    names: list[str] = []
    for places, counted in zip(groups, words, strict=True):
        weight = {
            word: number / counted.total() * np.log(1 + mean / total[word])
            for word, number in counted.items()
            if word not in ENGLISH_STOP_WORDS
        }
        telling = sorted(weight, key=lambda word, weight=weight: (-weight[word], word))[:NAMED]
        centre = np.asarray(rows[list(places)].mean(axis=0)).ravel()
        example = partings[places[int(np.argmax(rows[list(places)] @ centre))]]
        kind = Counter(partings[place].kind for place in places).most_common(1)[0][0]
        about = f" ({', '.join(telling)})" if telling else ""
        seen = f"{_cut(example.failed)} instead of {_cut(example.passed)}"
        name = f"{PREFIX}{KINDS[kind][0]}{about}, as in: {seen}"
        while name in taken:
            name += "'"
        taken.add(name)
        names.append(name)
    return names


def _form(text: str) -> list[str]:
    """Its tokens in lower case, numbers masked."""
    return ["#" if token[0].isdigit() else token.lower() for token in _TOKEN.findall(text)]


def _numbers(text: str) -> list[str]:
    return [token for token in _TOKEN.findall(text) if token[0].isdigit()]


def _only(one: Sequence[str], other: Sequence[str]) -> tuple[list[str], list[str]]:
    """What each has and the other has not."""
    return [token for token in one if token not in other], [token for token in other if token not in one]


def _size(numbers: Sequence[str], wrong: str) -> list[str]:
    """How far the last of the numbers is from the wrong one."""
    try:
        away = abs(float(numbers[-1]) - float(wrong))
        operands = [abs(float(number)) for number in numbers[:-1]]
    except ValueError:  # 1,000
        return []
    if away in operands:
        return ["by an operand"]
    return ["by ten" if away in (10, 100) else "by a few" if away < 10 else "by far"]


def _cut(text: str) -> str:
    text = one_line(text)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
