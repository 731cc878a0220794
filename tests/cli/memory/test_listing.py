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


def test_every_command_lives_where_the_listing_says_and_none_is_left_out() -> None:
    """The listing is read instead of the modules: a name that is in one of them only would be lost."""
    from diagevo.cli import listing, options  # pyright: ignore[reportMissingImports]  (cli/, as installed)

    folder = Path(listing.__file__).parent / "commands"
    listed = {" ".join(path) for path, _ in leaves(command())}  # which imports each
    assert listed <= set(options.BUILT)
    assert len(listed) == sum(f.read_text("utf-8").count("@options.command(") for f in folder.glob("*.py"))


def test_help_and_version_import_nothing_heavy(played_home: Path, tmp_path: Path) -> None:
    assert loaded(played_home, tmp_path, "--version") & HEAVY == set()
    assert loaded(played_home, tmp_path, "--help") & (HEAVY - {"rich.console"} | {"sqlalchemy"}) == set()


def ours(names: str, within: str = "") -> set[str]:
    return {".".join(("diagevo", *within.split(), name)) for name in names.split()}


PROGRAM = {"diagevo"} | ours(
    "cli cli.call cli.listing cli.main cli.options errors private text text.escaping text.redaction"
)
SCREEN = ours("commands render render.console render.layout render.result", "cli")
ROWS = ours("opening render.rows render.table screens", "cli")
POLICY = ours("equations equations.policy equations.schedule equations.settings equations.states")
LOG = (
    POLICY
    | ours("config config.former config.method memory memory.history memory.places")
    | ours("darc_rewards filter proposers", "equations")
    | ours("migrations progress text.fractions text.lines text.numbers")
    | ours("events events.catalogue events.decode events.named_texts events.records log state", "memory")
    | ours("artifacts database heads location lock_timeouts log migrate prepared statements", "memory log")
    | ours("tables", "memory log")
    | ours("decide effects fold model projected_schedule projection stored_config", "memory state")
    | ours("vote_checks", "memory state")
)
"""What opens a run for reading."""
READING = PROGRAM | SCREEN | ROWS | LOG
COUNTED = ours("read read.asking read.counts read.pass_rates", "memory") | ours("text.steps text.thoughts")
WRITING = ours("arguments memory opening own_ids writer log.writer_lock", "memory")
WRITING |= ours("assignments projector", "memory state")
NEW_RUN = ours("loading models shipped sources yaml_text", "config") | ours("diagnosis diagnosis.embedder")
INGEST = (
    (PROGRAM | SCREEN | LOG | WRITING)
    | ours("commands.ingest commands.stopping", "cli")
    | ours("ingest text.turns")
    | ours("formats json_lines recording rollout_steps session", "ingest")
    | ours("messages own_rows rows", "ingest formats")
)


@pytest.mark.parametrize(
    ("asked", "imports"),
    [
        ("--version", PROGRAM),
        (
            "config show",
            (PROGRAM | SCREEN | ROWS | POLICY | NEW_RUN) - ours("diagnosis diagnosis.embedder cli.screens")
            | ours("cli.commands.config config config.former config.method config.writing")
            | ours("text.fractions text.lines text.numbers"),
        ),
        (
            "runs list",
            (READING | COUNTED)
            | ours("commands.runs screens.board screens.rounds", "cli")
            | ours("evaluation evaluation.protocol view view.scores")
            | ours("log.writer_lock read.round_figures read.runs", "memory"),
        ),
        (
            "memory log -n 3",
            READING
            | ours("commands.memory screens.log", "cli")
            | ours("own_ids stories stories.references", "memory"),
        ),
        (
            "memory why c1",
            (READING - ours("cli.render.rows"))
            | (COUNTED - ours("read.counts read.pass_rates", "memory"))
            | ours("commands.memory screens.why", "cli")
            | ours("own_ids read.opened_rounds state.assignments stories stories.references", "memory")
            | ours("cause_story examples failures nodes story_wording why", "memory stories"),
        ),
        ("ingest jsonl rows.jsonl --run new", INGEST | NEW_RUN | ours("ingest.rounds")),
        ("ingest jsonl rows.jsonl --run known", INGEST),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_command_imports_what_it_uses_and_nothing_else(
    home: Path, tmp_path: Path, asked: str, imports: set[str]
) -> None:
    """What a command does not need is imported where it is used; what it needs is named here."""
    (tmp_path / "rows.jsonl").write_text(
        '{"prompt": "What is 2 + 2?", "response": "5", "reward": 0}\n'
        '{"prompt": "What is 2 + 2?", "response": "4", "reward": 1}\n',
        encoding="utf-8",
    )
    if "known" in asked:
        loaded(home, tmp_path, asked)
    found = loaded(home, tmp_path, asked)
    assert found & (HEAVY if asked == "--version" else EITHER - {"diagevo.memory.memory", "ruamel"}) == set()
    assert {name for name in found if name.split(".")[0] == "diagevo"} == imports


def loaded(home: Path, folder: Path, asked: str) -> set[str]:
    """The modules that a command has imported when it ends."""
    code = (
        "import sys\n"
        "from diagevo.cli.main import app\n"
        f"try:\n    app({asked.split()!r})\nexcept SystemExit as left:\n    assert not left.code, left.code\n"
        "print('LOADED', *sys.modules)"
    )
    environment = clean_environment(DIAGEVO_HOME=str(home))
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=True)
    return set(done.stdout.rpartition("LOADED ")[2].split())
