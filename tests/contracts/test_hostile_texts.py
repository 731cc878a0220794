"""A round is committed whatever a model wrote, on both databases, and replays to the same state."""

from collections.abc import Callable
from hashlib import sha256
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import delete

from diagevo.errors import ConfigError, DamagedError, NotFoundError
from diagevo.evaluation.store import Answered, EvaluationStore
from diagevo.memory.audit.verify import verify
from diagevo.memory.events import NodeCreated, RunConfigured
from diagevo.memory.events.records import pending
from diagevo.memory.log.artifacts import ARTIFACT, Reply, upsert_text
from diagevo.memory.log.database import Database
from diagevo.memory.memory import Memory
from diagevo.memory.read.views import ABOUT
from diagevo.memory.state import projection
from tests.contracts.databases import Store
from tests.memory.audit.played import Player

EVERY_KIND = "\0 \x01 \x07 \x1b[31m \r\n \x7f \x9b \u202e \u200b \ufeff \ufffe \uffff \ud800 \udfff '%s{0}"
KEPT = EVERY_KIND.replace("\0", "\ufffd").replace("\ud800", "\ufffd").replace("\udfff", "\ufffd")
"""NUL and halves of surrogate pairs are replaced, nothing else."""


def play(store: Store) -> None:
    """A round in which every text that a model may write holds every kind of character."""
    with store.open() as memory:
        p = Player(memory)
        p.configure()
        p.open(1)
        asked = p.text(f"What is it?{EVERY_KIND}")
        p.score(replace(p.question(0, [(f"4{EVERY_KIND}", 8), ("5", 4)], "kept"), question=asked))
        for failure in ("r1.q0.a0", "r1.q0.a1"):
            p.fail(failure)
        p.diagnose("r1.q0.a0", "new_cause", description=f"forgets{EVERY_KIND}")
        p.diagnose("r1.q0.a1", "new_cause", description=f"turns{EVERY_KIND}")
        p.trained()
        p.settle_new("r1.q0.a0", label=f"signs{EVERY_KIND}")
        p.settle_new("r1.q0.a1", nearest=("c1", 0.1), label=f"sums{EVERY_KIND}", shortlist=[("n1", 0.1)])
        p.merge("n1", "n2", 0.9, f"both{EVERY_KIND}")
        p.commit()


def test_a_round_is_committed_whatever_its_texts_hold_and_verify_finds_no_fault(store: Store) -> None:
    play(store)
    with store.open() as memory:
        assert verify(memory.log, "a", memory.folder, deep=True).faults == []
        with memory.database.read() as connection:
            labels = connection.exec_driver_sql("SELECT label FROM v_candidate").scalars().all()
            causes = connection.exec_driver_sql(
                "SELECT description, node FROM v_cause ORDER BY number"
            ).fetchall()
        with memory.database.read() as connection:
            shown = {view: connection.exec_driver_sql(f"SELECT * FROM {view}").fetchall() for view in ABOUT}
    assert f"What is it?{KEPT}" in {value for row in shown["v_question"] for value in row}
    assert labels == [f"4{KEPT}"]
    assert [tuple(row) for row in causes] == [
        (f"forgets{KEPT}", f"both{KEPT}"),
        (f"turns{KEPT}", f"both{KEPT}"),
    ]


def test_the_state_inside_a_round_is_the_one_that_the_log_gives(store: Store) -> None:
    with store.open() as memory:
        p = Player(memory)
        p.configure()
        p.open(1)
        p.score(p.question(0, [("1", 8), ("2\0", 4)], "kept"))
        p.fail("r1.q0.a0")
        p.diagnose("r1.q0.a0", "new_cause", description="late\0\ud800")
        p.trained()
        p.settle_new("r1.q0.a0", label="l\0")
        assert memory.state.causes["c1"].description == "late\ufffd\ufffd"
        assert memory.state.nodes["n1"].label == "l\ufffd"
        again = projection.load(memory.log, "a", snapshots=False)
        assert (again.causes, again.nodes) == (memory.state.causes, memory.state.nodes)


def test_the_same_facts_again_are_the_same_events(store: Store) -> None:
    with store.open() as memory:
        p = Player(memory)
        p.configure()
        p.configure()
        p.open(1)
        question = p.question(0, [("4\0", 8), ("5", 4)], "kept")
        memory.score([question])
        before = memory.state.sequence
        memory.score([question])
        assert memory.state.sequence == before


def test_the_log_itself_refuses_what_a_database_does_not_keep() -> None:
    for text in ("a\0b", "a\ud800b"):
        with pytest.raises(ConfigError, match="NodeCreated has a NUL or half a surrogate pair in a text"):
            pending("a", 1, NodeCreated(node_id="n1", label=text))
    assert pending("a", 1, NodeCreated(node_id="n1", label="a\\u0000b")).payload == (
        '{"label":"a\\\\u0000b","node_id":"n1"}'
    )


