"""The findings on a run's first page: what the model kept getting wrong, and what the curriculum did about
it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from diagevo.evaluation.protocol import share_interval
from diagevo.memory.history import History
from diagevo.memory.log.tables import RoundCounts
from diagevo.memory.read.asking import select_rows
from diagevo.memory.read.counts import Counts
from diagevo.memory.read.runs import RunStory
from diagevo.memory.state.assignments import causes_of, moves
from diagevo.memory.stories.examples import Example, examples_of
from diagevo.memory.stories.failures import FailureStory, counted_under, failure_story, stories_of
from diagevo.memory.stories.references import Reference
from diagevo.text.numbers import count, percent
from diagevo.view.page import Sentence

SHOWN = 3
"""Causes."""
LOOKED = 200
"""Failures of a cause searched for its example."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """A cause with its failures, and the latest of them."""

    cause_id: str
    description: str
    state: str
    failures: int
    questions: int
    """Questions on which it failed."""
    share: float
    """Of all failures that have a cause."""
    interval: tuple[float, float]
    """Interval of the share. Failures on one question are not independent: questions are its units."""
    example: Example


def mistakes(history: History, counts: Counts, most: int = SHOWN) -> list[Mistake]:
    """The causes with most failures. If the truth is known, a failure that was really wrong is shown."""
    causes = history.state(history.end).causes
    moved = causes_of(moves(history.log, history.run_id))
    last = {cause: _failure(history, counts, cause, moved) for cause in list(counts.failures)[:most]}
    shown = examples_of(history, last.values())
    of_all = sum(one.questions_with_cause for one in counts.rounds)
    return [
        Mistake(
            cause_id=cause,
            description=causes[cause].description,
            state=causes[cause].state.capitalize(),
            failures=counts.failures[cause],
            questions=sum(one.questions for one in counts.causes if one.cause_id == cause),
            share=(share := counts.failures[cause] / sum(counts.with_cause.values())),
            interval=share_interval(share, of_all),
            example=shown[failure.failure_id],
        )
        for cause, failure in last.items()
    ]


def _failure(history: History, counts: Counts, cause: str, moved: Mapping[str, str | None]) -> FailureStory:
    """The last failure of a cause, not known to be right, in the last round that has any. `moved`:
    failures assigned by hand, with their causes."""
    last = max(one.round for one in counts.causes if one.cause_id == cause and one.failures)
    story = None
    limit = None if moved else LOOKED
    counted = counted_under(history, cause, last, newest_first=True, limit=limit)
    for fact in islice((one for one in counted if one.event.failure_id not in moved), LOOKED):
        [story] = stories_of(history, [fact])
        if story.right is not True:
            break
    came = (name for name, of in moved.items() if of == cause and name.startswith(f"r{last}."))
    if story is None:
        story = failure_story(history, Reference("failure", next(came)), history.end)
    return story


def failing(counts: Counts, story: RunStory, *, listed: bool = True) -> Iterator[Sentence]:
    """How much failed, how much of that has no cause, and how much may not have been a failure. `listed`:
    whether the page lists the prompts without a cause."""
    run, rates = story.line.run_id, story.pass_rates
    if not counts.observed:
        none = "No failure is recorded yet." if counts.rounds else "No round has begun."
        if rates is not None and rates.failed:
            none = f"{rates.incomparable or rates.left}." + (
                " The prompts are listed below." if listed else ""
            )
        elif counts.ingested and rates is not None and rates.rollouts:
            none = f"All {count(rates.rollouts, 'rollout')} passed."
        yield Sentence("failures", none)
        return
    every, named = counts.observed, sum(counts.with_cause.values())
    dismissed = sum(one.with_cause for one in counts.rounds) - named
    text = f"Of {count(every, 'failure')} in {counts.span}, {named:,} have a cause"
    if rates is not None:  # all failures, including those without a comparison and those still waiting
        failed = count(rates.failed, "rollout that failed", "rollouts that failed")
        text = f"Of {failed}, {named:,} have a cause"
    text += f" ({count(len(counts.failures), 'cause')})" if named else ""
    if dismissed:
        text += f"; {dismissed:,} are of {count(len(counts.dismissed), 'dismissed cause')}"
    if rates is not None:
        yield Sentence("failures", f"{text}.", f"{run}/causes.html")
        if rates.left is not None:
            below = " Their prompts are listed below." if listed else ""
            yield Sentence("left", f"{rates.left}.{below}")
        return
    if left := every - named - dismissed:
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


@dataclass(frozen=True, slots=True)
class AimedCandidate:
    """`v_candidate`: a question that aimed at a cause."""

    question_id: str
    cause_id: str
    question: str
    votes_are: str
    first: int
    second: int
    responses: int
    label: str | None
    label_true: bool | None


@dataclass(frozen=True, slots=True)
class AimedQuestion:
    scored: AimedCandidate
    text: str | None
    description: str
    """Of the cause."""


def aimed_example(history: History, counts: Counts) -> AimedQuestion | None:
    """The last kept question aimed at the most frequent cause that any question aimed at."""
    last = {one.cause_id: one.round for one in counts.causes if one.aimed_kept}
    cause = next((cause for cause in counts.failures if cause in last), None)
    if cause is None:
        return None
    values = {"round": last[cause], "cause": cause}
    only = "round = :round AND cause_id = :cause AND verdict = 'kept'"
    [scored] = select_rows(
        history, "v_candidate", AimedCandidate, only, values, order="position DESC", limit=1
    )
    known = history.state(history.end).causes[cause]
    return AimedQuestion(scored, history.text(scored.question), known.description)


def curriculum(counts: Counts, story: RunStory) -> Iterator[Sentence]:
    """What was aimed at, what was promoted and came back, and whether the labels were true."""
    run = story.line.run_id
    if not counts.candidates:
        yield Sentence("aimed", "No question is recorded yet.")
        return
    yield Sentence("aimed", _aimed(counts), f"{run}/rounds/{counts.rounds[-1].round}.html")
    if any(one.promoted_causes for one in counts.rounds):
        yield Sentence("promoted", _promoted(counts), f"{run}/log/CausePromoted.html")
    if text := _labels(counts):
        yield Sentence("labels", text, f"{run}/rounds/{counts.rounds[-1].round}.html")
    if story.rounds:
        line = story.rounds[-1]
        text = (
            f"After round {line.round}, {count(line.active, 'cause is', 'causes are')} Active and"
            f" {line.mastered:,} Mastered"
        )
        if not counts.ingested or counts.steered:
            text += f", and {percent(line.epsilon_next)} of the next questions explore freely"
        yield Sentence("now", f"{text}.", f"{run}/causes.html")


def _aimed(counts: Counts) -> str:
    every, at = counts.candidates, sum(one.aimed for one in counts.causes)
    causes = count(len({one.cause_id for one in counts.causes if one.aimed}), "cause")
    kept = sum(one.aimed_kept for one in counts.causes)
    if counts.ingested and not counts.steered:
        return (
            f"Another trainer chose the prompts. {at:,} of {every:,} in {counts.span} came again"
            f" after failures with a cause that was Active, {causes} in all; in {kept:,} of these groups some"
            " passed and some failed."
        )
    of_free = sum(one.kept for one in counts.rounds) - kept
    return (
        f"Of {count(every, 'question')} in {counts.span}, {at:,} aimed at {causes} and {every - at:,}"
        f" explored freely; {kept:,} and {of_free:,} of them were kept for training."
    )


def _promoted(counts: Counts) -> str:
    promoted = [(one.round, cause) for one in counts.rounds for cause in one.promoted_causes]
    reactivated = [(one.round, cause) for one in counts.rounds for cause in one.reactivated_causes]
    text = f"{count(len(promoted), 'promotion')} to Mastered in {counts.span}"
    if not reactivated:
        return f"{text}, and no cause came back."
    back, at_once = count(len(reactivated), "cause"), len(set(promoted) & set(reactivated))
    return f"{text}; {back} came back, {at_once:,} of them in the same round as the promotion."


def _labels(counts: Counts) -> str | None:
    """The share of true labels among kept questions, in the first and the last round with known truth."""
    judged = [one for one in counts.rounds if one.labels_judged]
    if not judged:
        return None

    def share(one: RoundCounts) -> str:
        return f"{_within(one.labels_true / one.labels_judged, one.labels_judged)} in round {one.round}"

    after = "" if len(judged) == 1 else f", and {share(judged[-1])}"
    return f"The majority's label of a kept question was true in {share(judged[0])}{after}."


def _within(share: float, n: int) -> str:
    low, high = share_interval(share, n)
    return f"{percent(share)} of {n:,} ({percent(low)} to {percent(high)})"
