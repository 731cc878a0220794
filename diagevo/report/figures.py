"""The figures of the report, in the order they are shown."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from diagevo.errors import NotFoundError
from diagevo.report.case import case_study
from diagevo.report.causes import reactivations, top_causes
from diagevo.report.coevolution import length_and_accuracy
from diagevo.report.figure import Entry, Figure, Missing
from diagevo.report.learning import label_accuracy, performance, question_difficulty
from diagevo.report.lifecycle import memory, schedule
from diagevo.report.material import Material
from diagevo.report.selection import filtering, retention, time_by_stage
from diagevo.report.variants import by_variant
from diagevo.report.wording import pair_diversity, question_coverage, question_length

if TYPE_CHECKING:
    from diagevo.diagnosis.embedder import Embedder

FIGURES: tuple[Entry, ...] = (
    Entry("intro", "Question length and accuracy", length_and_accuracy),
    Entry("performance", "Performance by round", performance),
    Entry("variants", "Accuracy by round of each variant", by_variant),
    Entry("memory", "Memory lifecycle", memory),
    Entry("labels", "Pseudo-label accuracy", label_accuracy),
    Entry("schedule", "Schedule", schedule),
    Entry("filter", "Filter", filtering),
    Entry("retention", "Retention against τ", retention),
    Entry("length", "Question length", question_length),
    Entry("diversity", "2-gram diversity", pair_diversity),
    Entry("difficulty", "Question difficulty", question_difficulty),
    Entry("coverage", "Question coverage", question_coverage),
    Entry("time", "Time by stage", time_by_stage),
    Entry("causes", "Top causes and their episodes", top_causes),
    Entry("case", "Case study", case_study),
    Entry("reactivations", "Reactivations and their evidence", reactivations),
)


def entry(name: str) -> Entry:
    for known in FIGURES:
        if known.name == name:
            return known
    raise NotFoundError(f"no figure {name!r}", hint="there are: " + ", ".join(e.name for e in FIGURES))


def draw(
    name: str,
    materials: Sequence[Material],
    embedder: "Embedder | None" = None,
    arms: Sequence[Material] = (),
) -> Figure | Missing:
    """A figure by name. `embedder` gives the coverage figure its vectors where the run's cannot be made;
    `arms` are the runs of a plan, for the figure of its variants."""
    found = entry(name)
    if found.draw is by_variant:
        return by_variant(arms or materials)
    if found.draw is question_coverage:
        return question_coverage(materials, embedder)
    return found.draw(materials)
