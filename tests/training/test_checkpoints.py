import hashlib
import os
import time
from pathlib import Path

import pytest

from diagevo.errors import StoppedSafely
from diagevo.progress import StopFlag
from diagevo.sampling import model_folder
from diagevo.training import checkpoints

FILES = {"model.safetensors": b"w" * 100, "optimizer.pt": b"o" * 50, "rng_state.pth": b"r", "sub/x.bin": b"s"}


def save(work: Path, step: int, **notes: object) -> Path:
    target = checkpoints.checkpoint_folder(work, step)
    staging = checkpoints.staging_folder(target)
    for name, content in FILES.items():
        (staging / name).parent.mkdir(parents=True, exist_ok=True)
        (staging / name).write_bytes(content + str(step).encode())
    checkpoints.publish(staging, target, notes)
    return target


def test_the_newest_whole_checkpoint_is_found_with_its_notes(tmp_path: Path) -> None:
    assert checkpoints.find(tmp_path / "nowhere").step == 0
    save(tmp_path, 9, plan="a")
    save(tmp_path, 10, plan="b")
    found = checkpoints.find(tmp_path).checkpoint
    assert found is not None
    assert (found.step, found.notes) == (10, {"plan": "b"})


@pytest.mark.parametrize("name", [*FILES, checkpoints.MANIFEST])
def test_a_checkpoint_that_misses_a_file_is_not_whole(tmp_path: Path, name: str) -> None:
    save(tmp_path, 1)
    (save(tmp_path, 2) / name).unlink()
    assert checkpoints.find(tmp_path).step == 1


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_was_changed_or_cut_short_makes_a_checkpoint_not_whole(tmp_path: Path, name: str) -> None:
    save(tmp_path, 1)
    changed = save(tmp_path, 2) / name
    changed.write_bytes(b"?" + changed.read_bytes()[1:])
    cut = save(tmp_path, 3) / name
    cut.write_bytes(cut.read_bytes()[:-1])
    assert checkpoints.find(tmp_path).step == 1


def test_a_half_written_checkpoint_is_never_seen(tmp_path: Path) -> None:
    save(tmp_path, 1)
    staging = checkpoints.staging_folder(checkpoints.checkpoint_folder(tmp_path, 2))
    staging.mkdir()
    (staging / "model.safetensors").write_bytes(b"w")
    assert checkpoints.find(tmp_path).step == 1
    checkpoints.discard_after(tmp_path, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-1"]


def test_rotation_keeps_the_newest_and_the_one_before_it(tmp_path: Path) -> None:
    for step in (8, 9, 10, 11):
        save(tmp_path, step)
    checkpoints.rotate(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-10", "checkpoint-11"]


def test_what_comes_after_the_step_to_resume_from_is_cleared_away(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (save(tmp_path, 2) / "optimizer.pt").unlink()
    checkpoints.discard_after(tmp_path, checkpoints.find(tmp_path).step)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-1"]


def test_publishing_replaces_a_folder_as_a_whole(tmp_path: Path) -> None:
    save(tmp_path, 1)
    (tmp_path / "checkpoint-1" / "stale").write_bytes(b"?")
    target = save(tmp_path, 1, again=True)
    assert checkpoints.fault_of(target) is None
    found = checkpoints.find(tmp_path).checkpoint
    assert found is not None
    assert found.notes == {"again": True}
    assert not (target / "stale").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-1"]


def test_reading_a_large_file_through_hears_an_overdue_stop(tmp_path: Path) -> None:
    """The first block is read, and then the stop is overdue."""
    file, stop = tmp_path / "weights", StopFlag()
    file.write_bytes(b"5" * 3_000_000)
    assert model_folder.digest_of(file, stop) == hashlib.sha256(b"5" * 3_000_000).hexdigest()
    stop.set_overdue()
    with pytest.raises(StoppedSafely):
        model_folder.digest_of(file, stop)


def test_looking_for_a_checkpoint_hears_an_overdue_stop(tmp_path: Path) -> None:
    save(tmp_path, 1)
    stop = StopFlag()
    stop.set_overdue()
    with pytest.raises(StoppedSafely):
        checkpoints.find(tmp_path, stop)
    assert checkpoints.find(tmp_path).step == 1, "nothing was discarded"


def test_a_file_is_read_once_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(b"old")
    old, written = hashlib.sha256(b"old").hexdigest(), file.stat()
    assert model_folder.digest_of(file) == old
    file.write_bytes(b"new")  # at once, and its time put back: only where nothing was kept is this seen
    os.utime(file, ns=(written.st_atime_ns, written.st_mtime_ns))
    new = hashlib.sha256(b"new").hexdigest()
    assert model_folder.digest_of(file) == new
    monkeypatch.setattr(model_folder.time, "time", lambda: written.st_mtime + 60)
    assert model_folder.digest_of(file) == new
    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", lambda *_, **__: pytest.fail("read again"))
        assert model_folder.digest_of(file) == new
    time.sleep(0.02)  # longer than a clock of file systems ticks
    file.write_bytes(b"own")
    os.utime(file, ns=(written.st_atime_ns, written.st_mtime_ns))
    assert model_folder.digest_of(file) == hashlib.sha256(b"own").hexdigest()
