"""The chain's heads outside the database: of commits, stages and a writer's end, on the disk, whatever
crashed before."""

import os
from pathlib import Path

import pytest

from diagevo.errors import OutOfOrderError, StoreError
from diagevo.memory.audit.verification import Verification
from diagevo.memory.audit.verify import verify
from diagevo.memory.events import CheckpointEvaluated
from diagevo.memory.log import heads
from diagevo.memory.log.artifacts import digest_of
from diagevo.memory.log.heads import ChainHead
from diagevo.memory.memory import Memory
from tests.contracts.databases import Store
from tests.memory.play import candidate, failure, first_round

MEASURED = CheckpointEvaluated(
    role="solver", checkpoint="x", benchmark="b", questions=1, conditions={}, metrics={}
)


@pytest.mark.parametrize("cut", [b'{"round": 2, "sequ', b"\xff\xfe", b'{"round": 2}'])
def test_a_line_that_a_crash_cut_short_takes_no_other_with_it(tmp_path: Path, cut: bytes) -> None:
    heads.append(tmp_path, ChainHead(1, 5, "a" * 64))
    with (tmp_path / heads.NAME).open("ab") as file:
        file.write(cut)
    assert [line.round for line in heads.read(tmp_path / heads.NAME).heads] == [1]
    heads.append(tmp_path, ChainHead(3, 9, "b" * 64))
    heads.append(tmp_path, ChainHead(4, 12, "c" * 64))
    assert [line.round for line in heads.read(tmp_path / heads.NAME).heads] == [1, 3, 4]


def test_a_head_is_on_the_disk_before_the_commit_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").resolve())
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    heads.append(tmp_path, ChainHead(1, 5, "a" * 64))
    assert synced == [tmp_path / heads.NAME, tmp_path], "the file, and its name in the folder"
    heads.append(tmp_path, ChainHead(2, 9, "b" * 64))
    assert synced[2:] == [tmp_path / heads.NAME]


def _verified(store: Store) -> Verification:
    with store.log() as log:
        return verify(log, "a", store.root / "a")


def _kept(memory: Memory) -> list[int]:
    return [line.round for line in heads.read(memory.folder / heads.NAME).heads]


def test_a_head_is_kept_for_a_round_that_is_committed_and_for_no_other(store: Store) -> None:
    with store.open() as memory:
        first_round(memory, [("drops a carry", "add", 1)])
        memory.open_round(2)
        memory.score([candidate("r2.q0")])

        def fail_after_the_commit() -> None:
            with memory.atomic():
                memory.commit()
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail_after_the_commit()
        assert _kept(memory) == [1]
        with memory.atomic():
            memory.commit()
            memory.evaluated(MEASURED, 2)
        assert _kept(memory) == [1, 2]


def test_a_head_is_kept_where_a_stage_ends_and_where_a_writer_ends(store: Store) -> None:
    def kept() -> list[tuple[int, int]]:
        return [(head.round, head.sequence) for head in heads.read(store.root / "a" / heads.NAME).heads]

    with store.open() as memory:
        memory.open_round(1)  # events 1 and 2, the first is the configuration
        memory.start_stage("challenger")
        memory.complete_stage("challenger")
        assert kept() == [(1, 4)]
        memory.complete_stage("challenger")
        assert kept() == [(1, 4)], "the same again"
        memory.evaluated(MEASURED, 0)
    assert kept() == [(1, 4), (0, 5)], "the last event, whatever its round"
    with store.open() as memory:
        memory.claim()
        assert memory.open_round(1).round == 1
    with store.open() as reader:
        assert reader.stage("challenger").status == "completed"
    assert kept() == [(1, 4), (0, 5)], "who wrote nothing keeps nothing: others may have changed the log"
    with store.log() as log:
        report = verify(log, "a", store.root / "a")
    assert (report.faults, report.notes, report.heads) == ([], [], 2)


def test_a_writer_that_was_refused_keeps_no_head_of_what_it_did_not_write(store: Store) -> None:
    with store.open() as memory:
        memory.open_round(1)
    (store.root / "a" / heads.NAME).unlink()
    with store.open() as memory, pytest.raises(OutOfOrderError):
        memory.observe([failure("r9.q9.a9")])
    assert not (store.root / "a" / heads.NAME).exists()


def test_a_change_after_the_last_commit_and_before_a_clean_end_is_told(store: Store) -> None:
    with store.open() as memory:
        first_round(memory, [("drops a carry", "add", 1)])
        memory.open_round(2)
        memory.score([candidate("r2.q0", 6)])
    store.rewrite(lambda row: row.payload.replace(digest_of("r2.q0"), digest_of("r2.q9")))
    [fault] = _verified(store).faults
    assert (fault.check, fault.position) == ("head", 12)
    assert "event 12, in round 2, ended the chain in" in fault.message


def test_what_was_written_after_the_last_head_is_told_to_be_covered_by_none(store: Store) -> None:
    memory = store.open()
    first_round(memory, [("drops a carry", "add", 1)])  # its commit is event 10
    memory.open_round(2)
    memory.score([candidate("r2.q0", 6)])
    report = _verified(store)
    assert (report.faults, report.heads) == ([], 1)
    [note] = report.notes
    assert note.endswith("is of event 10 of 12: a change to later ones would go unnoticed")
    memory.close()
    assert (_verified(store).notes, _verified(store).heads) == ([], 2)


def test_a_writer_whose_head_cannot_be_kept_gives_its_lock_back_and_says_so(store: Store) -> None:
    memory = store.open()
    memory.open_round(1)
    (store.root / "a" / heads.NAME).mkdir(parents=True)
    with pytest.raises(StoreError, match=r"chain head .* cannot be written"):
        memory.close()
    with store.open() as other:
        other.claim()


def test_what_went_wrong_first_is_told_where_the_head_cannot_be_kept_either(store: Store) -> None:
    def stopped() -> None:
        with store.open() as memory:
            memory.open_round(1)
            (store.root / "a" / heads.NAME).mkdir(parents=True)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        stopped()


def test_a_head_that_cannot_be_written_is_an_error_that_says_where(store: Store) -> None:
    with store.open() as memory:
        memory.open_round(1)
        memory.score([candidate("r1.q0")])
        (store.root / "a" / heads.NAME).mkdir(parents=True)  # a folder that came where the file should be
        with pytest.raises(StoreError, match=r"chain head .* cannot be written"):
            memory.commit()
