"""The figures of the report, those of the paper, in its order. What else is known of a run is on the pages
of `diagevo view`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from diagevo.report.case import case_study
from diagevo.report.coevolution import length_and_accuracy
from diagevo.report.figure import Entry, Figure, Missing
from diagevo.report.learning import label_accuracy, performance, question_difficulty
from diagevo.report.lifecycle import memory
from diagevo.report.material import Material
from diagevo.report.wording import pair_diversity, question_coverage, question_length

if TYPE_CHECKING:
    from diagevo.diagnosis.embedder import Embedder

FIGURES: tuple[Entry, ...] = (
    Entry("intro", "Question length and accuracy", length_and_accuracy, "Figure 1", ("fig:intro",)),
    Entry(
        "performance", "Performance by round", performance, "Figure 3a", ("fig:dynamics", "fig:dynamics_perf")
    ),
    Entry("memory", "Memory lifecycle", memory, "Figure 3b", ("fig:dynamics_memory",)),
    Entry("labels", "Pseudo-label accuracy", label_accuracy, "Figure 3c", ("fig:dynamics_label",)),
    Entry("case", "Case study", case_study, "Figure 4", ("fig:case_study",)),
    Entry(
        "length",
        "Question length",
        question_length,
        "Figure 5a",
        ("fig:question_properties", "fig:props_length"),
    ),
    Entry("diversity", "2-gram diversity", pair_diversity, "Figure 5b", ("fig:props_diversity",)),
    Entry("difficulty", "Question difficulty", question_difficulty, "Figure 5c", ("fig:props_difficulty",)),
    Entry(
        "coverage",
        "Question coverage",
        question_coverage,
        "Figure 6",
        ("fig:coverage", "fig:coverage_r3", "fig:coverage_r4", "fig:coverage_r5"),
    ),
)
NOT_MEASURED = ("Figure 2", "fig:overview")
"""A drawing of the method: its number and label."""


def draw(
    name: str,
    materials: Sequence[Material],
    embedder: "Embedder | None" = None,
) -> Figure | Missing:
    """One of `FIGURES`. `embedder` gives the coverage figure its vectors where the run's cannot be made."""
    found = next(known for known in FIGURES if known.name == name)
    if found.draw is question_coverage:
        return question_coverage(materials, embedder)
    return found.draw(materials)
