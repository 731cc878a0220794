"""A trainer says ids of its own, whatever they are: every verb, reader, page and copy knows them."""

import json
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest
from msgspec import structs
from starlette.testclient import TestClient

import diagevo
from diagevo.errors import AmbiguousError, ConfigError, ConflictError, NotFoundError, OutOfOrderError
from diagevo.memory.audit.verify import verify
from diagevo.memory.history import History
from diagevo.memory.log.database import Database
from diagevo.memory.memory import Memory
from diagevo.memory.stories.references import resolve
from diagevo.memory.transfer.bundle import export_bundle, import_bundle
from diagevo.memory.transfer.fork import fork
from diagevo.memory.transfer.training_data import TrainingData
from diagevo.view.server import application
from tests.cli.program import invoke
from tests.contracts.databases import SQLiteStores, Store
from tests.memory.play import candidate, failure, migrated, new_cause, other, settle_new
from tests.memory.play import text as put

QUESTIONS = ["gsm8k/17", "c1", "n1", "问题 №7 – é", "a b?c#d%e&f", "../../etc", "r1.q0.x", "-x", "q" * 500]


def play(memory: Memory) -> None:
    """A round of questions and failures of one's own, each failure called as its question. The first attempt
    at the training is lost."""
    number = memory.state.round + 1
    memory.open_round(number)
    asked = [candidate(f"r{number}.q0", question=put(f"{own} of round {number}")) for own in QUESTIONS]
    memory.score([structs.replace(one, question_id=own) for one, own in zip(asked, QUESTIONS, strict=True)])
    memory.start_stage("solver")
    for attempt in (1, 2):
        memory.observe([failure(own, question_id=own, attempt=attempt) for own in reversed(QUESTIONS)])
        if attempt == 1:
            memory.abandon_stage("solver", after_step=0)
            memory.start_stage("solver")
    memory.complete_stage("solver")
    assert [memory.own_id(one.failure_id) for one in memory.undiagnosed()] == QUESTIONS
    for own in QUESTIONS:
        said = new_cause(own, f"errs at {own}") if number == 1 and own != "c1" else other(own, "slip")
        memory.diagnosed([structs.replace(said, attempt=2)])
        assert memory.times_asked(own) == 1
        assert memory.supplied(own) == ()
        if number == 1 and own != "c1":
            settle_new(memory, own, label=f"the skill of {own}")
    memory.commit()


def test_every_verb_and_reader_takes_ids_of_ones_own(store: Store, tmp_path: Path) -> None:
    with store.open() as memory:
        play(memory)
        for number, own in enumerate(QUESTIONS):
            assert memory.question(own).question_id == f"r1.q{number}"
            cause = None if own == "c1" else f"c{number + 1 - (number > 1)}"
            assert memory.causes_of([own]) == memory.diagnosed_as([own]) == {own: cause}
        memory.assign(["gsm8k/17"], "c2", "ada")
        assert memory.causes_of(["gsm8k/17", "r1.q0.a0"]) == {"gsm8k/17": "c2", "r1.q0.a0": "c2"}
        memory.unassign(["gsm8k/17"], "ada")
        assert memory.add_cause("reads half of it", "../../etc", "ada").failure_id == "r1.q5.a0"
        play(memory)
        assert memory.question("gsm8k/17").question_id == "r2.q0"  # of several rounds the last
        frames = diagevo.RunFrames(memory)
        assert frames.candidates(round=1)["own_id"].to_list() == QUESTIONS
        assert sorted(frames.failures()["own_id"].to_list()) == sorted(2 * QUESTIONS)
        assert verify(memory.log, "a", memory.folder, deep=True).faults == []
        head = memory.log.head("a").hash
        history = History(memory.database, "a", store.root)
        rows = list(TrainingData(history, "dpo").rows())
        assert [row["own_failure_id"] for row in rows] == [row["own_question_id"] for row in rows]
        assert export_bundle(history, history.end, tmp_path / "bundle").head == head
        fork(history, 1, "forked", root=store.root)
    with closing(Database(migrated(f"sqlite:///{tmp_path / 'other.db'}"))) as other_:
        assert import_bundle(tmp_path / "bundle", other_, root=tmp_path).hash == head
        copied = History(other_, "a", tmp_path)
        for number, own in enumerate(QUESTIONS):
            assert resolve(copied, own, copied.end, "question").id == f"r2.q{number}"
            assert resolve(copied, own, copied.end, "failure").id == f"r2.q{number}.a0"
    with store.open("forked") as memory:
        assert memory.question("gsm8k/17").question_id == "r1.q0"


