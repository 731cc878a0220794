"""How an OpenAI-compatible service is asked, by whoever asks one: sampler, judge, diagnostician, embedder.

The `openai` package holds the connections and asks again what is worth it (lost connections, time-outs, 408,
409, 429, 5xx), with its pauses and the service's Retry-After. Here the key is taken from the environment and
masked from then on, answers are read, and the package's errors become ours.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import msgspec

from diagevo.errors import AGAIN, ConfigError, DiagEvoError, RefusedError, ServiceError
from diagevo.text.escaping import storable
from diagevo.text.redaction import brief, key_from, remember, unkeyed

if TYPE_CHECKING:
    from openai import APIStatusError, AsyncOpenAI

T = TypeVar("T")

RETRIES = 6
"""Further tries of a request, with pauses of half a second to eight: 20 s in all."""
_KEY_REFUSED = {401, 403}
_AT_FAULT = {400, 413, 415, 422, 501}
_BUSY = {408, 409, 425, 429}
_URL_HINT = "check that the server runs, and base_url, which ends in /v1 on most servers"


class Choice(NamedTuple):
    """One sample of a chat completion. Known keys in its text are masked."""

    text: str
    finish_reason: str | None


class ChatCompletion(NamedTuple):
    """A chat completion. Tokens are 0 where the service does not count them."""

    choices: list[Choice]
    input_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class Service:
    """One service. `base_url` None is the `openai` package's own default.

    The key is `key`, or what the environment variable `key_env` holds when a client is made; a service on an
    address of one's own may need none. `timeout`: seconds for which a service may be silent. `retries`:
    further tries.
    """

    base_url: str | None
    key: str | None = None
    key_env: str | None = None
    timeout: float = 600.0
    retries: int = RETRIES

    @property
    def where(self) -> str:
        return self.base_url or "api.openai.com"

    def client(self, connections: int) -> "AsyncOpenAI":
        """A client for one event loop, to be closed. Raises ConfigError where there is no key at all."""
        key = key_from(self.key_env) if self.key_env else self.key
        remember(key)
        if not key and self.base_url is None:
            raise ConfigError(
                f"the environment variable {self.key_env} holds no key for {self.where}",
                hint=f"export {self.key_env}=…, or set base_url of the role to a service of your own",
            )
        from diagevo.sampling.connection import async_client

        return async_client(self.base_url, key, self.timeout, retries=self.retries, connections=connections)

    async def complete(self, client: "AsyncOpenAI", **fields: Any) -> ChatCompletion:
        """A chat completion, of as many choices as were asked for. Raises RefusedError, ServiceError."""
        with self._as_ours():
            raw = await client.chat.completions.with_raw_response.create(**fields)
        found = self._read(raw.content, _Completion)
        usage = found.usage or _Usage()
        return ChatCompletion(
            [
                Choice(storable(unkeyed(choice.message.content or "")), choice.finish_reason)
                for choice in found.choices[: fields.get("n", 1)]  # a reply may hold any number
            ],
            usage.prompt_tokens or 0,
            usage.completion_tokens or 0,
        )

    async def embed(self, client: "AsyncOpenAI", **fields: Any) -> list[list[float]]:
        """Vectors in the order of the texts. Raises RefusedError, ServiceError."""
        with self._as_ours():
            raw = await client.embeddings.with_raw_response.create(encoding_format="float", **fields)
        data = sorted(self._read(raw.content, _Vectors).data, key=lambda vector: vector.index)
        texts = len(fields["input"])
        if [vector.index for vector in data] != list(range(texts)):
            raise ServiceError(
                f"{self.where} was asked for {texts} vectors and returned others", hint=_URL_HINT
            )
        return [vector.embedding for vector in data]

    def _read(self, content: bytes, shape: type[T]) -> T:
        try:
            return msgspec.convert(json.loads(content), shape)  # msgspec's own reader takes no half surrogate
        except (ValueError, RecursionError) as error:
            raise ServiceError(
                f"{self.where} gave a reply that cannot be read ({brief(str(error))}): {brief(content)!r}",
                hint=_URL_HINT,
            ) from None

    @contextmanager
    def _as_ours(self) -> Iterator[None]:
        import openai

        try:
            yield
        except openai.APIStatusError as error:
            raise self._refusal(error) from None
        except openai.APITimeoutError:
            raise ServiceError(
                f"{self.where} gave no answer for {self.timeout:g} s, even after retries",
                hint=f"check that the service is up, then {AGAIN}",
            ) from None
        except openai.OpenAIError as error:
            cause = error.__cause__ or error
            what = "gave no answer" if type(cause).__name__ == "RemoteProtocolError" else "cannot be reached"
            raise ServiceError(
                f"{self.where} {what} ({type(cause).__name__}: {brief(str(cause))})", hint=_URL_HINT
            ) from None

    def _refusal(self, error: "APIStatusError") -> DiagEvoError:
        if (elsewhere := redirected(self.where, error.response)) is not None:
            return elsewhere
        status = error.status_code
        detail = f"{status}: {_described(error)}"
        if status in _KEY_REFUSED:
            return ServiceError(
                f"{self.where} refused the key, {detail}",
                hint=f"put a valid key into the environment variable {self.key_env}"
                if self.key_env
                else "check the key",
            )
        if status in _AT_FAULT:
            return RefusedError(
                f"{self.where} refused the request, {detail}",
                hint="check the model's name, and the length of prompts and responses",
            )
        if status in _BUSY or status >= 500:
            hint = f"check that the service is up, then {AGAIN}"
            return ServiceError(f"{self.where} failed, even after retries, {detail}", hint=hint)
        return ServiceError(
            f"{self.where} answered {detail}", hint="check base_url and the model's name, and the account"
        )


class _Message(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None


_Tokens = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class _Usage(msgspec.Struct):
    prompt_tokens: _Tokens | None = 0
    completion_tokens: _Tokens | None = 0


class _Completion(msgspec.Struct):
    choices: list[_Choice]
    usage: _Usage | None = None


class _Vector(msgspec.Struct):
    index: int
    embedding: list[float]


class _Vectors(msgspec.Struct):
    data: list[_Vector]


for _shape in (_Completion, _Vectors):
    msgspec.json.Decoder(_shape)  # two threads that are the first to read one at once end the process (0.22)


def redirected(where: str, response: Any) -> ServiceError | None:
    """The error of an answer that points elsewhere, and names the place; None of any other."""
    if not 300 <= response.status_code < 400:
        return None
    there = brief(response.headers.get("location", "")) or "nowhere"
    return ServiceError(
        f"{where} answered {response.status_code} and points to {there}, which is not followed: nothing was"
        " sent there",
        hint="if that is the service you want, use its URL as base_url",
    )


def _described(error: "APIStatusError") -> str:
    """The service's own words."""
    body = error.body
    if isinstance(body, dict):
        body = body.get("message") or body.get("detail") or body
    return brief(str(body or error.message))
