"""Database commands: revisions, checks, backups; and what init makes."""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from diagevo.memory.log import check, migrate
from diagevo.memory.log.migrate import HEAD
from tests.cli.program import invoke
from tests.memory.audit.played import play


def _ask(file: str, sql: str) -> list[tuple]:
    with closing(sqlite3.connect(file)) as database, database:
        return database.execute(sql).fetchall()


@pytest.fixture
def played() -> Path:
    play("runs/diagevo.db", "played", root=Path("runs"), rounds=2)
    return Path("runs/diagevo.db")


def test_init_writes_a_commented_file_and_a_migrated_database() -> None:
    done = invoke("init", "study", "--template", "qwen3-8b")
    assert done.exit_code == 0, done.stderr
    assert "profile: qwen3-8b" in Path("study/diagevo.yaml").read_text()
    assert _ask("study/runs/diagevo.db", "SELECT version_num FROM alembic_version") == [(HEAD,)]
    assert invoke("config", "show", "--check", "-c", "study/diagevo.yaml").exit_code == 0
    assert done.stdout.endswith("next           cd study && diagevo train --plan\n")
    assert invoke("init").stdout.endswith("next           diagevo train --rounds 3\n")


def test_init_again_leaves_what_is_there() -> None:
    invoke("init")
    Path("diagevo.yaml").write_text("seed: 5\n")
    done = invoke("init", "--template", "qwen3-8b", "--json")
    assert json.loads(done.stdout)["data"]["written"] is False
    assert Path("diagevo.yaml").read_text() == "seed: 5\n"


def test_status_exits_5_where_an_upgrade_is_due(played: Path) -> None:
    _ask(str(played), "UPDATE alembic_version SET version_num = '0000'")
    done = invoke("db", "status")
    assert done.exit_code == 5
    assert f"0000, this version expects {HEAD}" in done.stdout


@pytest.mark.parametrize(
    "command",
    [
        ("db", "status"),
        ("db", "upgrade"),
        ("db", "backup", "new.db"),
        ("runs", "list"),
        ("memory", "show"),
    ],
)
def test_a_missing_database_and_a_folder_are_told_alike_by_every_command(command: tuple[str, ...]) -> None:
    Path("folder").mkdir()
    said = f"there is no database at none.db in {Path.cwd()}"
    done = invoke(*command, "--db", "none.db")
    assert (done.exit_code, done.stderr) == (5, f"error: {said}\nhint: make one: diagevo init\n")
    told = json.loads(invoke(*command, "--db", "none.db", "--json").stdout)
    assert told == {"error": {"kind": "store", "message": said, "hint": "make one: diagevo init"}}
    done = invoke(*command, "--db", "folder")
    assert done.exit_code == 5
    assert done.stderr == (
        "error: folder is a folder, not a database\nhint: name the file: --db folder/diagevo.db\n"
    )
    assert [file.name for file in Path().iterdir()] == ["folder"]


def test_upgrade_of_an_old_database_writes_a_backup_first(
    played: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the next migration came today."""
    following = f"{int(HEAD) + 1:04}"
    newer = tmp_path / "migrations"
    shutil.copytree(Path(__file__).parents[2] / "migrations", newer)
    (newer / "versions" / f"r{following}_note.py").write_text(
        "from alembic import op\n"
        f"revision, down_revision = {following!r}, {HEAD!r}\n"
        "def upgrade():\n"
        "    op.execute('ALTER TABLE run ADD COLUMN note TEXT')\n"
    )
    monkeypatch.setattr(migrate, "files", lambda _: newer)
    monkeypatch.setattr(migrate, "HEAD", following)
    monkeypatch.setattr(check, "declared", migrate.declared.__wrapped__)  # which keeps what it made
    refused = invoke("runs", "list")
    assert (refused.exit_code, "run: diagevo db upgrade" in refused.stderr) == (5, True)
    done = invoke("db", "upgrade", "--json")
    assert done.exit_code == 0, done.stderr
    said = json.loads(done.stdout)["data"]
    assert (said["before"], said["now"]) == (HEAD, following)
    assert _ask(said["backup"], "SELECT version_num FROM alembic_version") == [(HEAD,)]
    assert _ask(str(played), "SELECT note, sequence > 0 FROM run") == [(None, 1)]
    assert "up to date" in invoke("db", "upgrade").stdout
    assert invoke("memory", "verify").exit_code == 0


def test_snapshots_of_an_older_form_are_named_by_status_and_upgrade_until_they_are_made_again(
    played: Path,
) -> None:
    assert "snapshots" in invoke("db", "status").stdout
    assert "memory rebuild" not in invoke("db", "status").stdout
    _ask(str(played), "UPDATE snapshot SET version = version - 1 WHERE round = 1")
    for command in ("status", "upgrade"):
        said = invoke("db", command)
        assert said.exit_code == 0
        assert "diagevo memory rebuild --run played" in " ".join(said.stdout.split())
    assert invoke("memory", "rebuild", "--run", "played").exit_code == 0
    assert json.loads(invoke("db", "upgrade", "--json").stdout)["data"]["next"] == ""
    assert "memory rebuild" not in invoke("db", "status").stdout


def test_status_exits_1_when_a_trigger_is_missing(played: Path) -> None:
    assert invoke("db", "status").exit_code == 0
    _ask(str(played), "DROP TRIGGER event_no_update")
    done = invoke("db", "status", "--format", "jsonl")
    assert done.exit_code == 1
    wrong = [row for row in map(json.loads, done.stdout.splitlines()) if not row["ok"]]
    assert [row["check"] for row in wrong] == ["schema"]


def test_a_backup_is_put_back_elsewhere_and_verifies(played: Path) -> None:
    events = _ask(str(played), "SELECT count(*) FROM event")
    assert invoke("db", "backup", "monday.db").exit_code == 0
    done = invoke("db", "restore", "monday.db", "--db", "again/diagevo.db")
    assert done.exit_code == 0, done.stderr
    assert _ask("again/diagevo.db", "SELECT count(*) FROM event") == events


def test_a_backup_never_replaces_a_file_and_a_restore_needs_to_be_told(played: Path) -> None:
    Path("monday.db").write_text("mine")
    assert invoke("db", "backup", "monday.db").exit_code == 2
    assert Path("monday.db").read_text() == "mine"
    invoke("db", "backup", "tuesday.db")
    refused = invoke("db", "restore", "tuesday.db")
    assert refused.exit_code in (2, 5)
    assert "--replace" in refused.stderr
    done = invoke("db", "restore", "tuesday.db", "--replace", "--json")
    [aside] = [name for name in json.loads(done.stdout)["data"]["aside"] if "before-restore" in name]
    assert Path(aside).exists()
