"""What `make near` runs for a file."""

from pathlib import Path

import pytest

from tests import near


def test_the_tests_of_a_command_are_those_that_call_it_most() -> None:
    found = near.tests_of(Path("cli/commands/ingest.py"))
    assert len(found) == near.CALLING
    assert all('("ingest"' in file.read_text("utf-8") for file in found)
    assert Path("tests/cli/evaluation/test_ablate.py") in near.tests_of(Path("cli/commands/ablate.py"))


def test_a_command_that_no_test_calls_yet_has_those_of_every_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(near, "ROOT", tmp_path)
    (tmp_path / "cli/commands").mkdir(parents=True)
    (tmp_path / "cli/commands/novel.py").write_text('@options.command("memory novel", example="")')
    assert near.tests_of(Path("cli/commands/novel.py")) == [*map(Path, near.EVERY_COMMAND)]
    assert all((Path(__file__).parents[1] / test).is_file() for test in near.EVERY_COMMAND)


def test_the_tests_of_a_module_are_named_for_it_or_import_it() -> None:
    found = near.tests_of(Path("diagevo/answers/votes.py"))
    assert Path("tests/answers/test_votes.py") in found
    assert all(
        "votes" in file.stem or "answers" in file.stem or "answers.votes import" in file.read_text("utf-8")
        for file in found
    )


def test_a_test_is_its_own() -> None:
    assert near.tests_of(Path("tests/cli/test_db.py")) == [Path("tests/cli/test_db.py")]
