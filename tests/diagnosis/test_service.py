"""Whole maintenance through a real HTTP service: with broken replies and broken connections, and killed."""

import json
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import Future
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from diagevo.config.models import DiagnosisConfig, DiagnosticianRole, MemoryConfig
from diagevo.diagnosis.embedder import HashingEmbedder
from diagevo.diagnosis.maintain import maintain
from diagevo.diagnosis.openai_diagnostician import OpenAIDiagnostician
from diagevo.memory.events import FailureDiagnosed
from diagevo.memory.memory import Memory
from tests.diagnosis.child import main
from tests.diagnosis.generated import Generated, phrase, reply
from tests.diagnosis.rounds import DIMENSION, Question, memory_now, open_memory, play, story
from tests.diagnosis.server import Answer, Server

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("hurried")]


def seeded(request: dict[str, Any]) -> random.Random:
    """Randomness that depends on the question alone: the same question has the same answer."""
    return random.Random(sha256(json.dumps(request["messages"]).encode()).hexdigest())


def decision(request: dict[str, Any]) -> str:
    return request["response_format"]["json_schema"]["name"]


def supplied(request: dict[str, Any]) -> list[str]:
    return re.findall(r"^- (c\d+) \(", request["messages"][1]["content"], re.MULTILINE)


def other_reply(request: dict[str, Any], rng: random.Random) -> str:
    """Prompts 2 to 4, well-formed or broken."""
    user = request["messages"][1]["content"]
    causes = re.findall(r"^- (c\d+):", user, re.MULTILINE) or ["c1"]
    nodes = re.findall(r"^- (n\d+):", user, re.MULTILINE) or ["n1"]
    match decision(request):
        case "duplicate":
            choices: list[object] = [
                {"duplicate": True, "matched_cause_id": rng.choice(causes)},
                {"duplicate": True, "matched_cause_id": "c99999"},
                {"duplicate": False, "matched_cause_id": None},
                {"duplicate": "yes"},
            ]
        case "assign":
            choices = [
                {"create_new_node": False, "new_node_label": None, "assigned_node": rng.choice(nodes)},
                {"create_new_node": True, "new_node_label": phrase(rng, 12), "assigned_node": None},
                {"create_new_node": True, "new_node_label": None, "assigned_node": "n1"},
            ]
        case _:
            choices = [
                {"merge": True, "merged_label": phrase(rng, 11)},
                {"merge": False, "merged_label": None},
                {"merge": True},
            ]
    text = json.dumps(rng.choice(choices))
    return text if rng.random() < 0.7 else text[: rng.randrange(len(text))]


def openai(server: Server, memory: Memory, *, retries: int, workers: int) -> OpenAIDiagnostician:
    role = DiagnosticianRole(engine="openai", model="m", base_url=server.url, timeout=0.5)
    settings = DiagnosisConfig(retries=retries, workers=workers)
    return OpenAIDiagnostician(role, settings, memory.artifacts)


