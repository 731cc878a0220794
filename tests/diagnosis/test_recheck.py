from pathlib import Path

import numpy as np
import pytest

from diagevo.config.models import DiagnosisConfig, DiagnosticianRole, MemoryConfig
from diagevo.diagnosis.calibrate import Pair, calibrate, judged_pairs, proposal
from diagevo.diagnosis.chat import budget_of, spent
from diagevo.diagnosis.diagnostician import Extraction, FailurePair
from diagevo.diagnosis.maintain import maintain
from diagevo.diagnosis.openai_diagnostician import OpenAIDiagnostician
from diagevo.diagnosis.recheck import Recheck, Unrecorded, agreement, recheck
from diagevo.errors import NotFoundError, StoppedSafely
from diagevo.memory.history import History
from diagevo.memory.memory import Memory
from tests.diagnosis.rounds import Angles, Question, Scripted, open_memory, play, story
from tests.diagnosis.server import Answer, Server
from tests.diagnosis.test_maintain import by_text


def two_rounds(memory: Memory) -> None:
    """F₁ = 3 (a, b, and c put down to b), F₂ = 4 (a again). Round 2 also has a slip."""
    asked = Scripted(
        by_text,
        duplicate=lambda text, candidates: "c2" if text == "c @30" else None,
        node=lambda text, shortlist: text,
    )
    play(memory, 1, [Question(["a @0", "b @40", "c @30"], text="one")])
    maintain(memory, asked, Angles(), DiagnosisConfig(), MemoryConfig())
    memory.commit()
    play(memory, 2, [Question(["recurrence c1", "slip"], text="two", cause_id="c1")])
    maintain(memory, asked, Angles(), DiagnosisConfig(), MemoryConfig())
    memory.commit()


def asked_again(memory: Memory, diagnostician: Scripted, round: int | None = None) -> list[Recheck]:
    before = story(memory)
    found = recheck(History(memory.database, "a"), diagnostician, sample=100, round=round)
    assert story(memory) == before
    return found


def test_a_diagnostician_that_says_the_same_agrees_with_every_decision(tmp_path: Path):
    with open_memory(tmp_path) as memory:
        two_rounds(memory)
        same = Scripted(
            by_text,
            duplicate=lambda text, candidates: "c2" if text == "c @30" else None,
            node=lambda text, shortlist: text,
        )
        found = asked_again(memory, same)
    assert agreement(found) == {"extract": (5, 5), "duplicate": (2, 2), "assign": (2, 2), "merge": (1, 1)}


def test_each_disagreement_is_told_with_both_answers(tmp_path: Path):
    def otherwise(pair: FailurePair) -> Extraction:
        match pair.disagreeing:
            case "recurrence c1":
                return Extraction("slip")
            case "slip":
                return Extraction("recurrence", cause_id="c1")
        return by_text(pair)

    with open_memory(tmp_path) as memory:
        two_rounds(memory)
        other = Scripted(
            otherwise, duplicate=lambda text, candidates: None, node=lambda text, shortlist: "n1"
        )
        found = asked_again(memory, other, round=2)
        assert [(r.subject, r.recorded, r.answered, r.agrees) for r in found[:2]] == [
            ("r2.q0.a0", "recurrence c1", "slip", False),
            ("r2.q0.a1", "slip", "recurrence c1", False),
        ]
        first = asked_again(memory, other, round=1)
    duplicate = next(r for r in first if r.decision == "duplicate" and not r.agrees)
    assert (duplicate.subject, duplicate.recorded, duplicate.answered) == ("r1.q0.a2", "c2", "a new cause")
    assign = next(r for r in first if r.decision == "assign" and r.subject == "r1.q0.a1")
    assert (assign.recorded, assign.answered, assign.agrees) == ("a new node", "n1", False)


def test_what_is_asked_is_what_was_asked_then(tmp_path: Path):
    """Labels, members and representatives as they were at the time, not as they are now."""
    pairs, shown, nodes = [], [], []
    with open_memory(tmp_path) as memory:
        two_rounds(memory)
        listening = Scripted(
            lambda pair: pairs.append(pair) or by_text(pair),
            duplicate=lambda text, candidates: shown.append((text, [c.cause_id for c in candidates])),
            node=lambda text, shortlist: nodes.append((text, [n.representative for n in shortlist])) or text,
        )
        asked_again(memory, listening)
    assert [(p.question, p.label, p.disagreeing) for p in pairs][-1] == ("two", "7", "slip")
    assert [(k.cause_id, k.state, k.description) for k in pairs[-1].known] == [("c1", "active", "a @0")]
    assert shown == [("b @40", ["c1"]), ("c @30", ["c2", "c1"])]
    assert nodes == [("a @0", []), ("b @40", ["a @0"])]


def test_a_sample_is_of_each_kind_and_the_same_for_the_same_seed(tmp_path: Path):
    with open_memory(tmp_path) as memory:
        two_rounds(memory)
        history = History(memory.database, "a")
        first, again = (recheck(history, Scripted(by_text), sample=2, seed=3) for _ in range(2))
        assert [r.position for r in first] == [r.position for r in again]
        assert sum(r.decision == "extract" for r in first) == 2
        with pytest.raises(NotFoundError, match="round 9"):
            recheck(history, Scripted(by_text), sample=2, round=9)


