"""A server that sends back the key it was given, in every way it can: the key is in no message, and in
nothing that is kept."""

from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from diagevo.errors import DiagEvoError
from diagevo.evaluation.judge import Case, Judge
from diagevo.memory.log.artifacts import Artifacts
from diagevo.memory.log.database import Database
from diagevo.sampling.openai_sampler import OpenAISampler
from diagevo.sampling.service import Service
from diagevo.text.redaction import key_from
from tests.contracts.databases import SQLiteStores
from tests.diagnosis.asking import ask_diagnostician, ask_embedder, ask_sampler
from tests.serving import reply, serving

KEY = "opensesame-and-more-4711"
"""Of no known shape, under a name that does not say what it is."""


@contextmanager
def echoing(status: int, body: Callable[[str], Any]) -> Iterator[str]:
    """The URL of a real server that answers every request with what `body` makes of the Authorization."""

    with serving(lambda asked: reply(asked, body(asked.authorization), status)) as server:
        yield f"{server.url}/v1"


def refusing(sent: str) -> Any:
    return {"error": {"message": f"the header was {sent!r}, the token {sent.removeprefix('Bearer ')}"}}


def answering(sent: str) -> Any:
    message = {"role": "assistant", "content": f"Yes. You said {sent}; the password: is 3"}
    return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "model": sent}


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_DOOR", KEY)


def said(error: BaseException) -> str:
    return f"{error} {getattr(error, 'hint', '')}"


def told(sent: str) -> Any:
    return sent


@pytest.mark.parametrize(
    ("ask", "status", "body"),
    [
        *((ask_diagnostician, status, refusing) for status in (400, 401, 403, 404, 422, 429, 500, 503)),
        *((ask_embedder, status, refusing) for status in (400, 401, 500)),
        *((ask_sampler, status, body) for status, body in ((401, refusing), (500, refusing), (200, told))),
    ],
)
def test_no_error_repeats_the_key(
    ask: Callable[[str, str], object], status: int, body: Callable[[str], Any]
) -> None:
    with echoing(status, body) as url, pytest.raises(DiagEvoError) as caught:
        ask(url, "MY_DOOR")
    assert ("the header was" in said(caught.value)) or ask is not ask_diagnostician
    assert "***" in said(caught.value)
    assert KEY not in said(caught.value)


def test_what_a_diagnostician_answers_is_kept_without_the_key() -> None:
    """And unchanged else: words that only look like a secret are the model's."""
    with echoing(200, answering) as url:
        assert ask_diagnostician(url, "MY_DOOR") == "Yes. You said Bearer ***; the password: is 3"


def test_a_judges_reply_is_kept_without_the_key(tmp_path: Path) -> None:
    database = Database(SQLiteStores(tmp_path).new(tmp_path).url)
    with echoing(200, answering) as url:
        sampler = OpenAISampler(Service(url, key=KEY, retries=0), "m")
        judge = Judge(sampler, "m", Artifacts(database))
        assert judge.equivalent([Case("What is 1 + 1?", "2", "two")]) == [True]
        sampler.close()
    with database.read() as connection:
        kept = [bytes(c).decode() for (c,) in connection.exec_driver_sql("SELECT content FROM artifact")]
    database.close()
    assert kept == ["Yes. You said Bearer ***; the password: is 3"]


def in_base64(sent: str) -> list[str]:
    """The header, the key, and the key behind one and two characters, in both alphabets; and backwards."""
    whole = [sent, KEY, f"a{KEY}", f"ab:{KEY}?>~"]
    forms = [encode(text.encode()).decode() for text in whole for encode in (b64encode, urlsafe_b64encode)]
    return [*forms, KEY[::-1]]


def test_a_key_that_is_echoed_in_base64_or_backwards_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(sent: str) -> Any:
        message = {"role": "assistant", "content": "\n".join(in_base64(sent))}
        return {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}

    with echoing(200, answer) as url:
        lines = ask_diagnostician(url, "MY_DOOR").splitlines()
    assert len(lines) == 9
    for line in lines:
        assert "***" in line, line
        # "Bearer " before it and a few characters after it are nobody's secret; six of the key would be 8.
        assert len(line.replace("***", "")) <= 16, line
    assert key_from("MY_DOOR") == KEY
