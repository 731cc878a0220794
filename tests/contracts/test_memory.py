"""The memory's promises on both databases: all or nothing, replay equals projection, stages, several runs."""

import pytest
from sqlalchemy import text

from diagevo.errors import ConflictError, NotFoundError, OutOfOrderError
from diagevo.memory.audit.verify import verify
from diagevo.memory.events import (
    Artifact,
    CauseCreated,
    CheckpointEvaluated,
    DuplicateJudged,
    Embedder,
    Event,
    NodeAssigned,
    NodeCreated,
    RunConfigured,
)
from diagevo.memory.history import History
from diagevo.memory.state import projection
from diagevo.memory.writer import Item
from tests.contracts.databases import Store
from tests.memory.play import (
    candidate,
    embed,
    failure,
    first_round,
    new_cause,
    recurrence,
    settle_duplicate,
    settle_new,
    three_rounds,
)


def test_the_state_is_the_same_from_events_snapshots_and_the_other_database(store: Store) -> None:
    with store.open() as memory:
        three_rounds(memory)
        state = memory.state
        assert projection.load(memory.log, "a", snapshots=False) == state
        assert projection.load(memory.log, "a") == state
        assert memory.as_of(2) == projection.load(memory.log, "a", round=2, snapshots=False)
        summary = [(c.cause_id, c.state, c.frequency, c.node_id) for c in state.causes.values()]
        assert summary == [("c1", "active", 1, "n1"), ("c2", "mastered", 0, "n2"), ("c3", "active", 1, "n1")]
        assert verify(memory.log, "a", memory.folder, deep=False).faults == []


def test_the_memory_as_of_any_round_is_plain_sql(store: Store) -> None:
    with store.open() as memory:
        three_rounds(memory)
        query = (
            "SELECT cause_id, state, frequency, probability_committed FROM v_cause_history"
            " WHERE round = 2 ORDER BY cause_id"
        )
        with memory.database.read() as connection:
            rows = [tuple(row) for row in connection.execute(text(query))]
            rounds = connection.execute(
                text("SELECT failures, epsilon_committed FROM v_round ORDER BY round")
            ).fetchall()
            kept = connection.execute(
                text("SELECT count(*) FROM v_candidate WHERE verdict = 'kept'")
            ).scalar_one()
            nodes = connection.execute(
                text("SELECT node_id, absorbed_by FROM v_node ORDER BY number")
            ).fetchall()
        assert rows == [("c1", "active", 1, "1/3"), ("c2", "active", 1, "1/3"), ("c3", "active", 1, "1/3")]
        assert [tuple(r) for r in rounds] == [(4, "1/3"), (3, "2/5"), (2, "1/2")]
        assert kept == 5
        assert [tuple(r) for r in nodes] == [("n1", None), ("n2", None), ("n3", "n1")]


def test_verbs_in_one_transaction_happen_all_or_not_at_all(store: Store) -> None:
    with store.open() as memory:
        first_round(memory, [("drops a carry", "add", 1)])
        memory.open_round(2)
        before, events = memory.state.copy(), memory.state.sequence

        def fail_half_way() -> None:
            with memory.atomic():
                memory.score([candidate("r2.q0", 12, cause="c1")])
                memory.start_stage("solver")
                memory.artifacts.put("a text of this transaction")
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail_half_way()
        assert memory.state == before
        assert memory.log.count("a") == events
        with memory.atomic():
            memory.score([candidate("r2.q0", 12, cause="c1")])
            memory.start_stage("solver")
        assert memory.cause("c1").state == "mastered"
        assert memory.stage("solver").status == "running"


def test_who_opened_a_run_before_another_wrote_goes_on_from_there(store: Store) -> None:
    with store.open() as early:
        with store.open() as memory:
            memory.open_round(1)
            memory.commit()
        assert early.open_round(2).round == 2


def test_who_asks_for_a_round_that_is_not_committed_is_told_which_are(store: Store) -> None:
    with store.open() as memory:
        for number, known in ((1, "no round is"), (2, "round 1 is"), (3, "rounds 1 to 2 are")):
            memory.open_round(number)
            with pytest.raises(NotFoundError) as asked:
                History(memory.database, "a", store.root).commit(number)
            assert asked.value.hint == f"{known} committed"
            memory.commit()
        assert History(memory.database, "a", store.root).commit(2).round == 2


