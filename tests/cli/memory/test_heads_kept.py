"""Chain heads that are kept in git, and what they tell of a rewrite of the database and its folder."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.memory.conftest import Ask
from tests.cli.program import STARTED, clean_environment, invoke
from tests.contracts.databases import Store


def _git(folder: Path, *arguments: str) -> bytes:
    who = ["-c", "user.name=a", "-c", "user.email=a@localhost", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True).stdout


def _of_database(home: Path, kept: Path) -> None:
    """What docs/howto/heads.md writes where the run's folder cannot be read: each commit's head."""
    select = "SELECT round, sequence, hash FROM event WHERE run_id = :run AND type = 'RoundCommitted'"
    query = ("memory", "query", f"{select} ORDER BY sequence", "--run", "played", "--format", "jsonl")
    assert invoke(*query, "-o", kept, env={"DIAGEVO_HOME": str(home)}).exit_code == 0


def test_heads_of_the_database_are_those_that_each_commit_wrote(
    ask: Ask, played_home: Path, tmp_path: Path
) -> None:
    """Each round has five stages, whose ends are in the file too, and the commit after them."""
    kept = tmp_path / "kept.jsonl"
    _of_database(played_home, kept)
    queried = kept.read_text().splitlines()
    written = (played_home / "played" / "chain-heads.jsonl").read_text().splitlines()
    assert len(written) == 4 * (5 + 1)
    heads = [json.loads(line) for line in written]
    assert [head.pop("run")["imported"] for head in heads] == [None] * len(heads)
    assert [json.loads(line) for line in queried] == heads[5::6]
    assert [json.loads(line)["round"] for line in queried] == [1, 2, 3, 4]
    assert ask("memory", "verify", "--heads", kept).exit_code == 0


@pytest.mark.slow
def test_a_rewrite_of_database_and_folder_is_told_by_the_heads_that_git_has(
    change: Ask, home: Path, tmp_path: Path
) -> None:
    server, kept = tmp_path / "server.git", tmp_path / "heads"
    _git(tmp_path, "init", "--quiet", "--bare", "--initial-branch=main", str(server))
    _git(tmp_path, "clone", "--quiet", str(server), str(kept))
    shutil.copy(home / "played" / "chain-heads.jsonl", kept / "played.jsonl")
    _git(kept, "add", "played.jsonl")
    _git(kept, "commit", "--quiet", "--message", "played: heads after round 4")
    _git(kept, "push", "--quiet", "origin", "HEAD:main")

    def verified() -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            [*STARTED, "memory", "verify", "--heads", "/dev/stdin"],
            input=_git(kept, "show", "origin/main:played.jsonl"),
            env=clean_environment(DIAGEVO_HOME=str(home)),
            capture_output=True,
            check=False,
        )

    well = verified()
    assert (well.returncode, b"24 chain heads of the copy" in well.stdout) == (0, True), well

    store = Store(f"sqlite:///{home / 'diagevo.db'}", home)
    (home / "played" / "chain-heads.jsonl").unlink()
    store.rewrite(lambda row: row.payload.replace('"version":"', '"version":"9.'), run="played")
    assert change("memory", "rebuild").exit_code == 0
    _of_database(home, home / "played" / "chain-heads.jsonl")
    alone = change("memory", "verify")
    assert (alone.exit_code, "note" in alone.stdout) == (0, False), "the machine itself cannot tell"

    told = verified()
    assert told.returncode == 1
    assert told.stdout.count(b"the log was rewritten") == 24  # who wrote the run stands in its first event


@pytest.mark.parametrize(("given", "said"), [("", "there is no chain head in"), (None, "is a directory")])
def test_a_copy_that_cannot_be_compared_is_an_error(
    ask: Ask, tmp_path: Path, given: str | None, said: str
) -> None:
    copy = tmp_path / "copy.jsonl"
    if given is None:
        copy.mkdir()
    else:
        copy.write_text(given)
    result = ask("memory", "verify", "--heads", copy)
    assert result.exit_code == (2 if given is not None else 5)
    assert said in result.stderr.lower()
