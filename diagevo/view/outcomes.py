"""Whether it helped: agreement on targeted questions, failures per round, accuracy on held-out questions."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Self

from diagevo.evaluation.protocol import AT_BEST, NORMAL, colder, share_interval
from diagevo.memory.history import History
from diagevo.memory.read.counts import Counts
from diagevo.memory.read.round_figures import MEAN, measurements
from diagevo.memory.read.runs import RunStory
from diagevo.text.numbers import count, percent
from diagevo.view.page import Sentence

SHOWN = 6
"""Maximum rounds side by side, the last ones."""


@dataclass(frozen=True, slots=True)
class MeanOfQuestions:
    """The mean p₁ of some questions, or their pass rate."""

    mean: float
    questions: int

    @classmethod
    def of(cls, shares: Sequence[float]) -> Self:
        return cls(math.fsum(shares) / len(shares), len(shares))

    @property
    def interval(self) -> tuple[float, float]:
        return share_interval(self.mean, self.questions)

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"{percent(self.mean)} ({percent(low)} to {percent(high)}, {count(self.questions, 'question')})"
        )


@dataclass(frozen=True, slots=True)
class CauseByRound:
    """A cause, or all targeted ones, with one cell per round."""

    cause_id: str | None
    cells: tuple[tuple[MeanOfQuestions | None, int], ...]
    """MeanOfQuestions on the questions that aimed at it, and failures."""


def by_round(counts: Counts, chosen: list[str]) -> tuple[list[int], list[CauseByRound]]:
    """The last rounds, and for the selected causes the questions and failures in each."""
    means = _means(counts)
    failed = {(one.round, one.cause_id): one.failures for one in counts.causes}
    of_all = {(number, None): failures for number, failures in counts.with_cause.items()}
    rounds = [one.round for one in counts.rounds[-SHOWN:]]
    return rounds, [
        CauseByRound(
            cause,
            tuple(
                (means.get(cause, {}).get(number), (failed | of_all).get((number, cause), 0))
                for number in rounds
            ),
        )
        for cause in ((*chosen, None) if chosen else ())
    ]


def _means(counts: Counts) -> dict[str | None, dict[int, MeanOfQuestions]]:
    """By cause and round, the mean over valid questions that aimed at it; under None, over all targeted
    questions."""
    sums: dict[str | None, dict[int, tuple[Fraction, int]]] = {}
    for one in counts.causes:
        if one.agreement is not None:
            for cause in (one.cause_id, None):
                of = sums.setdefault(cause, {})
                total, questions = of.get(one.round, (Fraction(), 0))
                of[one.round] = total + one.agreement * one.aimed_valid, questions + one.aimed_valid
    return {
        cause: {number: MeanOfQuestions(float(total / n), n) for number, (total, n) in of.items()}
        for cause, of in sums.items()
    }


def helped(history: History, counts: Counts, story: RunStory) -> Iterator[Sentence]:
    """The overall result first, then its components."""
    run = story.line.run_id
    if not counts.candidates:
        yield Sentence("verdict", "Not known yet: no question is recorded.")
        return
    accuracy, verdict = _accuracy(history, story)
    yield Sentence("verdict", verdict)
    yield Sentence("accuracy", accuracy, f"{run}/diagnostics.html")
    yield Sentence("agreement", _agreement(counts), f"{run}/causes.html")
    if any(counts.with_cause.values()):
        listed = ", ".join(
            f"{counts.with_cause[one.round]:,} on {one.kept:,} in round {one.round}"
            for one in counts.rounds[-SHOWN:]
        )
        last = f" of the last {SHOWN} rounds" if len(counts.rounds) > SHOWN else ""
        text = f"Failures with a cause, on so many kept questions{last}: {listed}."
        yield Sentence("counts", text, f"{run}/causes.html")
    if text := _passed(story):
        yield Sentence("passed", text)


def _agreement(counts: Counts) -> str:
    """For each cause targeted in two or more rounds, the last of them against the first."""
    pairs = [
        (of_cause[min(of_cause)], of_cause[max(of_cause)])
        for cause, of_cause in _means(counts).items()
        if cause is not None and len(of_cause) > 1
    ]
    called = "pass rate" if counts.ingested else "agreement p₁"
    if not pairs:
        return f"No cause has been aimed at in two rounds of {counts.span}: no {called} can be compared."
    rose = sum(last.mean > first.mean for first, last in pairs)
    fell = sum(last.mean < first.mean for first, last in pairs)
    return (
        f"{count(len(pairs), 'cause was', 'causes were')} aimed at in more than one round: from the first to"
        f" the last time the mean {called} rose for {rose:,} and fell for {fell:,}. Over their questions"
        f" it went from {_pooled([first for first, _ in pairs])} to {_pooled([last for _, last in pairs])}."
    )


def _pooled(parts: list[MeanOfQuestions]) -> MeanOfQuestions:
    questions = sum(one.questions for one in parts)
    return MeanOfQuestions(math.fsum(one.mean * one.questions for one in parts) / questions, questions)


def _passed(story: RunStory) -> str | None:
    """Pass rates of ingested rollouts in the first and last step."""
    found = story.pass_rates
    if found is None or not found.steps:
        return None
    rates = [
        f"{MeanOfQuestions(one.pass_rate, one.groups)} in step {one.step}".replace("question", "prompt")
        for one in (*found.steps[:1], *found.steps[1:][-1:])
    ]
    text = f"Rollouts that passed: {', '.join(rates)}"
    if found.prompts:
        text += f". Of {count(found.prompts, 'prompt')} that came back, {found.dropped:,} passed less often"
    return text + "."


def _accuracy(history: History, story: RunStory) -> tuple[str, str]:
    """Held-out accuracy in words, with its caveat."""
    alone = "Only a run without causes beside this one can say how much of that the curriculum did."
    measured = {one.round: one for one in measurements(history) if one.benchmark == "validation"}
    known = {number: one.metrics for number, one in measured.items() if MEAN in one.metrics}
    if not known:
        text = "Accuracy on held-out questions was not measured."
        return text, _verdict(story)
    first, last = min(known), max(known)
    was, now = known[first], known[last]
    text = f"Accuracy (mean@k) on {count(measured[last].questions, 'held-out question')}:"
    text += f" {with_interval(was, MEAN)}"
    text += " before training" if first == 0 else f" after round {first}"
    if first == last:
        return f"{text}.", "Whether it answers better is not known yet: it was measured once."
    text += f", {with_interval(now, MEAN)} after round {last}"
    base = known.get(0, {})
    heats = colder(base)
    if heats:
        text += "; the base model sampled colder has " + ", ".join(
            f"{with_interval(base, metric)} at {heat}" for metric, heat in heats.items()
        )
    change, half = now[MEAN] - was[MEAN], half_interval(was, MEAN, now, MEAN)
    points = f"{100 * change:+.1f} points ({100 * (change - half):+.1f} to {100 * (change + half):+.1f})"
    if abs(change) <= half:
        verdict = f"Accuracy did not change by more than chance: {points}"
    else:
        verdict = f"Accuracy {'rose' if change > 0 else 'fell'}: {points}"
    best = max(heats, key=lambda metric: base[metric], default=None)
    if best is not None and change > half:
        above = now[MEAN] - base[best] > half_interval(base, best, now, MEAN)
        verdict += ", more than" if above else ", but no more than"
        verdict += f" sampling the base model at {heats[best]} gives"
    if AT_BEST in was and AT_BEST in now:
        gained, half = now[AT_BEST] - was[AT_BEST], half_interval(was, AT_BEST, now, AT_BEST)
        verdict += f"; each sampled at its best temperature: {100 * gained:+.1f} points"
        verdict += f" ({100 * (gained - half):+.1f} to {100 * (gained + half):+.1f})"
    return f"{text}.", f"{verdict}. {alone}"


def _verdict(story: RunStory) -> str:
    """If nothing was held out: the paired change on recurring prompts."""
    rates, only = story.pass_rates, "only held-out questions can say"
    if rates is None or not rates.steps:
        return f"Whether it answers better is not known: {only}."
    if rates.again is None or rates.again_se is None:
        why = "Hardly a prompt came back in a later step, and a pass rate rises with easy prompts too."
        return f"Whether it answers better is not known: {only}. {why}"
    first, last = rates.again
    change, half = last - first, NORMAL * rates.again_se
    went = "did not change by more than chance" if abs(change) <= half else "rose" if change > 0 else "fell"
    return (
        f"On the {count(rates.prompts, 'prompt')} that came back, the pass rate {went}: from"
        f" {percent(first)} the first time to {percent(last)} the last, {100 * change:+.1f} points"
        f" ({100 * (change - half):+.1f} to {100 * (change + half):+.1f}, paired by prompt)."
        f" Of other questions, {only}."
    )


def with_interval(metrics: Mapping[str, float], name: str) -> str:
    """A score with its 95% interval."""
    half = NORMAL * metrics.get(f"{name}_se", 0.0)
    value = metrics[name]
    if not half:
        return percent(value)
    return f"{percent(value)} ({percent(max(0.0, value - half))} to {percent(min(1.0, value + half))})"


def half_interval(a: Mapping[str, float], of_a: str, b: Mapping[str, float], of_b: str) -> float:
    """Half the 95% interval of their difference, as if unpaired: wider than the paired one."""
    return NORMAL * math.hypot(a.get(f"{of_a}_se", 0.0), b.get(f"{of_b}_se", 0.0))
