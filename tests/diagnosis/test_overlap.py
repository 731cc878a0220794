"""Extraction beside the solver's training, and maintenance that is interrupted."""

import threading
import time
from types import SimpleNamespace

import pytest
from msgspec import structs

from diagevo.config.models import DiagnosisConfig, MemoryConfig
from diagevo.diagnosis.cause_extraction import Diagnoser
from diagevo.diagnosis.diagnostician import Extraction, FailurePair
from diagevo.diagnosis.embedder import HashingEmbedder
from diagevo.diagnosis.maintain import maintain
from diagevo.errors import NodeLostError, ServiceError, StoppedSafely
from diagevo.memory.events import FailureObserved
from diagevo.memory.memory import Memory
from diagevo.memory.state.model import OpenRound
from tests.diagnosis.rounds import (
    DIMENSION,
    Question,
    Scripted,
    memory_now,
    observe,
    open_memory,
    play,
    scored,
    story,
)
from tests.diagnosis.test_maintain import by_text, run

SETTINGS = DiagnosisConfig()


def current_round(memory: Memory) -> OpenRound:
    assert memory.state.open is not None
    return memory.state.open


def begin(memory: Memory, questions: list[Question]) -> list[FailureObserved]:
    """Round 1 up to the middle of the solver's training: observed, not complete."""
    memory.open_round(1)
    for stage in ("challenger", "candidates"):
        memory.start_stage(stage)
        memory.complete_stage(stage)
    memory.start_stage("votes")
    memory.score([scored(memory, 1, index, question) for index, question in enumerate(questions)])
    memory.complete_stage("votes")
    return observe(memory, 1, questions)


def test_failures_are_diagnosed_while_the_solver_still_trains(tmp_path):
    questions = [Question(["forgets the domain", "slip"]), Question(["swaps the fraction"])]
    with open_memory(tmp_path) as memory:
        failures = begin(memory, questions)
        asked = Scripted(by_text)
        with Diagnoser(memory, asked, SETTINGS) as diagnoser:
            diagnoser.submit(failures[:2])
            diagnoser.submit(failures[:2])  # told twice, asked once
            diagnoser.submit(failures[2:])
            diagnoser.drain()
        assert memory.undiagnosed() == []
        assert memory.stage("solver").status == "running"
        assert asked.asked == {"extract": 3}
        memory.complete_stage("solver")
        report = run(memory, asked)
        assert asked.asked["extract"] == 3
        assert report.verdicts == {}
        assert report.failures == 2
        assert len(memory_now(memory)) == 2


def test_the_events_are_those_of_diagnosis_after_training(tmp_path):
    questions = [Question([f"mistake {i} in step {s}" for s in range(4)]) for i in range(6)]
    stories = []
    for overlapped in (False, True):
        folder = tmp_path / str(overlapped)
        folder.mkdir()
        with open_memory(folder) as memory:
            failures = begin(memory, questions)
            asked = Scripted(by_text, workers=8)
            if overlapped:
                with Diagnoser(memory, asked, SETTINGS) as diagnoser:
                    for start in range(0, len(failures), 5):
                        diagnoser.submit(failures[start : start + 5])
                    diagnoser.drain()
            memory.complete_stage("solver")
            run(memory, asked)
            memory.commit()
            settled = story(
                memory, ["DuplicateJudged", "NodeAssigned", "CauseMatched", "CauseCreated", "RoundCommitted"]
            )
            stories.append((sorted(story(memory, ["FailureDiagnosed"])), settled))
    assert stories[0] == stories[1]


