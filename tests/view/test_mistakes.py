"""What a run's overview says first: the causes of most failures, each with one of them."""

from contextlib import closing
from pathlib import Path

import pytest

from diagevo.memory.history import open_history
from diagevo.memory.read.counts import counts
from diagevo.view.findings import mistakes
from tests.memory.audit.played import C1, C2, C3


def test_the_causes_of_most_failures_come_first_with_the_last_of_them(folder: Path) -> None:
    """c2: 1 failure in round 1, 2 in round 2, 3 in round 3; c1: 2 and 1; c3: 1, 1 and 1; c4: 1. In all 13."""
    with closing(open_history(str(folder / "diagevo.db"), "played", root=folder)) as history:
        first, second, third = mistakes(history, counts(history))
    told = [(one.description, one.failures, one.share, one.state) for one in (first, second, third)]
    assert told == [(C2, 6, 6 / 13, "Mastered"), (C1, 3, 3 / 13, "Active"), (C3, 3, 3 / 13, "Active")]
    example = first.example
    assert (example.failure_id, example.question) == ("r3.q3.a0", "Question 3 of round 3: what is it?")
    assert (example.actual, example.expected) == (
        "The wrong way of r3.q3.a0, attempt 1",
        "A reference of r3.q3",
    )


@pytest.mark.slow
def test_the_overview_begins_with_them(exported: Path) -> None:
    page = (exported / "played" / "index.html").read_text(encoding="utf-8")
    said, _, rest = page.partition("What the curriculum did about it")
    assert "What it kept getting wrong" in said
    assert f">{C2}</a>" in said
    assert (
        "first difference <del>The wrong way of r3.q3.a0, attempt 1</del>"
        " instead of <ins>A reference of r3.q3</ins>" in said
    )
    assert "Did it help?" in rest
