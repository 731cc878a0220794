"""What the curriculum did about it: questions that aimed at causes, and what became of the causes."""

from collections.abc import Iterator
from dataclasses import dataclass

from diagevo.evaluation.protocol import share_interval
from diagevo.memory.audit.runs import RunStory
from diagevo.memory.history import History
from diagevo.memory.read.asking import ask
from diagevo.memory.read.counts import Counts, RoundCounts
from diagevo.text.numbers import count, percent
from diagevo.view.page import Sentence


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
    """The last kept question that aimed at the cause of most failures that any aimed at."""
    last = {one.cause_id: one.round for one in counts.causes if one.aimed_kept}
    cause = next((cause for cause in counts.failures if cause in last), None)
    if cause is None:
        return None
    values = {"round": last[cause], "cause": cause}
    only = "round = :round AND cause_id = :cause AND verdict = 'kept'"
    [scored] = ask(history, "v_candidate", AimedCandidate, only, values, order="position DESC", limit=1)
    known = history.state(history.end).causes[cause]
    return AimedQuestion(scored, history.text(scored.question), known.description)


def curriculum(counts: Counts, story: RunStory) -> Iterator[Sentence]:
    """What was aimed at, what was promoted and came back, whether the labels of it were true."""
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
    """Of kept questions, in the first and the last round that have any whose truth is known."""
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