def test_only_what_the_training_does_not_hide_counts_as_waiting(tmp_path, monkeypatch):
    """An answer takes a second by this clock, which comes once it is asked for the time, or told to go."""
    now, go = 100.0, threading.Event()

    def slow(pair: FailurePair) -> Extraction:
        nonlocal now
        go.wait()
        now += 1.0
        return by_text(pair)

    def clock() -> float:
        read = now
        if training_is_over:
            go.set()
        return read

    monkeypatch.setattr("diagevo.diagnosis.cause_extraction.time", SimpleNamespace(monotonic=clock))
    training_is_over = False
    with open_memory(tmp_path) as memory:
        failures = begin(memory, [Question(["slip"])])
        with Diagnoser(memory, Scripted(slow), SETTINGS) as diagnoser:
            diagnoser.submit(failures)
            go.set()
            while not all(future.done() for future in diagnoser._queue):  # the training goes on
                time.sleep(0.01)
            diagnoser.drain()
            hidden = diagnoser.waited
        memory.complete_stage("solver")
    go.clear()
    with open_memory(tmp_path, run="b") as memory:
        failures = begin(memory, [Question(["slip"])])
        with Diagnoser(memory, Scripted(slow), SETTINGS) as diagnoser:
            diagnoser.submit(failures)
            training_is_over = True
            diagnoser.drain()
            waited = diagnoser.waited
    assert (hidden, waited) == (0.0, 1.0)


def test_answers_about_an_abandoned_attempt_are_not_recorded(tmp_path):
    """The training is set back to step 1 while the answer about a failure of step 2 is still out."""
    questions = [Question(["forgets the domain"]), Question(["swaps the fraction"])]
    gate = threading.Event()

    def gated(pair: FailurePair) -> Extraction:
        if pair.failure_id == "r1.q1.a0":
            gate.wait(60)
        return by_text(pair)

    with open_memory(tmp_path) as memory:
        failures = begin(memory, questions)
        asked = Scripted(gated, workers=2)
        with Diagnoser(memory, asked, SETTINGS) as diagnoser:
            diagnoser.submit(failures)
            memory.abandon_stage("solver", after_step=1)
            gate.set()
            diagnoser.drain()
            assert list(current_round(memory).diagnoses) == ["r1.q0.a0"]
            assert memory.undiagnosed() == []
            # The step is played again, and this time the solver fails otherwise.
            again = [Question(["forgets the domain"]), Question(["drops a minus sign"])]
            assert memory.start_stage("solver") == 2
            replayed = structs.replace(
                failures[1], attempt=2, trajectory=memory.artifacts.put(again[1].failures[0])
            )
            memory.observe([replayed])
            diagnoser.submit([replayed])
            diagnoser.drain()
        memory.complete_stage("solver")
        run(memory, asked)
        assert set(memory_now(memory)) == {"forgets the domain", "drops a minus sign"}


def test_an_error_of_a_worker_is_raised_and_what_came_before_it_is_kept(tmp_path):
    def broken(pair: FailurePair) -> Extraction:
        if pair.failure_id == "r1.q0.a2":
            raise ServiceError("gone")
        return by_text(pair)

    with open_memory(tmp_path) as memory:
        play(memory, 1, [Question(["slip", "slip", "slip", "slip"])])
        with pytest.raises(ServiceError, match="gone"):
            run(memory, Scripted(broken))
        assert [f.failure_id for f in memory.undiagnosed()] == ["r1.q0.a2", "r1.q0.a3"]
        report = run(memory, Scripted(by_text))
        assert report.verdicts == {"slip": 2}


def test_after_an_error_nobody_else_is_asked_though_nobody_waits_yet(tmp_path):
    """A request that begins after the service refused one would be broken off, and paid for again."""

    def refusing(pair: FailurePair) -> Extraction:
        if pair.failure_id == "r1.q0.a3":
            raise ServiceError("wrong key")
        return by_text(pair)

    with open_memory(tmp_path) as memory:
        failures = begin(memory, [Question(["slip"] * 12)])
        asked = Scripted(refusing)
        with Diagnoser(memory, asked, SETTINGS) as diagnoser:
            diagnoser.submit(failures)
            while diagnoser._queue and not all(future.done() for future in diagnoser._queue):
                time.sleep(0.01)
            with pytest.raises(ServiceError, match="wrong key"):
                diagnoser.drain()
        assert asked.asked == {"extract": 4}
        assert [f.failure_id for f in memory.undiagnosed()] == [f"r1.q0.a{i}" for i in range(3, 12)]


