"""The pages that hold a run against what it is not: other settings, or another run."""

from collections.abc import Callable, Iterator, Sequence

from diagevo.errors import MissingDependencyError
from diagevo.memory.audit.compare_runs import InRun, diff_runs
from diagevo.memory.audit.round_figures import round_figures
from diagevo.memory.audit.timeline.measurements import measured
from diagevo.memory.history import History
from diagevo.progress import RoundFigures
from diagevo.view.charts import Chart, Series, chart
from diagevo.view.facts import Sentence, is_short
from diagevo.view.helped import MEAN, half_interval, with_interval
from diagevo.view.page import Page, Site
from diagevo.view.pages import below

MEASURED = (
    ("mean@k", "mean_at_k"),
    ("greedy", "greedy"),
    ("labels true", "labels_true"),
    ("pass rate", "pass_rate"),
)
"""Shares of a round. Beside another trainer's rollouts, which have the last alone, only what is measured."""


SHOWN = 8
"""Causes of a run that the other has not, those of most failures."""


def what_if_page(history: History, site: Site) -> Page:
    """The rounds as they were recorded; a script loads what the sliders for k, τ, θ_up, p_low and p_high move
    over. Each value is what `memory what-if` says."""
    lines = list(round_figures(history, counted=is_short(history)))
    return Page("whatif.html", "what if", {"rounds": lines}, below(history.run_id))


def runs_page(history: History, site: Site, other: str) -> Page:
    """Two runs round by round, and where they first differ."""
    against = site.history(other)
    found, lacking = None, None
    try:
        found = diff_runs(history, against, history.end, against.end)
    except MissingDependencyError as error:  # matching causes by meaning needs an extra; the rest does not
        lacking = error
    sides = {one.run_id: {line.round: line for line in round_figures(one)} for one in (history, against)}
    rounds = sorted({number for lines in sides.values() for number in lines})
    every = [line for lines in sides.values() for line in lines.values()]
    if any(line.pass_rate is not None for line in every):
        columns = [one for one in MEASURED if any(getattr(line, one[1]) is not None for line in every)]
    else:
        columns = MEASURED[:-1]
    runs = (history.run_id, other)

    def curve(title: str, value: Callable[[RoundFigures], float | None], *, share: bool) -> Chart | None:
        def line(of: dict[int, RoundFigures]) -> list[float | None]:
            return [value(of[number]) if number in of else None for number in rounds]

        return chart(title, rounds, [Series(run, line(sides[run])) for run in runs], percent=share)

    drawn = [
        curve("Accuracy on held-out questions (mean@k)", lambda line: line.mean_at_k, share=True),
        curve("Rollouts that passed", lambda line: line.pass_rate, share=True),
        curve(
            "Failures for each question that was kept",
            lambda line: line.observed / line.kept if line.kept else None,
            share=False,
        ),
    ]
    only = (
        []
        if found is None
        else [(run, _most(of)) for run, of in zip(runs, (found.only_a, found.only_b), strict=True)]
    )
    data = {
        "sentences": list(_sentences(history, against)),
        "charts": [one for one in drawn if one is not None],
        "only": only,
        "shown": SHOWN,
        "measured": columns,
        "sides": sides,
        "rounds": rounds,
        "found": found,
        "lacking": lacking,
        "other": other,
    }
    return Page("against.html", f"{history.run_id} and {other}", data, below(history.run_id))


def _most(causes: Sequence[InRun]) -> list[InRun]:
    return sorted(causes, key=lambda one: -one.frequency)[:SHOWN]


def _sentences(a: History, b: History) -> Iterator[Sentence]:
    """Their accuracies after the last round that both measured."""
    scores = [
        {
            number: one.validation
            for number, one in measured(run, candidates=False).items()
            if MEAN in one.validation
        }
        for run in (a, b)
    ]
    common = scores[0].keys() & scores[1].keys() - {0}
    if not common:
        return
    last = max(common)
    first, second = scores[0][last], scores[1][last]
    change, half = second[MEAN] - first[MEAN], half_interval(first, MEAN, second, MEAN)
    text = (
        f"After round {last}, {b.run_id} answers {with_interval(second, MEAN)} of the held-out questions"
        f" (mean@k) and {a.run_id} {with_interval(first, MEAN)}: a difference of {100 * change:+.1f} points"
        f" ({100 * (change - half):+.1f} to {100 * (change + half):+.1f})"
    )
    text += ", which may be chance." if abs(change) <= half else "."
    text += " Of two runs alone: another seed may differ as much."
    yield Sentence("accuracy", text)
