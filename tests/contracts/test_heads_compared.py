"""The chain's heads outside the database against a log that was rewritten, and after a kill."""

from pathlib import Path

import pytest
from msgspec import json, structs

from diagevo.errors import ConfigError, StoreError
from diagevo.memory.audit.verification import Verification
from diagevo.memory.audit.verify import verify
from diagevo.memory.history import History
from diagevo.memory.log import heads
from diagevo.memory.log.heads import ChainHead, of
from diagevo.memory.memory import Memory
from diagevo.memory.transfer.bundle import export_bundle, import_bundle
from diagevo.memory.transfer.fork import fork
from diagevo.memory.transfer.rebuilding import rebuild
from tests.contracts.databases import Store
from tests.memory.audit.played import play
from tests.memory.play import candidate, first_round


def _round(memory: Memory) -> None:
    number = memory.state.round + 1
    memory.open_round(number)
    memory.score([candidate(f"r{number}.q0", 9)])
    memory.commit()


@pytest.fixture
def played(store: Store) -> Store:
    """Two committed rounds; their commits are events 14 and 17."""
    with store.open() as memory:
        first_round(memory, [("drops a carry", "add", 2)])
        _round(memory)
    assert [(h.round, h.sequence) for h in _kept(store)] == [(1, 14), (2, 17)]
    return store


def _file(store: Store) -> Path:
    return store.root / "a" / heads.NAME


def _kept(store: Store) -> list[ChainHead]:
    return heads.read(_file(store)).heads


def _verified(store: Store, copy: Path | None = None) -> Verification:
    with store.log() as log:
        return verify(log, "a", store.root / "a", copy=copy)


def _current(store: Store) -> list[ChainHead]:
    with store.log() as log:
        *rest, last = log.read("a")
        return [of(record) for record in (*(r for r in rest if r.type == "RoundCommitted"), last)]


def _rewritten(store: Store, *, rounds: tuple[int, ...] = (1, 2)) -> None:
    """Other answers in the given rounds, with fresh hashes and fresh projections: no check of the database
    itself can tell."""
    store.rewrite(
        lambda row: (
            row.payload.replace('"1"', '"2"')
            if row.round in rounds and row.type == "CandidateScored"
            else row.payload
        )
    )
    memory = store.open()
    rebuild(memory)
    memory.close()


def _without_the_file(store: Store, **chosen: tuple[int, ...]) -> None:
    """Rewritten while the file was out of reach."""
    kept = _file(store).read_bytes()
    _file(store).unlink()
    _rewritten(store, **chosen)
    _file(store).write_bytes(kept)


def test_a_line_that_was_added_about_an_old_event_does_not_count(played: Store) -> None:
    _without_the_file(played)
    with _file(played).open("ab") as file:
        file.writelines(json.encode(head) + b"\n" for head in _current(played))
    report = _verified(played)
    told = [(f.check, f.position, f.message) for f in report.faults]
    assert [(check, position) for check, position, _ in told] == [("head", 14)] * 2 + [("head", 17)] * 2
    assert "the log was rewritten (line 1 of" in told[0][2]
    assert "names another head for event 14 than line 1" in told[1][2]
    assert report.heads == 4


def test_the_same_line_twice_is_no_fault(played: Store) -> None:
    _file(played).write_bytes(_file(played).read_bytes() * 2)
    report = _verified(played)
    assert (report.faults, report.notes, report.heads) == ([], [], 4)


def test_all_of_a_line_is_compared(played: Store) -> None:
    first, second = _kept(played)
    _file(played).write_bytes(b"\n".join(map(json.encode, [structs.replace(first, round=7), second])))
    [fault] = _verified(played).faults
    assert (fault.check, fault.position) == ("head", 14)
    assert "its event is of round 1: the line was changed" in fault.message


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ("imported = 'f00d'", "the run is one's own, the database says that it came from the bundle f00d…"),
        ("created_at = '2020-01-01T00:00:00.000000+00:00'", "which says 2020-01-01T00:00:00.000000+00:00"),
    ],
)
def test_what_a_head_says_of_the_run_cannot_be_changed_unnoticed(
    played: Store, changed: str, named: str
) -> None:
    copy = played.root / "copy.jsonl"
    copy.write_bytes(_file(played).read_bytes())
    played.tamper(f"UPDATE run SET {changed}")
    with played.log() as log:
        faults = verify(log, "a", played.root / "a", copy=copy).faults
    assert [(fault.check, named in fault.message) for fault in faults] == [("head", True)] * 2


