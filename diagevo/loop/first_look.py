"""Before round 1: can the policies' output be parsed at all?

A round with a model that does not know the format keeps nothing, and takes as long as any other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from diagevo.answers.extraction import extract_boxed
from diagevo.memory.state.projected_schedule import Draw
from diagevo.methods.context import PlayContext
from diagevo.sampling.sampler import Sampler
from diagevo.text.escaping import one_line

ASKED = 4
SHOWN = 200  # characters of a completion


@dataclass(frozen=True, slots=True)
class FirstLook:
    """What one role was asked, and how much of its output could be read. `example`: one that could not."""

    what: str
    asked: int
    readable: int
    example: str | None

    def summary(self) -> str:
        shown = one_line(self.example or "")
        cut = f"{shown[:SHOWN]} …" if len(shown) > SHOWN else shown
        return f"none of {self.asked} {self.what} could be read; one of them: {cut}"


def first_look(
    context: PlayContext, sampler: Sampler, questions: Sequence[str], *, challenger: bool
) -> list[FirstLook]:
    """A few answers and, if the challenger is the same model, a few questions, sampled together."""
    prompts = [context.templates.solver(question) for question in questions[:ASKED]]
    answered = len(prompts)
    draws = [Draw(index, "free") for index in range(ASKED if challenger else 0)]
    asks = context.method.asks(draws, context.seed("first look"), list, 1)
    prompts += [ask.prompt for ask in asks]
    groups = sampler.sample(prompts, n=1, params=context.params, seed=context.seed("first look"))
    context.stop.check()
    texts = [group[0].text for group in groups]
    answers, written = texts[:answered], texts[answered:]
    found = [_look("answers of the solver", answers, [extract_boxed(answer) for answer in answers])]
    if challenger:
        read = [context.method.read(ask, text).invalid for ask, text in zip(asks, written, strict=True)]
        readable = [None if why == "unreadable" else "" for why in read]
        found.append(_look("questions of the challenger", written, readable))
    return found


def _look(what: str, texts: Sequence[str], read: Sequence[str | None]) -> FirstLook:
    unread = [text for text, found in zip(texts, read, strict=True) if found is None]
    return FirstLook(what, len(texts), len(texts) - len(unread), unread[0] if unread else None)
