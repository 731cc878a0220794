"""The documents cannot drift: what README.md and docs/ mark as runnable runs, and what they name exists."""

import ast
import io
import re
import shlex
import shutil
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from diagevo import errors
from diagevo.config.sources import dotted, keys
from tests.cli.program import clean_environment, invoke, leaves, load
from tests.memory.audit.played import play

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MADE = {"commands.md", "configuration.md", "equations.md", "events.md", "views.md"}
"""Pages that a build makes from the code."""
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if path.name not in MADE and "_build" not in path.parts
}
EXITS = PAGES["docs/reference/exit-codes.md"]
RUNNABLE = re.compile(r"<!-- runnable -->\n```(\w+)\n(.*?)```", re.DOTALL)
BLOCKS = [(page, *found) for page, text in PAGES.items() for found in RUNNABLE.findall(text)]
FILE_NAMED = re.compile(r"(?<![\w/.:-])[\w-]+(?:/[\w-]+)*\.py\b")
EXAMPLE = "file.py"
"""The name that `file.py:Class` has where a form is shown."""
ACTIVATE = "source .venv/bin/activate"
COMMANDS = {
    page: [
        line.removeprefix("$ ")
        for name, language, block in BLOCKS
        if (name, language) == (page, "console")
        for line in block.splitlines()
        if line.startswith("$ diagevo ")
    ]
    for page, language, _ in BLOCKS
    if language == "console"
}
"""By page, in the order of the page: one may read what an earlier one wrote."""
PROGRAMS = [block for _, language, block in BLOCKS if language == "python"]


NO_PROSE = re.compile(
    r"\A---\n.*?^---\n|^(```+).*?^\1|<!--.*?-->|^\|.*?$|^#.*?$|^!\[.*?\)$", re.DOTALL | re.MULTILINE
)
"""Front matter, code, comments, tables, headings, pictures."""