def test_a_text_behind_a_digest_is_exact_but_for_what_a_view_cannot_show(store: Store) -> None:
    with store.open() as memory:
        digest = memory.artifacts.put(EVERY_KIND)
        assert memory.artifacts.get(digest) == KEPT
        memory.artifacts.remember_reply("m", "r", Reply("a\ud800", 1, 1))
        found = memory.artifacts.recall_reply("m", "r")
        assert found == Reply("a\ufffd", 1, 1)


def test_a_name_that_no_column_can_hold_is_in_no_row(store: Store) -> None:
    with store.open() as memory:
        kept, known = memory.artifacts, memory.artifacts.put("known")
        for name in ("a\0b", "a\ud800"):
            assert kept.unstored([known, name]) == [name]
            assert kept.kept([known, name]) == {known: "known"}
            with pytest.raises(NotFoundError, match="no text with digest"):
                kept.get(name)
        kept.remember_reply("m\0", "r", Reply("first", 1, 1))
        kept.remember_reply("m\0", "r", Reply("second", 1, 1), instead=True)
        assert kept.recall_reply("m\0", "r") == Reply("second", 1, 1)


def test_bytes_that_no_writer_stores_are_no_text_whatever_their_digest(store: Store) -> None:
    """A bundle or a hand may bring them: read, they would have another digest than they stand under."""
    with store.open() as memory:
        p = Player(memory)
        p.configure()
        p.open(1)
        for content in (b"2 +\0 2", b"\xff"):
            digest = sha256(content).hexdigest()
            with memory.database.write() as connection:
                connection.execute(upsert_text(memory.database), {"digest": digest, "content": content})
            with pytest.raises(DamagedError, match=digest):
                memory.artifacts.get(digest)
            [fault] = verify(memory.log, "a", memory.folder, deep=True).faults
            assert (fault.check, digest[:12] in fault.message) == ("text", True)
            with memory.database.write() as connection:
                connection.execute(delete(ARTIFACT).where(ARTIFACT.c.digest == digest))


def test_a_configuration_with_a_nul_is_recorded_on_both_databases(store: Store) -> None:
    with store.open() as memory:
        p = Player(memory)
        p.configure({"world": "a\0b"})
        [event] = [r.event for r in memory.log.read("a")]
        assert isinstance(event, RunConfigured)
        assert event.config == {"world": "a\ufffdb"}


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b"], ids=["NUL", "half a pair"])
def test_a_verb_returns_what_the_log_has_of_a_text_or_refuses_it(store: Store, text: str) -> None:
    play(store)
    lines: dict[str, Callable[[Memory], Any]] = {
        "rename": lambda memory: memory.rename("c1", text),
        "dismiss, why": lambda memory: memory.dismiss("c1", text, "me"),
        "dismiss, by": lambda memory: memory.dismiss("c1", "why", text),
        "add_cause": lambda memory: memory.add_cause(text, "r1.q0.a0", "me"),
        "assign": lambda memory: memory.assign(["r1.q0.a0"], "c2", "me", text),
    }
    with store.open() as memory:
        before = memory.state.sequence
        for verb, call in lines.items():
            with pytest.raises(ConfigError, match="must be one line of text"):
                call(memory)
            assert memory.state.sequence == before, verb
        event = memory.supersede(1, text)
        assert event.reason == "a\ufffdb"
        [kept] = [record.event for record in memory.log.read("a", types=["RoundsSuperseded"])]
        assert kept == event


def test_an_answer_of_a_benchmark_is_kept_on_both_databases(store: Store) -> None:
    database = Database(store.url)
    try:
        evaluations = EvaluationStore(database)
        of = {"benchmark": "b", "model": EVERY_KIND, "questions": 1, "run": None, "round": None}
        key = evaluations.begin(of | {"data": "a\ud800"})
        given = Answered(
            0,
            EVERY_KIND,
            "answer",
            [{"role": "user", "content": EVERY_KIND}],
            EVERY_KIND,
            [EVERY_KIND],
            [False],
            [EVERY_KIND],
            [False],
        )
        evaluations.save(key, [given])
        [found] = evaluations.results(key)
        [measured] = evaluations.list()
    finally:
        database.close()
    assert (found.category, found.reference, measured.model) == (KEPT, KEPT, KEPT)
    exact_nul = KEPT.replace("\ufffd", "\0", 1)
    assert (found.responses, found.extracted) == ([exact_nul], [exact_nul])
