import random
import threading
import time
from collections.abc import Sequence
from fractions import Fraction

import pytest

from diagevo.config.models import DiagnosisConfig, MemoryConfig
from diagevo.diagnosis.diagnostician import Extraction, FailurePair, NodeCandidate
from diagevo.diagnosis.embedder import HashingEmbedder
from diagevo.diagnosis.maintain import MaintenanceReport, maintain
from diagevo.memory.events import DuplicateJudged, SimilarCause
from diagevo.memory.memory import Memory
from tests.diagnosis.rounds import DIMENSION, Angles, Question, Scripted, memory_now, open_memory, play, story

SETTINGS, MEMORY = DiagnosisConfig(), MemoryConfig()


def by_text(pair: FailurePair) -> Extraction:
    """A failed response names its own diagnosis: `recurrence c1`, `slip`, `unresolved`, or a description."""
    verdict, _, rest = pair.disagreeing.partition(" ")
    match verdict:
        case "recurrence":
            return Extraction("recurrence", cause_id=rest)
        case "slip":
            return Extraction("slip")
        case "unresolved":
            return Extraction("unresolved", flags=("unreadable",))
    return Extraction("new_cause", description=pair.disagreeing)


def run(memory: Memory, diagnostician: Scripted, settings: DiagnosisConfig = SETTINGS) -> MaintenanceReport:
    return maintain(memory, diagnostician, HashingEmbedder(DIMENSION), settings, MEMORY)


def test_each_failure_counts_once_under_the_cause_that_it_was_put_down_to(tmp_path):
    with open_memory(tmp_path) as memory:
        play(
            memory,
            1,
            [
                Question(["forgets the domain check", "slip", "forgets the domain check now"]),
                Question(["unresolved", "swaps numerator and denominator"]),
            ],
        )
        first = Scripted(by_text, duplicate=lambda text, candidates: candidates[0].cause_id)
        report = run(memory, first)
        memory.commit()
        # The domain check came twice, once more by deduplication; the swap once; the rest never.
        assert memory_now(memory) == {
            "forgets the domain check": ("active", 2, "n1"),
            "swaps numerator and denominator": ("active", 1, "n2"),
        }
        assert memory.state.failures == 3
        assert report.verdicts == {"new_cause": 3, "slip": 1, "unresolved": 1}
        assert report.settled == {"new_cause": 2, "duplicate": 1}
        assert report.seconds.keys() == {"extraction", "deduplication", "assignment", "consolidation"}
        assert first.asked == {"extract": 5, "duplicate": 1, "assign": 2}
        play(memory, 2, [Question(["recurrence c1", "slip"], cause_id="c1", first=3)])
        report = run(memory, Scripted(by_text))
        memory.commit()
        assert memory_now(memory)["forgets the domain check"] == ("active", 3, "n1")
        assert report.settled == {"recurrence": 1}
        # F₂ = 4, F₁ = 3, k = 1/2: ε₃ = 3 / (3 + 8) = 3/11.
        assert memory.state.epsilon == Fraction(3, 11)


def test_candidates_are_the_causes_above_the_threshold_best_first_and_capped(tmp_path):
    """Texts stand at angles: cos 60° = 0.5 is not above 0.5; cos 10° > cos 30°, and of equals c1 is before
    c3."""
    with open_memory(tmp_path) as memory:
        play(memory, 1, [Question(["a @0", "b @40", "c @60", "d @30", "e @180"])])
        settings = MemoryConfig(duplicate_candidates=2)
        maintain(memory, Scripted(by_text), Angles(), SETTINGS, settings)
        recorded = memory.log.read("a", types=["DuplicateJudged"])
        judged = [record.event for record in recorded if isinstance(record.event, DuplicateJudged)]
    assert [[cause.cause_id for cause in event.candidates] for event in judged] == [
        [],
        ["c1"],
        ["c2"],
        ["c2", "c1"],
        [],
    ]
    assert [event.capped for event in judged] == [0, 0, 0, 1, 0]
    assert judged[0].nearest is None
    assert judged[4].nearest == SimilarCause(cause_id="c3", similarity=-0.5)
    assert judged[3].candidates[0].similarity == 0.984808


