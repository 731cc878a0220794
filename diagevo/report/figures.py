"""The report's figures, which are the paper's, in its order. Everything else about a run is on the pages
of `diagevo view`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from diagevo.report.case import case_study
from diagevo.report.figure import Entry, Figure, Missing
from diagevo.report.learning import (
    label_accuracy,
    length_and_accuracy,
    memory,
    performance,
    question_difficulty,
)
from diagevo.report.report_data import Material
from diagevo.report.report_wording import pair_diversity, question_coverage, question_length

if TYPE_CHECKING:
    from diagevo.diagnosis.embedder import Embedder

FIGURES: tuple[Entry, ...] = (
    Entry("intro", "Question length and accuracy", length_and_accuracy),
    Entry("performance", "Performance by round", performance),
    Entry("memory", "Memory lifecycle", memory),
    Entry("labels", "Pseudo-label accuracy", label_accuracy),
    Entry("case", "Case study", case_study),
    Entry("length", "Question length", question_length),
    Entry("diversity", "2-gram diversity", pair_diversity),
    Entry("difficulty", "Question difficulty", question_difficulty),
    Entry("coverage", "Question coverage", question_coverage),
)
OF_PLAYED = ("intro", "performance", "labels", "difficulty")
"""Figures of checkpoints and pseudo-labels, which an ingested run does not have."""


def draw(
    name: str,
    materials: Sequence[Material],
    embedder: "Embedder | None" = None,
) -> Figure | Missing:
    """One of `FIGURES`.

    `embedder` provides vectors for the coverage figure if the run's embedder is unavailable.
    """
    found = next(known for known in FIGURES if known.name == name)
    if found.draw is question_coverage:
        return question_coverage(materials, embedder)
    drawn = found.draw(materials)
    if isinstance(drawn, Missing) and materials[0].ingested and name in OF_PLAYED:
        return Missing("only of a run that diagevo train plays", None)
    return drawn
