"""What a self-play method decides, and the values that it and the round exchange.

The round calls only these verbs. What all methods share, such as drawing from the schedule, voting, the
filter and the memory, belongs to the round; what differs only in a number is a setting.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from diagevo.answers.votes import Votes
from diagevo.diagnosis.embedder import Embedder
from diagevo.memory.events import CandidateScored, InvalidReason, LabelSource
from diagevo.memory.state.projected_schedule import Draw
from diagevo.sampling.sampler import Completion, Prompt, Sampler
from diagevo.training.phase import Reward

Role = Literal["challenger", "solver"]
BOTH: tuple[Role, ...] = ("challenger", "solver")


@dataclass(frozen=True, slots=True)
class Ask:
    """The challenger's prompt for one draw. `given`: the texts that its prompt shows, such as a
    document; the log keeps their digests. `part`: the kind of its task, if there are several."""

    draw: Draw
    prompt: Prompt
    given: tuple[str, ...] = ()
    part: str = ""


@dataclass(frozen=True)
class Written:
    """A candidate: what the challenger wrote, or an item that somebody labelled."""

    draw: Draw
    completion: str
    question: str | None
    """None: no usable question, so the candidate is invalid."""
    invalid: InvalidReason | None = None
    label_from: LabelSource = "votes"
    answer: str | None = None
    """The label, if the votes do not determine it."""
    given: tuple[str, ...] = ()
    """As in `Ask`."""
    task: str | None = None
    """The whole task, if the question hides a part of it: answers are read by executing it."""
    part: str = ""
    """As in `Ask`."""


def refused(written: Written, why: InvalidReason) -> Written:
    """The candidate, marked as unusable."""
    return Written(written.draw, written.completion, None, why, given=written.given, part=written.part)


class SolverRewards(NamedTuple):
    """The reward of a response to a question, by its answer. A failure is a response that earns less
    than a right one."""

    right: float
    wrong: float
    malformed: float
    """Without an answer."""
    beside: bool = False
    """Whether a box with nothing else also counts as no answer."""


@dataclass(frozen=True)
class Lesson:
    """A retained question with its label, ready for solver training."""

    question_id: str
    question: str
    label: str
    reference: str
    """Digest of the reference trajectory."""
    rewards: SolverRewards
    task: str | None = None
    """As in `Written`."""
    part: str = ""
    """As in `Ask`."""


class Method(Protocol):
    """A method of self-play; `config.method` names it. All verbs are pure functions of their arguments, so
    that a resumed round asks and reads the same."""

    one_model: bool
    """Whether both roles are one policy, so that each phase continues from the weights of the last."""

    in_order: bool
    """Whether a phase takes its rows in the given order, without shuffling."""

    def learns(self, round_: int) -> tuple[Role, ...]:
        """Which roles train in a round. If the solver does not, there is no pool of questions either."""
        ...

    def shown(self) -> dict[str, str]:
        """Digests, by name, of what prompts show besides templates: a run does not resume with others."""
        ...

    def asks(
        self, draws: Sequence[Draw], seed: int, past: Callable[[], Sequence[str]], round_: int
    ) -> list[Ask]:
        """The challenger's prompt for each draw of a round. `seed`: for anything drawn besides the
        schedule. `past`: the valid tasks of earlier rounds (`Written.task`), from the log."""
        ...

    def read(self, ask: Ask, completion: str) -> Written:
        """The candidate in a completion."""
        ...

    def admit(self, written: Sequence[Written], embedder: Embedder) -> list[Written]:
        """The pool, with candidates marked invalid that must not be practised with the others."""
        ...

    def human(self, after: int, seed: int) -> list[Written]:
        """Labelled items that join the pool; their draws are numbered from `after`."""
        ...

    def vote(
        self, solver: Sampler, asked: Sequence[Written], n: int, seed: int
    ) -> tuple[list[Votes], list[list[Completion]]]:
        """n responses to each candidate and their votes, which decide its label and whether it is kept."""
        ...

    def challenger_reward(self, solver: Sampler, round_: int, given: Mapping[str, Sequence[str]]) -> Reward:
        """The reward of a challenger's completion against the frozen solver. `given`: for each row, as in
        `Ask`."""
        ...

    def solver_rewards(self, scored: CandidateScored) -> SolverRewards:
        """The rewards of responses to a retained candidate."""
        ...
