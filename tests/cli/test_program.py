"""Help, the common options, and the one error boundary."""

import errno
import json
import os
import shlex
import subprocess
from fractions import Fraction
from pathlib import Path

import pytest
import typer
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from diagevo.errors import ServiceError, StoppedSafely
from tests.cli.program import STARTED, clean_environment, invoke, leaves, load

COMMANDS = leaves(get_command(load()))


@pytest.mark.parametrize("path", [" ".join(path) for path, _ in COMMANDS])
def test_every_command_has_an_example_that_its_own_options_accept(path: str) -> None:
    command = dict(COMMANDS)[tuple(path.split())]
    assert command.help
    _, marked, examples = (command.epilog or "").partition("Example:\n")
    lines = [line.strip() for line in examples.splitlines() if line.strip()]
    assert marked
    assert lines
    for line in lines:
        words = shlex.split(line)
        for sign in {">>", "<"} & {*words}:  # the shell's
            words = words[: words.index(sign)]
        start = ["diagevo", *path.split()]
        assert words[: len(start)] == start, line
        command.make_context(
            path, words[len(start) :], help_option_names=["-h", "--help"]
        )  # raises for an option that is none


def test_a_usage_error_exits_2_and_points_to_the_commands_help() -> None:
    done = invoke("memory", "shw")
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr.startswith("error: No such command 'shw'")
    assert "hint: see: diagevo memory --help" in done.stderr


def test_with_json_a_failure_is_one_json_object_on_stdout() -> None:
    done = invoke("config", "show", "--json", "--set", "filter.tua=2")
    assert done.exit_code == 2
    assert json.loads(done.stdout) == {
        "error": {
            "kind": "config",
            "message": "--set filter.tua: there is no key filter.tua",
            "hint": "the closest is filter.tau",
        }
    }


@pytest.mark.parametrize("words", [["--json"], ["--format", "json"], ["--format=json"]])
def test_a_usage_error_too_is_json_where_json_was_asked_for(words: list[str]) -> None:
    done = invoke("config", "show", "--nonsense", *words)
    assert (done.exit_code, json.loads(done.stdout)["error"]["kind"]) == (2, "usage")


def _failing(raised: BaseException) -> typer.Typer:
    """The program's boundary around a command that fails."""
    program = get_command(load())
    assert isinstance(program, TyperGroup)
    app = typer.Typer(cls=type(program), rich_markup_mode=None, pretty_exceptions_enable=False)

    @app.callback()
    def before() -> None: ...

    @app.command()
    def fail(json: bool = False, verbose: bool = False) -> None:
        raise raised

    return app


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        (
            *(ServiceError("http://a/v1 gave up", hint="start it"), 6),
            "error: http://a/v1 gave up\nhint: start it\n",
        ),
        (
            *(StoppedSafely("stopped before round 2", hint="continue with: diagevo train --resume"), 75),
            "stopped before round 2\nhint: continue with: diagevo train --resume\n",
        ),
        (ServiceError("it said \x1b[2J[red]boo\r"), 6, "error: it said ␛[2J[red]boo␍\n"),
        (KeyboardInterrupt(), 130, "interrupted; everything recorded so far is kept\n"),
        (
            OSError(errno.EROFS, "Read-only", "runs/a"),
            2,
            "error: cannot write runs/a: Read-only\nhint: free some space, or name another place\n",
        ),
    ],
    ids=["an error of ours", "a safe stop is no error", "no text steers the terminal", "Ctrl-C", "read-only"],
)
def test_what_ends_a_command_is_said_with_its_exit_code(raised: BaseException, code: int, said: str) -> None:
    done = CliRunner().invoke(_failing(raised), ["fail"])
    assert (done.exit_code, done.stderr) == (code, said)


def test_a_word_that_is_json_asks_for_none(tmp_path: Path) -> None:
    done = invoke("ingest", "json", tmp_path, "--run", "json")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("error: there is no format json\nhint: did you mean jsonl?")


def test_a_file_in_no_folder_is_refused_and_makes_none(tmp_path: Path) -> None:
    done = invoke("config", "diff", "embedded", "qwen3-8b", "-o", tmp_path / "nosuch" / "x.csv")
    assert done.exit_code == 2, done.output
    assert f"there is no folder {tmp_path / 'nosuch'}" in " ".join(done.stderr.split())
    assert not (tmp_path / "nosuch").exists()


def test_a_reader_that_has_enough_is_no_finding(tmp_path: Path) -> None:
    """`| head` closes the pipe; exit code 1 would mean that a check found something."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [*STARTED, "config", "show"],
        stdout=write,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=clean_environment(),
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


def test_work_goes_on_where_nobody_reads_what_is_said_of_it(tmp_path: Path) -> None:
    """`2>&1 | head -1` closes stderr, too."""
    (tmp_path / "own.jsonl").write_text('{"step": 1, "prompt": "2 + 2?", "response": "4", "reward": 1}\n')
    read, write = os.pipe()
    os.close(read)
    asked = [*STARTED, "ingest", "jsonl", "own.jsonl", "--run", "own", "--json"]
    done = subprocess.run(
        asked, stdout=subprocess.PIPE, stderr=write, cwd=tmp_path, env=clean_environment(), check=False
    )
    os.close(write)
    assert (done.returncode, json.loads(done.stdout)["data"]["steps"]) == (0, 1)


def test_the_version_is_the_packages() -> None:
    from importlib.metadata import version

    assert invoke("--version").stdout == f"diagevo {version('diagevo')}\n"


def test_fractions_are_used_exactly() -> None:
    done = invoke("config", "show", "--set", "filter.tau=1.6", "--json")
    rows = {row["key"]: row["value"] for row in json.loads(done.stdout)["data"]}
    assert Fraction(rows["filter.tau"]) == Fraction(8, 5)


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
