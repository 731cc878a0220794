"""The summary of an evaluation: its pass rate with an interval, overall, by model and by tag, and what to
do next. Pages, the report and the terminal print this."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from diagevo.evaluation.protocol import share_interval
from diagevo.memory.events import MODEL
from diagevo.memory.read.pass_rates import PassRates, TagRate
from diagevo.memory.read.runs import RunStory
from diagevo.text.numbers import count, percent


@dataclass(frozen=True, slots=True)
class Passed:
    """How many responses passed: of all, of a model, or of a tag."""

    name: str
    prompts: int
    responses: int
    passes: int

    @property
    def pass_rate(self) -> float:
        return self.passes / self.responses

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's 95% interval. Responses to one prompt are not independent: prompts are its units."""
        return share_interval(self.pass_rate, self.prompts)

    def __str__(self) -> str:
        low, high = self.interval
        return f"{percent(self.pass_rate)} ({percent(low)} to {percent(high)})"


class NextStep(NamedTuple):
    """A command and its purpose."""

    command: str
    purpose: str


@dataclass(frozen=True, slots=True)
class Evaluated:
    """The responses of an evaluation that passed."""

    whole: Passed
    models: tuple[Passed, ...]
    """If its file names several, worst first."""
    tags: tuple[Passed, ...]
    """The other tags of prompts, worst first."""

    @classmethod
    def of(cls, rates: PassRates) -> "Evaluated | None":
        """None if no response has a reward."""
        if not rates.rollouts:
            return None
        models = [one for one in rates.tags if one.tag.startswith(MODEL)]
        return cls(
            Passed("all", rates.asked, rates.rollouts, rates.rollouts - rates.failed),
            tuple(_passed(one, one.tag.removeprefix(MODEL), 1) for one in models),
            # Each model has its own group for a prompt: as evidence on prompts they count once.
            tuple(_passed(one, one.tag, len(models)) for one in rates.tags if one not in models),
        )

    def __str__(self) -> str:
        whole = self.whole
        return (
            f"{whole.passes:,} of {count(whole.responses, 'response')} passed, to"
            f" {count(whole.prompts, 'prompt')}: {whole}"
        )


def _passed(rate: TagRate, name: str, models: int) -> Passed:
    return Passed(name, max(1, rate.groups // max(1, models)), rate.rollouts, rate.passes)


def next_steps(story: RunStory, others: Sequence[str] = ()) -> Iterator[NextStep]:
    """What to do next with an evaluation. `others`: other evaluations in the database, latest first."""
    run, rates = story.line.run_id, story.pass_rates
    if rates is None or not rates.failed:
        return
    if not rates.causes:
        if not story.line.rounds:
            yield NextStep(f"diagevo diagnose --run {run} --local", "what the failures have in common")
    else:
        first = rates.causes[0].cause_id
        yield NextStep(f"diagevo memory why {first} --run {run}", "the failures of the largest cause")
        yield NextStep(
            f"diagevo runs export {run} --as dpo --cause {first} -o {first}.jsonl",
            "pairs to train on, each a failure and a pass",
        )
    for other in others[:1]:
        yield NextStep(
            f"diagevo runs diff {other}..{run}", f"which prompts went better or worse than in {other}"
        )
