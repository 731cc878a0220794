"""The paper's case study (appendix "Case Study: From Failure to Curriculum"), from failure to promotion.

The diagnostician's replies are scripted behind a real HTTP service; everything between them is the real
thing. The shares are the paper's: 81/168 = 48.2%, 63/96 = 65.6%, 36/48 = 75.0%.
"""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

from diagevo.config.models import DiagnosisConfig, DiagnosticianRole, MemoryConfig
from diagevo.diagnosis.embedder import HashingEmbedder
from diagevo.diagnosis.maintain import maintain
from diagevo.diagnosis.openai_diagnostician import OpenAIDiagnostician
from diagevo.memory.events import CausePromoted, DuplicateJudged, FailureDiagnosed, NodeAssigned
from diagevo.memory.memory import Memory
from tests.diagnosis.rounds import DIMENSION, Question, memory_now, open_memory, play
from tests.diagnosis.server import Answer, Server

AM_GM = (
    "Applies AM-GM to derive a lower bound but does not check whether an allowed input satisfies the "
    "equality condition"
)
DOMAIN = (
    "Fails to check whether candidate solutions remain valid under the original domain restrictions after "
    "algebraic transformation"
)
NODE = "Checking Conditions after Algebraic Steps"
SIGNS = "Loses the negative branch when taking square roots of both sides during an algebraic step"

LOGARITHM = Question(
    ["Both roots x = 3 ± 2√3 of the quadratic are answers: \\boxed{6}"],
    text="Solve log2(x-1) + log2(x-5) = 3 over the reals and give the sum of the solutions.",
    label="3+2√3",
    reference="The quadratic gives x = 3 ± 2√3, and x > 5 leaves \\boxed{3+2√3}",
)
STITCHED = "For x > 2 let F(x) = √((x-2)/(x+1)) + √((x+1)/(x-2)). Find inf F + N."
RADICAL = "Find the sum of all real solutions of √(x+6) = x."


def behave(request: dict[str, Any], before: int) -> Answer:
    """What a good diagnostician says in this story."""
    user = request["messages"][1]["content"]
    match request["response_format"]["json_schema"]["name"]:
        case "extract":
            if "AM-GM gives 2" in user and "c1" not in user:
                found = {"matched_cause_id": None, "error_cause": AM_GM}
            elif "- c2 (Active)" in user:
                found = {"matched_cause_id": "c2", "error_cause": None}
            elif "square root" in user:
                found = {"matched_cause_id": None, "error_cause": SIGNS}
            else:
                found = {"matched_cause_id": None, "error_cause": DOMAIN}
        case "duplicate":
            found = {"duplicate": False, "matched_cause_id": None}
        case "assign" if "- n1:" in user:
            found = {"create_new_node": False, "new_node_label": None, "assigned_node": "n1"}
        case _:
            found = {"create_new_node": True, "new_node_label": NODE, "assigned_node": None}
    return Answer(json.dumps(found))


def events(memory: Memory, type_: str, number: int) -> list[Any]:
    return [r.event for r in memory.log.read("a", types=[type_], rounds=(number, number))]