def test_an_imported_run_cannot_become_ones_own(store: Store) -> None:
    """It decides whether its endpoints and its code are trusted."""
    play(store.url, "a", root=store.root, rounds=1)
    with store.log() as log:
        history = History(log.database, "a", store.root)
        export_bundle(history, history.end, store.root / "bundle")
        import_bundle(store.root / "bundle", log.database, "b", root=store.root)
        fork(History(log.database, "b", store.root), 1, "c", root=store.root)
        assert [verify(log, run, store.root / run).faults for run in "abc"] == [[], [], []]
    store.tamper("UPDATE run SET imported = NULL")
    for later in (False, True):  # also after heads that have what the database said by then
        if later:
            for run in "abc":
                with store.open(run) as memory:
                    _round(memory)
        with store.log() as log:
            [b], [c] = (verify(log, run, store.root / run).faults for run in "bc")
            assert verify(log, "a", store.root / "a").faults == []
        assert "the database says that it is one's own: this decides whether its endpoints" in b.message
        assert c.message.partition(" (")[0] == b.message.partition(" (")[0]


def test_a_line_of_an_older_version_says_nothing_of_the_run(played: Store) -> None:
    lines = [json.encode(structs.replace(head, run=None)) for head in _kept(played)]
    assert all(b"run" not in line for line in lines)
    _file(played).write_bytes(b"\n".join(lines))
    played.tamper("UPDATE run SET imported = 'f00d'")
    assert _verified(played).faults == []


@pytest.mark.parametrize(
    "broken",
    [
        b'{"round":3,"sequ',
        b"\xff\xfe\x00",
        b"[" * 5000,
        b'{"round":3,"sequence":"17","hash":"a"}',
        b'{"round":3,"sequence":17,"hash":null}',
        b'{"round":3,"sequence":' + b"9" * 5000 + b',"hash":"a"}',
    ],
)
def test_a_line_that_is_no_head_is_told_and_the_others_are_compared(played: Store, broken: bytes) -> None:
    lines = _file(played).read_bytes().splitlines()
    _file(played).write_bytes(b"\n".join([lines[0], broken, lines[1], b""]))
    report = _verified(played)
    assert (report.faults, report.heads) == ([], 2)
    assert report.notes == [f"line 2 of {_file(played)} is not a whole chain head, and was not compared"]


def test_a_head_that_a_kill_left_out_is_told_and_the_next_one_covers_its_round(
    played: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(heads, "append", killed)
        with pytest.raises(KeyboardInterrupt), played.open() as memory:
            _round(memory)
    assert [h.round for h in _kept(played)] == [1, 2]
    report = _verified(played)
    assert (report.ok, report.rounds, report.heads) == (True, 3, 2)
    [note] = report.notes
    assert note.startswith("no chain head for round 3 in ")
    assert note.endswith("a rewrite of it before the next head would go unnoticed")
    with played.open() as memory:
        _round(memory)
    assert [h.round for h in _kept(played)] == [1, 2, 4]
    report = _verified(played)
    assert (report.ok, report.heads) == (True, 3)
    [note] = report.notes
    assert note.startswith("no chain head for round 3 in ")
    assert note.endswith("that of a later one covers them")
    _without_the_file(played, rounds=(3,))
    assert [(f.check, f.message[:8]) for f in _verified(played).faults] == [("head", "event 23")]


def test_a_missing_head_between_two_is_covered_by_the_later_one_and_told(played: Store) -> None:
    _file(played).write_bytes(_file(played).read_bytes().splitlines()[1])
    report = _verified(played)
    assert report.faults == []
    note = f"no chain head for round 1 in {_file(played)}; that of a later one covers them"
    assert report.notes == [note]


def test_a_copy_that_was_kept_elsewhere_tells_of_a_rewrite_that_reached_the_file_too(
    played: Store, tmp_path: Path
) -> None:
    copy = tmp_path / "kept-elsewhere.jsonl"
    copy.write_bytes(_file(played).read_bytes())
    assert (_verified(played, copy).ok, _verified(played, copy).copied) == (True, 2)
    _file(played).unlink()
    _rewritten(played)
    _file(played).write_bytes(b"".join(json.encode(head) + b"\n" for head in _current(played)))
    report = _verified(played)
    assert (report.faults, report.notes, report.heads) == ([], [], 2), "nothing here can tell"
    faults = _verified(played, copy).faults
    assert [(f.check, f.position) for f in faults] == [("head", 14), ("head", 17)]
    assert f"the log was rewritten (line 1 of {copy})" in faults[0].message


def test_an_older_copy_is_compared_as_far_as_it_goes(played: Store, tmp_path: Path) -> None:
    copy = tmp_path / "older.jsonl"
    copy.write_bytes(_file(played).read_bytes().splitlines()[0])
    report = _verified(played, copy)
    assert (report.faults, report.copied) == ([], 1)
    assert report.notes == [f"{copy} says nothing of round 2: it is older"]


def test_a_copy_without_a_head_is_an_error_and_not_a_passed_check(played: Store, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("{}\n")
    with pytest.raises(ConfigError, match="there is no chain head in"):
        _verified(played, tmp_path / "empty")
    with pytest.raises(ConfigError, match="there is no file"):
        _verified(played, tmp_path / "none")
    with pytest.raises(StoreError, match="cannot be read: Is a directory"):
        _verified(played, tmp_path)
