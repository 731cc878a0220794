"""What holds a run is its owner's alone, whatever the umask; what somebody else made keeps its rights."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from diagevo.memory.log.database import Database
from diagevo.private import atomic_file, private, private_file, private_folder
from tests.cli.program import invoke
from tests.memory.audit.played import play


@pytest.fixture
def open_umask() -> Iterator[None]:
    """The laxest there is: nothing is taken from any mode."""
    before = os.umask(0)
    yield
    os.umask(before)


def _open_to_others(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): oct(path.stat().st_mode & 0o777)
        for path in (folder, *folder.rglob("*"))
        if path.stat().st_mode & 0o077
    }


@pytest.mark.usefixtures("open_umask")
def test_database_run_backup_fork_and_bundles_are_for_their_owner_alone(tmp_path: Path) -> None:
    home = tmp_path / "deep" / "runs"
    play(f"sqlite:///{home / 'diagevo.db'}", "played", root=home, rounds=1)
    env = {"DIAGEVO_HOME": str(home)}
    for command in (
        ["db", "backup", home / "backups" / "monday.db"],
        ["db", "restore", home / "backups" / "monday.db", "--db", home / "again" / "diagevo.db"],
        ["runs", "export", "-o", home / "a.bundle"],
        ["runs", "fork", "played@1", "--name", "forked"],
        ["memory", "log", "-o", home / "log.jsonl"],
        ["runs", "export", "--as", "dpo", "-o", home / "dpo.jsonl"],
        ["runs", "export", "--as", "dpo", "-o", home / "dpo.parquet"],
        ["runs", "export", "--as", "dpo", "-o", home / "dpo"],
    ):
        done = invoke(*command, env=env)
        assert done.exit_code == 0, done.output
    database = Database(str(home / "diagevo.db"))
    with database.write() as connection:
        connection.exec_driver_sql("UPDATE log SET position = position")
        beside = {path.name for path in home.glob("diagevo.db-*")}
        found = _open_to_others(tmp_path / "deep")
    database.close()
    assert beside == {"diagevo.db-wal", "diagevo.db-shm"}
    assert found == {}
    assert oct(home.stat().st_mode)[-3:] == "700"
    assert oct((home / "diagevo.db").stat().st_mode)[-3:] == "600"


def test_a_stricter_umask_stays_as_it_is(tmp_path: Path) -> None:
    before = os.umask(0o277)
    try:
        private_file(tmp_path / "file")
        private_folder(tmp_path / "folder")
    finally:
        os.umask(before)
    assert oct((tmp_path / "file").stat().st_mode)[-3:] == "400"
    assert oct((tmp_path / "folder").stat().st_mode)[-3:] == "500"


@pytest.mark.usefixtures("open_umask")
def test_what_is_there_already_keeps_its_rights(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir(mode=0o755)
    private_folder(tmp_path / "shared" / "run")
    with open(tmp_path / "shared" / "run" / "x", "w", opener=private):
        pass
    modes = [oct((tmp_path / name).stat().st_mode)[-3:] for name in ("shared", "shared/run", "shared/run/x")]
    assert modes == ["755", "700", "600"]


def test_what_others_may_read_is_noted_and_no_fault(tmp_path: Path) -> None:
    file = tmp_path / "diagevo.db"
    said = {"DIAGEVO_HOME": str(tmp_path)}
    assert invoke("init", env=said).exit_code == 0
    closed = invoke("db", "status", "--db", str(file), env=said)
    assert "nobody else may read it" in closed.output
    file.chmod(0o644)
    opened = invoke("db", "status", "--db", str(file), "--format", "csv", env=said)
    assert (opened.exit_code, f"others may read {file}; chmod go= {file}" in opened.output) == (0, True)
    rows = json.loads(invoke("doctor", "--db", str(file), "--json", env=said).stdout)
    assert f"others may read {file}" in json.dumps(rows)


def test_a_file_that_failed_leaves_nothing_beside_it(tmp_path: Path) -> None:
    """What SQLite began beside it goes too."""

    def fail() -> None:
        with atomic_file(tmp_path / "copy.db") as part:
            for end in ("-journal", "-wal", "-shm"):
                part.with_name(part.name + end).touch()
            raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        fail()
    assert list(tmp_path.iterdir()) == []
