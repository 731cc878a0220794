import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from diagevo.config.models import DiagnosisConfig, DiagnosticianRole
from diagevo.diagnosis.chat import Budget
from diagevo.diagnosis.diagnostician import FailurePair, KnownCause
from diagevo.diagnosis.endpoint import Pace, Patience, retry_after
from diagevo.diagnosis.openai_diagnostician import OpenAIDiagnostician
from diagevo.errors import ConfigError, ServiceError, StoppedSafely
from diagevo.memory.memory import Memory
from tests.diagnosis.rounds import open_memory
from tests.diagnosis.server import Answer, Behaviour, Server

SLIP = '{"matched_cause_id": null, "error_cause": null}'
TWELVE = "fails to check candidate solutions against the domain of the original equation"
NEW = f'{{"matched_cause_id": null, "error_cause": "{TWELVE}"}}'
QUICK = Patience(tries=4, limited_tries=6, first_pause=0.01, longest_pause=0.02)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with open_memory(tmp_path) as opened:
        yield opened


def diagnostician(
    server: Server,
    memory: Memory,
    *,
    patience: Patience = QUICK,
    budget: Budget | None = None,
    timeout: float = 5.0,
    structured: str = "auto",
    **settings: int,
) -> OpenAIDiagnostician:
    role = DiagnosticianRole.model_validate(
        {
            "engine": "openai",
            "model": "m",
            "base_url": server.url,
            "timeout": timeout,
            "structured_output": structured,
        }
    )
    return OpenAIDiagnostician(
        role, DiagnosisConfig.model_validate(settings), memory.artifacts, patience=patience, budget=budget
    )


def pair(number: int = 0, known: tuple[KnownCause, ...] = (), asked: int = 1) -> FailurePair:
    return FailurePair(f"r1.q0.a{number}", "What is 1+1?", "2", "It is 2.", f"It is {number}.", known, asked)


def after(failures: int, first: Answer, then: Answer) -> Behaviour:
    """The first so many times a request comes, one answer; then another."""
    return lambda request, before: first if before < failures else then


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


class TestStructuredOutput:
    def test_a_server_that_has_it_gets_the_schema(self, memory: Memory):
        with Server(lambda request, before: Answer(SLIP)) as server:
            asked = diagnostician(server, memory)
            asked.extract(pair())
            asked.close()
        schema = server.requests[0]["response_format"]["json_schema"]["schema"]
        assert set(schema["properties"]) == {"matched_cause_id", "error_cause"}

    def test_a_server_that_refuses_it_is_asked_without_once_and_for_all(self, memory: Memory):
        def behave(request: dict, before: int) -> Answer:
            if "response_format" in request:
                return Answer("response_format is not supported", status=400)
            return Answer(SLIP)

        with Server(behave) as server:
            asked = diagnostician(server, memory)
            assert asked.extract(pair(1)).verdict == "slip"
            assert asked.extract(pair(2)).verdict == "slip"
            asked.close()
        assert ["response_format" in request for request in server.requests] == [True, False, False]

    def test_a_token_limit_by_another_name_is_learnt(self, memory: Memory):
        def behave(request: dict, before: int) -> Answer:
            if "max_tokens" in request:
                return Answer("Unsupported parameter: use 'max_completion_tokens' instead", status=400)
            return Answer(SLIP)

        with Server(behave) as server:
            asked = diagnostician(server, memory)
            assert asked.extract(pair(1)).verdict == "slip"
            asked.close()
        assert server.requests[-1]["max_completion_tokens"] == 1024
        assert "response_format" in server.requests[-1]


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


