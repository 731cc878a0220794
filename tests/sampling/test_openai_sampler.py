"""The client against scripted servers on loopback: what it sends, retries and refuses."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from diagevo.errors import ServiceError
from diagevo.sampling.openai_sampler import OpenAISampler, _shared_out
from diagevo.sampling.sampler import Prompt, SamplingParams
from diagevo.sampling.service import Service
from tests.serving import Asked, reply, serving

PROMPT: Prompt = [{"role": "user", "content": "1+1?"}]
Script = Callable[[int, dict[str, Any]], tuple[int, dict[str, Any]]]
pytestmark = [pytest.mark.server, pytest.mark.usefixtures("hurried")]


def said(*texts: str, reason: str = "stop", tokens: int = 10) -> tuple[int, dict[str, Any]]:
    choices = [
        {"index": i, "message": {"role": "assistant", "content": text}, "finish_reason": reason}
        for i, text in enumerate(texts)
    ]
    usage = {"prompt_tokens": 1, "completion_tokens": tokens, "total_tokens": tokens + 1}
    head = {"id": "c", "object": "chat.completion", "created": 0, "model": "m"}
    return 200, {**head, "choices": choices, "usage": usage}


@contextmanager
def scripted(script: Script) -> Iterator[tuple[OpenAISampler, list[dict[str, Any]]]]:
    """A sampler whose server answers request k (from 0) with script(k, body), and the bodies it saw."""
    seen: list[dict[str, Any]] = []

    def answer(asked: Asked) -> None:
        seen.append(asked.json)
        status, body = script(len(seen) - 1, seen[-1])
        reply(asked, body, status, Retry_After_Ms="1")

    with serving(answer) as server:
        sampler = OpenAISampler(Service(f"{server.url}/v1", retries=2), "m", workers=1)
        yield sampler, seen
        sampler.close()


def test_a_request_carries_every_parameter() -> None:
    params = SamplingParams(temperature=0.7, top_p=0.9, max_new_tokens=33)
    with scripted(lambda k, body: said("a", "b")) as (sampler, seen):
        sampler.sample([PROMPT], n=2, params=params, seed=3)
    [body] = seen
    assert body["messages"] == PROMPT
    assert (body["n"], body["temperature"], body["top_p"], body["max_tokens"]) == (2, 0.7, 0.9, 33)
    assert 0 <= body["seed"] < 2**31


def test_seeds_differ_by_prompt_and_are_the_same_in_every_run() -> None:
    runs = []
    for _ in range(2):
        with scripted(lambda k, body: said("a")) as (sampler, seen):
            sampler.sample([PROMPT, PROMPT], n=1, params=SamplingParams(), seed=3)
        runs.append([body["seed"] for body in seen])
    assert runs[0] == runs[1]
    assert runs[0][0] != runs[0][1]


def test_truncation_is_read_from_the_finish_reason() -> None:
    reasons = ["stop", "length", "content_filter"]
    with scripted(lambda k, body: said("a", reason=reasons[k])) as (sampler, _):
        found = sampler.sample([PROMPT] * 3, n=1, params=SamplingParams(), seed=0)
    assert [completion.truncated for [completion] in found] == [False, True, True]


def test_a_server_that_gives_one_choice_at_a_time_is_asked_for_the_rest() -> None:
    with scripted(lambda k, body: said(f"answer {k}")) as (sampler, seen):
        [found] = sampler.sample([PROMPT], n=3, params=SamplingParams(), seed=0)
    assert [completion.text for completion in found] == ["answer 0", "answer 1", "answer 2"]
    assert [body["n"] for body in seen] == [3, 2, 1]
    assert len({body["seed"] for body in seen}) == 3


def test_a_busy_server_is_asked_again() -> None:
    busy: tuple[int, dict[str, Any]] = (503, {"error": {"message": "busy"}})
    with scripted(lambda k, body: busy if k < 2 else said("a")) as (sampler, seen):
        [[completion]] = sampler.sample([PROMPT], n=1, params=SamplingParams(), seed=0)
    assert completion.text == "a"
    assert len(seen) == 3


@pytest.mark.parametrize(
    ("answer", "message", "requests"),
    [
        ((503, {"error": {"message": "still loading"}}), r"127\.0\.0\.1.*503.*still loading", 3),
        ((404, {"error": {"message": "no model m"}}), r"404.*no model m", 1),
        (said(), "no answer in its response", 3),
    ],
    ids=["stays busy", "refuses", "no choices"],
)
def test_what_is_no_answer_is_an_error_with_its_address(
    answer: tuple[int, dict[str, Any]], message: str, requests: int
) -> None:
    """One try and two more, but where it is refused."""
    with scripted(lambda k, body: answer) as (sampler, seen), pytest.raises(ServiceError, match=message):
        sampler.sample([PROMPT], n=1, params=SamplingParams(), seed=0)
    assert len(seen) == requests


def test_a_server_that_is_not_there_is_an_error_with_its_address() -> None:
    sampler = OpenAISampler(Service("http://127.0.0.1:9/v1", retries=0), "m")
    with pytest.raises(ServiceError, match=r"127\.0\.0\.1:9/v1 cannot be reached"):
        sampler.sample([PROMPT], n=1, params=SamplingParams(), seed=0)
    sampler.close()


def test_tokens_of_a_request_are_shared_out_without_loss() -> None:
    assert _shared_out(10, [1, 1, 2]) == [2, 3, 5]
    assert sum(_shared_out(1001, [3, 7, 11, 13])) == 1001
