"""What was diagnosed can be superseded: the memory goes back, numbers and the log go on."""

from contextlib import closing
from fractions import Fraction
from pathlib import Path

import pytest
from msgspec.structs import replace

from diagevo.errors import ConfigError, NotFoundError, OutOfOrderError
from diagevo.ingest.recording import Recorder
from diagevo.ingest.rounds import Rounds
from diagevo.memory.audit.verify import verify
from diagevo.memory.events import (
    CandidateScored,
    Cause,
    CauseCreated,
    Embedder,
    FailedRollout,
    FailureObserved,
    GroupDraw,
    GroupIngested,
    Model,
    NodePairJudged,
    RoundsSuperseded,
    RunConfigured,
)
from diagevo.memory.history import History, point_of
from diagevo.memory.memory import Memory
from diagevo.memory.state import decide, projection
from diagevo.memory.state.model import batch_of, played_again
from diagevo.memory.stories.references import nodes
from diagevo.memory.transfer.rebuilding import rebuild_projections
from diagevo.memory.writer import Item
from tests.ingest.conftest import SETTINGS, configured, step
from tests.ingest.test_recording import diagnose, record, told
from tests.memory.audit.played import Player
from tests.memory.play import opened

RIGHT = {"a": "sign", "b": "carry", "c": "units", "d": "rounds too early"}
ALL_RIGHT = [("sign", "mastered", 0), ("carry", "active", 1), ("rounds too early", "active", 1)]
WRONG = {prompt: f"slip of {prompt}" for prompt in RIGHT}


def three_rounds(memory: Memory, said: dict[str, str] = WRONG) -> None:
    """Round 1: a fails twice. Round 2: a passes 4 of 4, which promotes its cause; b fails once. Round 3: d
    fails once."""
    record(memory, step(1, a="++--"), step(2, c="++++"), step(3, a="++++"), step(4, b="+-"))
    record(memory, step(5, d="+-"))
    diagnose(memory, said)


def stands(memory: Memory) -> list[tuple[str, str, int]]:
    return [(c.description, c.state, c.frequency) for c in memory.state.causes.values()]


def well(memory: Memory) -> list[str]:
    report = verify(memory.log, memory.run_id, memory.folder, deep=True)
    again = projection.load(memory.log, memory.run_id, snapshots=False)
    assert projection.to_bytes(again) == projection.to_bytes(memory.state)
    return [fault.message for fault in report.faults]


def test_batches_and_rounds_by_hand() -> None:
    """Rounds 2, 3 superseded at 3, so 4, 5 play batches 2, 3; then 4, 5, so 6, 7 play them; then all of 1 to
    7, so that 8, 9, 10 play batches 1, 2, 3."""
    spans = [(2, 3), (4, 5), (1, 7)]
    assert [batch_of(spans, n) for n in range(1, 11)] == [1, 2, 3, 2, 3, 2, 3, 1, 2, 3]
    assert played_again(spans) == {2: 4, 3: 5, 4: 6, 5: 7, 1: 8, 6: 9, 7: 10}
    assert played_again([(2, 3), (5, 5)]) == {2: 4, 3: 5, 5: 6}
    assert batch_of([(2, 3), (5, 5)], 6) == 3


def test_a_run_diagnosed_again_ends_as_one_that_was_diagnosed_rightly_at_first(
    memory: Memory, tmp_path_factory: pytest.TempPathFactory
) -> None:
    three_rounds(memory)
    before = memory.log.head(memory.run_id)
    Rounds(memory).supersede(1, "the wrong diagnostician")
    assert (memory.state.causes, memory.state.nodes, memory.state.round) == ({}, {}, 3)
    assert (memory.state.epsilon, memory.state.failures, memory.state.reference_round) == (
        Fraction(1),
        0,
        None,
    )
    diagnose(memory, RIGHT)
    assert memory.log.head(memory.run_id).sequence > before.sequence
    with configured(tmp_path_factory.mktemp("other")) as other:
        three_rounds(other, RIGHT)
        assert stands(memory) == stands(other)
        assert stands(other) == ALL_RIGHT
        assert memory.state.epsilon == other.state.epsilon
    assert [c.cause_id for c in memory.state.causes.values()] == ["c4", "c5", "c6"]
    assert [c.created_round for c in memory.state.causes.values()] == [4, 5, 6]
    ids = [e.question_id for e in told(memory, CandidateScored)]
    assert len(set(ids)) == len(ids) == 10
    assert well(memory) == []


