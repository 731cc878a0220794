"""Every table and figure of the paper, by its number and its label, and what makes it here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class PaperItem:
    """Something that the paper shows. `kind` and `name` are the command's: `report build --only NAME`."""

    number: str
    labels: tuple[str, ...]
    """In the paper's source."""
    kind: Literal["fig", "table", "drawing"]
    name: str = ""


PAPER: Sequence[PaperItem] = (
    PaperItem("Figure 1", ("fig:intro",), "fig", "intro"),
    PaperItem("Figure 2", ("fig:overview",), "drawing"),
    PaperItem("Figure 3a", ("fig:dynamics", "fig:dynamics_perf"), "fig", "performance"),
    PaperItem("Figure 3b", ("fig:dynamics_memory",), "fig", "memory"),
    PaperItem("Figure 3c", ("fig:dynamics_label",), "fig", "labels"),
    PaperItem("Figure 4", ("fig:case_study",), "fig", "case"),
    PaperItem("Figure 5a", ("fig:question_properties", "fig:props_length"), "fig", "length"),
    PaperItem("Figure 5b", ("fig:props_diversity",), "fig", "diversity"),
    PaperItem("Figure 5c", ("fig:props_difficulty",), "fig", "difficulty"),
    PaperItem(
        "Figure 6",
        ("fig:coverage", "fig:coverage_r3", "fig:coverage_r4", "fig:coverage_r5"),
        "fig",
        "coverage",
    ),
    PaperItem("Table 1", ("tab:main_results",), "table", "main"),
    PaperItem("Table 2", ("tab:ablation",), "table", "ablation"),
    PaperItem("Table 3", ("tab:appendix_grpo",), "table", "grpo"),
    PaperItem("Table 4", ("tab:appendix_diagevo",), "table", "training"),
    PaperItem("Table 5", ("tab:appendix_thresholds",), "table", "thresholds"),
    PaperItem("Table 6", ("tab:appendix_runtime",), "table", "time"),
    PaperItem("Table 7", ("tab:appendix_repro",), "table", "baselines"),
    PaperItem("Table 8", ("tab:ablation_fixed_ratio",), "table", "fixed"),
    PaperItem("Table 9", ("tab:ablation_k",), "table", "k"),
    PaperItem("Table 10", ("tab:ablation_tau",), "table", "tau"),
)
