"""An output that lacks letters, is full or is closed is no internal error."""

import subprocess
from pathlib import Path

import pytest

from tests.cli.program import STARTED, clean_environment


def _shell(redirection: str, folder: Path, **env: str) -> "subprocess.CompletedProcess[bytes]":
    """A command that writes more than a buffer, with its output redirected."""
    command = [*STARTED, "config", "show", "--profile", "embedded"]
    script = f'"$@" {redirection}'
    return subprocess.run(
        ["sh", "-c", script, "sh", *command],
        cwd=folder,
        env=clean_environment(**env),
        capture_output=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_a_letter_that_the_output_lacks_is_told_by_its_number(tmp_path: Path, encoding: str) -> None:
    refused = _shell("--set filter.τ=2 --json", tmp_path, PYTHONIOENCODING=encoding, PYTHONUTF8="0")
    assert refused.returncode == 2
    assert b"\\u03c4" in refused.stdout


@pytest.mark.parametrize("redirection", [">/dev/full", "-o /dev/full", "--json >/dev/full"])
def test_a_full_disk_is_told_and_is_no_bug(tmp_path: Path, redirection: str) -> None:
    done = _shell(redirection, tmp_path)
    assert done.returncode == 2
    assert b"internal error" not in done.stderr + done.stdout
    assert b"Exception ignored" not in done.stderr


@pytest.mark.parametrize("redirection", [">&-", "2>&-", ">&- 2>&-", "2>/dev/full"])
def test_a_closed_stream_takes_nothing_and_changes_no_exit_code(tmp_path: Path, redirection: str) -> None:
    assert _shell(redirection, tmp_path).returncode == 0
