"""The chain's heads outside the database: one a commit, on the disk, whatever crashed before."""

import os
from pathlib import Path

import pytest

from diagevo.errors import StoreError
from diagevo.memory.events import CheckpointEvaluated
from diagevo.memory.log import heads
from diagevo.memory.log.heads import ChainHead
from diagevo.memory.memory import Memory
from tests.contracts.databases import Store
from tests.memory.play import candidate, first_round

MEASURED = CheckpointEvaluated(
    role="solver", checkpoint="x", benchmark="b", questions=1, conditions={}, metrics={}
)


@pytest.mark.parametrize("cut", [b'{"round": 2, "sequ', b"\xff\xfe", b'{"round": 2}'])
def test_a_line_that_a_crash_cut_short_takes_no_other_with_it(tmp_path: Path, cut: bytes) -> None:
    heads.append(tmp_path, ChainHead(1, 5, 5, "a" * 64))
    with (tmp_path / heads.NAME).open("ab") as file:
        file.write(cut)
    assert [line.round for line in heads.read(tmp_path / heads.NAME).heads] == [1]
    heads.append(tmp_path, ChainHead(3, 9, 9, "b" * 64))
    heads.append(tmp_path, ChainHead(4, 12, 12, "c" * 64))
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
    heads.append(tmp_path, ChainHead(1, 5, 5, "a" * 64))
    assert synced == [tmp_path / heads.NAME, tmp_path], "the file, and its name in the folder"
    heads.append(tmp_path, ChainHead(2, 9, 9, "b" * 64))
    assert synced[2:] == [tmp_path / heads.NAME]


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


def test_a_head_that_cannot_be_written_is_an_error_that_says_where(store: Store) -> None:
    with store.open() as memory:
        (store.root / "a" / heads.NAME).mkdir(parents=True)  # a folder that came where the file should be
        memory.open_round(1)
        memory.score([candidate("r1.q0")])
        with pytest.raises(StoreError, match=r"chain head .* cannot be written"):
            memory.commit()
