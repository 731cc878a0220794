"""On a real terminal: what is longer than the screen goes to a pager, in colours that it obeys."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cli.program import STARTED, run
from tests.cli.terminal import on_terminal

pytestmark = pytest.mark.slow

SAYS = "import os, sys; print('PAGED by', sys.argv[1:], os.environ['LESS']); print(sys.stdin.read())"
WHY = ("memory", "why", "c2")


@pytest.fixture
def home(played_home: Path, tmp_path: Path) -> Path:
    """A folder with pagers that say that they were asked. By its name one is known to obey colours."""
    (tmp_path / "less").write_text(f"#!{sys.executable}\n{SAYS}\n")
    (tmp_path / "less").chmod(0o755)
    (tmp_path / "other").symlink_to(tmp_path / "less")
    (tmp_path / "diagevo.db").symlink_to(played_home / "diagevo.db")
    return tmp_path


def _shown(
    home: Path, *arguments: str, rows: int = 10, code: int = 0, env: Mapping[str, str] | None = None
) -> str:
    path = f"{home}:{os.environ['PATH']}"
    shown, ended = on_terminal(
        [*STARTED, *arguments],
        cwd=home,
        env={"PATH": path, "DIAGEVO_HOME": str(home), "PAGER": "less", **(env or {})},
        rows=rows,
    )
    assert ended == code, shown
    return shown


def test_what_fits_on_the_screen_is_not_paged(home: Path) -> None:
    whole = _shown(home, *WHY, rows=50)
    height = len(whole.splitlines())
    assert "PAGED" not in whole
    assert "PAGED" not in _shown(home, *WHY, rows=height + 1)  # and a line for the prompt
    paged = _shown(home, *WHY, rows=height)
    assert paged.splitlines()[0] == "PAGED by [] FRX"
    assert paged.splitlines()[1 : 1 + height] == whole.splitlines()


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"PAGER": "other -x 'a b'"}, "PAGED by ['-x', 'a b']"),
        ({"PAGER": "cat", "DIAGEVO_PAGER": "other"}, "PAGED by []"),
        ({"PAGER": "other", "DIAGEVO_PAGER": ""}, None),
        ({"PAGER": "no-such-program"}, None),
        ({"TERM": "dumb"}, None),
    ],
)
def test_the_environment_names_the_pager_or_none(
    home: Path, environment: dict[str, str], said: str | None
) -> None:
    shown = _shown(home, *WHY, env=environment)
    assert ("PAGED" in shown) == (said is not None)
    assert shown.startswith(said or "")
    assert "promoted     r4" in shown


@pytest.mark.parametrize("option", ["--no-pager", "-q"])
def test_an_option_leaves_the_pager_out(home: Path, option: str) -> None:
    assert "PAGED" not in _shown(home, *WHY, option)


@pytest.mark.parametrize(
    ("environment", "coloured"),
    [
        ({}, True),
        ({"LESS": "-i"}, False),
        ({"PAGER": "other"}, False),
        ({"NO_COLOR": "1"}, False),
    ],
)
def test_codes_of_colours_reach_only_a_pager_that_obeys_them(
    home: Path, environment: dict[str, str], coloured: bool
) -> None:
    shown = _shown(home, *WHY, env=environment)
    assert "PAGED" in shown
    assert ("\x1b[" in shown) == coloured


def test_a_finding_keeps_its_exit_code_and_an_error_is_no_page(home: Path) -> None:
    assert "PAGED" in _shown(home, "runs", "diff", "1..4", "--exit-code", code=1)
    assert "PAGED" not in _shown(home, "memory", "why", "c99", rows=2, code=3)


def test_without_a_terminal_there_is_neither_a_pager_nor_a_colour(home: Path) -> None:
    piped = run(*WHY, cwd=home, env={"DIAGEVO_HOME": str(home), "PAGER": "other"})
    assert piped.stdout.startswith("c2  drops")
    assert "\x1b" not in piped.stdout