def test_the_shortlist_holds_the_nodes_of_the_nearest_members(tmp_path):
    """Two nodes: n1 with members at 0° and 100°, n2 with one at 50°. For a cause at 90° n1 comes first, shown
    by its member at 100°."""
    shown: list[list[tuple[str, str, float]]] = []

    def node(text: str, shortlist: Sequence[NodeCandidate]) -> str:
        shown.append([(n.node_id, n.representative, n.similarity) for n in shortlist])
        return "n1" if text == "b @100" else text

    with open_memory(tmp_path) as memory:
        play(memory, 1, [Question(["a @0", "b @100", "c @50", "d @90"])])
        maintain(memory, Scripted(by_text, node=node), Angles(), SETTINGS, MEMORY)
        assert shown[-1] == [("n1", "b @100", 0.984808), ("n2", "c @50", 0.766044)]
        play_on = MemoryConfig(shortlist=1)
        memory.commit()
        play(memory, 2, [Question(["e @50"])])
        maintain(memory, Scripted(by_text, node=node), Angles(), SETTINGS, play_on)
        assert shown[-1] == [("n2", "c @50", 1.0)]


def test_a_cause_that_was_just_created_is_a_candidate_for_the_next_failure(tmp_path):
    with open_memory(tmp_path) as memory:
        play(memory, 1, [Question(["forgets the domain check"] * 3)])
        run(memory, Scripted(by_text, duplicate=lambda text, candidates: candidates[0].cause_id))
        assert memory_now(memory) == {"forgets the domain check": ("active", 3, "n1")}


def test_who_stops_settling_waits_for_what_was_asked_ahead(tmp_path):
    """Nobody asks on in the background of what has ended in an error."""
    answering, answered = threading.Event(), threading.Event()

    def duplicate(text: str, candidates) -> str | None:
        if "second" in text:
            answering.wait(5)
            raise RuntimeError("the service is gone")
        answering.set()
        time.sleep(0.2)
        answered.set()
        return None

    texts = ["@0", "second @1", "third @2"]
    with open_memory(tmp_path) as memory:
        play(memory, 1, [Question(texts)])
        asked = Scripted(by_text, duplicate, workers=3)
        with pytest.raises(RuntimeError, match="the service is gone"):
            maintain(memory, asked, Angles(), DiagnosisConfig(workers=3), MEMORY)
        assert answered.is_set()
        assert not [each for each in threading.enumerate() if each.name.startswith("duplicates")]


def test_the_same_replies_give_the_same_events_with_one_and_with_sixty_four_workers(tmp_path):
    """Replies come back in any order; scattered delays make sure of it."""
    texts = [f"{a} {b} mistake in step" for a in ("sign", "carry", "order", "place") for b in range(6)]
    stories = []
    for workers in (1, 64):
        rng = random.Random(workers)

        def slow(pair: FailurePair, rng: random.Random = rng, workers: int = workers) -> Extraction:
            if workers > 1:
                time.sleep(rng.random() / 100)
            return by_text(pair)

        def duplicate(text: str, candidates, rng: random.Random = rng, workers: int = workers) -> str | None:
            if workers > 1:
                time.sleep(rng.random() / 100)
            same = [cause.cause_id for cause in candidates if cause.description.split()[0] == text.split()[0]]
            return same[0] if same and int(text.split()[1]) % 3 else None

        folder = tmp_path / str(workers)
        folder.mkdir()
        with open_memory(folder) as memory:
            play(
                memory, 1, [Question(texts[i : i + 4], text=f"question {i}") for i in range(0, len(texts), 4)]
            )
            asked = Scripted(slow, duplicate, workers=workers)
            run(memory, asked, DiagnosisConfig(workers=64))
            memory.commit()
            play(memory, 2, [Question(["recurrence c1", "carry 1 mistake", "slip"], cause_id="c1")] * 5)
            run(memory, asked, DiagnosisConfig(workers=64))
            memory.commit()
            stories.append(story(memory))
    assert stories[0] == stories[1]
    kinds = [kind for kind, _ in stories[0]]
    assert kinds.count("CauseMatched") > 10
    assert kinds.count("CauseCreated") > 5
