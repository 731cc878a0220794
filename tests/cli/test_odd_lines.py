"""Command lines that nobody would write on purpose, of every command: each ends with a code that says what is
wrong, and none with a traceback or as a bug of ours (70).

They are put together by lot, the same in every run, from the program's own commands and options.
"""

import os
import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.cli.program import command, invoke, leaves
from tests.memory.audit.played import play

COMMANDS = leaves(command())
LINES = 24
"""Of each command."""
KNOWN = {0, 1, 2, 3, 4, 5, 6, 75, 130}
WAITING = {"--follow", "--rehearse"}
"""Options with which a command goes on until somebody ends it, or plays what takes minutes."""
WORDS = (
    *("", " ", "-", "--", "---", "=", "a=b", "=b", ".", "..", "A..B", "*", "%s%n", "a\nb", "\t"),
    *(
        "é",
        "𝒳" * 40,
        "\u202e\u2066",
        "\x1b[31m",
        "\udcff\udc80",
        "名前",
        "'; DROP TABLE event; --",
        "{}",
        "[",
    ),
    *(
        "9" * 40,
        "-" + "9" * 40,
        "0",
        "-0",
        "-1",
        "1e999",
        "-1e999",
        "NaN",
        "inf",
        "0x10",
        "1_000",
        "1/0",
        "½",
    ),
    *("c1", "c" + "9" * 30, "n0", "r1.q0", "r1.q0.a0", "r99999999999999999999.q1", "latest", "all", "null"),
    *("-" * 300, "--no-such", "--run", "--json", "--format", "sqlite://", "postgresql://", "http://["),
    *("x" * 5000, "\\", "٣"),
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run of one committed round, a file that is no configuration, and a folder."""
    folder = tmp_path_factory.mktemp("odd")
    play(str(folder / "runs/diagevo.db"), "played", root=folder / "runs", rounds=1)
    (folder / "file").write_bytes(b"\x00\xff{")
    (folder / "folder").mkdir()
    return folder


@pytest.fixture(autouse=True)
def _nothing_runs_long(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What trains, serves or draws once its line is understood does nothing."""
    monkeypatch.chdir(home)
    monkeypatch.setattr("diagevo.loop.run.train", lambda *_, **__: 0)
    monkeypatch.setattr("diagevo.evaluation.ablation._call", lambda *_, **__: None)
    monkeypatch.setattr("diagevo.cli.commands.mcp_tools.serve", lambda _: None)
    monkeypatch.setattr("diagevo.report.build.build", lambda *_, **__: [])
    monkeypatch.setattr("diagevo.view.server.served", lambda *_, **__: SimpleNamespace(run=lambda **_: None))


def lines(path: tuple[str, ...], parameters: list[Any], rng: random.Random) -> Iterator[list[str]]:
    """Odd lines of one command: words at odd places, odd values, names that are nearly right."""
    words = (*WORDS, "file", "folder", str(Path("folder").resolve()))
    options = [name for p in parameters for name in p.opts if name.startswith("-") and name not in WAITING]
    flags = {name for p in parameters if getattr(p, "is_flag", False) for name in p.opts}
    arguments = sum(p.param_type_name == "argument" for p in parameters)
    for _ in range(LINES):
        given: list[str] = []
        for option in rng.sample(options, min(len(options), rng.randrange(3))):
            given += [option] if option in flags and rng.random() < 0.8 else [option, rng.choice(words)]
        given += rng.sample(words, arguments if rng.random() < 0.8 else rng.randrange(4))
        line = [*path, *given]
        match rng.randrange(10):
            case 0:  # before the command
                line = [*given, *path]
            case 1:  # misspelt
                name, place = path[-1], rng.randrange(len(path[-1]))
                line = [
                    *path[:-1],
                    name[:place] + rng.choice(("", "x", "é", "-")) + name[place + 1 :],
                    *given,
                ]
            case 2:
                line = [*path, "--", *given]
            case 3:
                rng.shuffle(given)
                line = [*path, *given]
        yield line


def test_there_are_more_than_600() -> None:
    assert len(COMMANDS) * LINES > 600


@pytest.mark.parametrize(("path", "leaf"), [pytest.param(*one, id=" ".join(one[0])) for one in COMMANDS])
def test_an_odd_line_ends_with_a_code_that_says_what_is_wrong(
    path: tuple[str, ...], leaf: Any, home: Path
) -> None:
    before = sorted(os.listdir(home / "runs"))
    for line in lines(path, leaf.params, random.Random(" ".join(path))):
        done = invoke(*line)
        assert done.exit_code in KNOWN, f"{line} ends with {done.exit_code}: {done.output[-2000:]}"
        assert done.exception is None or isinstance(done.exception, SystemExit), line
        assert "Traceback (most recent call last)" not in done.output, line
        if done.exit_code not in (0, 1):
            assert done.output.strip(), f"{line} says nothing of why it ends with {done.exit_code}"
    assert not list(home.rglob("*.traceback")), before
