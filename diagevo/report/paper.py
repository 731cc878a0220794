"""Every table and figure of the paper, by its number and its label, and what makes it here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class PaperItem:
    """Something that the paper shows. `kind` and `name` are the command's: `report build --only NAME`."""

    number: str
    labels: tuple[str, ...]
    title: str
    kind: Literal["fig", "table", "drawing"]
    name: str = ""


PAPER: Sequence[PaperItem] = (
    PaperItem("Figure 1", ("fig:intro",), "Question length and accuracy", "fig", "intro"),
    PaperItem("Figure 2", ("fig:overview",), "One round", "drawing"),
    PaperItem(
        "Figure 3a", ("fig:dynamics", "fig:dynamics_perf"), "Performance by round", "fig", "performance"
    ),
    PaperItem("Figure 3b", ("fig:dynamics_memory",), "Memory lifecycle", "fig", "memory"),
    PaperItem("Figure 3c", ("fig:dynamics_label",), "Pseudo-label accuracy", "fig", "labels"),
    PaperItem("Figure 4", ("fig:case_study",), "Case study", "fig", "case"),
    PaperItem(
        "Figure 5a", ("fig:question_properties", "fig:props_length"), "Question length", "fig", "length"
    ),
    PaperItem("Figure 5b", ("fig:props_diversity",), "2-gram diversity", "fig", "diversity"),
    PaperItem("Figure 5c", ("fig:props_difficulty",), "Question difficulty", "fig", "difficulty"),
    PaperItem(
        "Figure 6",
        ("fig:coverage", "fig:coverage_r3", "fig:coverage_r4", "fig:coverage_r5"),
        "Question coverage",
        "fig",
        "coverage",
    ),
    PaperItem("Table 1", ("tab:main_results",), "Reasoning accuracy", "table", "main"),
    PaperItem("Table 2", ("tab:ablation",), "Ablations", "table", "ablation"),
    PaperItem("Table 3", ("tab:appendix_grpo",), "GRPO settings", "table", "grpo"),
    PaperItem("Table 4", ("tab:appendix_diagevo",), "Training configuration", "table", "training"),
    PaperItem("Table 5", ("tab:appendix_thresholds",), "Rewards, filter, thresholds", "table", "thresholds"),
    PaperItem("Table 6", ("tab:appendix_runtime",), "Training time", "table", "time"),
    PaperItem("Table 7", ("tab:appendix_repro",), "Reported and reproduced baselines", "table", "baselines"),
    PaperItem("Table 8", ("tab:ablation_fixed_ratio",), "Fixed and adaptive generation", "table", "fixed"),
    PaperItem("Table 9", ("tab:ablation_k",), "Sensitivity to k", "table", "k"),
    PaperItem("Table 10", ("tab:ablation_tau",), "Sensitivity to τ", "table", "tau"),
)