def test_an_answer_that_asking_again_has_overtaken_is_left_out(tmp_path: Path):
    with open_memory(tmp_path) as memory:
        play(memory, 1, [Question(["unresolved", "slip"])])
        maintain(memory, Scripted(by_text), Angles(), DiagnosisConfig(), MemoryConfig())
        clear = Scripted(lambda pair: Extraction("new_cause", description="a @0"))
        maintain(memory, clear, Angles(), DiagnosisConfig(), MemoryConfig(), ask_again=True)
        memory.commit()
        found = asked_again(memory, clear)
    assert [(r.subject, r.recorded) for r in found if r.decision == "extract"] == [
        ("r1.q0.a1", "slip"),
        ("r1.q0.a0", "new_cause a @0"),
    ]


def test_unreadable_against_unreadable_is_no_agreement(tmp_path: Path):
    with open_memory(tmp_path) as memory:
        play(memory, 1, [Question(["slip", "unresolved"])])
        maintain(memory, Scripted(by_text), Angles(), DiagnosisConfig(), MemoryConfig())
        memory.commit()
        found = asked_again(memory, Scripted(by_text))
    assert [(r.recorded, r.answered, r.agrees) for r in found] == [
        ("slip", "slip", True),
        ("unresolved", "unreadable", False),
    ]


def test_a_language_model_is_really_asked_and_leaves_no_trace(tmp_path: Path):
    slip = '{"matched_cause_id": null, "error_cause": null}'
    role = {"engine": "openai", "model": "m"}
    with open_memory(tmp_path) as memory, Server(lambda request, before: Answer(slip)) as server:
        role = DiagnosticianRole.model_validate({**role, "base_url": server.url})
        play(memory, 1, [Question(["x"])])
        first = OpenAIDiagnostician(role, DiagnosisConfig(), memory.artifacts)
        maintain(memory, first, Angles(), DiagnosisConfig(), MemoryConfig())
        first.close()
        memory.commit()
        again = OpenAIDiagnostician(role, DiagnosisConfig(), Unrecorded(memory.artifacts))
        found = recheck(History(memory.database, "a"), again, sample=5)
        again.close()
        assert [r.agrees for r in found] == [True]
        assert len(server.requests) == 2
        # What it cost is in the log once: the recheck is not part of the run.
        assert spent(memory.log, "a") == (1, 10)
        settings = DiagnosisConfig(max_calls=1)
        third = OpenAIDiagnostician(
            role, settings, memory.artifacts, budget=budget_of(memory.log, "a", settings)
        )
        with pytest.raises(StoppedSafely, match="budget of 1 calls"):
            third.extract(FailurePair("r2.q0.a0", "new", "1", "a", "b"))
        third.close()


class Half(Angles):
    """Another embedding model: it sees half the angle."""

    name = "half"

    def embed(self, texts):
        return super().embed([f"@{float(text.rpartition('@')[2]) / 2}" for text in texts])


def test_the_proposal_lets_95_of_100_through():
    cosines = [0.40] + [0.615 + i / 1000 for i in range(19)]
    assert proposal(cosines) == 0.61
    assert proposal([*cosines, 0.3]) == 0.4 - 0.01  # 19 of 21 would be too few; 0.40 must be above, not on it
    assert proposal([0.7]) == 0.69
    assert proposal([]) is None


def test_pairs_are_what_was_compared_and_no_more(tmp_path: Path):
    """c joins b among the candidates b and a; nobody said that a and c differ."""
    with open_memory(tmp_path) as memory:
        play(memory, 1, [Question(["a @0", "b @40", "c @30", "d @200"])])
        asked = Scripted(
            by_text,
            duplicate=lambda text, candidates: "c2" if text == "c @30" else None,
            node=lambda text, shortlist: text,
            merge=lambda a, b: "ab @20",
        )
        maintain(memory, asked, Angles(), DiagnosisConfig(), MemoryConfig())
        pairs = list(judged_pairs(memory.log, "a"))
        assert pairs == [
            ("theta_dup", Pair("b @40", "a @0", False)),
            ("theta_dup", Pair("c @30", "b @40", True)),
            ("theta_merge", Pair("a @0", "b @40", True)),
        ]
        before = len(list(memory.log.read("a")))
        dup, merge = calibrate(memory.log, "a", Half(), MemoryConfig())
        assert len(list(memory.log.read("a"))) == before
    # The other model puts the pair that was the same at 5° (cos 0.9962) and the other at 20° (0.9397).
    assert (dup.threshold, dup.model, dup.current, dup.proposed) == ("theta_dup", "half", 0.5, 0.99)
    assert (dup.same, dup.different, dup.same_kept, dup.different_kept) == (1, 1, 1.0, 0.0)
    assert dup.unrelated_kept == 0.0  # c1 and c2 at 20°, c1 and c3 at 100°, c2 and c3 at 80°
    assert not dup.enough
    assert (merge.threshold, merge.proposed, merge.different_kept) == ("theta_merge", 0.93, None)
    assert np.isclose(np.cos(np.radians(20)), 0.9397, atol=1e-4)