def test_votes_on_a_prompt_that_was_ingested_explain_none_of_its_rollouts(memory: Memory) -> None:
    """Counted as they come, or all again once a later round is superseded."""

    def explained() -> dict[str, int]:
        with memory.database.read() as connection:
            asked = "SELECT content, explained FROM ingested_prompt JOIN artifact ON digest = question"
            return {content.decode(): number for content, number in connection.exec_driver_sql(asked)}

    three_rounds(memory)
    assert explained() == {"a": 2, "b": 1, "c": 0, "d": 1}
    player = Player(memory)
    player.open(4)
    voted = player.question(0, [("1", 3), ("2", 1)], "kept")
    player.score(replace(voted, question=memory.artifacts.put("a")))
    player.fail("r4.q0.a0")
    player.trained()
    player.diagnose("r4.q0.a0", "new_cause", description="another slip")
    player.settle_new("r4.q0.a0", node="n1")
    player.commit()
    assert explained() == {"a": 2, "b": 1, "c": 0, "d": 1}
    record(memory, step(6, e="+-"))
    diagnose(memory, RIGHT | {"e": "sign"})
    Rounds(memory).supersede(5, "asked the wrong model")
    assert explained() == {"a": 2, "b": 1, "c": 0, "d": 1, "e": 0}
    assert well(memory) == []


def test_a_later_round_superseded_restores_what_the_one_before_committed(memory: Memory) -> None:
    three_rounds(memory)
    was = memory.as_of(2)
    Rounds(memory).supersede(3, "asked the wrong model")
    now = memory.state
    assert stands(memory) == [("slip of a", "mastered", 0), ("slip of b", "active", 1)]
    assert (now.causes, now.nodes, now.epsilon) == (was.causes, was.nodes, was.epsilon)
    assert (now.failures, now.reference_round, now.reference_failures) == (1, 1, 2)
    assert well(memory) == []
    diagnose(memory, RIGHT)
    assert stands(memory)[2:] == [("rounds too early", "active", 1)]
    assert memory.state.round == 4
    Rounds(memory).supersede(4, "and again")
    assert (memory.state.causes, memory.state.round) == (was.causes, 4)
    with pytest.raises(NotFoundError, match=r"round 3 of run a is superseded by round 4") as refused:
        Rounds(memory).supersede(3, "twice")
    assert refused.value.hint == "rounds that count: 1, 2"
    Rounds(memory).supersede(1, "from the start")
    assert memory.state.causes == {}
    diagnose(memory, RIGHT)
    assert [r.round for r in memory.log.read(memory.run_id, types=["RoundCommitted"])] == [
        1,
        2,
        3,
        4,
        5,
        6,
        7,
    ]
    assert memory.state.superseded == ((3, 3), (4, 4), (1, 4))
    assert stands(memory) == ALL_RIGHT
    assert well(memory) == []


def test_an_open_round_is_dropped_with_its_diagnoses(memory: Memory) -> None:
    three_rounds(memory)
    record(memory, step(6, b="+--"), step(7, c="+-"))
    assert Rounds(memory).open_next() == 4
    Rounds(memory).supersede(3, "while round 4 is open")
    assert (memory.state.open, memory.state.round) == (None, 4)
    with pytest.raises(NotFoundError, match=r"round 4 of run a was never committed"):
        memory.as_of(4)
    diagnose(memory, RIGHT)
    assert [r.round for r in memory.log.read(memory.run_id, types=["RoundCommitted"])] == [1, 2, 3, 5, 6]
    assert stands(memory)[2:] == [
        ("rounds too early", "active", 1),
        ("carry", "active", 2),
        ("units", "active", 1),
    ]
    assert well(memory) == []


def test_new_steps_wait_behind_what_is_played_again(memory: Memory) -> None:
    three_rounds(memory)
    Rounds(memory).supersede(2, "wrong")
    record(memory, step(6, b="+-"), step(7, c="+-"))
    batches = Recorder(memory, SETTINGS).batches
    assert batches == {1: 1, 2: 1, 3: 2, 4: 2, 5: 3, 6: 3, 7: 4}
    diagnose(memory, RIGHT)
    failed = [event.failure_id for event in told(memory, FailureObserved)]
    assert failed[-4:] == ["r4.q1.a1", "r5.q0.a1", "r5.q1.a1", "r6.q0.a1"]
    assert Recorder(memory, SETTINGS).batches == batches


