"""The tables of evaluations and of the oracle, on SQLite and on PostgreSQL."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from sqlalchemy import insert
from sqlalchemy.exc import IntegrityError

from diagevo.errors import ConfigError, NotFoundError
from diagevo.evaluation.oracle import ORACLE, Oracle
from diagevo.evaluation.store import Answered, EvaluationStore
from diagevo.memory.log.database import Database
from tests.contracts.databases import Store

OF = {"benchmark": "hand", "model": "m", "questions": 2, "run": "a", "round": 3}
CONDITIONS = OF | {"samples": 2, "temperature": 1.0}
ANSWERS = [
    Answered(
        question=number,
        category=None if number else "algebra",
        kind="number",
        prompt=[{"role": "user", "content": f"Σ of {number}? — “π ≈ 3”\n"}],
        reference="1/3",
        responses=["\\boxed{1/3}", "no \\x00 box"],
        truncated=[False, True],
        extracted=["1/3", None],
        by_rule=[True, False],
    )
    for number in (1, 0)
]


@pytest.fixture
def database(store: Store) -> Iterator[Database]:
    database = Database(store.url)
    yield database
    database.close()


def begin(store: EvaluationStore, **changes: object) -> str:
    return store.begin(CONDITIONS | changes)


def test_an_evaluation_goes_on_under_its_conditions_and_ends_with_its_figures(database: Database) -> None:
    store = EvaluationStore(database)
    key = begin(store)
    assert begin(store) == key
    assert begin(store, samples=4) != key
    store.save(key, ANSWERS)
    assert store.answered(key) == {0, 1}
    assert store.results(key) == [ANSWERS[1], ANSWERS[0]], "in order of number, every character as it was"
    assert [a.question for a in store.unsettled(key)] == [0, 1]
    settled = replace(ANSWERS[1], judged=[None, True], judge="j", correct=[True, True], score=1.0)
    store.settle(key, [settled])
    assert [a.question for a in store.unsettled(key)] == [1]
    assert store.scores(key) == {0: 1.0}
    assert store.results(key)[0] == settled
    store.finish(key, {"mean": 2 / 3})
    found = store.find(key[:6])
    assert (found.metrics, found.answered, found.conditions) == ({"mean": 2 / 3}, 2, CONDITIONS)
    assert [e.answered for e in store.list("a")] == [2, 0]
    assert store.list("b") == []


def test_a_question_is_answered_once(database: Database) -> None:
    store = EvaluationStore(database)
    key = begin(store)
    store.save(key, ANSWERS[:1])
    with pytest.raises(IntegrityError):
        store.save(key, ANSWERS)
    assert store.answered(key) == {1}, "a refused batch leaves nothing"


def test_an_evaluation_that_is_not_there_is_named(database: Database) -> None:
    store = EvaluationStore(database)
    for samples in (1, 2, 3):
        begin(store, samples=samples)
    with pytest.raises(NotFoundError, match="there is no evaluation x"):
        store.find("x")
    with pytest.raises(ConfigError, match="could be e"):
        store.find("e")


def test_the_oracle_keeps_an_answer_a_question(database: Database) -> None:
    row = {"run_id": "a", "round": 2, "question_id": "r2.q0", "question": "1 + 1?", "label": "2"}
    with database.write() as connection:
        connection.execute(insert(ORACLE), [row, row | {"question_id": "r2.q1"}])
    with pytest.raises(IntegrityError), database.write() as connection:
        connection.execute(insert(ORACLE), row)
    found = Oracle(database, "a").items(2)
    assert [(item.question_id, item.label, item.answer) for item in found] == [
        ("r2.q0", "2", None),
        ("r2.q1", "2", None),
    ]
    assert Oracle(database, "a").items(1) == []
