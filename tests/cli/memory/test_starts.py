"""What a command that only reads waits for: it imports what it needs. Modules are counted, not seconds."""

import subprocess
import sys
from pathlib import Path

import pytest

EITHER = (
    *("alembic", "psycopg", "pydantic_settings", "ruamel", "jinja2"),
    *("polars", "pyarrow", "openai", "lancedb", "torch", "altair", "diagevo.memory.memory"),
)
AUDIT = (
    *("numpy", "diagevo.config.models", "diagevo.report", "diagevo.diagnosis", "diagevo.answers"),
    *("diagevo.arithmetic.grammar", "diagevo.memory.writer", "diagevo.memory.nearest"),
)


@pytest.mark.parametrize(
    ("command", "without"),
    [
        ("runs list", EITHER + AUDIT),
        ("memory log -n 3", EITHER + AUDIT),
        ("memory why c1", EITHER + AUDIT),
        ("report build --list", EITHER),
    ],
)
def test_a_command_that_reads_imports_nothing_of_what_it_does_not_use(
    played_home: Path, tmp_path: Path, command: str, without: tuple[str, ...]
) -> None:
    code = (
        "import sys\n"
        "from diagevo.cli.main import app\n"
        f"try:\n    app({command.split()!r})\n"
        "except SystemExit as left:\n    assert not left.code, left.code\n"
        f"print('LOADED', [name for name in {without!r} if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"DIAGEVO_HOME": str(played_home), "HOME": str(tmp_path)},
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "LOADED []"
