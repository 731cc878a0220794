"""Benchmark scores as the paper reports them: whole sets, the set's own protocol, unweighted averages."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from diagevo.evaluation.benchmarks import BENCHMARKS
from diagevo.evaluation.store import Evaluation

NINE = {entry.name: entry for entry in BENCHMARKS if entry.group != "validation"}
GROUPS: Mapping[str, tuple[str, ...]] = {
    "Math Avg.": tuple(name for name, entry in NINE.items() if entry.group == "mathematics"),
    "General Avg.": tuple(name for name, entry in NINE.items() if entry.group == "general"),
    "Overall": tuple(NINE),
}


@dataclass(frozen=True, slots=True)
class RunResult:
    """What a run came to at its best round, or stood at before its first: shares in [0, 1] by column name."""

    run_id: str
    label: str
    variant: str | None
    seed: int
    round: int
    scores: Mapping[str, float]
    judges: Sequence[str] = ()
    """Who judged its benchmarks beside the rule."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Of the method, by dotted key: what replicates have in common."""
    family: frozenset[str] = frozenset()
    """The run and those that it was forked from."""


def by_protocol(evaluations: Iterable[Evaluation]) -> dict[int, dict[str, Evaluation]]:
    """By round and benchmark: the last finished evaluation of the whole set with its own samples and heat.

    A part of a set, or another number of samples or temperature, is no figure to put beside the paper's.
    """
    found: dict[int, dict[str, Evaluation]] = {}
    for evaluation in evaluations:
        entry, conditions = NINE.get(evaluation.benchmark), evaluation.conditions
        if entry is None or evaluation.round is None or evaluation.metrics is None or not conditions["whole"]:
            continue
        if (conditions["samples"], conditions["temperature"]) == (entry.samples, entry.temperature):
            found.setdefault(evaluation.round, {})[evaluation.benchmark] = evaluation
    return found


def judged_by(names: Sequence[str]) -> str:
    """A sentence on who decided, of `judges`: what the paper has in GPT-4o is said to lack where it does."""
    asked = [name for name in names if name != "none"]
    if len(asked) == len(names):
        return f" Judge behind the rule: {'; '.join(names)}." if names else ""
    alone = "the rule alone decided, where the paper's mathematics have GPT-4o as judge"
    if not asked:
        return f" No judge: {alone}."
    return f" Judge behind the rule: {'; '.join(asked)}; in part none: {alone}."


def judges(evaluations: Iterable[Evaluation]) -> list[str]:
    """Who decided what the rule refused, of the benchmarks where the paper has a judge."""
    return sorted(
        {
            "none" if judge is None else str(judge["model"])
            for evaluation in evaluations
            if NINE[evaluation.benchmark].judged
            for judge in [evaluation.conditions["judge"]]
        }
    )