def test_an_aim_is_not_taken_from_a_superseded_round(memory: Memory) -> None:
    """a failed in round 1 and comes back in round 2: aimed at c1 there, at what round 4 makes of it when both
    are diagnosed again."""
    three_rounds(memory)
    rounds = Rounds(memory)
    rounds.supersede(1, "wrong")
    diagnose(memory, RIGHT)
    aims = {e.question_id: e.cause_id for e in told(memory, CandidateScored)}
    assert (aims["r2.q0"], aims["r5.q0"]) == ("c1", "c4")


@pytest.mark.parametrize(
    "change",
    [
        {"failures": 7},
        {"epsilon": "1/7"},
        {"reference_round": 3},
        {"reference_failures": 9},
        {"absorbed": {"n9": ("n1", "x")}},
        {"refused": {"n1.n2": "0"}},
        {"causes": []},
        {"nodes": []},
        {"first": 1},
        {"last": 2},
    ],
    ids=str,
)
def test_a_superseding_that_restores_anything_else_is_refused(memory: Memory, change: dict) -> None:
    three_rounds(memory)
    event = decide.superseding(*memory._before(2), 2, 3, "forged")
    forged = replace(event, **change)
    with pytest.raises(OutOfOrderError, match=r"RoundsSuperseded .* refused"), memory.atomic():
        memory._run.append([Item(forged, round=forged.last)])
    assert stands(memory)[0] == ("slip of a", "mastered", 0)
    with memory.atomic():
        memory._run.append([Item(event, round=3)])


@pytest.mark.parametrize("field", Cause.__struct_fields__)
def test_no_field_of_a_restored_cause_can_be_another(memory: Memory, field: str) -> None:
    three_rounds(memory)
    event = decide.superseding(*memory._before(3), 3, 3, "forged")
    others = {"state": "active", "frequency": 3, "created_round": 2, "promotion": None, "cause_id": "c7"}
    cause = replace(event.causes[0], **{field: others.get(field, "another")})
    forged = replace(event, causes=[cause, *event.causes[1:]])
    with pytest.raises(OutOfOrderError, match="does not restore"), memory.atomic():
        memory._run.append([Item(forged, round=3)])


def test_a_run_that_train_plays_is_refused(memory: Memory, tmp_path: Path) -> None:
    three_rounds(memory)
    with opened(tmp_path, run="trained") as trained:
        trained.configure(
            RunConfigured(
                config={"seed": 0},
                models={"challenger": Model(name="m", revision="1")},
                embedder=Embedder(name="hashing", dimension=64, revision="words-bigrams-1"),
                version="test",
            )
        )
        with pytest.raises(ConfigError, match="was not ingested") as refused:
            Rounds(trained).supersede(2, "wrong")
    assert "diagevo runs fork trained@1" in (refused.value.hint or "")


def test_the_event_says_why_and_projections_are_made_again_from_it(memory: Memory) -> None:
    three_rounds(memory)
    Rounds(memory).supersede(2, "the server answered nonsense")
    [event] = told(memory, RoundsSuperseded)
    assert (event.first, event.last, event.reason) == (2, 3, "the server answered nonsense")
    assert [c.cause_id for c in event.causes] == ["c1"]
    with closing(History(memory.log.database, memory.run_id)) as history:
        rebuild_projections(history)
        assert [c.round for c in history.commits] == [1]
        assert [c.round for c in history.every_commit] == [1, 2, 3]
        assert history.superseded() == {2: 4, 3: 5}
        assert history.settled.round == 3
    assert well(memory) == []
    assert [e.cause_id for e in told(memory, CauseCreated)] == ["c1", "c2", "c3"]