def sentences(page: str) -> Iterator[str]:
    """The sentences of a page's prose; a link counts as its text."""
    for block in re.split(r"\n\s*\n|\n\s*(?:[-*]|\d+\.)\s", NO_PROSE.sub("\n\n", page)):
        words = " ".join(re.sub(r"\]\([^)]*\)", "]", block).split())
        yield from re.split(r"(?<=[.!?])[)*]*\s+", words)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as `make train` leaves it, but for the models: a run `first`, four rounds played by hand."""
    folder = tmp_path_factory.mktemp("home")
    play(str(folder / "runs" / "diagevo.db"), "first", root=folder / "runs")
    (folder / "examples").symlink_to(ROOT / "examples", target_is_directory=True)
    return folder


@pytest.mark.parametrize("page", COMMANDS)
def test_the_commands_of_a_page_run(
    page: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(shutil.copytree(home, tmp_path / "home", symlinks=True))
    for name, value in {"DIAGEVO_HOME": "runs", "XDG_CONFIG_HOME": str(tmp_path / "none")}.items():
        monkeypatch.setenv(name, value)
    for line in COMMANDS[page]:
        program, *arguments = shlex.split(line)
        assert program == "diagevo"
        done = CliRunner().invoke(load(), arguments)
        assert done.exit_code == 0, (line, done.stderr)
        assert done.stdout or "-o" in arguments


@pytest.mark.slow
def test_the_first_commands_of_the_readme_run_as_they_are_typed(home: Path) -> None:
    (home / ".venv").symlink_to(sys.prefix, target_is_directory=True)
    first = next(block for page, _, block in BLOCKS if page == "README.md" and ACTIVATE in block)
    script = "set -e\n" + "\n".join(line.removeprefix("$ ") for line in first.splitlines())
    bare = clean_environment(PATH="/usr/bin:/bin")
    done = subprocess.run(["bash", "-c", script], cwd=home, env=bare, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "as it was written" in done.stdout


@pytest.mark.slow
def test_the_programs_of_the_documents_run_one_after_another_in_one_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for program in (*PROGRAMS, PROGRAMS[0]):
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=tmp_path,
            env=clean_environment(),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    monkeypatch.chdir(tmp_path)
    asked = re.findall(r"^\$ diagevo (.*)", PAGES["docs/howto/own-trainer.md"], re.MULTILINE)
    assert asked
    for line in (*asked, "memory verify --deep --run by-hand --db runs/mine.db"):
        found = invoke(*shlex.split(line))
        assert found.exit_code == 0, found.output


@pytest.mark.slow
def test_the_lines_for_trl_add_a_callback_to_a_trainer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from datasets import Dataset
    from trl.trainer.grpo_config import GRPOConfig
    from trl.trainer.grpo_trainer import GRPOTrainer

    from diagevo.arithmetic import WEIGHTS
    from diagevo.integrations.trl import RoundCallback

    def right(completions: list[str], **_: object) -> list[float | None]:
        return [1.0 for _ in completions]

    monkeypatch.chdir(tmp_path)
    rows = Dataset.from_list([{"prompt": "1+1"}])
    args = GRPOConfig("trl", use_cpu=True, bf16=False, report_to="none")
    trainer = GRPOTrainer(str(WEIGHTS), reward_funcs=right, args=args, train_dataset=rows)
    blocks = re.findall(r"```python\n(.*?)```", PAGES["docs/howto/ingest.md"], re.DOTALL)
    [block] = [block for block in blocks if "RoundCallback" in block]
    names: dict[str, Any] = {"trainer": trainer}
    exec(block, names)
    assert any(isinstance(one, RoundCallback) for one in trainer.callback_handler.callbacks)
    names["memory"].close()
    assert (tmp_path / "runs" / "diagevo.db").is_file()


@pytest.mark.parametrize("page", PAGES)
def test_no_sentence_is_longer_than_thirty_words(page: str) -> None:
    assert [told for told in sentences(PAGES[page]) if len(told.split()) > 30] == []


def test_a_sentence_ends_where_it_ends_and_code_and_tables_are_none() -> None:
    page = "# One\n\nIt is so. [A link](to/a.md), it is.\n\n- an item\n- two\n\n| a | b |\n\n```\nx\n```\n"
    found = [told for told in sentences(page) if told]
    assert found == ["It is so.", "[A link], it is.", "- an item", "two"]


def test_the_first_commands_of_the_readme_train_and_test() -> None:
    opening, _, rest = README.partition("```")
    assert rest.startswith("console\n$ make train\n$ make test\n```")
    assert len(opening.splitlines()) < 15


def test_the_readme_names_every_group_of_commands_and_no_command_that_is_not_there() -> None:
    table = README.partition("| command | purpose |")[2].partition("\n\n")[0]
    named: set[str] = set()
    for cell in re.findall(r"^\| `([^`]+)`", table, re.MULTILINE):
        group, _, rest = cell.partition(" ")
        names = [name.strip() for name in rest.split(",")]
        single = not rest or not re.fullmatch(r"[a-z-]+", names[0])
        named |= {group} if single else {f"{group} {name}" for name in names}
    real = {" ".join(path) for path, _ in leaves(get_command(load()))}
    assert named - real == set()
    assert {command.split()[0] for command in real} == {command.split()[0] for command in named}


def test_every_exit_code_of_the_page_is_an_errors_and_the_other_way_round() -> None:
    table = EXITS.partition("| code | meaning |")[2].partition("\n\n")[0]
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", table, re.MULTILINE)}
    raised = {
        found.exit_code
        for found in vars(errors).values()
        if isinstance(found, type) and issubclass(found, errors.DiagEvoError)
    }
    assert listed == raised | {0, 1, 130}


@pytest.mark.parametrize(
    ("page", "head", "least"),
    [
        ("fidelity", "| question | what DiagEvo does | where |", 30),
        ("absolute-zero", "| question | release | here | where |", 25),
        ("darc", "| question | release | here | where |", 35),
        ("spice", "| question | source | here | where |", 30),
    ],
)
def test_a_table_of_fidelity_names_settings_files_and_functions_that_exist(
    page: str, head: str, least: int
) -> None:
    table = PAGES[f"docs/reference/{page}.md"].partition(head)[2].partition("\n\n")[0]
    settings = {dotted(path) for path in keys()} | {dotted(path[:-1]) for path in keys() if len(path) > 1}
    commands = {" ".join(path) for path, _ in leaves(get_command(load()))}
    rows = [row for row in table.splitlines() if row.startswith("| ") and not row.startswith("|---")]
    assert len(rows) > least
    for row in rows:
        for where in re.findall(r"`([^`]+)`", row.split(" | ")[-1]):
            place, _, name = where.partition(": ")
            if place in settings or place in commands:
                continue
            path = ROOT / "diagevo" / place
            assert path.exists(), where
            if name:
                files = [path] if path.is_file() else list(path.glob("*.py"))
                last = name.rpartition(".")[2]
                assert any(re.search(rf"(def|class) {last}\b", file.read_text()) for file in files), where


@pytest.mark.slow
def test_a_file_that_a_docstring_or_comment_names_exists() -> None:
    there = {str(path.relative_to(ROOT)) for path in ROOT.rglob("*.py") if ".venv" not in path.parts}
    sources = sorted({*ROOT.glob("diagevo/**/*.py"), *ROOT.glob("cli/**/*.py")})
    named = {
        (str(source.relative_to(ROOT)), name)
        for source in sources
        for text in prose(source.read_text(encoding="utf-8"))
        for name in FILE_NAMED.findall(text)
        if name != EXAMPLE
    }
    assert len(named) > 5
    missing = {
        (source, name) for source, name in named if not any(f"/{p}".endswith(f"/{name}") for p in there)
    }
    assert missing == set()


def prose(source: str) -> Iterator[str]:
    """The docstrings and comments of a source file."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield str(node.value.value)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string


def test_the_rooms_of_the_guide_exist() -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    for place in re.findall(r"^\| `([a-z/._]+)`", guide, re.MULTILINE):
        assert (ROOT / place).exists(), place


def test_a_link_between_pages_leads_somewhere() -> None:
    for page, text in PAGES.items():
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            made = Path(target).name in MADE
            assert made or (ROOT / page).parent.joinpath(target).exists(), f"{page}: {target}"


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    arguments = ["-q", "-W", "--keep-going", "-b", "html", "-d", str(tmp_path / "trees"), str(ROOT / "docs")]
    built = subprocess.run(
        [sys.executable, "-m", "sphinx", *arguments, str(tmp_path / "html")], capture_output=True, text=True
    )
    assert built.returncode == 0, built.stderr
    for name in ("tutorial", "reference/commands", "reference/events", "reference/views"):
        assert (tmp_path / "html" / f"{name}.html").exists()
    shown = (tmp_path / "html" / "tutorial.html").read_text(encoding="utf-8")
    assert re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="(?:https?:)?//[^"]*"', shown) == []
    runs = tmp_path / "html" / "study-runs"
    told = (runs / "study.full.s3" / "index.html").read_text(encoding="utf-8")
    for way in re.findall(r'class="what"><a href="(causes/c\d+\.html)"', told)[:3]:
        assert (runs / "study.full.s3" / way).is_file()
    assert "study.free-only.s3" in (runs / "index.html").read_text(encoding="utf-8")
    study = (tmp_path / "html" / "reference" / "study.html").read_text(encoding="utf-8")
    linked = re.findall(r'href="\.\./(study-runs/[^"]+)"', study)
    assert len(linked) == 3
    assert all((tmp_path / "html" / page).is_file() for page in linked)