def test_a_program_and_a_page_find_what_is_named_so(sqlite_stores: SQLiteStores, tmp_path: Path) -> None:
    store = sqlite_stores.new(tmp_path)
    with store.open() as memory:
        play(memory)

    def told(*words: str) -> dict:
        done = invoke("memory", "why", *words, "--json", "--run", "a", "--db", store.url)
        assert done.exit_code == 0
        return json.loads(done.stdout)["data"]

    story = told("r1.q0.a0")
    assert (story["failure_id"], story["own_id"]) == ("r1.q0.a0", "gsm8k/17")
    assert told("c1")["cause_id"] == "c1"  # ours come first
    with store.open() as memory, closing(Database(store.url)) as database:
        history = History(memory.database, "a", store.root)
        with pytest.raises(AmbiguousError, match="the id of a question and of a failure"):
            resolve(history, "gsm8k/17", history.end)
        client = TestClient(application(database, host="127.0.0.1", token="t"), base_url="http://127.0.0.1")
        assert client.get("/?token=t").status_code == 200
        for number, own in enumerate(QUESTIONS):
            for folder, ours in (("questions", f"r1.q{number}"), ("failures", f"r1.q{number}.a0")):
                answer = client.get(f"/a/{folder}/{quote(own, safe='')}")
                assert (answer.status_code, answer.url.path) == (200, f"/a/{folder}/{ours}.html")
        assert client.get("/a/questions/nobody").status_code == 404


@pytest.mark.parametrize(
    ("own", "why"),
    [
        ("", "is blank"),
        (" \n", "is blank"),
        ("q" * 501, "is too long: 500 characters at most"),
        ("r2.q0", "would be another question's or failure's here"),
        (" R1.Q0", "would be another question's or failure's here"),
        ("r1.q007", "would be another question's or failure's here"),
        ("r1.q0.a0", "would be another question's or failure's here"),
    ],
)
def test_what_cannot_be_an_id_is_refused(
    own: str, why: str, sqlite_stores: SQLiteStores, tmp_path: Path
) -> None:
    with sqlite_stores.new(tmp_path).open() as memory:
        memory.open_round(1)
        before = memory.log.head("a")
        with pytest.raises(ConfigError, match=why):
            memory.score([structs.replace(candidate("r1.q0"), question_id=own)])
        assert memory.log.head("a") == before


def test_an_id_names_one_thing_in_a_round(sqlite_stores: SQLiteStores, tmp_path: Path) -> None:
    with sqlite_stores.new(tmp_path).open() as memory:
        memory.open_round(1)
        one, another = (structs.replace(candidate(f"r1.q{n}"), question_id=f"q{n}") for n in (0, 1))
        memory.score([one])
        memory.score([one, another])  # the same again is fine
        with pytest.raises(ConflictError):
            memory.score([structs.replace(another, question_id="q0")])
        memory.observe([failure("mine", question_id="q0")])
        memory.observe([failure("mine", question_id="q0")])
        with pytest.raises(ConfigError, match="mine is the id of a failure on another question"):
            memory.observe([failure("mine", question_id="q1")])
        with pytest.raises(OutOfOrderError, match="round 1 has no candidate q2"):
            memory.observe([failure("yours", question_id="q2")])
        with pytest.raises(NotFoundError, match="not the id of a question"):
            memory.question("nobody")
        assert [record.type for record in memory.log.read("a")].count("IdGiven") == 3


def test_numbers_go_round_those_that_were_given(sqlite_stores: SQLiteStores, tmp_path: Path) -> None:
    with sqlite_stores.new(tmp_path).open() as memory:
        memory.open_round(1)
        memory.score([candidate("r1.q1")])
        memory.score([structs.replace(candidate("r1.q0"), question_id="mine")])
        assert memory.question("mine").question_id == "r1.q2"
        memory.observe(
            [failure("r1.q2.a0"), failure("x", question_id="mine"), failure("y", question_id="mine")]
        )
        assert [one.failure_id for one in memory.undiagnosed()] == ["r1.q2.a0", "r1.q2.a1", "r1.q2.a2"]
