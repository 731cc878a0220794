"""Commands that read change no byte of a database, and need no right to write where it lies."""

import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from diagevo.memory.log.database import Database, readable
from tests.cli.program import clean_environment, invoke

READING = (
    ("db", "status"),
    ("runs", "list"),
    ("runs", "show"),
    ("memory", "show"),
    ("memory", "why", "c2"),
    ("memory", "replay"),
    ("memory", "log"),
    ("memory", "verify", "--deep"),
    ("memory", "query", "SELECT 1"),
    ("runs", "export", "-o", "bundle"),
)
MODES = ("DELETE", "WAL")

WITHOUT_ROOTS_RIGHT = """
import ctypes, os, sys
for capability in (1, 2):  # to write and to read whatever the permissions say
    ctypes.CDLL(None).prctl(24, capability, 0, 0, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""
"""Root's programs started from here obey permissions; the boundary of capabilities holds from the exec on."""

ASK_ALL = """
import json, os, sys
sys.path.append(os.environ["CHECKOUT"])  # after what is installed: the program is tested as it is installed
from tests.cli.program import invoke
if os.access(os.environ["FOLDER"], os.W_OK):
    sys.exit(77)
done = [invoke(*command, "--db", os.environ["FOLDER"] + "/copy.db") for command in json.loads(sys.argv[1])]
print(json.dumps([[result.exit_code, result.stderr] for result in done]))
"""


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.fixture(params=MODES)
def copy(request: pytest.FixtureRequest, played_home: Path, tmp_path: Path) -> Path:
    """The run in one file without companions, alone in a folder."""
    (tmp_path / "kept").mkdir()
    file = tmp_path / "kept" / "copy.db"
    shutil.copy(played_home / "diagevo.db", file)
    with closing(sqlite3.connect(file)) as opened:
        opened.execute(f"PRAGMA journal_mode = {request.param}")
    assert [f.name for f in file.parent.iterdir()] == ["copy.db"]
    return file


@pytest.fixture
def closed_folder(copy: Path) -> Iterator[Path]:
    """The copy's folder, which nobody may write to."""
    copy.chmod(0o444)
    copy.parent.chmod(0o555)
    yield copy.parent
    copy.parent.chmod(0o755)


def test_reading_changes_no_byte(copy: Path) -> None:
    before = _digest(copy)
    for command in READING:
        done = invoke(*command, "--db", copy)
        assert done.exit_code == 0, done.stderr
        assert _digest(copy) == before, command


@pytest.mark.parametrize(
    "command", [*READING, ("db", "upgrade"), ("runs", "import", "bundle"), ("init",)], ids=" ".join
)
def test_a_file_of_another_program_is_left_as_it_is(tmp_path: Path, command: tuple[str, ...]) -> None:
    file = tmp_path / "recipes.db"
    with closing(sqlite3.connect(file)) as opened, opened:
        opened.execute("CREATE TABLE recipe (name TEXT)")
    before = _digest(file)
    assert invoke(*command, "--db", file).exit_code == 5
    assert _digest(file) == before


@pytest.mark.slow
def test_reading_needs_no_right_to_write(closed_folder: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_ROOTS_RIGHT, "-c", ASK_ALL, json.dumps(READING)],
        env=clean_environment(FOLDER=str(closed_folder), CHECKOUT=str(Path(__file__).parents[3])),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 77:
        pytest.skip("root's right to write everywhere cannot be given up here")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [[0, text] for _, text in json.loads(done.stdout)]
    assert [file.name for file in closed_folder.iterdir()] == ["copy.db"]


def test_a_file_is_taken_for_unchanging_only_where_sqlite_could_not_open_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a b?.db"
    log, index = tmp_path / "a b?.db-wal", tmp_path / "a b?.db-shm"
    with closing(sqlite3.connect(file)) as opened:
        opened.execute("PRAGMA journal_mode = WAL")
        opened.execute("CREATE TABLE t (x)")
    uri = f"file:{tmp_path}/a%20b%3F.db"
    assert readable(file) == f"{uri}?mode=ro"  # the folder can be written
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert readable(file) == f"{uri}?immutable=1"
    log.touch()
    assert readable(file) == f"{uri}?immutable=1"
    index.touch()
    assert readable(file) == f"{uri}?mode=ro"  # a writer may be at work
    index.unlink()
    log.write_bytes(b"frames")
    assert readable(file) == f"{uri}?mode=ro"  # what is in it must not be passed over
    log.unlink()
    with closing(sqlite3.connect(file)) as opened:
        opened.execute("PRAGMA journal_mode = DELETE")
    assert readable(file) == f"{uri}?mode=ro"
    assert readable(tmp_path / "none.db").endswith("none.db?mode=ro")


def test_the_first_write_sets_the_mode_and_every_write_has_it(copy: Path) -> None:
    database = Database(str(copy))
    with database.read() as connection:
        before = connection.exec_driver_sql("PRAGMA journal_mode").scalar_one()
    for _ in range(2):
        with database.write() as connection:
            mode = connection.exec_driver_sql("PRAGMA journal_mode").scalar_one()
            assert mode == "wal", before
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar_one() == 1
            assert connection.exec_driver_sql("PRAGMA recursive_triggers").scalar_one() == 1
    database.close()
    assert copy.read_bytes()[18:20] == b"\x02\x02"
