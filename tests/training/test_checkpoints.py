import hashlib
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diagevo.errors import ConfigError, StoppedSafely
from diagevo.progress import StopFlag
from diagevo.sampling import model_folder
from diagevo.training import checkpoints
from diagevo.training.grpo import resumable

FILES = {"model.safetensors": b"w" * 100, "optimizer.pt": b"o" * 50, "rng_state.pth": b"r", "sub/x.bin": b"s"}


def save(work: Path, step: int, **notes: object) -> Path:
    target = checkpoints.checkpoint_folder(work, step)
    staging = checkpoints.staging_folder(target)
    for name, content in FILES.items():
        (staging / name).parent.mkdir(parents=True, exist_ok=True)
        (staging / name).write_bytes(content + str(step).encode())
    checkpoints.publish(staging, target, {**notes, "step": step})
    return target


def test_the_newest_whole_checkpoint_is_found_with_its_notes(tmp_path: Path) -> None:
    assert checkpoints.find(tmp_path / "nowhere").step == 0
    save(tmp_path, 9, plan="a")
    save(tmp_path, 10, plan="b")
    found = checkpoints.find(tmp_path).checkpoint
    assert found is not None
    assert (found.step, found.notes) == (10, {"plan": "b", "step": 10})


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


def _manifest(folder: Path, change: Callable[[Any], object]) -> None:
    file = folder / checkpoints.MANIFEST
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def _list_elsewhere(folder: Path, name: str) -> None:
    """A listed file is moved to where `name` leads, and its entry with it."""
    (folder / "model.safetensors").rename(folder / name)
    _manifest(
        folder, lambda content: content["files"].update({name: content["files"].pop("model.safetensors")})
    )


def _link(folder: Path) -> None:
    (folder / "rng_state.pth").rename(folder.parent / "elsewhere")
    (folder / "rng_state.pth").symlink_to("../elsewhere")


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda of: (of / "shard-2.safetensors").write_bytes(b"9.0"), "shard-2.safetensors is not one of"),
        (lambda of: (of / "sub" / "more").mkdir(), "sub/more is not one of its files"),
        (lambda of: _manifest(of, lambda all: all.update(files={})), "manifest.json lists no file"),
        (lambda of: _manifest(of, lambda all: all.update(notes="a text")), "manifest.json cannot be read"),
        (lambda of: _manifest(of, lambda all: all.update(more=1)), "manifest.json cannot be read"),
        (lambda of: _list_elsewhere(of, "../../x"), "../../x is missing"),
        (lambda of: _list_elsewhere(of, str(of.parents[1] / "x")), "/x is missing"),
        (lambda of: _list_elsewhere(of, "sub/../sub/x"), "sub/x is not one of its files"),
        (_link, "rng_state.pth is not a file of its own"),
        (lambda of: of.rename(of.with_name("checkpoint-3")), "checkpoint-3: it was saved as that of step 2"),
    ],
)  # fmt: skip
def test_what_may_be_in_a_checkpoint_is_listed_and_all_else_is_named(
    tmp_path: Path, change: Callable[[Path], object], fault: str
) -> None:
    work = tmp_path / "runs" / "work"
    save(work, 1)
    change(save(work, 2))
    found = checkpoints.find(work)
    assert found.step == 1
    assert fault in found.broken[0]


