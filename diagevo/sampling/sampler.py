"""What a sampler is: prompts in, n completions a prompt out, the same meaning whatever serves the model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypedDict, runtime_checkable


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


@runtime_checkable
class Served(Sampler, Protocol):
    """A sampler whose server other processes may ask as well."""

    @property
    def url(self) -> str:
        """The server's address; it stays the same."""
        ...

    @property
    def key(self) -> str:
        """What the server must be asked with."""
        ...

    @property
    def capacity(self) -> int:
        """Completions that it decodes at once."""
        ...

    def keep_up(self) -> None:
        """To be called now and then while others ask the server: what has died is started again."""
        ...