def test_generated_replies_over_a_faulty_connection_are_each_recorded_and_counted_once(tmp_path: Path):
    """Without retries every failure's verdict is known from the reply that the server made for it."""
    made: dict[str, Generated] = {}
    faults: Counter[str] = Counter()

    def behave(request: dict[str, Any], before: int) -> Answer:
        rng = seeded(request)
        if before == 0 and rng.random() < 0.25:
            fault = rng.choice(["drop", "half", "html", "stall", "429", "500"])
            faults[fault] += 1
            match fault:
                case "stall":
                    return Answer("{}", stall=1.0)
                case "429":
                    return Answer("slow", status=429, headers=(("Retry-After", "0.02"),))
                case "500":
                    return Answer("broken", status=500)
            return Answer("{}", manner=fault)
        if decision(request) != "extract":
            return Answer(other_reply(request, rng))
        trajectory = re.search(r"response (\S+)", request["messages"][1]["content"])
        assert trajectory is not None
        generated = reply(rng, supplied(request))
        made[trajectory[1]] = generated
        return Answer(generated.text)

    embedder = HashingEmbedder(DIMENSION)
    with open_memory(tmp_path) as memory, Server(behave) as server:
        verdicts: dict[str, FailureDiagnosed] = {}
        counted = 0
        for number in (1, 2):
            target = "c1" if number == 2 else None
            questions = [
                Question([f"response r{number}.q{q}.a{s}" for s in range(5)], text=str(q), cause_id=target)
                for q in range(16)
            ]
            play(memory, number, questions)
            asked = openai(server, memory, retries=0, workers=8)
            report = maintain(
                memory, asked, embedder, DiagnosisConfig(retries=0, workers=8), MemoryConfig(theta_dup=0.3)
            )
            asked.close()
            counted += report.failures
            for record in memory.log.read("a", types=["FailureDiagnosed"], rounds=(number, number)):
                assert isinstance(record.event, FailureDiagnosed)
                verdicts[record.event.failure_id] = record.event
            memory.commit()
        frequencies = sum(frequency for _, frequency, _ in memory_now(memory).values())
    assert len(verdicts) == len(made) == 160
    for failure_id, generated in made.items():
        event = verdicts[failure_id]
        assert (event.verdict, event.cause_id) == (generated.verdict, generated.cause_id), generated
        assert event.call is not None
        assert event.call.reply is not None
    assert len(faults) == 6
    tally = Counter(event.verdict for event in verdicts.values())
    assert counted == tally["recurrence"] + tally["new_cause"]
    # Nothing was promoted, so that every counted failure is in a frequency, once.
    assert frequencies == counted
    assert min(tally.values()) > 5


def sensible(request: dict[str, Any], before: int) -> Answer:
    """A service that answers well: trajectories name their mistake, and equal first words are duplicates."""
    user = request["messages"][1]["content"]
    match decision(request):
        case "extract":
            mistake = re.search(r"mistake: (.*)", user)
            assert mistake is not None
            text = json.dumps({"matched_cause_id": None, "error_cause": mistake[1]})
        case "duplicate":
            new = re.search(r"begin\n(\w+)", user)
            assert new is not None
            same = re.findall(rf"^- (c\d+): {new[1]}\b", user, re.MULTILINE)
            text = json.dumps({"duplicate": bool(same), "matched_cause_id": same[0] if same else None})
        case "assign":
            new = re.search(r"begin\n(.*)", user)
            assert new is not None
            label = f"handles the {new[1]}"
            text = json.dumps({"create_new_node": True, "new_node_label": label, "assigned_node": None})
        case _:
            text = '{"merge": false, "merged_label": null}'
    return Answer(text, stall=0.02)


def prepare(folder: Path) -> None:
    folder.mkdir()
    words = ["sign", "carry", "order", "place", "domain"]
    tail = "is handled wrongly when the equation is rearranged step by step in round"
    with open_memory(folder) as memory:
        play(
            memory,
            1,
            [Question([f"{i}{w} mistake: {w} {tail} {i}" for w in words], text=str(i)) for i in range(4)],
        )


def start(folder: Path, url: str) -> subprocess.Popen[bytes]:
    root = Path(__file__).parents[2]
    return subprocess.Popen([sys.executable, "-m", "tests.diagnosis.child", str(folder), url], cwd=root)


def test_killed_anywhere_it_goes_on_without_asking_again_what_was_answered(tmp_path: Path):
    with Server(sensible) as server:
        prepare(tmp_path / "whole")
        main(tmp_path / "whole", server.url)
        needed = len(server.requests)
        with open_memory(tmp_path / "whole") as memory:
            whole = story(memory)
        kinds = Counter(decision(request) for request in server.requests)
        assert min(kinds[kind] for kind in ("extract", "duplicate", "assign", "merge")) >= 5
    with Server(sensible) as server:
        prepare(tmp_path / "killed")
        codes = []
        for stop_at in (6, 26, 34, 10**6):
            child = Future[subprocess.Popen[bytes]]()
            server.at = stop_at, lambda child=child: child.result().kill()
            child.set_result(start(tmp_path / "killed", server.url))
            codes.append(child.result().wait())
        assert codes == [-signal.SIGKILL] * 3 + [0]
        repeated = sum(count - 1 for count in server.seen.values())
        with open_memory(tmp_path / "killed") as memory:
            assert story(memory) == whole
    # Only what was on its way when a kill came, at most four questions each time, is asked again.
    assert repeated <= 4 * 3
    assert len(server.requests) <= needed + 4 * 3
