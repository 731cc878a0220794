"""The wheel: everything in it, usable from outside the checkout, and its auditing half without torch."""

import ast
import json
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from ruamel.yaml import YAML

import diagevo
from tests.cli.program import clean_environment
from tests.memory.audit.played import play

ROOT = Path(__file__).parents[1]
ROOMS = {"diagevo": ROOT / "diagevo", "diagevo.cli": ROOT / "cli", "diagevo.migrations": ROOT / "migrations"}
ABSENT = (
    "torch",
    "transformers",
    "trl",
    "accelerate",
    "datasets",
    "vllm",
    "peft",
    "polars",
    "pyarrow",
    "altair",
)
"""What the extras bring."""


def _packages(name: str, folder: Path) -> set[str]:
    """`folder` as a package, with the packages below it."""
    below = (inner for inner in folder.iterdir() if (inner / "__init__.py").exists())
    return {name}.union(*(_packages(f"{name}.{inner.name}", inner) for inner in below))


def test_the_list_of_packages_is_the_folders() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    assert len(listed) == len(set(listed))
    assert set(listed) == set().union(*(_packages(name, folder) for name, folder in ROOMS.items()))


def _files(folder: Path) -> set[str]:
    return {
        file.relative_to(folder).as_posix()
        for file in folder.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from a copy of the tree, so that nothing is left in the checkout."""
    copy = tmp_path_factory.mktemp("tree")
    for name in ("diagevo", "cli", "migrations"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    out = tmp_path_factory.mktemp("wheel")
    build = f"from setuptools import build_meta; build_meta.build_wheel({str(out)!r})"
    done = subprocess.run([sys.executable, "-c", build], cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    [file] = out.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel unpacked, which for a pure wheel is an installation."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        assert b"Root-Is-Purelib: true" in archive.read("diagevo-0.1.0.dist-info/WHEEL")
        archive.extractall(folder)
    return folder


def test_the_wheel_holds_every_file_of_the_rooms_and_no_other_package(site: Path) -> None:
    packed = {file for file in _files(site) if ".dist-info/" not in file}
    sources = {file for file in _files(ROOT / "diagevo") if not file.startswith(("cli/", "migrations/"))}
    wanted = {f"diagevo/{file}" for file in sources}
    wanted |= {f"diagevo/cli/{file}" for file in _files(ROOT / "cli")}
    wanted |= {f"diagevo/migrations/{file}" for file in _files(ROOT / "migrations")}
    assert packed == wanted


def test_the_wheel_starts_the_program_and_names_no_package_of_an_extra_as_a_need(site: Path) -> None:
    facts = site / "diagevo-0.1.0.dist-info"
    assert "diagevo = diagevo.cli.main:app" in (facts / "entry_points.txt").read_text()
    needs = [
        line for line in (facts / "METADATA").read_text().splitlines() if line.startswith("Requires-Dist:")
    ]
    always = [line.split()[1].lower() for line in needs if "extra ==" not in line]
    assert always
    assert not [need for need in always if need.startswith(ABSENT)]


OUTSIDE = """
import json, sys
site, commands = sys.argv[1], json.loads(sys.argv[2])
sys.path.insert(0, site)
for name in {blocked!r}:
    sys.modules[name] = None  # Python's own way to say that a module is not there
import diagevo
from diagevo.cli.main import app
from typer.testing import CliRunner
said = {{"where": diagevo.__file__}}
for command in commands:
    done = CliRunner().invoke(app, command)
    said[" ".join(command)] = [done.exit_code, done.stdout, done.stderr]
print(json.dumps(said))
"""


def _outside(site: Path, commands: list[list[str]], cwd: Path) -> dict[str, list]:
    """Run commands of the installed wheel, far from the checkout, where no extra is installed."""
    program = OUTSIDE.format(blocked=ABSENT)
    argv = [sys.executable, "-P", "-c", program, str(site), json.dumps(commands)]
    done = subprocess.run(argv, cwd=cwd, env=clean_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said.pop("where").startswith(str(site))
    return said


@pytest.mark.slow
def test_outside_the_checkout_and_without_torch_the_log_can_be_made_and_audited(
    site: Path, tmp_path: Path
) -> None:
    play(str(tmp_path / "played.db"), "played", root=tmp_path, rounds=2)
    at = ["--db", str(tmp_path / "played.db")]
    rows = [{"prompt": "1+1?", "response": f"\\boxed{{{said}}}", "reward": said == 2} for said in (2, 3)]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    commands = [
        ["init", "fresh"],
        ["db", "status", "--db", "fresh/runs/diagevo.db", "--json"],
        ["config", "show", "--profile", "qwen3-8b", "--paper"],
        ["runs", "list", *at, "--json"],
        ["memory", "show", *at],
        ["memory", "why", "c1", *at],
        ["memory", "replay", "--round", "2", *at, "--json"],
        ["memory", "verify", *at],
        ["memory", "log", *at, "--format", "csv", "-o", "log.csv"],
        ["ingest", "jsonl", "rows.jsonl", "--run", "mine", *at],
        ["memory", "schedule", *at, "--run", "mine", "--dataset", "rows.jsonl", "-o", "next.jsonl"],
        ["runs", "export", *at, "--run", "played", "--as", "dpo", "-o", "hard.jsonl"],
        ["db", "status", *at],
    ]
    said = _outside(site, commands, tmp_path)
    assert {command: code for command, (code, _, err) in said.items() if code} == {}, said
    findings = json.loads(said["db status --db fresh/runs/diagevo.db --json"][1])["data"]
    assert all(finding["ok"] for finding in findings)
    replayed = json.loads(next(out for name, (_, out, _) in said.items() if "replay" in name))["data"]
    assert (replayed["failures"], replayed["epsilon_next"]["exact"]) == (5, "2/7")
    assert (tmp_path / "log.csv").exists()


def test_what_needs_an_extra_says_which_and_leaves_nothing(site: Path, tmp_path: Path) -> None:
    play(str(tmp_path / "played.db"), "played", root=tmp_path, rounds=2)
    at = ["--db", str(tmp_path / "played.db")]
    (tmp_path / "rows.parquet").write_bytes(b"PAR1 1234 PAR1")
    (tmp_path / "rows").mkdir()
    before = _files(tmp_path)
    needed = {
        "train": [["train", "--rounds", "1", "--display", "none"]],
        "report": [["report", "build", *at]],
        "polars": [
            ["memory", "log", *at, "--format", "parquet", "-o", "log.parquet"],
            ["memory", "schedule", *at, "--dataset", "rows.parquet"],
            ["memory", "schedule", *at, "--dataset", "rows"],
            ["runs", "export", *at, "--as", "dpo", "-o", "hard.parquet"],
            ["runs", "export", *at, "--as", "dpo", "-o", "hard"],
            ["ingest", "jsonl", "rows.parquet", "--run", "mine", *at],
        ],
    }
    said = _outside(site, [command for commands in needed.values() for command in commands], tmp_path)
    for extra, commands in needed.items():
        for command in commands:
            code, _, err = said[" ".join(command)]
            assert code == 4, (command, err)
            assert f"[{extra}]" in err
    assert _files(tmp_path) == before


def test_a_class_of_many_fields_is_made_by_keywords() -> None:
    """Nobody sees from the place of a seventh argument what it is. For functions ruff says so (PLR0917)."""
    found: list[str] = []
    for file in sorted(p for folder in ("diagevo", "cli") for p in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and len(node.args) > 6:
                name = ast.unparse(node.func).rpartition(".")[2].lstrip("_")
                if name[:1].isupper() and name != "Table":  # SQLAlchemy's: columns, as many as there are
                    found.append(f"{file.relative_to(ROOT)}:{node.lineno} {name}")
    assert found == []


def test_the_package_lists_its_public_names_alone() -> None:
    import diagevo

    assert dir(diagevo) == sorted(diagevo.__all__)


def test_the_package_is_a_program_too() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "diagevo", "--version"], capture_output=True, text=True, check=True
    )
    assert said.stdout == f"diagevo {diagevo.__version__}\n"


FROM_THE_CHECKOUT = """
import sys
sys.meta_path[:] = [finder for finder in sys.meta_path if "Editable" not in repr(finder)]  # as without it
import diagevo
from diagevo.cli.main import app
with diagevo.open(sys.argv[1], run="mine") as memory:
    print(memory.open_round(1).epsilon)
"""


def test_python_in_the_checkouts_root_finds_all_of_it_whatever_is_installed(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", FROM_THE_CHECKOUT, str(tmp_path / "mine.db")]
    said = subprocess.run(argv, cwd=ROOT, env=clean_environment(), capture_output=True, text=True)
    assert (said.stdout, said.stderr) == ("1\n", "")


def test_make_installs_the_checkout_again_where_a_copy_took_its_place(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    site = tmp_path / ".venv" / "lib" / "python3.12" / "site-packages"
    site.mkdir(parents=True)
    (tmp_path / ".venv" / ".ready").touch()

    def planned() -> str:
        return subprocess.run(
            ["make", "-n", "setup"], cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout

    assert "--editable '.[train," in planned()
    (site / "__editable__.diagevo-0.1.0.pth").touch()
    assert "--editable" not in planned()


def test_make_finds_a_python_that_fits_and_says_where_none_does(tmp_path: Path) -> None:
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    there, home = tmp_path / "bin", tmp_path / ".pyenv" / "versions"
    there.mkdir()
    (there / "python3.11").write_text("#!/bin/sh\nexit 127\n")  # a shim of nothing
    (there / "python3.11").chmod(0o755)
    program = shutil.which("make") or "make"

    def made(*words: str) -> tuple[int, str, list[str]]:
        env = {"PATH": f"{there}:/nonexistent", "HOME": str(tmp_path)}
        said = subprocess.run([program, *words], cwd=tmp_path, env=env, capture_output=True, text=True)
        return said.returncode, said.stdout, said.stderr.splitlines()

    code, _, error = made("setup")
    assert (code, len(error)) == (2, 2)  # ours, and which target make ends at
    assert error[0].startswith("make: here is no Python 3.11, 3.12 or 3.13 with venv: install one")
    assert made("train", "PYTHON=/bin/false")[2][0].endswith("name it: make train PYTHON=/path/to/python3.12")
    assert not (tmp_path / ".venv").exists()
    (home / "3.12.9" / "bin").mkdir(parents=True)
    (home / "3.12.9" / "bin" / "python").symlink_to(sys.executable)
    assert f'"{home}/3.12.9/bin/python" -m venv --clear .venv\n' in made("-n", "setup")[1]
    (there / "python3.13").symlink_to(sys.executable)
    assert '"python3.13" -m venv --clear .venv\n' in made("-n", "setup")[1]
    assert '"python3.13" -m venv --clear other\n' in made("-n", "setup", "VENV=other")[1]


def test_a_release_has_links_that_work_on_the_index(tmp_path: Path) -> None:
    """The step of the workflow, in a copy: every link is absolute, and names a file that is there."""
    workflow = YAML(typ="safe").load(ROOT / ".github" / "workflows" / "release.yml")
    [step] = [
        s for s in workflow["jobs"]["build"]["steps"] if s.get("name") == "Links that work on the index"
    ]
    for name in ("README.md", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    where = "https://code.example/some/diagevo"
    env = clean_environment(
        GITHUB_SERVER_URL="https://code.example", GITHUB_REPOSITORY="some/diagevo", GITHUB_REF_NAME="v0.1.0"
    )
    subprocess.run(["bash", "-eu", "-c", step["run"]], cwd=tmp_path, env=env, check=True)
    before, after = (
        re.findall(r"\]\(([^)#]+)", (folder / "README.md").read_text("utf-8")) for folder in (ROOT, tmp_path)
    )
    assert len(before) == len(after) > 20
    for old, new in zip(before, after, strict=True):
        kind = "raw" if old.endswith((".svg", ".png")) else "blob"
        assert new == (old if "://" in old else f"{where}/{kind}/v0.1.0/{old}")
        assert "://" in old or (ROOT / old).exists()
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["urls"]["Repository"] == where


def test_ci_resolves_every_documented_install_and_its_pins_are_within_the_extras() -> None:
    """`make installs`: what it resolves is read from the pages, and what each file pins fits the extras."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    [resolved] = re.findall(r"^INSTALLS := (.*)$", makefile, re.MULTILINE)
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), ROOT / "CONTRIBUTING.md"]
    written = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    documented = set(re.findall(r"pip install --constraint (\S+) '\.\[([\w,]+)\]'", written))
    assert documented == {tuple(each.split(":")) for each in resolved.split()}
    assert "make installs" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for file, extras in documented:
        lines = (ROOT / file).read_text(encoding="utf-8").splitlines()
        pinned = {
            canonicalize_name(n): v for n, _, v in (line.partition("==") for line in lines if "==" in line)
        }
        wanted = [
            *asked["dependencies"],
            *(r for e in extras.split(",") for r in asked["optional-dependencies"][e]),
        ]
        for requirement in map(Requirement, wanted):
            if requirement.name != "diagevo":
                assert pinned[canonicalize_name(requirement.name)] in requirement.specifier, (
                    file,
                    requirement,
                )
        assert pinned[canonicalize_name("torch")] == "2.13.0", "installed first, by this version"
