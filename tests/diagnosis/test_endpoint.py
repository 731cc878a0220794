import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from diagevo.config.models import DiagnosisConfig, DiagnosticianRole, MemoryConfig
from diagevo.diagnosis.diagnostician import KnownCause
from diagevo.diagnosis.maintain import maintain
from diagevo.diagnosis.openai_diagnostician import OpenAIDiagnostician
from diagevo.errors import ConfigError, ServiceError, StoppedSafely
from diagevo.memory.memory import Memory
from diagevo.sampling.service import RETRIES
from tests.diagnosis.asking import NEW, SLIP, TWELVE, after, asking, pair
from tests.diagnosis.rounds import Angles, Question, play
from tests.diagnosis.server import Answer

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("hurried")]


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
        Answer(SLIP, stall=2.0),
    ],
    ids=lambda answer: f"{answer.manner}-{answer.status}-{answer.body}-{answer.stall}",
)
def test_a_request_in_trouble_is_made_again(memory: Memory, trouble: Answer):
    timeout = trouble.stall / 2 or 60.0
    with asking(after(2, trouble, Answer(NEW)), memory, timeout=timeout) as (asked, server):
        extraction = asked.extract(pair())
    assert extraction.description == TWELVE
    assert len(server.requests) in ((3, 4) if trouble.stall else (3,)), "an answer may come late as well"
    assert extraction.call is not None
    assert (extraction.call.tries, extraction.call.input_tokens, extraction.call.output_tokens) == (1, 7, 3)


@pytest.mark.parametrize(
    ("answer", "said", "requests"),
    [
        (Answer("down", status=502), "failed, even after retries, 502: down", 4),
        (
            Answer("come back tomorrow", status=429, headers=(("Retry-After", "86400"),)),
            "429: come back tomorrow",
            1,
        ),
        (Answer("bad key", status=401), "OPENAI_API_KEY", 1),
    ],
    ids=["stays down", "a wait beyond reason", "a refused key"],
)
def test_where_no_answer_can_come_it_is_an_error_and_nothing_is_made_up(
    memory: Memory, answer: Answer, said: str, requests: int
):
    with (
        asking(lambda request, before: answer, memory) as (asked, server),
        pytest.raises(ServiceError, match=said),
    ):
        asked.extract(pair())
    assert len(server.requests) == requests


def test_a_service_may_say_when_it_wants_to_be_asked_again(memory: Memory):
    arrived: list[float] = []

    def behave(request: dict, before: int) -> Answer:
        arrived.append(time.monotonic())
        slow = Answer("slow down", status=429, headers=(("Retry-After", "0.6"),))
        return slow if len(arrived) == 1 else Answer(SLIP)

    with asking(behave, memory) as (asked, _server):
        asked.extract(pair())
    assert len(arrived) == 2
    assert arrived[1] - arrived[0] >= 0.55


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

    with asking(behave, memory) as (asked, _server):
        assert asked.extract(pair(1)).verdict == "slip"
        refused = asked.extract(pair(13))
        assert asked.extract(pair(2)).verdict == "slip"
    assert (refused.verdict, refused.flags) == ("unresolved", ("refused",))
    assert refused.call is not None
    assert refused.call.reply is None


def test_a_service_that_refuses_everything_is_an_error(memory: Memory):
    with asking(lambda request, before: Answer("no such model", status=400), memory) as (asked, _server):
        play(memory, 1, [Question(["a", "b", "c", "d"])])
        with pytest.raises(ServiceError, match=r"the first 3 replies .*no such model"):
            maintain(memory, asked, Angles(), DiagnosisConfig(), MemoryConfig())
        assert len(memory.undiagnosed()) == 4, "nothing is recorded"
        asked.reopen()
        known = [KnownCause("c1", "active", "a cause")]
        with pytest.raises(ServiceError, match=r"10 replies in a row .*no such model"):
            _ = [asked.judge_duplicate(f"cause {number}", known) for number in range(20)]


def test_cancelling_breaks_off_what_waits_for_a_server_that_stalls(memory: Memory):
    with asking(lambda request, before: Answer(SLIP, stall=90.0), memory) as (asked, server):
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
        thread.join(timeout=60)
        assert not thread.is_alive()
        with pytest.raises(StoppedSafely):
            asked.extract(pair(2))
    assert len(raised) == 1


def test_after_cancelling_it_is_asked_again_once_it_was_reopened_and_never_once_it_was_closed(memory: Memory):
    with asking(lambda request, before: Answer(SLIP), memory) as (asked, server):
        asked.extract(pair())
        asked.cancel()
        asked.reopen()
        assert asked.extract(pair(1)).verdict == "slip"
        asked.close()
        asked.reopen()
        with pytest.raises(StoppedSafely):
            asked.extract(pair(2))
    assert len(server.requests) == 2


def test_a_crowded_service_answers_every_question_in_the_end(memory: Memory, monkeypatch: pytest.MonkeyPatch):
    """Eight ask at once, and each question is refused as often as a run asks again; with the pauses that it
    makes, a hundredth as long."""
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.005)
    monkeypatch.setattr("openai._base_client.MAX_RETRY_DELAY", 0.08)
    refused, lock = Counter[str](), threading.Lock()

    def behave(request: dict, before: int) -> Answer:
        question = str(request["messages"])
        with lock:
            refused[question] += 1
            return Answer("too many", status=429) if refused[question] <= RETRIES else Answer(SLIP)

    with asking(behave, memory, retries=RETRIES, workers=8) as (asked, _), ThreadPoolExecutor(8) as threads:
        verdicts = [e.verdict for e in threads.map(asked.extract, map(pair, range(40)))]
    assert verdicts == ["slip"] * 40
    assert asked.usage["extract"].calls == 40