class TestRetriesThatShowTheError:
    def test_an_unreadable_reply_is_shown_its_error_and_asked_again(self, memory: Memory):
        def behave(request: dict, before: int) -> Answer:
            return Answer("I think…" if len(request["messages"]) == 2 else NEW)

        with Server(behave) as server:
            asked = diagnostician(server, memory)
            extraction = asked.extract(pair())
            asked.close()
        assert extraction.verdict == "new_cause"
        assert extraction.call is not None
        assert (extraction.call.tries, extraction.call.input_tokens) == (2, 14)
        messages = server.requests[1]["messages"]
        assert messages[2] == {"role": "assistant", "content": "I think…"}
        assert "holds no JSON object" in messages[3]["content"]

    def test_after_two_more_tries_the_failure_is_unresolved_with_its_raw_text_kept(self, memory: Memory):
        with Server(lambda request, before: Answer("still thinking")) as server:
            asked = diagnostician(server, memory)
            extraction = asked.extract(pair())
            asked.close()
        assert (extraction.verdict, extraction.flags) == ("unresolved", ("unreadable",))
        assert len(server.requests) == 3
        assert extraction.call is not None
        assert extraction.call.reply is not None
        assert memory.artifacts.get(extraction.call.reply) == "still thinking"
        assert "still thinking" in memory.artifacts.get(extraction.call.request)

    def test_a_phrase_of_seven_words_is_asked_about_once_then_accepted_and_flagged(self, memory: Memory):
        text = "misapplies triangle inequality to algebraic side lengths"
        seven = f'{{"matched_cause_id": null, "error_cause": "{text}"}}'
        with Server(lambda request, before: Answer(seven)) as server:
            asked = diagnostician(server, memory)
            extraction = asked.extract(pair())
            asked.close()
        assert len(server.requests) == 2
        assert extraction.description == text
        assert extraction.flags == ("length",)

    def test_what_the_tries_leave_is_the_best_that_was_said(self, memory: Memory):
        replies = [f'{{"matched_cause_id": "c9", "error_cause": "{TWELVE}"}}', "{", "[]"]
        with Server(lambda request, before: Answer(replies[len(request["messages"]) // 2 - 1])) as server:
            asked = diagnostician(server, memory)
            extraction = asked.extract(pair(known=(KnownCause("c1", "active", "x"),)))
            asked.close()
        assert (extraction.verdict, extraction.description) == ("new_cause", TWELVE)
        assert extraction.flags == ("unknown_id",)

    def test_the_other_decisions_end_as_decided(self, memory: Memory):
        from diagevo.diagnosis.diagnostician import NodeContents

        with Server(lambda request, before: Answer("hm")) as server:
            asked = diagnostician(server, memory)
            duplicate = asked.judge_duplicate(TWELVE, [KnownCause("c1", "active", "x")])
            assigned = asked.assign_node(TWELVE, [])
            merged = asked.judge_pair(NodeContents("n1", "a", ("x",)), NodeContents("n2", "b", ("y",)))
            asked.close()
        assert (duplicate.duplicate, duplicate.cause_id) == (False, None)
        assert (assigned.node_id, assigned.new_label, assigned.flags) == (None, TWELVE, ("unreadable",))
        assert (merged.merge, merged.label) == (False, None)
        assert {name: usage.calls for name, usage in asked.usage.items()} == {
            "duplicate": 3,
            "assign": 3,
            "merge": 3,
        }


class TestStoredReplies:
    def test_what_was_answered_is_not_asked_again_by_another_process(self, memory: Memory):
        with Server(lambda request, before: Answer(NEW)) as server:
            first = diagnostician(server, memory)
            before = first.extract(pair())
            first.close()
            second = diagnostician(server, memory)
            again = second.extract(pair())
            second.close()
        assert len(server.requests) == 1
        assert again == before
        assert (second.usage["extract"].calls, second.usage["extract"].stored) == (0, 1)

    def test_the_same_question_under_way_twice_is_asked_once(self, memory: Memory):
        with Server(lambda request, before: Answer(NEW, stall=0.3)) as server:
            asked = diagnostician(server, memory)
            results = []
            threads = [
                threading.Thread(target=lambda: results.append(asked.extract(pair()))) for _ in range(4)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            asked.close()
        assert len(server.requests) == 1
        assert len(set(results)) == 1

    def test_asking_again_about_an_unresolved_failure_is_a_new_question(self, memory: Memory):
        replies = iter(["?", "?", "?", NEW])
        with Server(lambda request, before: Answer(next(replies))) as server:
            asked = diagnostician(server, memory)
            assert asked.extract(pair()).verdict == "unresolved"
            assert asked.extract(pair(asked=2)).verdict == "new_cause"
            asked.close()


class TestBudget:
    def test_a_spent_budget_of_calls_stops_safely(self, memory: Memory):
        with Server(lambda request, before: Answer(NEW)) as server:
            asked = diagnostician(server, memory, max_calls=2)
            asked.extract(pair(1))
            asked.extract(pair(2))
            with pytest.raises(StoppedSafely, match="budget of 2 calls") as stopped:
                asked.extract(pair(3))
            assert asked.extract(pair(1)).verdict == "new_cause"  # stored replies are free
            asked.close()
        assert len(server.requests) == 2
        assert stopped.value.exit_code == 75

    def test_tokens_count_and_so_does_what_earlier_processes_spent(self, memory: Memory):
        with Server(lambda request, before: Answer(NEW)) as server:
            asked = diagnostician(server, memory, budget=Budget(None, 25, spent_tokens=10))
            asked.extract(pair(1))
            asked.extract(pair(2))
            with pytest.raises(StoppedSafely, match="budget of 25 tokens"):
                asked.extract(pair(3))
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
