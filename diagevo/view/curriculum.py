"""What the curriculum did about it: questions that aimed at causes, and what became of the causes."""

from collections.abc import Iterator
from dataclasses import dataclass

from diagevo.evaluation.protocol import share_interval
from diagevo.memory.audit.runs import RunStory
from diagevo.memory.events import CandidateScored
from diagevo.memory.history import History
from diagevo.text.numbers import count, percent
from diagevo.view.facts import Facts, Sentence


@dataclass(frozen=True, slots=True)
class AimedQuestion:
    scored: CandidateScored
    text: str | None
    description: str
    """Of the cause."""


def aimed_example(history: History, facts: Facts) -> AimedQuestion | None:
    """The last kept question that aimed at the cause of most failures that any aimed at."""
    last = {cause: scored for _, scored, cause in facts.aimed() if scored.verdict == "kept"}
    cause = next((cause for cause in facts.most if cause in last), None)
    if cause is None:
        return None
    known = history.state(history.end).causes[cause]
    return AimedQuestion(last[cause], history.text(last[cause].question), known.description)


def curriculum(facts: Facts, story: RunStory) -> Iterator[Sentence]:
    """What was aimed at, what was promoted and came back, whether the labels of it were true."""
    run = story.line.run_id
    if not facts.questions:
        yield Sentence("aimed", "No question is recorded yet.")
        return
    yield Sentence("aimed", _aimed(facts), f"{run}/rounds/{facts.rounds[-1]}.html")
    if facts.promoted:
        yield Sentence("promoted", _promoted(facts), f"{run}/log/CausePromoted.html")
    if text := _labels(facts):
        yield Sentence("labels", text, f"{run}/rounds/{facts.rounds[-1]}.html")
    if story.rounds:
        line = story.rounds[-1]
        text = (
            f"After round {line.round}, {count(line.active, 'cause is', 'causes are')} Active and"
            f" {line.mastered:,} Mastered"
        )
        if not facts.ingested or facts.steered:
            text += f", and {percent(line.epsilon_next)} of the next questions explore freely"
        yield Sentence("now", f"{text}.", f"{run}/causes.html")


def _aimed(facts: Facts) -> str:
    every = [scored for _, scored in facts.questions.values()]
    at = [(scored, cause) for _, scored, cause in facts.aimed()]
    causes = count(len({cause for _, cause in at}), "cause")
    kept = sum(scored.verdict == "kept" for scored, _ in at)
    if facts.ingested and not facts.steered:
        return (
            f"Another trainer chose the prompts. {len(at):,} of {len(every):,} in {facts.span} came again"
            f" after failures with a cause that was Active, {causes} in all; in {kept:,} of these groups some"
            " passed and some failed."
        )
    free = len(every) - len(at)
    of_free = sum(scored.verdict == "kept" for scored in every) - kept
    return (
        f"Of {count(len(every), 'question')} in {facts.span}, {len(at):,} aimed at {causes} and {free:,}"
        f" explored freely; {kept:,} and {of_free:,} of them were kept for training."
    )


def _promoted(facts: Facts) -> str:
    text = f"{count(len(facts.promoted), 'promotion')} to Mastered in {facts.span}"
    if not facts.reactivated:
        return f"{text}, and no cause came back."
    promotions = set(facts.promoted)
    at_once = sum(one in promotions for one in facts.reactivated)
    back = count(len(facts.reactivated), "cause")
    return f"{text}; {back} came back, {at_once:,} of them in the same round as the promotion."


def _labels(facts: Facts) -> str | None:
    """Of kept questions, in the first and the last round that have any whose truth is known."""
    by_round: dict[int, list[bool]] = {}
    for number_, scored in facts.questions.values():
        if scored.verdict == "kept" and scored.label_true is not None and scored.votes_are == "answers":
            by_round.setdefault(number_, []).append(scored.label_true)
    if not by_round:
        return None

    def share(number_: int) -> str:
        labels = by_round[number_]
        return f"{_within(sum(labels) / len(labels), len(labels))} in round {number_}"

    first, last = min(by_round), max(by_round)
    after = "" if first == last else f", and {share(last)}"
    return f"The majority's label of a kept question was true in {share(first)}{after}."


def _within(share: float, n: int) -> str:
    low, high = share_interval(share, n)
    return f"{percent(share)} of {n:,} ({percent(low)} to {percent(high)})"
