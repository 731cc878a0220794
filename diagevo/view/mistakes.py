"""What the model kept getting wrong, in words: the causes of most failures, each with one of its failures."""

from collections.abc import Iterator
from dataclasses import dataclass

from diagevo.evaluation.protocol import share_interval
from diagevo.memory.audit.examples import Example, examples_of
from diagevo.memory.audit.failures import FailureStory, stories_of
from diagevo.memory.audit.runs import RunStory
from diagevo.memory.events import Event
from diagevo.memory.history import History, fact_of
from diagevo.memory.read.counts import Counts
from diagevo.text.numbers import count
from diagevo.view.page import Sentence

TOLD = 3
"""Causes."""
LOOKED = 200
"""Failures of a cause among which its example is looked for."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """A cause with its failures, and the last of them."""

    cause_id: str
    description: str
    state: str
    failures: int
    questions: int
    """On which it failed."""
    share: float
    """Of all failures that have a cause."""
    interval: tuple[float, float]
    """Of the share. Failures on one question are no independent evidence: questions are its units."""
    example: Example


def mistakes(history: History, counts: Counts) -> list[Mistake]:
    """The causes of most failures. Where the truth is known, a failure that was wrong is shown."""
    causes = history.state(history.end).causes
    last = {cause: _failure(history, counts, cause) for cause in list(counts.failures)[:TOLD]}
    shown = examples_of(history, last.values())
    of_all = sum(one.questions_with_cause for one in counts.rounds)
    return [
        Mistake(
            cause_id=cause,
            description=causes[cause].description,
            state=causes[cause].state.capitalize(),
            failures=counts.failures[cause],
            questions=sum(one.questions for one in counts.causes if one.cause_id == cause),
            share=(share := counts.failures[cause] / counts.with_cause),
            interval=share_interval(share, of_all),
            example=shown[failure.failure_id],
        )
        for cause, failure in last.items()
    ]


def _failure(history: History, counts: Counts, cause: str) -> FailureStory:
    """The last failure by a cause that is not known to be right; of the last round that has any."""
    last = max(one.round for one in counts.causes if one.cause_id == cause and one.failures)
    kinds, story = ["CauseCreated", "CauseMatched"], None
    for recorded in history.log.read(
        history.run_id, types=kinds, rounds=(last, last), cause_id=cause, newest_first=True, limit=LOOKED
    ):
        [story] = stories_of(history, [fact_of(recorded, Event)])
        if story.right is not True:
            break
    assert story is not None
    return story


def failing(counts: Counts, story: RunStory) -> Iterator[Sentence]:
    """How much failed, how much of it has no cause, and how much of it may have been no failure."""
    run, rates = story.line.run_id, story.pass_rates
    if not counts.observed:
        none = "No failure is recorded yet." if counts.rounds else "No round has begun."
        if rates is not None and rates.failed:
            none = f"{rates.incomparable or rates.left}. The prompts are listed below."
        elif counts.ingested and rates is not None and rates.rollouts:
            none = f"All {count(rates.rollouts, 'rollout')} passed."
        yield Sentence("failures", none)
        return
    every, named = counts.observed, counts.with_cause
    text = f"Of {count(every, 'failure')} in {counts.span}, {named:,} have a cause"
    text += f" ({count(len(counts.failures), 'cause')})" if named else ""
    if rates is not None:
        yield Sentence("failures", f"{text}.", f"{run}/causes.html")
        if rates.left is not None:
            yield Sentence("left", f"{rates.left}. Their prompts are listed below.")
        return
    if left := every - named:
        text += f"; the other {left:,} are slips or have no diagnosis"
    yield Sentence("failures", text + ".", f"{run}/causes.html")
    if false := sum(one.against_false_labels for one in counts.rounds):
        known = sum(one.failures_judged for one in counts.rounds)
        worst = max(counts.rounds, key=lambda one: (one.against_false_labels, one.round))
        right = [n for one in counts.rounds if (n := one.right_against_false) is not None]
        text = f"{false:,} of {count(known, 'failure')} whose label can be checked"
        text += f" {'stands' if false == 1 else 'stand'} against a false one"
        text += f", and {sum(right):,} of these {'is' if sum(right) == 1 else 'are'} right" if right else ""
        text += (
            f". Most are in round {worst.round}: {worst.against_false_labels:,} of {worst.failures_judged:,}."
        )
        yield Sentence("false-labels", text, f"{run}/rounds/{worst.round}.html")
