"""A server that answers as no server should: the caller ends with exit code 6, in bounded time and memory."""

import asyncio
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from diagevo.config.models import DiagnosisConfig, DiagnosticianRole, MemoryConfig
from diagevo.diagnosis.embedder import HashingEmbedder
from diagevo.diagnosis.maintain import maintain
from diagevo.diagnosis.openai_diagnostician import OpenAIDiagnostician
from diagevo.errors import ServiceError
from diagevo.memory.memory import Memory
from diagevo.sampling import connection
from diagevo.sampling.openai_sampler import OpenAISampler
from diagevo.sampling.sampler import Message, SamplingParams
from diagevo.sampling.service import ChatCompletion, Service
from diagevo.text.redaction import remember
from tests.diagnosis.asking import ask_sampler
from tests.diagnosis.rounds import DIMENSION, Question, open_memory, play
from tests.serving import Asked, reply, serving

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("hurried")]

PARAMS = SamplingParams(temperature=1.0, top_p=1.0, max_new_tokens=8)
Answer = Callable[[Asked], None]


def body(content: bytes, status: int = 200, **headers: str) -> Answer:
    return lambda asked: reply(asked, content, status, **headers)


def endless(asked: Asked) -> None:
    asked.handler.send_response(200)
    asked.handler.send_header("Content-Type", "application/json")
    asked.handler.end_headers()
    asked.handler.close_connection = True
    for _ in itertools.repeat(None, 2000):
        asked.handler.wfile.write(b" " * 65536)


@contextmanager
def misbehaving(answer: Answer) -> Iterator[str]:
    with serving(answer) as server:
        yield f"{server.url}/v1"


BAD = {
    "endless": endless,
    "ten megabytes of brackets": body(b"[" * 10_000_000),
    "broken JSON": body(b'{"choices": [{'),
    "no UTF-8": body(b'{"choices": "\xff\xfe"}'),
    "no choices": body(b'{"choices": []}'),
    "choices of numbers": body(b'{"choices": [1, 2]}'),
    "a number": body(b"7"),
    "null": body(b"null"),
    "text of a wrong type": body(b'{"choices": [{"message": {"content": {"a": 1}}}]}'),
    "tokens of a wrong type": body(
        b'{"choices": [{"message": {"content": "a"}}], "usage": {"completion_tokens": "7"}}'
    ),
    "compressed": body(b"\x1f\x8b", Content_Encoding="gzip"),
    "redirected for ever": body(b"", 307, Location="/v1/chat/completions"),
}


@pytest.mark.parametrize("how", BAD)
def test_the_sampler_ends_with_a_service_error(how: str) -> None:
    with misbehaving(BAD[how]) as url, pytest.raises(ServiceError) as error:
        ask_sampler(url)
    assert error.value.exit_code == 6
    assert len(str(error.value)) < 2000


@pytest.mark.parametrize("how", BAD)
def test_a_whole_diagnosis_ends_and_goes_on_once_the_server_is_well(how: str, tmp_path: Path) -> None:
    """Every failure waits, where the service is given up or says nothing readable; nothing is recorded,
    and a right server finishes the round."""
    settings = DiagnosisConfig(workers=2)
    with open_memory(tmp_path) as memory:
        play(memory, 1, [Question(["wrong", "wrong again"]), Question(["wrong too"])])
        with misbehaving(BAD[how]) as url, closing(_diagnostician(url, memory)) as asked:
            with pytest.raises(ServiceError) as error:
                maintain(memory, asked, HashingEmbedder(DIMENSION), settings, MemoryConfig())
            assert error.value.exit_code == 6
            assert len(memory.undiagnosed()) == 3
        assert memory.state.causes == {}
        slip = json.dumps({"matched_cause_id": None, "error_cause": None})
        said = json.dumps({"choices": [{"message": {"content": slip}, "finish_reason": "stop"}]})
        with misbehaving(body(said.encode())) as url, closing(_diagnostician(url, memory)) as asked:
            maintain(memory, asked, HashingEmbedder(DIMENSION), settings, MemoryConfig())
        memory.commit()
        assert (memory.state.round, memory.state.causes) == (1, {})


def _diagnostician(url: str, memory: Memory) -> OpenAIDiagnostician:
    role = DiagnosticianRole(engine="openai", model="m", base_url=url, timeout=10, structured_output="off")
    return OpenAIDiagnostician(role, DiagnosisConfig(workers=2), memory.artifacts, retries=1)


def test_an_answer_is_read_no_further_than_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MOST_BYTES", 10)
    pieces = iter([b"12345", b"67890", b"1", b"never read"])

    async def stream() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    async def read() -> list[bytes]:
        return [piece async for piece in connection._AtMost(stream())]

    with pytest.raises(connection.httpx.RemoteProtocolError, match="longer than"):
        asyncio.run(read())
    assert list(pieces) == [b"never read"]


def test_of_a_reply_with_any_number_of_choices_those_that_were_asked_for_are_read() -> None:
    """Between two looks for SIGTERM, masking the keys in 200,000 of them takes twenty seconds."""
    choices = [{"message": {"content": f"{n}"}, "finish_reason": "stop"} for n in range(200_000)]
    heard: list[float] = []

    async def asked(service: Service) -> ChatCompletion:
        async def listens() -> None:
            while True:
                heard.append(time.monotonic())
                await asyncio.sleep(0.01)

        async with service.client(1) as client:
            listening = asyncio.create_task(listens())
            found = await service.complete(client, model="m", messages=[], n=3)
            listening.cancel()
            return found

    remember("sk-a-key-of-some-length")
    with misbehaving(body(json.dumps({"choices": choices}).encode())) as url:
        found = asyncio.run(asked(Service(url, timeout=60, retries=0)))
    assert [choice.text for choice in found.choices] == ["0", "1", "2"]
    assert max(after - before for before, after in pairwise(heard)) < 5


def test_what_neither_database_keeps_is_replaced_in_a_completion() -> None:
    said = json.dumps({"choices": [{"message": {"content": "a\0\ud800\x1b"}, "finish_reason": "stop"}]})
    with misbehaving(body(said.encode())) as url:
        sampler = OpenAISampler(Service(url, timeout=10, retries=0), "m")
        try:
            asked = Message(role="user", content="half \udfff")
            [[completion]] = sampler.sample([[asked]], n=1, params=PARAMS, seed=0)
        finally:
            sampler.close()
    assert completion.text == "a\ufffd\ufffd\x1b"
