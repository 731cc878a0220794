"""What a run shows before anything else: the sentences that its figures make."""

from collections.abc import Iterator
from dataclasses import dataclass

from diagevo.evaluation.protocol import colder
from diagevo.memory.audit.runs import RunStory
from diagevo.memory.audit.timeline.causes import lives
from diagevo.memory.history import History


@dataclass(frozen=True, slots=True)
class Sentence:
    """A finding in words, the figure that carries it, and the page with its evidence."""

    figure: str
    text: str
    evidence: str


def reactivations(history: History) -> tuple[int, int]:
    """All, and those in the round of the promotion that they undo."""
    total = at_once = 0
    for life in lives(history, history.end).values():
        total += len(life.reactivated)
        at_once += len(set(life.reactivated) & set(life.promoted))
    return total, at_once


def sentences(history: History, story: RunStory) -> Iterator[Sentence]:
    """What a reader should know first; only what this run has evidence for."""
    run, rounds = history.run_id, story.rounds
    means = [(0, story.before["mean_at_k"])] if "mean_at_k" in story.before else []
    means += [(line.round, line.mean_at_k) for line in rounds if line.mean_at_k is not None]
    if len(means) > 1:
        (first, was), (last, now) = means[0], means[-1]
        text = f"Mean@k goes from {was:.1%} (round {first}) to {now:.1%} (round {last})"
        if heats := colder(story.before):
            drawn = (f"{story.before[metric]:.1%} at {heat}" for metric, heat in heats.items())
            text += f"; the base model at a lower temperature has {', '.join(drawn)}"
        yield Sentence(f"{now:.1%}", text, f"{run}/log/CheckpointEvaluated.html")
    total, at_once = reactivations(history)
    if total:
        text = f"{at_once} of {total} reactivations are in the same round as the promotion that they undo"
        yield Sentence(f"{at_once}/{total}", text, f"{run}/log/CauseReactivated.html")
    truths = [(line.round, line.labels_true) for line in rounds if line.labels_true is not None]
    if not truths and story.line.labels_true is not None:
        truths = [(story.line.last_round, story.line.labels_true)]
    if truths:
        (first, begin), (last, end) = truths[0], truths[-1]
        text = f"Labels of the kept questions are true in {end:.1%} of round {last}"
        if first != last:
            text += f", after {begin:.1%} in round {first}"
        yield Sentence(f"{end:.1%}", text, f"{run}/rounds/{last}.html")
    against, number, observed = max(
        ((line.against_false_labels or 0, line.round, line.observed) for line in rounds), default=(0, 0, 0)
    )
    if against:
        text = (
            f"{against} of the {observed} failures of round {number} were judged against a false "
            "label: what was called wrong may be right"
        )
        yield Sentence(f"{against}/{observed}", text, f"{run}/rounds/{number}.html")
    if rounds:
        line = rounds[-1]
        text = (
            f"{line.active} causes are Active and {line.mastered} Mastered after round {line.round}, with"
            f" F = {line.failures:,}"
        )
        yield Sentence(f"F = {line.failures:,}", text, f"{run}/causes.html")
