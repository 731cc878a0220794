"""What a sampler is: prompts in, n completions a prompt out, the same meaning whatever serves the model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypedDict


class Message(TypedDict):
    role: Literal["system", "user", "assistant"]
    content: str


Prompt = list[Message]


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to decode. `temperature` 0 is greedy; `max_new_tokens` counts the end mark."""

    temperature: float = 1.0
    top_p: float = 0.99
    max_new_tokens: int = 4096


@dataclass(frozen=True, slots=True)
class Completion:
    """One response. `truncated` is true where it did not end by itself."""

    text: str
    tokens: int
    truncated: bool


Row = tuple[int, int]
"""One completion of a call: the place of its prompt, and which of the prompt's samples it is."""


class Answers:
    """The completions of one call, as they come."""

    def __init__(
        self,
        prompts: int,
        n: int,
        *,
        known: Mapping[Row, Completion] | None = None,
        keep: Callable[[Mapping[Row, Completion]], None] | None = None,
    ) -> None:
        """`known`: what an earlier call, broken off, left. `keep` stores rows that came together."""
        self.rows = dict(known or {})
        self._wanted = [[(place, sample) for sample in range(n)] for place in range(prompts)]
        self._keep = keep

    @property
    def kept(self) -> bool:
        """Whether what has come outlives the call, which may then end between any two answers."""
        return self._keep is not None

    def add(self, rows: Mapping[Row, Completion]) -> None:
        if self._keep is not None:
            self._keep(rows)
        self.rows.update(rows)

    def missing(self) -> list[int]:
        """Places of the prompts that lack a sample."""
        return [
            place for place, wanted in enumerate(self._wanted) if any(row not in self.rows for row in wanted)
        ]

    def groups(self) -> list[list[Completion]]:
        """For each prompt in order its completions in order; none may be missing."""
        return [[self.rows[row] for row in wanted] for wanted in self._wanted]


class Sampler(Protocol):
    """Serves one model. `sample` returns, for each prompt in order, its n completions in order.

    The same prompts, n, params and seed give the same completions from a local sampler; a server may not
    promise that. Raises ServiceError where the model cannot be reached, StoppedSafely once a stop is overdue.
    """

    def sample(
        self, prompts: Sequence[Prompt], *, n: int, params: SamplingParams, seed: int
    ) -> list[list[Completion]]: ...

    def close(self) -> None: ...


class Resumable(Sampler, Protocol):
    """A sampler whose calls can be broken off and taken up again."""

    def sample(
        self,
        prompts: Sequence[Prompt],
        *,
        n: int,
        params: SamplingParams,
        seed: int,
        answers: Answers | None = None,
    ) -> list[list[Completion]]:
        """What `answers` holds is not asked for again, and what comes is added to it: by whole batches where
        a completion may depend on its batch, so that a call taken up again ends as one never broken off.

        Where they are kept, no batch and no request is begun once a stop was asked for.
        """
        ...
