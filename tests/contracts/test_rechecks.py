"""The fold makes every consequence again: one that is missing, moved or altered is refused."""

from typing import Any

import pytest
from msgspec import structs

from diagevo.errors import InconsistentError
from diagevo.memory.events.decode import Fact
from diagevo.memory.state import decide, projection
from diagevo.memory.state.fold import fold
from diagevo.memory.state.model import MemoryState
from tests.contracts.databases import Store
from tests.memory.play import first_round, opened, three_rounds


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> list[Fact]:
    with opened(tmp_path_factory.mktemp("three")) as memory:
        three_rounds(memory)
        return list(memory.log.facts("a"))


COMMITTED = {
    "failures": 9,
    "reference_round": 2,
    "reference_failures": 9,
    "epsilon_next": "1/9",
    "active": 9,
    "mastered": 9,
    "nodes": 9,
    "state_hash": "x",
    "undiagnosed": 9,
}


@pytest.mark.parametrize(
    ("type_", "round_", "change", "message"),
    [
        ("CausePromoted", 3, None, "the votes promote .'c2'., recorded are"),
        ("CauseReactivated", 2, None, "the reactivation of c1"),
        ("NodesMerged", 3, None, "a merge that was decided is missing"),
        ("NodesMerged", 3, {"label": "another"}, "its label is not the judged one"),
        ("CausePromoted", 2, {"closed_frequency": 2}, "the votes give"),
        ("CausePromoted", 2, {"consistency": "1/2"}, "the votes give"),
        ("CauseReactivated", 2, {"promotion": "x"}, "another promotion than the cause's last"),
        ("RoundOpened", 2, {"epsilon": "1/2"}, "ε is 1/2"),
        ("RoundOpened", 2, {"failures": 9}, "committed was"),
        ("RoundOpened", 2, {"reference_failures": 9}, "committed was"),
        ("RoundOpened", 2, {"k": "9"}, "committed was"),
        ("RoundOpened", 2, {"weights": []}, "its weights are not those committed"),
        ("CandidateScored", 2, {"first": 13}, "its votes give 9 and 1 of 12, recorded are 13 and 1"),
        ("CandidateScored", 2, {"responses": 0}, "12 votes of 0 responses"),
        ("CandidateScored", 2, {"votes": [("1", "9")]}, "cannot be: "),
        *(("RoundCommitted", 2, {name: value}, f"{name} is") for name, value in COMMITTED.items()),
    ],
    ids=str,
)
def test_what_does_not_follow_is_refused(
    facts: list[Fact], type_: str, round_: int, change: dict[str, Any] | None, message: str
) -> None:
    told = []
    for fact in facts:
        chosen = (fact.type, fact.round) == (type_, round_)
        if not chosen:
            told.append(fact)
        elif change is not None:
            told.append(structs.replace(fact, event=structs.replace(fact.event, **change)))
    with pytest.raises(InconsistentError, match=message):
        fold(MemoryState("a"), told)


def _first(facts: list[Fact], type_: str, round_: int) -> int:
    return next(i for i, fact in enumerate(facts) if (fact.type, fact.round) == (type_, round_))


def test_a_promotion_after_the_first_failure_of_its_round_is_refused(facts: list[Fact]) -> None:
    promoted, observed = _first(facts, "CausePromoted", 2), _first(facts, "FailureObserved", 2)
    moved = [*facts[:promoted], *facts[promoted + 1 : observed + 1], facts[promoted], *facts[observed + 1 :]]
    with pytest.raises(InconsistentError, match="promotions come before"):
        fold(MemoryState("a"), moved)


def test_a_commit_before_a_decided_reactivation_is_refused(facts: list[Fact]) -> None:
    until = _first(facts, "CauseReactivated", 2)
    state = fold(MemoryState("a"), facts[:until])
    last = facts[until]
    commit = Fact("RoundCommitted", 2, "e", last.sequence, last.position, decide.commitment(state))
    with pytest.raises(InconsistentError, match="the reactivation of c1 is missing"):
        fold(state, [commit])


def test_the_state_at_any_event_is_the_same_with_and_without_snapshots(store: Store) -> None:
    with store.open() as memory:
        three_rounds(memory)
        log = memory.log
        for sequence in range(memory.state.sequence + 1):
            assert projection.load(log, "a", sequence=sequence) == projection.load(
                log, "a", sequence=sequence, snapshots=False
            )
        for number in (1, 2, 3):
            assert projection.load(log, "a", round=number) == projection.load(
                log, "a", round=number, snapshots=False
            )


@pytest.mark.parametrize("version", [None, 99])
def test_a_snapshot_of_another_version_or_another_state_is_not_used(
    store: Store, version: int | None
) -> None:
    with store.open() as memory:
        first_round(memory, [("drops a carry", "add", 1)])
        whole = projection.load(memory.log, "a", snapshots=False)
        other = whole.copy()
        other.causes["c1"] = structs.replace(other.causes["c1"], frequency=7)
        values: dict[str, Any] = {"state": projection.to_bytes(other)}
        if version is not None:
            values["version"] = version
            values["state_hash"] = other.hash(other.reference_round, other.reference_failures)
        with memory.database.write() as connection:
            connection.execute(projection.SNAPSHOT.update().values(values))
        assert projection.load(memory.log, "a") == whole
