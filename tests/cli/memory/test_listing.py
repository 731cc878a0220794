"""Commands are known without their modules, and each imports only what it needs. Modules are counted, not
seconds."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import clean_environment, command, leaves

HEAVY = {
    *("torch", "transformers", "trl", "vllm", "lancedb", "polars", "numba", "pandas", "numpy", "jinja2"),
    *("alembic", "openai", "rich.console", "mcp"),
}
EITHER = {
    *("alembic", "psycopg", "pydantic_settings", "ruamel", "jinja2"),
    *("polars", "pyarrow", "openai", "lancedb", "torch", "altair", "diagevo.memory.memory"),
}
AUDIT = {
    *("diagevo.config.models", "diagevo.report", "diagevo.diagnosis", "diagevo.answers"),
    *("diagevo.arithmetic.grammar", "diagevo.memory.writer", "diagevo.memory.nearest"),
}


def test_every_command_lives_where_the_listing_says_and_none_is_left_out() -> None:
    """The listing is read instead of the modules: a name that is in one of them only would be lost."""
    from diagevo.cli import listing, options  # pyright: ignore[reportMissingImports]  (cli/, as installed)

    folder = Path(listing.__file__).parent / "commands"
    listed = {" ".join(path) for path, _ in leaves(command())}  # which imports each
    assert listed <= set(options.BUILT)
    assert len(listed) == sum(f.read_text("utf-8").count("@options.command(") for f in folder.glob("*.py"))


@pytest.mark.parametrize(
    ("asked", "without", "own"),
    [
        ("--help", HEAVY - {"rich.console"} | {"sqlalchemy"}, None),
        ("--version", HEAVY, set()),
        ("runs list", HEAVY | EITHER | AUDIT, {"runs"}),
        ("memory log -n 3", HEAVY | EITHER | AUDIT, {"memory"}),
        ("memory why c1", HEAVY | EITHER | AUDIT, {"memory"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_light_command_imports_its_own_module_and_nothing_that_it_does_not_use(
    played_home: Path, tmp_path: Path, asked: str, without: set[str], own: set[str] | None
) -> None:
    code = (
        "import sys\n"
        "from diagevo.cli.main import app\n"
        f"try:\n    app({asked.split()!r})\nexcept SystemExit as left:\n    assert not left.code, left.code\n"
        "print('LOADED', *sys.modules)"
    )
    environment = clean_environment(DIAGEVO_HOME=str(played_home))
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=True)
    loaded = set(done.stdout.rpartition("LOADED ")[2].split())
    assert loaded & without == set()
    commands = {name.removeprefix("diagevo.cli.commands.") for name in loaded if ".cli.commands." in name}
    assert own is None or commands == own
