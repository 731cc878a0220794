"""What a sampler is: prompts in, n completions a prompt out, the same meaning whatever serves the model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol, TypedDict, runtime_checkable


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
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Completion:
    """One response. `truncated` is true where it did not end by itself."""

    text: str
    tokens: int
    truncated: bool


class Sampler(Protocol):
    """Serves one model. `sample` returns, for each prompt in order, its n completions in order.

    The same prompts, n, params and seed give the same completions from a local sampler; a server may not
    promise that. Raises ServiceError where the model cannot be reached.
    """

    def sample(
        self, prompts: Sequence[Prompt], *, n: int, params: SamplingParams, seed: int
    ) -> list[list[Completion]]: ...

    def close(self) -> None: ...


class Divisible(Sampler, Protocol):
    """A sampler that gives the same completions where a call is cut into parts."""

    def sample(
        self,
        prompts: Sequence[Prompt],
        *,
        n: int,
        params: SamplingParams,
        seed: int,
        before: Sequence[int] = (),
    ) -> list[list[Completion]]:
        """`before`: samples of each prompt's text that precede its own in the whole call."""
        ...


class Address(NamedTuple):
    """A server of ours, as other processes ask it."""

    url: str
    """It stays the same while the server is there."""
    key: str
    """What it must be asked with."""
    capacity: int
    """Completions that it decodes at once."""


@runtime_checkable
class Served(Sampler, Protocol):
    """A sampler whose servers other processes may ask as well."""

    @property
    def servers(self) -> list[Address]: ...

    def keep_up(self) -> None:
        """To be called now and then while others ask the server: what has died is started again."""
        ...