def test_what_the_memory_drew_a_prompt_for_stays_its_aim_where_the_cause_is_still_there(
    memory: Memory,
) -> None:
    """Round 2: one prompt drawn by its schedule for c1 of round 1, one drawn freely. Played again as round 3,
    the first still aims at c1 and says that its draw is round 2's."""
    record(memory, step(1, a="++--"))
    diagnose(memory, RIGHT)
    events = [
        GroupIngested(
            step=2,
            group=place,
            question=memory.artifacts.put(prompt),
            answer="7",
            rewards=[1.0, 0.0],
            passes=1,
            reference=memory.artifacts.put(f"{prompt} passes"),
            failed=[FailedRollout(sample=1, trajectory=memory.artifacts.put(f"{prompt} fails"))],
            source="TRL",
            draw=GroupDraw(round=2, cause_id=cause, stitched_cause_id=None),
            passed=[memory.artifacts.put(f"{prompt} passes")],
        )
        for place, (prompt, cause) in enumerate([("new a", "c1"), ("new b", None)])
    ]
    memory.ingested(events, 2)
    rounds = Rounds(memory)
    assert rounds.open_next() == 2
    rounds.supersede(2, "wrong")
    assert rounds.open_next() == 3
    scored = {e.question_id: (e.mode, e.cause_id, e.drawn_round) for e in told(memory, CandidateScored)}
    assert (scored["r2.q0"], scored["r3.q0"]) == (("targeted", "c1", None), ("targeted", "c1", 2))
    assert scored["r3.q1"] == ("free", None, 2)


def test_who_is_asked_may_change_while_a_round_is_open_and_what_it_is_played_with_may_not(
    memory: Memory,
) -> None:
    record(memory, step(1, a="++--"))
    assert Rounds(memory).open_next() == 1
    config = dict(memory.state.config or {})
    memory.reconfigure({**config, "roles": {"diagnostician": {"engine": "openai", "model": "m"}}})
    assert (memory.state.config or {})["roles"]["diagnostician"]["model"] == "m"
    before = memory.state.sequence
    with pytest.raises(OutOfOrderError, match="round 1 is open"):
        memory.reconfigure({**config, "memory": {"theta_up": "1/2"}})
    assert memory.state.sequence == before
    assert well(memory) == []


def test_what_failed_in_a_superseded_round_aims_at_nothing_though_its_cause_is_still_there(
    memory: Memory,
) -> None:
    """Round 1: a fails by c1. Round 2: b fails, put down to c1 too. Superseded while round 3 is open, round 2
    is played again as round 4: b never failed before it."""
    record(memory, step(1, a="+-"), step(2, c="++"), step(3, b="+-"), step(4, c="++"), step(5, d="+-"))
    diagnose(memory, {"a": "sign", "b": "sign", "d": "sign"})
    record(memory, step(6, b="+-"), step(7, c="++"))
    rounds = Rounds(memory)
    assert rounds.open_next() == 4
    aims = {e.question_id: e.cause_id for e in told(memory, CandidateScored)}
    assert aims["r4.q0"] == "c1"
    for played in (5, 6):
        rounds.supersede(2 if played == 5 else 5, "wrong")
        assert (rounds if played == 5 else Rounds(memory)).open_next() == played
        aims = {e.question_id: e.cause_id for e in told(memory, CandidateScored)}
        assert aims[f"r{played}.q0"] is None


def test_nodes_that_a_superseded_round_merged_are_two_again(memory: Memory) -> None:
    """n1 and n2 of round 1 become one in round 2, which is superseded."""
    record(memory, step(1, a="+-", b="+-"), step(2, c="++"), step(3, d="+-"))
    diagnose(memory, {"a": "sign", "b": "carry", "d": "units"})
    record(memory, step(4, c="++"), step(5, c="++"))
    before = dict(memory.state.nodes)
    assert list(before) == ["n1", "n2", "n3"]
    Rounds(memory).open_next()
    memory.judge_nodes(NodePairJudged(nodes=("n1", "n2"), similarity=0.9, merge=True, label="both"))
    memory.commit()
    assert memory.state.absorbed == {"n2": ("n1", before["n2"].label)}
    Rounds(memory).supersede(3, "not one skill")
    assert (memory.state.nodes, memory.state.absorbed) == (before, {})
    with closing(History(memory.log.database, memory.run_id)) as history:
        now, then = (nodes(history, at) for at in (history.end, point_of(history.commit(3))))
        assert (now.labels["n1"], now.merges) == (before["n1"].label, [])
        assert (then.labels["n1"], len(then.merges)) == ("both", 1)
    assert well(memory) == []
