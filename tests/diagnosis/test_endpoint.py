import threading
import time

import pytest

from diagevo.config.models import DiagnosisConfig, DiagnosticianRole
from diagevo.diagnosis.endpoint import Pace, Patience, retry_after
from diagevo.diagnosis.openai_diagnostician import OpenAIDiagnostician
from diagevo.errors import ConfigError, ServiceError, StoppedSafely
from diagevo.memory.memory import Memory
from tests.diagnosis.asking import NEW, SLIP, TWELVE, after, diagnostician, pair
from tests.diagnosis.server import Answer, Server


@pytest.mark.parametrize(
    "trouble",
    [
        Answer(manner="drop"),
        Answer("x", manner="half"),
        Answer(manner="html"),
        Answer("overloaded", status=500),
        Answer("overloaded", status=503),
        Answer("slow down", status=429),
        Answer("timed out", status=408),
        Answer(body={"choices": []}),
        Answer(body={"error": "busy"}),
        Answer(body=[1, 2]),
        Answer(SLIP, stall=1.0),
    ],
    ids=lambda answer: f"{answer.manner}-{answer.status}-{answer.body}-{answer.stall}",
)
def test_a_request_in_trouble_is_made_again(memory: Memory, trouble: Answer):
    with Server(after(2, trouble, Answer(NEW))) as server:
        asked = diagnostician(server, memory, timeout=0.4)
        extraction = asked.extract(pair())
        asked.close()
    assert extraction.description == TWELVE
    assert len(server.requests) == 3
    assert extraction.call is not None
    assert (extraction.call.tries, extraction.call.input_tokens, extraction.call.output_tokens) == (1, 7, 3)


def test_a_service_that_stays_down_is_an_error_and_nothing_is_made_up(memory: Memory):
    with Server(lambda request, before: Answer("down", status=502)) as server:
        asked = diagnostician(server, memory)
        with pytest.raises(ServiceError, match="failed 4 times in a row, last: 502 down"):
            asked.extract(pair())
        asked.close()
    assert len(server.requests) == 4


def test_retry_after_holds_every_request_back(memory: Memory):
    arrived: list[float] = []

    def behave(request: dict, before: int) -> Answer:
        arrived.append(time.monotonic())
        if len(arrived) == 1:
            return Answer("slow down", status=429, headers=(("Retry-After", "0.6"),))
        return Answer(SLIP)

    with Server(behave) as server:
        asked = diagnostician(server, memory)
        first = threading.Thread(target=asked.extract, args=(pair(1),))
        first.start()
        while not arrived:
            time.sleep(0.01)
        time.sleep(0.1)
        asked.extract(pair(2))
        first.join()
        asked.close()
    assert len(arrived) == 3
    assert min(arrived[1:]) - arrived[0] >= 0.55


def test_a_wait_beyond_reason_is_an_error(memory: Memory):
    patient = Patience(longest_retry_after=5)
    slow = Answer("come back tomorrow", status=429, headers=(("Retry-After", "86400"),))
    with Server(lambda request, before: slow) as server:
        asked = diagnostician(server, memory, patience=patient)
        with pytest.raises(ServiceError, match="asks to wait 86400 s"):
            asked.extract(pair())
        asked.close()


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "3"}, 3.0),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-1"}, 0.0),
    ],
)
def test_retry_after_is_read_in_all_its_forms(headers: dict[str, str], seconds: float | None):
    assert retry_after(headers) == seconds


def test_a_refused_key_names_the_variable_and_is_not_tried_again(memory: Memory):
    with Server(lambda request, before: Answer("bad key", status=401)) as server:
        asked = diagnostician(server, memory)
        with pytest.raises(ServiceError, match="OPENAI_API_KEY"):
            asked.extract(pair())
        asked.close()
    assert len(server.requests) == 1


def test_no_key_and_no_address_of_ones_own_is_a_configuration_error(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("SOME_KEY", raising=False)
    role = DiagnosticianRole(engine="openai", api_key_env="SOME_KEY")
    with pytest.raises(ConfigError, match="SOME_KEY"):
        OpenAIDiagnostician(role, DiagnosisConfig(), memory.artifacts).extract(pair())


def test_a_request_that_the_service_refuses_leaves_the_failure_unresolved(memory: Memory):
    def behave(request: dict, before: int) -> Answer:
        too_long = "It is 13." in request["messages"][-1]["content"]
        return Answer("context length exceeded", status=400) if too_long else Answer(SLIP)

    with Server(behave) as server:
        asked = diagnostician(server, memory)
        assert asked.extract(pair(1)).verdict == "slip"
        refused = asked.extract(pair(13))
        assert asked.extract(pair(2)).verdict == "slip"
        asked.close()
    assert (refused.verdict, refused.flags) == ("unresolved", ("refused",))
    assert refused.call is not None
    assert refused.call.reply is None


def test_a_service_that_refuses_everything_is_an_error(memory: Memory):
    with Server(lambda request, before: Answer("no such model", status=400)) as server:
        asked = diagnostician(server, memory)
        verdicts = []
        with pytest.raises(ServiceError, match="refused 8 requests in a row"):
            verdicts.extend(asked.extract(pair(number)).verdict for number in range(20))
        asked.close()


def test_cancelling_breaks_off_what_waits_for_a_server_that_stalls(memory: Memory):
    with Server(lambda request, before: Answer(SLIP, stall=3.0)) as server:
        asked = diagnostician(server, memory)
        raised: list[BaseException] = []

        def ask() -> None:
            try:
                asked.extract(pair())
            except StoppedSafely as error:
                raised.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        while not server.requests:
            time.sleep(0.01)
        asked.cancel()
        thread.join(timeout=2)
        assert not thread.is_alive()
        with pytest.raises(StoppedSafely):
            asked.extract(pair(2))
        asked.close()
    assert len(raised) == 1


def test_concurrency_halves_on_429_and_grows_again(memory: Memory):
    """A server that takes two at a time, and sixteen who want to ask."""
    lock, serving = threading.Lock(), [0]

    def behave(request: dict, before: int) -> Answer:
        with lock:
            serving[0] += 1
            crowded = serving[0] > 2
        time.sleep(0.02)
        with lock:
            serving[0] -= 1
        return Answer("too many", status=429) if crowded else Answer(SLIP)

    patience = Patience(limited_tries=100, first_pause=0.01, longest_pause=0.02)
    with Server(behave) as server:
        asked = diagnostician(server, memory, patience=patience, workers=16)
        numbers = iter(range(120))
        failed: list[BaseException] = []

        def work() -> None:
            try:
                for number in numbers:
                    asked.extract(pair(number))
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work) for _ in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        limit = asked.limit
        asked.close()
    assert not failed
    assert asked.usage["extract"].calls == 120
    assert limit < 16


def test_the_pace_halves_once_for_requests_that_were_open_together():
    import asyncio

    async def play() -> list[float]:
        pace = Pace(16)
        started = await pace.enter()
        limits = [pace.limit]
        await asyncio.sleep(0.002)
        pace.overloaded(started)
        limits.append(pace.limit)
        pace.overloaded(started)  # open at the same time: one event, not two
        limits.append(pace.limit)
        await asyncio.sleep(0.002)
        later = await pace.enter()
        pace.overloaded(later)
        limits.append(pace.limit)
        for _ in range(4):
            pace.succeeded()
        limits.append(pace.limit)
        return limits

    limits = asyncio.run(play())
    assert limits[:4] == [16, 8, 8, 4]
    assert 4.9 < limits[4] < 5  # 4 → 4.25 → 4.485 → 4.708 → 4.920: one more a window of four successes