def _content(folder: Path) -> dict[str, bytes]:
    """What a reader of shards finds: the files, and what links lead to."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != checkpoints.MANIFEST)
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


_JSON = st.sampled_from([None, 0, -1, True, 1.5, "", "text", [], {}, {"a": 1}, ["b"]])
_NAMES = st.sampled_from(
    [
        "x",
        "sub",
        "../x",
        "../../x",
        "/tmp/x",
        ".",
        "",
        "sub/..",
        "model.safetensors/x",
        "manifest.json",
        "é\0",
    ]
)


def _somewhere(data: st.DataObject, tree: Any) -> tuple[Any, Any]:
    """A dict in the tree and one of its keys."""
    key = data.draw(st.sampled_from(sorted(tree)))
    if isinstance(tree[key], dict) and tree[key] and data.draw(st.booleans()):
        return _somewhere(data, tree[key])
    return tree, key


def _change_manifest(data: st.DataObject, folder: Path) -> None:
    def change(tree: Any) -> None:
        within, key = _somewhere(data, tree)
        match data.draw(st.sampled_from(["remove", "replace", "rename", "add"])):
            case "remove":
                del within[key]
            case "replace":
                within[key] = data.draw(_JSON)
            case "rename":
                within[data.draw(_NAMES)] = within.pop(key)
            case _:
                within[data.draw(_NAMES)] = data.draw(_JSON | st.just(within[key]))

    _manifest(folder, change)


def _change_bytes(data: st.DataObject, folder: Path) -> None:
    file = folder / data.draw(st.sampled_from([*FILES, checkpoints.MANIFEST]))
    content = bytearray(file.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    match data.draw(st.sampled_from(["flip", "cut", "insert"])):
        case "flip":
            content[at] ^= data.draw(st.integers(1, 255))
        case "cut":
            del content[at:]
        case _:
            content.insert(at, data.draw(st.integers(0, 255)))
    file.write_bytes(content)


def _change_folder(data: st.DataObject, folder: Path) -> None:
    paths = sorted(path for path in [folder, *folder.rglob("*")])
    path = data.draw(st.sampled_from(paths))
    aside = folder.parent / "aside"
    match data.draw(st.sampled_from(["remove", "swap", "link", "folder", "rename", "add"])):
        case "remove":
            path.rename(aside)
        case "swap":
            other = data.draw(st.sampled_from(sorted(FILES)))
            content = (folder / other).read_bytes()
            path.rename(aside)
            path.write_bytes(content)
        case "link":
            path.rename(aside)
            path.symlink_to(
                data.draw(st.sampled_from([aside, Path("nowhere"), folder.parent / "checkpoint-1"]))
            )
        case "folder":
            path.rename(aside)
            path.mkdir()
        case "rename":
            path.rename(
                path.with_name(data.draw(st.sampled_from(["x", "checkpoint-02", "checkpoint-7", ".x"])))
            )
        case _:
            inside = path if path.is_dir() else path.parent
            (inside / data.draw(st.sampled_from(["shard-2.safetensors", ".x", "x"]))).write_bytes(b"9.0")


@given(data=st.data(), change=st.sampled_from([_change_manifest, _change_bytes, _change_folder]))
def test_after_any_single_change_a_checkpoint_is_read_as_it_was_saved_or_not_at_all(
    data: st.DataObject, change: Callable[[st.DataObject, Path], None]
) -> None:
    notes = {"plan": "a", "settings": {"group": 3}}
    with tempfile.TemporaryDirectory() as place:
        work = Path(place) / "work"
        save(work, 1, **notes)
        folder = save(work, 2, **notes)
        saved = _content(folder)
        change(data, folder)
        try:
            step = resumable(work, notes, StopFlag())
        except ConfigError:  # the notes are those of other settings, say
            return
        assert step in (1, 2)
        if step == 2:
            assert _content(folder) == saved
            assert {path.name for path in folder.rglob("*") if path.is_symlink()} <= {checkpoints.MANIFEST}
        left = sorted(path.name for path in work.glob("checkpoint-?"))
        assert left == ["checkpoint-1", "checkpoint-2"][:step]


def test_a_half_written_checkpoint_is_never_seen(tmp_path: Path) -> None:
    save(tmp_path, 1)
    staging = checkpoints.staging_folder(checkpoints.checkpoint_folder(tmp_path, 2))
    staging.mkdir()
    (staging / "model.safetensors").write_bytes(b"w")
    assert checkpoints.find(tmp_path).step == 1
    checkpoints.discard_after(tmp_path, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-1"]


def _killed(work: Path, event: int, play: Callable[[], object]) -> bool:
    """Whether a process that plays is killed before the given of its calls for a file below `work`."""
    child = os.fork()
    if child == 0:
        left = event

        def count(name: str, arguments: tuple[object, ...]) -> None:
            nonlocal left
            if name.startswith(("os.", "shutil.", "open")) and str(work) in str(arguments[0]):
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(count)
        play()
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def _contents(work: Path) -> dict[str, bytes]:
    return {str(f.relative_to(work)): f.read_bytes() for f in work.rglob("*") if f.is_file()}


def test_killed_at_any_call_for_a_file_a_phase_goes_on_from_a_whole_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # what a killed process has written stays

    def play(work: Path, first: int) -> None:
        for step in range(first, 4):
            save(work, step)
            checkpoints.rotate(work)

    undisturbed = tmp_path / "undisturbed"
    play(undisturbed, 1)
    steps, event = set[int](), 1
    while _killed(work := tmp_path / str(event), event, lambda: play(work, 1)):
        found = checkpoints.find(work)
        if found.checkpoint is not None:
            kept = {name: (found.checkpoint.folder / name).read_bytes() for name in FILES}
            assert kept == {name: content + str(found.step).encode() for name, content in FILES.items()}
        assert found.step >= max(steps, default=0), event
        steps.add(found.step)
        checkpoints.discard_after(work, found.step)
        play(work, found.step + 1)
        checkpoints.rotate(work)
        assert _contents(work) == _contents(undisturbed), event
        event += 1
    assert steps == {0, 1, 2, 3}
    assert event > 100


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
    assert found.notes == {"again": True, "step": 1}
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
