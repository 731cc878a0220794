"""Chain heads that are kept in git, and what they tell of a rewrite of the database and its folder."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.cli.memory.conftest import Ask
from tests.cli.program import STARTED, clean_environment, invoke
from tests.contracts.databases import Store


def _git(folder: Path, *arguments: str) -> bytes:
    who = ["-c", "user.name=a", "-c", "user.email=a@localhost", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True).stdout


def test_heads_are_those_that_each_commit_wrote(ask: Ask, played_home: Path, tmp_path: Path) -> None:
    """Each round has five stages, whose ends are in the file too, and the commit after them."""
    kept = tmp_path / "kept.jsonl"
    assert ask("memory", "verify", "--heads-out", kept).exit_code == 0
    printed = kept.read_text().splitlines()
    written = (played_home / "played" / "chain-heads.jsonl").read_text().splitlines()
    assert len(written) == 4 * (5 + 1)
    assert [json.loads(line) for line in printed] == [json.loads(line) for line in written[5::6]]
    assert [json.loads(line)["round"] for line in printed] == [1, 2, 3, 4]
    kept.write_text("\n".join(printed[:2]))
    assert ask("memory", "verify", "--heads", kept, "--heads-out", kept).exit_code == 0
    assert kept.read_text().splitlines() == printed


def test_of_a_log_with_a_fault_no_head_is_kept(change: Ask, home: Path, tmp_path: Path) -> None:
    Store(f"sqlite:///{home / 'diagevo.db'}", home).tamper("DELETE FROM cause")
    assert change("memory", "verify", "--heads-out", tmp_path / "kept.jsonl").exit_code == 1
    assert not (tmp_path / "kept.jsonl").exists()


@pytest.mark.slow
def test_a_rewrite_of_database_and_folder_is_told_by_the_heads_that_git_has(
    change: Ask, home: Path, tmp_path: Path
) -> None:
    server, kept = tmp_path / "server.git", tmp_path / "heads"
    _git(tmp_path, "init", "--quiet", "--bare", "--initial-branch=main", str(server))
    _git(tmp_path, "clone", "--quiet", str(server), str(kept))
    change("memory", "verify", "--heads-out", kept / "played.jsonl")
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
    assert (well.returncode, b"4 chain heads of the copy" in well.stdout) == (0, True), well

    store = Store(f"sqlite:///{home / 'diagevo.db'}", home)
    (home / "played" / "chain-heads.jsonl").unlink()
    store.rewrite(lambda row: row.payload.replace('"reference":', '"reference": '), run="played")
    assert change("memory", "rebuild").exit_code == 0
    change("memory", "verify", "--heads-out", home / "played" / "fresh.jsonl")
    (home / "played" / "fresh.jsonl").replace(home / "played" / "chain-heads.jsonl")
    alone = change("memory", "verify")
    assert (alone.exit_code, "note" in alone.stdout) == (0, False), "the machine itself cannot tell"

    told = verified()
    assert told.returncode == 1
    assert told.stdout.count(b"the log was rewritten") == 4


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


def test_the_last_head_is_of_the_last_event_also_without_a_commit(tmp_path: Path) -> None:
    import diagevo

    with diagevo.open(f"sqlite:///{tmp_path / 'diagevo.db'}", run="a", root=tmp_path) as memory:
        memory.open_round(1)  # after the configuration: event 2
    kept = tmp_path / "kept.jsonl"
    assert invoke("memory", "verify", "--heads-out", kept, env={"DIAGEVO_HOME": str(tmp_path)}).exit_code == 0
    [line] = map(json.loads, kept.read_text().splitlines())
    assert (line["round"], line["sequence"]) == (1, 2)
    assert line == json.loads((tmp_path / "a" / "chain-heads.jsonl").read_text())
