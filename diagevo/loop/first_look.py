"""Before round 1: can anything be read of what the policies write?

A round of a model that does not know the form keeps nothing, and takes as long as any other.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from diagevo.answers.equivalence import extract_boxed
from diagevo.loop.players import PlayContext
from diagevo.memory.state.schedule import Draw
from diagevo.sampling.sampler import Sampler
from diagevo.selfplay.questions import parse_question
from diagevo.text.escaping import one_line

ASKED = 8
SHOWN = 200  # characters of a completion


@dataclass(frozen=True, slots=True)
class FirstLook:
    """What was asked of one role, and how much of it could be read. `example`: what could not."""

    what: str
    asked: int
    readable: int
    example: str | None

    def told(self) -> str:
        shown = one_line(self.example or "")
        cut = f"{shown[:SHOWN]} …" if len(shown) > SHOWN else shown
        return f"none of {self.asked} {self.what} could be read; one of them: {cut}"


def first_look(
    context: PlayContext, sampler: Sampler, questions: Sequence[str], *, challenger: bool
) -> list[FirstLook]:
    """A few questions by the challenger, where it is the solver's model, and a few answers."""
    seed = context.seed("first look")
    found: list[FirstLook] = []
    if challenger:
        prompt = context.templates.challenger(Draw(0, "free"))
        [texts] = sampler.sample([prompt], n=ASKED, params=context.params, seed=seed)
        read = [parse_question(completion.text) for completion in texts]
        found.append(_look("questions of the challenger", [c.text for c in texts], read))
    context.stop.check()
    asked = [context.templates.solver(question) for question in questions[:ASKED]]
    groups = sampler.sample(asked, n=1, params=context.params, seed=seed)
    answers = [group[0].text for group in groups]
    found.append(_look("answers of the solver", answers, [extract_boxed(answer) for answer in answers]))
    return found


def _look(what: str, texts: Sequence[str], read: Sequence[str | None]) -> FirstLook:
    unread = [text for text, found in zip(texts, read, strict=True) if found is None]
    return FirstLook(what, len(texts), len(texts) - len(unread), unread[0] if unread else None)
