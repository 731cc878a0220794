"""What a newcomer sees: every group and command, bare, asked for help, misused; and the next steps that
messages name."""

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from tests.cli.program import command, invoke, leaves, load, run

PROGRAM: Any = get_command(load())
COMMANDS = [" ".join(path) for path, _ in leaves(PROGRAM)]
WITHOUT_DATABASE = {"ablate plan"}
ABOUT_NO_RUN = WITHOUT_DATABASE | {
    *("init", "doctor", "runs list", "runs import", "eval compare"),
    *("ablate run", "ablate compare"),
    *(f"db {name}" for name in ("upgrade", "status", "backup", "restore")),
}
CONFIGURING = {"-c": "none.yaml", "--set": "a.b=c", "--profile": "nope"}
Ask = Callable[..., tuple[int, str, str]]


def _groups(command: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    if (inner := getattr(command, "commands", None)) is not None:
        yield " ".join(path)
        for name, sub in inner.items():
            yield from _groups(sub, (*path, name))


GROUPS = list(_groups(PROGRAM))


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Ask:
    """Run the program, which is put together once: exit code, stdout, stderr."""

    def run(*words: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            PROGRAM.main(list(words), "diagevo")
        out, err = capsys.readouterr()
        return int(left.value.code or 0), out, err

    return run


def test_view_says_where_there_is_nothing_to_serve(
    ask: Ask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIAGEVO_HOME", str(tmp_path))
    code, out, err = ask("view", "--no-open")
    assert (code, out) == (5, "")
    assert "diagevo init" in err


@pytest.mark.parametrize("group", GROUPS)
def test_a_group_alone_prints_its_help_and_no_error(ask: Ask, group: str) -> None:
    code, out, err = ask(*group.split())
    assert (code, err) == (0, "")
    assert out.startswith(f"Usage: {' '.join(('diagevo', *group.split()))} [OPTIONS] COMMAND")


@pytest.mark.parametrize("words", ["", "-h", "memory", "memory -h", "memory show -h"])
def test_the_first_minutes_end_well_in_a_process_of_their_own(tmp_path: Path, words: str) -> None:
    done = run(*words.split(), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: diagevo")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("path", [*GROUPS, *COMMANDS])
def test_h_is_help(ask: Ask, path: str) -> None:
    long = ask(*path.split(), "--help")
    assert long == ask(*path.split(), "-h")
    assert (long[0], long[2], "Usage: diagevo" in long[1]) == (0, "", True)


@pytest.mark.parametrize("path", [*GROUPS, *COMMANDS])
def test_an_option_that_does_not_exist_is_named_with_the_help_that_lists_them(ask: Ask, path: str) -> None:
    code, out, err = ask(*path.split(), "--nonsense")
    assert (code, out) == (2, "")
    assert err.startswith("error: No such option: --nonsense")
    assert f"hint: see: {' '.join(('diagevo', *path.split()))} --help" in err


@pytest.mark.parametrize("path", COMMANDS)
def test_a_command_lists_the_common_options_that_it_takes_and_refuses_the_others(ask: Ask, path: str) -> None:
    command = dict(leaves(PROGRAM))[tuple(path.split())]
    takes = {option for p in command.params if p.param_type_name == "option" for option in p.opts}
    assert {"-q", "-v", "--no-color", "--json"} <= takes
    assert ("--run" in takes, "--db" in takes) == (path not in ABOUT_NO_RUN, path not in WITHOUT_DATABASE)
    needed = ["main" for p in command.params if p.param_type_name == "argument" and p.required]
    for option, value in {**CONFIGURING, "--run": "a", "--db": "no.db"}.items():
        if option not in takes:
            code, out, err = ask(*path.split(), *needed, option, value)
            assert (code, out) == (2, ""), option
            assert err.startswith(f"error: No such option: {option}"), err


def test_an_option_before_the_commands_name_is_told_where_it_belongs(ask: Ask) -> None:
    code, out, err = ask("--run", "a", "memory", "show")
    assert (code, out) == (2, "")
    assert err == (
        "error: No such option: --run\nhint: see: diagevo --help (options stand after the command's name)\n"
    )


def test_a_variable_of_the_environment_is_for_the_commands_that_read_it(tmp_path: Path) -> None:
    done = invoke("memory", "show", "--db", tmp_path / "no.db", env={"DIAGEVO_PROFILE": "nope"})
    assert (done.exit_code, "there is no database" in done.stderr) == (5, True)


def test_help_lists_commands_in_the_order_of_use_each_with_its_whole_sentence(ask: Ask) -> None:
    def listed(*group: str) -> list[str]:
        lines = ask(*group, "--help")[1].partition("Commands:\n")[2].partition("\n\n")[0].splitlines()
        return [line.split()[0] for line in lines if line[2:3].strip()]

    assert not any("..." in ask(*group.split(), "--help")[1].partition("Commands:")[2] for group in GROUPS)
    first = ["init", "doctor", "config", "train", "ingest", "diagnose", "runs", "memory"]
    assert listed()[:8] == first
    assert listed("memory")[:5] == ["show", "why", "replay", "log", "schedule"]
    assert listed("memory")[-1] == "calibrate"


ROOT = Path(__file__).parents[2]
OPTIONS = {
    path: {"--help"}
    | {name for parameter in leaf.params for name in (*parameter.opts, *parameter.secondary_opts)}
    for path, leaf in leaves(command())
}
SAID = re.compile(r"diagevo ([a-z][a-z ]*[a-z])((?: (?:--?[a-z][a-z-]*|[A-Z{][\w{}.\[\]:]*|[a-z0-9_.{}]+))*)")


@cache
def _texts() -> list[tuple[str, str]]:
    return list(_literals())


def _literals() -> Iterator[tuple[str, str]]:
    """Every literal of the program with the file it stands in; what is put into one is {}."""
    for folder in ("diagevo", "cli"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            tree = ast.parse(file.read_text(encoding="utf-8"))
            inside: set[int] = set()
            for node in ast.walk(tree):
                if isinstance(node, ast.JoinedStr):
                    inside |= {id(value) for value in node.values}
                    parts = [v.value if isinstance(v, ast.Constant) else "{}" for v in node.values]
                    yield str(file.relative_to(ROOT)), "".join(map(str, parts))
                elif (
                    isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside
                ):
                    yield str(file.relative_to(ROOT)), node.value


def _command(words: str) -> tuple[str, ...] | None:
    """The longest beginning of the words that is a command."""
    said = tuple(words.split())
    return next((said[:n] for n in range(len(said), 0, -1) if said[:n] in OPTIONS), None)


def test_every_command_that_a_message_names_has_the_options_it_names() -> None:
    wrong = [
        (file, found[0])
        for file, text in _texts()
        for found in SAID.finditer(text)
        if (path := _command(found[1])) is not None
        for option in re.findall(r" (--[a-z][a-z-]*)", found[2])
        if option not in OPTIONS[path]
    ]
    assert wrong == []


def test_resume_is_told_of_train_alone() -> None:
    """Other commands go on by being run again."""
    told = [(file, text) for file, text in _texts() if re.search(r"(?:with|add|then) --resume", text)]
    assert [text for _, text in told if "diagevo train" not in text] == []
    assert told, "the hint of a diagnostician that does not answer"
