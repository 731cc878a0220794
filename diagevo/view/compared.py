"""The pages that hold a run against what it is not: other settings, or another run."""

from diagevo.errors import MissingDependencyError
from diagevo.memory.audit.compare_runs import diff_runs
from diagevo.memory.audit.round_figures import round_figures
from diagevo.memory.history import History
from diagevo.view.facts import is_short
from diagevo.view.page import Page, Site
from diagevo.view.pages import below

MEASURED = (
    ("mean@k", "mean_at_k"),
    ("greedy", "greedy"),
    ("labels true", "labels_true"),
    ("pass rate", "pass_rate"),
)
"""Shares of a round. Beside another trainer's rollouts, which have the last alone, only what is measured."""


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
        measured = [one for one in MEASURED if any(getattr(line, one[1]) is not None for line in every)]
    else:
        measured = MEASURED[:-1]
    data = {
        "measured": measured,
        "sides": sides,
        "rounds": rounds,
        "found": found,
        "lacking": lacking,
        "other": other,
    }
    return Page("against.html", f"{history.run_id} and {other}", data, below(history.run_id))
