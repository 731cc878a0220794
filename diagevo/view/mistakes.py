"""What the model kept getting wrong, in words: the causes of most failures, each with one of its failures."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from diagevo.evaluation.protocol import share_interval
from diagevo.memory.audit.examples import Example, examples
from diagevo.memory.audit.runs import RunStory
from diagevo.memory.history import History
from diagevo.text.numbers import count
from diagevo.view.facts import Facts, Sentence

TOLD = 3
"""Causes."""


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


def mistakes(history: History, facts: Facts) -> list[Mistake]:
    """The causes of most failures. Where the truth is known, a failure that was wrong is shown."""
    causes = history.state(history.end).causes
    failures = {name: facts.failures[name] for name in facts.cause_of}
    number = Counter(facts.cause_of.values())
    asked = {
        cause: {failures[name][1].question_id for name, of in facts.cause_of.items() if of == cause}
        for cause in facts.most[:TOLD]
    }
    of_all = len({failure.question_id for _, failure in failures.values()})
    shown: dict[str, str] = {}
    for name, cause in facts.cause_of.items():
        if cause in asked and (failures[name][1].right is not True or cause not in shown):
            shown[cause] = name
    told = examples(history, {name: failures[name] for name in shown.values()})
    return [
        Mistake(
            cause_id=cause,
            description=causes[cause].description,
            state=causes[cause].state.capitalize(),
            failures=number[cause],
            questions=len(asked[cause]),
            share=(share := number[cause] / number.total()),
            interval=share_interval(share, of_all),
            example=told[shown[cause]],
        )
        for cause in asked
    ]


def failing(facts: Facts, story: RunStory) -> Iterator[Sentence]:
    """How much failed, how much of it has no cause, and how much of it may have been no failure."""
    run, rates = story.line.run_id, story.pass_rates
    if not facts.failures:
        none = "No failure is recorded yet." if facts.rounds else "No round has begun."
        if rates is not None and rates.failed:
            none = f"{rates.incomparable or rates.left}. The prompts are listed below."
        elif facts.ingested and rates is not None and rates.rollouts:
            none = f"All {count(rates.rollouts, 'rollout')} passed."
        yield Sentence("failures", none)
        return
    every, named = len(facts.failures), len(facts.cause_of)
    text = f"Of {count(every, 'failure')} in {facts.span}, {named:,} have a cause"
    text += f" ({count(len(set(facts.cause_of.values())), 'cause')})" if named else ""
    if rates is not None:
        yield Sentence("failures", f"{text}.", f"{run}/causes.html")
        if rates.left is not None:
            yield Sentence("left", f"{rates.left}. Their prompts are listed below.")
        return
    if left := every - named:
        text += f"; the other {left:,} are slips or have no diagnosis"
    yield Sentence("failures", text + ".", f"{run}/causes.html")
    false, known = Counter[int](), Counter[int]()
    right: list[bool] = []
    for number, failure in facts.failures.values():
        of = facts.questions.get(failure.question_id)
        label_true = None if of is None else of[1].label_true
        known[number] += label_true is not None
        false[number] += label_true is False
        if label_true is False and failure.right is not None:
            right.append(failure.right)
    if false.total():
        worst = max(false, key=lambda number: (false[number], number))
        text = f"{false.total():,} of {count(known.total(), 'failure')} whose label can be checked"
        text += f" {'stands' if false.total() == 1 else 'stand'} against a false one"
        text += f", and {sum(right):,} of these {'is' if sum(right) == 1 else 'are'} right" if right else ""
        text += f". Most are in round {worst}: {false[worst]:,} of {known[worst]:,}."
        yield Sentence("false-labels", text, f"{run}/rounds/{worst}.html")
