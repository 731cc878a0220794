"""What the endpoint asks for and keeps: schemas, retries that show the error, stored replies, budgets."""

import threading

import pytest

from diagevo.diagnosis.chat import Budget
from diagevo.diagnosis.diagnostician import KnownCause
from diagevo.errors import StoppedSafely
from diagevo.memory.memory import Memory
from tests.diagnosis.asking import NEW, SLIP, TWELVE, asking, diagnostician, pair
from tests.diagnosis.server import Answer, Server


class TestStructuredOutput:
    def test_a_server_that_has_it_gets_the_schema(self, memory: Memory):
        with asking(lambda request, before: Answer(SLIP), memory) as (asked, server):
            asked.extract(pair())
        schema = server.requests[0]["response_format"]["json_schema"]["schema"]
        assert set(schema["properties"]) == {"matched_cause_id", "error_cause"}

    def test_a_server_that_refuses_it_is_asked_without_once_and_for_all(self, memory: Memory):
        def behave(request: dict, before: int) -> Answer:
            if "response_format" in request:
                return Answer("response_format is not supported", status=400)
            return Answer(SLIP)

        with asking(behave, memory) as (asked, server):
            assert asked.extract(pair(1)).verdict == "slip"
            assert asked.extract(pair(2)).verdict == "slip"
        assert ["response_format" in request for request in server.requests] == [True, False, False]

    def test_a_token_limit_by_another_name_is_learnt(self, memory: Memory):
        def behave(request: dict, before: int) -> Answer:
            if "max_tokens" in request:
                return Answer("Unsupported parameter: use 'max_completion_tokens' instead", status=400)
            return Answer(SLIP)

        with asking(behave, memory) as (asked, server):
            assert asked.extract(pair(1)).verdict == "slip"
        assert server.requests[-1]["max_completion_tokens"] == 1024
        assert "response_format" in server.requests[-1]


class TestRetriesThatShowTheError:
    def test_an_unreadable_reply_is_shown_its_error_and_asked_again(self, memory: Memory):
        def behave(request: dict, before: int) -> Answer:
            return Answer("I think…" if len(request["messages"]) == 2 else NEW)

        with asking(behave, memory) as (asked, server):
            extraction = asked.extract(pair())
        assert extraction.verdict == "new_cause"
        assert extraction.call is not None
        assert (extraction.call.tries, extraction.call.input_tokens) == (2, 14)
        messages = server.requests[1]["messages"]
        assert messages[2] == {"role": "assistant", "content": "I think…"}
        assert "holds no JSON object" in messages[3]["content"]

    def test_after_two_more_tries_the_failure_is_unresolved_with_its_raw_text_kept(self, memory: Memory):
        with asking(lambda request, before: Answer("still thinking"), memory) as (asked, server):
            extraction = asked.extract(pair())
        assert (extraction.verdict, extraction.flags) == ("unresolved", ("unreadable",))
        assert len(server.requests) == 3
        assert extraction.call is not None
        assert extraction.call.reply is not None
        assert memory.artifacts.get(extraction.call.reply) == "still thinking"
        assert "still thinking" in memory.artifacts.get(extraction.call.request)

    def test_a_phrase_of_seven_words_is_asked_about_once_then_accepted_and_flagged(self, memory: Memory):
        text = "misapplies triangle inequality to algebraic side lengths"
        seven = f'{{"matched_cause_id": null, "error_cause": "{text}"}}'
        with asking(lambda request, before: Answer(seven), memory) as (asked, server):
            extraction = asked.extract(pair())
        assert len(server.requests) == 2
        assert extraction.description == text
        assert extraction.flags == ("length",)

    def test_what_the_tries_leave_is_the_best_that_was_said(self, memory: Memory):
        replies = [f'{{"matched_cause_id": "c9", "error_cause": "{TWELVE}"}}', "{", "[]"]
        with asking(lambda request, before: Answer(replies[len(request["messages"]) // 2 - 1]), memory) as (
            asked,
            _server,
        ):
            extraction = asked.extract(pair(known=(KnownCause("c1", "active", "x"),)))
        assert (extraction.verdict, extraction.description) == ("new_cause", TWELVE)
        assert extraction.flags == ("unknown_id",)

    def test_the_other_decisions_end_as_decided(self, memory: Memory):
        from diagevo.diagnosis.diagnostician import NodeContents

        with asking(lambda request, before: Answer("hm"), memory) as (asked, _server):
            duplicate = asked.judge_duplicate(TWELVE, [KnownCause("c1", "active", "x")])
            assigned = asked.assign_node(TWELVE, [])
            merged = asked.judge_pair(NodeContents("n1", "a", ("x",)), NodeContents("n2", "b", ("y",)))
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
        with asking(lambda request, before: Answer(NEW, stall=0.3), memory) as (asked, server):
            results = []
            threads = [
                threading.Thread(target=lambda: results.append(asked.extract(pair()))) for _ in range(4)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert len(server.requests) == 1
        assert len(set(results)) == 1

    def test_asking_again_about_an_unresolved_failure_is_a_new_question(self, memory: Memory):
        replies = iter(["?", "?", "?", NEW])
        with asking(lambda request, before: Answer(next(replies)), memory) as (asked, _server):
            assert asked.extract(pair()).verdict == "unresolved"
            assert asked.extract(pair(asked=2)).verdict == "new_cause"


class TestBudget:
    def test_a_spent_budget_of_calls_stops_safely(self, memory: Memory):
        with asking(lambda request, before: Answer(NEW), memory, max_calls=2) as (asked, server):
            asked.extract(pair(1))
            asked.extract(pair(2))
            with pytest.raises(StoppedSafely, match="budget of 2 calls") as stopped:
                asked.extract(pair(3))
            assert asked.extract(pair(1)).verdict == "new_cause"  # stored replies are free
        assert len(server.requests) == 2
        assert stopped.value.exit_code == 75

    def test_tokens_count_and_so_does_what_earlier_processes_spent(self, memory: Memory):
        with asking(
            lambda request, before: Answer(NEW), memory, budget=Budget(None, 25, spent_tokens=10)
        ) as (asked, _server):
            asked.extract(pair(1))
            asked.extract(pair(2))
            with pytest.raises(StoppedSafely, match="budget of 25 tokens"):
                asked.extract(pair(3))