def test_a_commit_whose_projection_fails_did_not_happen(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    with store.open() as memory:
        first_round(memory, [("drops a carry", "add", 1)])
        memory.open_round(2)
        memory.score([candidate("r2.q0", 12, cause="c1")])
        whole = projection.write

        def cut_short(connection, *rest) -> None:
            whole(connection, *rest)
            raise ZeroDivisionError

        monkeypatch.setattr(projection, "write", cut_short)
        with pytest.raises(ZeroDivisionError):
            memory.commit()
        assert memory.state.round == 1
        assert memory.state.open is not None
        with memory.database.read() as connection:
            for table in ("round_summary", "snapshot", "cause_history"):
                newest = connection.execute(text(f"SELECT max(round) FROM {table}")).scalar_one()
                assert newest == 1
        monkeypatch.undo()
        assert memory.commit().mastered == 1


def test_a_refused_verb_leaves_nothing_behind_and_the_memory_goes_on(store: Store) -> None:
    with store.open() as memory:
        memory.open_round(1)
        memory.score([candidate("r1.q0"), candidate("r1.q1", 12)])
        events = memory.log.count("a")
        with pytest.raises(OutOfOrderError, match="was not kept"):
            memory.observe([failure("r1.q0.a0"), failure("r1.q1.a0")])
        assert memory.undiagnosed() == []
        assert memory.log.count("a") == events
        memory.observe([failure("r1.q0.a0")])
        assert [f.failure_id for f in memory.undiagnosed()] == ["r1.q0.a0"]


def test_an_abandoned_attempt_voids_what_it_saw_past_its_checkpoint(store: Store) -> None:
    with store.open() as memory:
        memory.open_round(1)
        memory.score([candidate("r1.q0")])
        assert memory.start_stage("solver") == 1
        memory.observe([failure("r1.q0.a0", step=1), failure("r1.q0.a1", step=2)])
        memory.diagnosed([new_cause("r1.q0.a0", "drops a carry"), new_cause("r1.q0.a1", "swaps digits")])
    with store.open() as memory:  # as after a crash
        assert memory.stage("solver").status == "running"
        memory.abandon_stage("solver", after_step=1)
        assert memory.start_stage("solver") == 2
        with pytest.raises(OutOfOrderError, match="stays void"):
            memory.observe([failure("r1.q0.a1", step=2)])
        with pytest.raises(OutOfOrderError, match="attempt 1 of stage solver is not running"):
            memory.observe([failure("r1.q0.a2", step=3)])
        memory.observe([failure("r1.q0.a1", step=2, attempt=2), failure("r1.q0.a2", step=3, attempt=2)])
        memory.complete_stage("solver", [Artifact(path="rounds/001/solver", sha256="0" * 64)])
        memory.diagnosed([new_cause(f, "swaps digits", attempt=2) for f in ("r1.q0.a1", "r1.q0.a2")])
        assert [d.failure_id for d in memory.unsettled()] == ["r1.q0.a0", "r1.q0.a1", "r1.q0.a2"]
        settle_new(memory, "r1.q0.a0", label="add")
        settle_new(memory, "r1.q0.a1", label="copy")
        settle_duplicate(memory, "r1.q0.a2", "c2")
        assert memory.commit().failures == 3
        assert verify(memory.log, "a", memory.folder).faults == []


def test_a_second_abandonment_further_back_voids_the_earlier_attempt_too(store: Store) -> None:
    with store.open() as memory:
        memory.open_round(1)
        memory.score([candidate("r1.q0")])
        memory.start_stage("solver")
        memory.observe([failure("r1.q0.a0", step=1), failure("r1.q0.a1", step=2)])
        memory.abandon_stage("solver", after_step=1)
        memory.start_stage("solver")
        memory.abandon_stage("solver", after_step=0)
        assert memory.undiagnosed() == []


def test_opening_and_scoring_again_give_the_same(store: Store) -> None:
    with store.open() as memory:
        first_round(memory, [("drops a carry", "add", 1)])
        schedule = memory.open_round(2, seed=5)
        candidates = [candidate("r2.q0", 12, cause="c1"), candidate("r2.q1")]
        promoted = memory.score(candidates)
        assert [p.cause_id for p in promoted] == ["c1"]
        assert memory.score(candidates) == promoted
        assert memory.open_round(2) == schedule == memory.schedule(2)


def test_steps_out_of_order_are_refused(store: Store) -> None:
    with store.open() as memory:
        with pytest.raises(OutOfOrderError, match="no round is open"):
            memory.score([candidate("r1.q0")])
        with pytest.raises(OutOfOrderError, match="round 2 cannot be opened: round 1 comes next"):
            memory.open_round(2)
        memory.open_round(1)
        with pytest.raises(OutOfOrderError, match=r"round 1 has no candidate r1\.q0"):
            memory.observe([failure("r1.q0.a0")])
        memory.start_stage("challenger")
        with pytest.raises(OutOfOrderError, match="stage challenger is under way"):
            memory.start_stage("candidates")
        memory.complete_stage("challenger")
        memory.score([candidate("r1.q0")])
        memory.start_stage("solver")
        with pytest.raises(OutOfOrderError, match="stage solver is under way"):
            memory.start_stage("votes")
        with pytest.raises(OutOfOrderError, match="all candidates are scored before promotions"):
            memory.score([candidate("r1.q1")])
        memory.observe([failure("r1.q0.a0")])
        memory.diagnosed([new_cause("r1.q0.a0", "drops a carry")])
        with pytest.raises(OutOfOrderError, match="when the solver's stage is complete"):
            settle_new(memory, "r1.q0.a0", label="add")
        with pytest.raises(OutOfOrderError, match="1 diagnosed failures are not counted"):
            memory.commit()
        memory.complete_stage("solver")
        with pytest.raises(OutOfOrderError, match="began before it"):
            memory.start_stage("votes")
        with pytest.raises(OutOfOrderError, match="is complete"):
            memory.start_stage("solver")
        with pytest.raises(OutOfOrderError, match="needs a judgement"):
            memory.settle("r1.q0.a0")
        settle_new(memory, "r1.q0.a0", label="add")
        memory.commit()
        with pytest.raises(OutOfOrderError, match="round 1 cannot be opened"):
            memory.open_round(1)


def test_only_supplied_causes_recur_and_in_the_state_committed_before(store: Store) -> None:
    with store.open() as memory:
        first_round(memory, [("drops a carry", "add", 1), ("swaps digits", "add", 1)])
        memory.open_round(2)
        memory.score([candidate("r2.q0", 12, cause="c1"), candidate("r2.q1", 3, cause="c2")])
        memory.promote()
        assert memory.cause("c1").state == "mastered"
        [known] = memory.supplied("r2.q0")
        assert (known.cause_id, known.state, known.description) == ("c1", "active", "drops a carry")
        memory.observe([failure("r2.q1.a0")])
        with pytest.raises(OutOfOrderError, match="c1 was not supplied"):
            memory.diagnosed([recurrence("r2.q1.a0", "c1", memory=memory)])


def test_a_run_is_configured_once(store: Store) -> None:
    def configured(k: str) -> RunConfigured:
        embedder = Embedder(name="hashing", dimension=8, revision="1")
        return RunConfigured(config={"schedule": {"k": k}}, models={}, embedder=embedder, version="0")

    with store.open() as memory:
        memory.configure(configured("1/2"))
        memory.configure(configured("1/2"))
        with pytest.raises(ConflictError, match="configured differently"):
            memory.configure(configured("1"))


@pytest.mark.parametrize(("node", "cause", "next_"), [("n2", "c1", "n1"), ("n1", "c2", "c1")])
def test_a_cause_and_a_node_have_the_number_that_comes_next(
    store: Store, node: str, cause: str, next_: str
) -> None:
    """Events that somebody else made: the memory's own have it."""
    name = "r1.q0.a0"
    with store.open() as memory:
        memory.open_round(1)
        memory.score([candidate("r1.q0")])
        memory.observe([failure(name)])
        memory.diagnosed([new_cause(name, "drops a carry")])
        forged: list[Event] = [
            DuplicateJudged(name, [], None, duplicate=False, cause_id=None),
            NodeAssigned(name, [], node_id=None, new_label="add"),
            NodeCreated(node_id=node, label="add"),
            CauseCreated(cause_id=cause, description="drops a carry", node_id=node, failure_id=name),
        ]
        with pytest.raises(OutOfOrderError, match=f"{next_} comes next"), memory.atomic():
            memory._run.append([Item(event) for event in forged])


def test_a_further_configuration_is_recorded_once_and_another_one_after_it(store: Store) -> None:
    with store.open() as memory:
        first_round(memory, [("drops a carry", "add", 1)])
        memory.reconfigure({"seed": 1})
        memory.reconfigure({"seed": 1})
        memory.reconfigure({"seed": 2})
        memory.open_round(2)
        memory.reconfigure({"seed": 2, "diagnosis": {"workers": 3}})  # who is asked
        with pytest.raises(OutOfOrderError, match="round 2 is open"):
            memory.reconfigure({"seed": 3})
        told = [fact.event for fact in memory.log.chosen("a", [RunConfigured])]
        assert [(event.number, event.config) for event in told] == [
            (1, {}),
            (2, {"seed": 1}),
            (3, {"seed": 2}),
            (4, {"seed": 2, "diagnosis": {"workers": 3}}),
        ]
        assert memory.config == told[-1].config
    with store.log() as log:
        assert verify(log, "a", store.root / "a").faults == []


def test_a_measurement_may_come_at_any_time_and_changes_no_state(store: Store) -> None:
    def measured(value: float) -> CheckpointEvaluated:
        return CheckpointEvaluated(
            role="solver",
            checkpoint="x",
            benchmark="held-out",
            questions=9,
            conditions={},
            metrics={"greedy": value},
        )

    with store.open() as memory:
        memory.evaluated(measured(0.5), 0)
        first_round(memory, [("drops a carry", "add", 1)])
        before = memory.state.hash(1, 1)
        memory.evaluated(measured(0.6), 1)
        memory.open_round(2)
        memory.evaluated(measured(0.6), 1)
        assert memory.state.hash(1, 1) == before
        assert [(r.round, r.type) for r in memory.log.read("a", types=["CheckpointEvaluated"])] == [
            (0, "CheckpointEvaluated"),
            (1, "CheckpointEvaluated"),
        ]
        memory.score([])
        memory.commit()


def test_causes_are_found_by_meaning_and_a_new_one_at_once(store: Store) -> None:
    with store.open() as memory:
        memory.open_round(1)
        memory.score([candidate("r1.q0")])
        memory.observe([failure(f"r1.q0.a{i}") for i in range(3)])
        texts = ["drops a carry", "swaps digits", "drops the carry"]
        vectors = memory.vectors(texts, embed)
        for i, described in enumerate(texts[:2]):
            memory.diagnosed([new_cause(f"r1.q0.a{i}", described)])
            settle_new(memory, f"r1.q0.a{i}", label=f"skill {i}")
            nearest = memory.similar_causes(vectors[i])[0]
            assert (nearest.cause_id, nearest.similarity) == (f"c{i + 1}", 1.0)
        similar = memory.similar_causes(vectors[2])
        exact = sorted(
            ((round(float(vectors[i] @ vectors[2]), 6), f"c{i + 1}") for i in range(2)), key=lambda p: -p[0]
        )
        assert [(s.similarity, s.cause_id) for s in similar] == exact
        [node] = memory.similar_nodes(vectors[1], 1)
        assert (node.node_id, node.label, node.similarity, node.representative) == (
            "n2",
            "skill 1",
            1.0,
            "swaps digits",
        )
        cosine = round(float(np_cosine("skill 0", "skill 1")), 6)
        assert memory.node_pairs(cosine - 0.01, embed) == [("n1", "n2", cosine)]
        assert memory.node_pairs(cosine + 0.01, embed) == []

        def fail_after_settling() -> None:
            with memory.atomic():
                memory.diagnosed([new_cause("r1.q0.a2", texts[2])])
                settle_new(memory, "r1.q0.a2", label="gone")
                assert memory.similar_causes(vectors[2])[0].cause_id == "c3"
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail_after_settling()
        assert [s.cause_id for s in memory.similar_causes(vectors[2])] == [c for _, c in exact]


def np_cosine(a: str, b: str) -> float:
    left, right = embed([a, b])
    return float(left @ right)


def test_texts_and_replies_are_kept_once(store: Store) -> None:
    from diagevo.memory.log.artifacts import Reply

    with store.open() as memory:
        texts = ["7·6 = 42", "", "7·6 = 42", "a\ufffdb"]
        digests = memory.artifacts.put_many(texts)
        assert digests[0] == digests[2] == memory.artifacts.put("7·6 = 42")
        assert [memory.artifacts.get(d) for d in digests] == texts
        with pytest.raises(NotFoundError):
            memory.artifacts.get("0" * 64)
        assert memory.artifacts.recall_reply("m", digests[0]) is None
        memory.artifacts.remember_reply("m", digests[0], Reply("yes", 3, 1))
        memory.artifacts.remember_reply("m", digests[0], Reply("no", 3, 1))
        assert memory.artifacts.recall_reply("m", digests[0]) == Reply("yes", 3, 1)
        assert memory.artifacts.recall_reply("other", digests[0]) is None


def test_failures_are_unsettled_in_order_of_question_and_sample(store: Store) -> None:
    with store.open() as memory:
        memory.open_round(1)
        memory.score([candidate("r1.q2"), candidate("r1.q10")])
        ids = ["r1.q10.a0", "r1.q2.a7", "r1.q2.a1", "r1.q10.a2"]
        memory.observe([failure(f) for f in ids])
        memory.diagnosed([new_cause(f, "drops a carry") for f in ids])
        assert [d.failure_id for d in memory.unsettled()] == [
            "r1.q2.a1",
            "r1.q2.a7",
            "r1.q10.a0",
            "r1.q10.a2",
        ]