class Cancelled(Scripted):
    """Takes no request from `cancel` to `reopen`."""

    open = True

    def cancel(self) -> None:
        self.open = False

    def reopen(self) -> None:
        self.open = True

    def extract(self, pair: FailurePair) -> Extraction:
        if not self.open:
            raise StoppedSafely("requests to a service were broken off")
        return super().extract(pair)


def test_an_attempt_after_one_that_lost_a_node_asks_the_same_diagnostician(tmp_path):
    with open_memory(tmp_path) as memory:
        failures = begin(memory, [Question(["slip"] * 3)])
        asked = Cancelled(by_text)
        with pytest.raises(NodeLostError), Diagnoser(memory, asked, SETTINGS):
            raise NodeLostError("training rank 1 of 2 is lost with its node")
        with Diagnoser(memory, asked, SETTINGS) as diagnoser:
            diagnoser.submit(failures)
            diagnoser.drain()
        assert memory.undiagnosed() == []


@pytest.mark.parametrize("phase", ["extract", "duplicate", "assign"])
def test_stopped_anywhere_it_goes_on_and_ends_with_the_same_events(tmp_path, phase: str):
    texts = [f"{word} mistake in step {i}" for word in ("sign", "carry") for i in range(4)]

    def duplicate(text: str, candidates) -> str | None:
        return candidates[0].cause_id if text.endswith(("1", "3")) else None

    stories = []
    for interrupted in (False, True):
        folder = tmp_path / str(interrupted)
        folder.mkdir()
        with open_memory(folder) as memory:
            play(memory, 1, [Question(texts)])
            asked = Scripted(by_text, duplicate)
            if interrupted:
                with pytest.raises(StoppedSafely) as stopped:
                    maintain(
                        memory,
                        asked,
                        HashingEmbedder(DIMENSION),
                        SETTINGS,
                        MemoryConfig(),
                        should_stop=lambda asked=asked: asked.asked.get(phase, 0) >= 2,
                    )
                assert stopped.value.exit_code == 75
            run(memory, asked)
            memory.commit()
            stories.append(story(memory))
    assert stories[0] == stories[1]


def test_a_cap_per_question_takes_the_first_samples_whatever_was_diagnosed_before(tmp_path):
    capped = DiagnosisConfig(failures_per_question=2)
    with open_memory(tmp_path) as memory:
        failures = begin(memory, [Question(["slip"] * 4), Question(["slip"] * 1)])
        with Diagnoser(memory, Scripted(by_text), capped) as diagnoser:
            diagnoser.submit(failures[:1])
            diagnoser.drain()
        memory.complete_stage("solver")
        run(memory, Scripted(by_text), capped)
        assert sorted(current_round(memory).diagnoses) == ["r1.q0.a0", "r1.q0.a1", "r1.q1.a0"]


def test_an_unresolved_failure_can_be_asked_again(tmp_path):
    with open_memory(tmp_path) as memory:
        play(memory, 1, [Question(["unresolved", "slip"])])
        assert run(memory, Scripted(by_text)).verdicts == {"unresolved": 1, "slip": 1}
        assert run(memory, Scripted(by_text)).verdicts == {}
        asked: list[int] = []

        def now_clear(pair: FailurePair) -> Extraction:
            asked.append(pair.asked)
            return Extraction("new_cause", description="forgets the domain")

        report = maintain(
            memory,
            Scripted(now_clear),
            HashingEmbedder(DIMENSION),
            SETTINGS,
            MemoryConfig(),
            ask_again=True,
        )
        assert asked == [2]
        assert report.settled == {"new_cause": 1}
        assert memory_now(memory) == {"forgets the domain": ("active", 1, "n1")}
