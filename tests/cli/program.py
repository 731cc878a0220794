"""The program as a user has it: through its entry point, in this process or in one of its own."""

import os
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import typer
import typer.testing
from typer.main import get_command
from typer.testing import CliRunner, Result

STARTED = [sys.executable, "-c", "from diagevo.cli.main import app; app()"]


# A runner builds all fifty commands each time it is asked for one, which takes longer than most of them.
@cache
def _built(app: Any) -> Any:
    return get_command(app) if isinstance(app, typer.Typer) else app


setattr(typer.testing, "_get_command", _built)  # noqa: B010  (a name that it keeps for itself)


@cache
def load() -> typer.Typer:
    [entry] = entry_points(group="console_scripts", name="diagevo")
    return entry.load()


def command() -> Any:
    """The program, to be called with its arguments."""
    return _built(load())


def invoke(*arguments: str | Path, env: Mapping[str, str] | None = None) -> Result:
    """Run a command in this process. stdout and stderr are no terminals."""
    return CliRunner().invoke(load(), [str(a) for a in arguments], env={"DIAGEVO_HOME": None, **(env or {})})


def clean_environment(**more: str) -> dict[str, str]:
    """The environment without any DIAGEVO_ variable, and with the user's file out of the way."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DIAGEVO_")}
    return kept | {"XDG_CONFIG_HOME": "/nonexistent"} | more


def run(
    *arguments: str | Path, cwd: Path, env: Mapping[str, str] | None = None, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own."""
    return subprocess.run(
        [*STARTED, *(str(a) for a in arguments)],
        cwd=cwd,
        env=clean_environment(**(env or {})),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def leaves(command: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Any]]:
    """Every command of the program with its path."""
    inner = getattr(command, "commands", None)
    if inner is None:
        return [(path, command)]
    return [leaf for name, sub in inner.items() for leaf in leaves(sub, (*path, name))]