def test_from_a_failure_to_the_curriculum_and_to_mastery(tmp_path: Path):
    with open_memory(tmp_path) as memory, Server(behave) as server:
        role = DiagnosticianRole(engine="openai", model="m", base_url=server.url)
        settings = DiagnosisConfig(workers=4)
        asked = OpenAIDiagnostician(role, settings, memory.artifacts)
        embedder = HashingEmbedder(DIMENSION)

        def close_round() -> None:
            maintain(memory, asked, embedder, settings, MemoryConfig())
            memory.commit()

        # Before the story: the AM-GM cause is found, and one round later mastered.
        play(memory, 1, [Question(["AM-GM gives 2, so the minimum is \\boxed{2}"])])
        close_round()
        assert memory_now(memory) == {AM_GM: ("active", 1, "n1")}
        assert memory.node("n1").label == NODE
        # Round t: failure and diagnosis.
        play(memory, 2, [LOGARITHM, Question([], cause_id="c1", first=9)])
        assert memory.state.causes["c1"].state == "mastered"
        close_round()
        assert memory_now(memory) == {AM_GM: ("mastered", 0, "n1"), DOMAIN: ("active", 1, "n1")}
        (diagnosed,) = events(memory, "FailureDiagnosed", 2)
        assert isinstance(diagnosed, FailureDiagnosed)
        assert (diagnosed.supplied, diagnosed.verdict) == ([], "new_cause")
        (judged,) = events(memory, "DuplicateJudged", 2)
        assert isinstance(judged, DuplicateJudged)
        assert not judged.duplicate
        (assigned,) = events(memory, "NodeAssigned", 2)
        assert isinstance(assigned, NodeAssigned)
        assert (assigned.node_id, [node.node_id for node in assigned.shortlist]) == ("n1", ["n1"])
        # Round t+1: with F₂ = F₁ = 1 and k = 1/2, ε₃ = 1/3; every targeted question stitches both causes.
        assert memory.state.epsilon == Fraction(1, 3)
        plan = [draw for draw in memory.schedule(3).draw(60, seed=1) if draw.mode != "free"]
        assert len(plan) > 30
        assert {(d.mode, d.cause_id, d.stitched_cause_id) for d in plan} == {("stitched", "c2", "c1")}
        assert {(d.cause, d.stitched_cause, d.node) for d in plan} == {(DOMAIN, AM_GM, NODE)}
        votes = [6] * 11 + [5] * 3
        stitched = [Question([], text=STITCHED, cause_id="c2", stitched="c1", first=v) for v in votes]
        stitched[0] = Question(
            ["t = 1 gives \\boxed{3}", "AM-GM gives 2, N = 1: \\boxed{3}"],
            text=STITCHED,
            label="2",
            reference="0 < t < 1 rules equality out: inf F = 2, N = 0, \\boxed{2}",
            cause_id="c2",
            stitched="c1",
            first=6,
        )
        play(memory, 3, stitched)
        assert events(memory, "CausePromoted", 3) == []
        close_round()
        shown = next(r for r in server.requests if STITCHED in r["messages"][1]["content"])
        assert f"- c2 (Active): {DOMAIN}\n- c1 (Mastered): {AM_GM}" in shown["messages"][1]["content"]
        assert memory_now(memory) == {AM_GM: ("mastered", 0, "n1"), DOMAIN: ("active", 3, "n1")}
        assert memory.state.epsilon == Fraction(1, 7)
        # A later round: 63 votes of 96, below 0.7 still; a response accepts 3 and -2.
        later = [Question([], cause_id="c2", first=v) for v in [8] * 7]
        later.append(
            Question(
                ["Squaring gives 3 and -2, so the sum is \\boxed{1}"],
                text=RADICAL,
                label="3",
                reference="-2 fails in √(x+6) = x, so \\boxed{3}",
                cause_id="c2",
                first=7,
            )
        )
        play(memory, 4, later)
        assert events(memory, "CausePromoted", 4) == []
        close_round()
        assert memory_now(memory)[DOMAIN] == ("active", 4, "n1")
        # And the last: 75.0% exceeds 70%.
        play(
            memory,
            5,
            [Question([], text=RADICAL, label="3", cause_id="c2", first=9)] * 4
            + [Question(["I take the square root of both sides: \\boxed{5}"])],
        )
        (promoted,) = events(memory, "CausePromoted", 5)
        assert isinstance(promoted, CausePromoted)
        assert (promoted.cause_id, promoted.questions, promoted.consistency) == ("c2", 4, "3/4")
        assert promoted.closed_frequency == 4
        close_round()
        assert memory_now(memory) == {
            AM_GM: ("mastered", 0, "n1"),
            DOMAIN: ("mastered", 0, "n1"),
            SIGNS: ("active", 1, "n1"),
        }
        # No longer targeted, still a partner.
        after = [draw for draw in memory.schedule(6).draw(60, seed=1) if draw.mode != "free"]
        assert {draw.cause_id for draw in after} == {"c3"}
        assert {draw.stitched_cause_id for draw in after} == {"c1", "c2"}
        asked.close()
