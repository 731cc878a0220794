"""The report of a run on one page, to send or print: pass rates, the largest causes with one pair each, and
how they were counted."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from diagevo.memory.history import History
from diagevo.memory.read.counts import Counts, counts
from diagevo.memory.read.runs import RunStory
from diagevo.memory.stories.failures import failure_story
from diagevo.memory.stories.references import Reference
from diagevo.text.numbers import count, exact
from diagevo.view.against import of_runs
from diagevo.view.evaluated import Evaluated
from diagevo.view.findings import Mistake, failing, mistakes
from diagevo.view.outcomes import helped
from diagevo.view.page import Page, Sentence, Site
from diagevo.view.pages import below
from diagevo.view.stories import Sides, sides_of

CAUSES = 5
"""Causes shown with a pair, those with most failures."""
LINES = 16
"""Lines of a pair around the marked place."""
PAIRS = 3
"""Prompts that got worse, and as many that got better, with a response from each run."""
CHANGED = 12
"""Prompts of either kind that are listed."""
ROWS = 30
"""Rows of the tables by model and by tag."""


@dataclass(frozen=True, slots=True)
class ReportedCause:
    """A cause with one of its failures and a pass."""

    mistake: Mistake
    sides: Sides
    feedback: str | None
    """The file's feedback on that failure."""
    left_out: int
    """Lines of the pair that are left out."""


def report(history: History, site: Site, other: str | None = None) -> Page:
    """One self-contained page, including changes since another run if one is named."""
    run, story = history.run_id, site.story(history.run_id)
    found = counts(history)
    passed = None if story.pass_rates is None else Evaluated.of(story.pass_rates)
    if passed is not None and not history.evaluation:
        # Each training step repeats prompts: there the groups of a tag are not units for an interval.
        passed = replace(passed, models=(), tags=())
    worst = mistakes(history, found, CAUSES)
    data = {
        "story": story,
        "check": site.checks.quick(run),
        "passed": passed,
        "shown_rows": ROWS,
        "failing": list(failing(found, story, listed=False)),
        "reported": [_reported(history, one) for one in worst],
        "more": len(found.failures) - len(worst),
        "all_failures": story.pass_rates.failed if story.pass_rates else sum(found.with_cause.values()),
        "helped": [] if history.evaluation else list(helped(history, found, story)),
        "counted": list(_counted(history, story, found)),
        "commands": [
            f"diagevo view --run {run} --report {run}.html" + (f" --against {other}" if other else "")
        ],
        "since": None if other is None else _since(history, site, other),
    }
    return Page("report.html", f"report of {run}", data, below(run))


def _since(history: History, site: Site, other: str) -> dict[str, Any]:
    """The changes since another run that a report shows."""
    found = of_runs(history, site, other)
    return found | {
        "other": other,
        "worse": found["worse"][:PAIRS],
        "better": found["better"][:PAIRS],
        "listed": CHANGED,
        "causes": found["causes"][:ROWS],
        "commands": [],
    }


def _reported(history: History, mistake: Mistake) -> ReportedCause:
    failure = Reference("failure", mistake.example.failure_id)
    told = failure_story(history, failure, history.end, full=True)
    texts = told.texts
    assert texts is not None
    sides = sides_of(mistake.example, texts.reference, texts.trajectory)
    start = max(0, (sides.first or 0) - LINES // 3)
    lines = sides.lines[start : start + LINES]
    first = None if sides.first is None else sides.first - start
    shown = replace(sides, lines=lines, first=first, thoughts=("", ""))
    return ReportedCause(mistake, shown, told.feedback, len(sides.lines) - len(lines))


def _counted(history: History, story: RunStory, found: Counts) -> Iterator[Sentence]:
    """How the figures were obtained."""
    config, rates = story.configuration.config, story.pass_rates
    if rates is not None:
        pass_at = exact(config.get("ingest", {}).get("pass_at", 0.5))
        yield Sentence(
            "pass",
            f"A response passes if its reward is at least {pass_at}. The figures are of"
            f" {count(rates.rollouts, 'response')} to {count(rates.asked, 'prompt')}, read from"
            f" {story.line.ingested}.",
        )
    if found.observed:
        role = config.get("roles", {}).get("diagnostician", {})
        by = "from the texts alone, without a language model"
        if role.get("engine") != "local":
            by = f"by {role.get('model', 'a diagnostician')}"
        yield Sentence(
            "causes",
            f"Causes were found {by}. A failure counts under one cause at most. An example is a failure of"
            " the cause beside a response that passed, the nearest where that is known; the difference shown"
            " is one of their texts.",
        )
    yield Sentence(
        "interval",
        "Intervals are 95%: Wilson's of a share, over prompts or questions, because responses to one of them"
        " are no independent evidence.",
    )
    yield Sentence(
        "log",
        f"Everything comes from an append-only log of {count(history.end.sequence, 'event')}. This page is a"
        " copy and proves nothing by itself; the log does.",
    )
