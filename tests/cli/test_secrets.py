"""Secrets planted wherever one can stand: no command prints one, and no file of a run holds one.

Each test plants the same word; whatever was printed and every byte below the folder is searched for it.
"""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import diagevo
from diagevo.errors import ConfigError
from diagevo.evaluation.ablation import make_plan
from diagevo.memory.events import Embedder, RunConfigured, records
from tests.cli.program import invoke
from tests.cli.test_program import _failing
from tests.memory.audit.played import play

WORD = "Tr0ub4dor"
TOKEN = f"hf_{WORD}{WORD}"
URLS = [
    f"postgresql://u:{WORD}@127.0.0.1:1/db",
    f"postgresql://u:p@{WORD}@127.0.0.1:1/db",
    f"postgresql://u@127.0.0.1:1/db?password={WORD}",
    f"postgresql://u@127.0.0.1:1/db?sslpassword={WORD}&connect_timeout=abc",
    f"postgresql://u:{WORD}@127.0.0.1:port/db",
    f"mysql://u:{WORD}@127.0.0.1/db",
    f"sqlite:///x.db?password={WORD}",
]


def _written(folder: Path) -> list[str]:
    """The files whose bytes hold the word."""
    return [
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and WORD.encode() in path.read_bytes()
    ]


def _asked(*arguments: str | Path, **env: str) -> str:
    """Everything that a command printed; a bug's exit code is none of the right ones."""
    done = invoke(*arguments, env=env)
    assert done.exit_code in (0, 1, 2, 4, 5, 6), done.output
    assert WORD not in done.output, arguments
    return done.output


@pytest.mark.parametrize("url", URLS)
def test_no_command_prints_the_password_of_its_database(tmp_path: Path, url: str) -> None:
    for command in (
        ["db", "status"],
        ["db", "status", "--json"],
        ["db", "upgrade"],
        ["db", "backup", "b.db"],
        ["memory", "show", "--json"],
        ["memory", "query", "SELECT 1"],
        ["memory", "verify"],
        ["runs", "list"],
        ["eval", "show"],
        ["report", "build"],
        ["doctor", "--json"],
        ["train", "--resume"],
        ["init"],
    ):
        _asked(*command, "--db", url)
        _asked(*command, DIAGEVO_DB=url)
    assert _written(tmp_path) == []


@pytest.mark.parametrize(
    "setting",
    [
        f"roles.diagnostician.base_url=https://h/v1?sig={WORD}",
        f"roles.diagnostician.base_url=https://u:{WORD}@h/v1",
        f"roles.diagnostician.api_key_env={TOKEN}",
        f"roles.solver.model={TOKEN}",
        f"validation.data=https://h/d?token={WORD}",
        f"roles.solver={{model: m, api_key: {WORD}}}",
        f"roles.diagnostician={TOKEN}",
        f"--api-key={WORD}",
    ],
)
def test_no_configuration_takes_or_repeats_a_secret(tmp_path: Path, setting: str) -> None:
    for command in (
        ["config", "show"],
        ["config", "show", "--check", "--json"],
        ["train"],
        ["train", "--plan"],
    ):
        assert "error" in _asked(*command, "--set", setting)
    (tmp_path / "runs").mkdir(exist_ok=True)
    assert _written(tmp_path) == []


@pytest.mark.parametrize(
    "options",
    [
        ["--base-url", f"http://127.0.0.1:1/v1?secret={WORD}"],
        ["--base-url", f"http://{WORD}@127.0.0.1:1/v1"],
        ["--base-url", "http://127.0.0.1:1/v1", "--key-env", TOKEN],
    ],
)
def test_no_evaluation_keeps_a_secret_of_its_endpoint(tmp_path: Path, options: list[str]) -> None:
    assert "error" in _asked("eval", "run", "held-out", "--model", "m", "--limit", "1", *options)
    assert _written(tmp_path) == []


def test_a_log_takes_no_configuration_with_a_secret(tmp_path: Path) -> None:
    config = {"mine": {"options": ["--api-key", WORD]}}
    event = RunConfigured(
        config=config, models={}, embedder=Embedder(name="e", dimension=2, revision=""), version="1"
    )
    with diagevo.open(str(tmp_path / "log.db"), run="a", root=tmp_path) as memory:
        with pytest.raises(ConfigError, match="holds a password, key or token") as refused:
            memory.configure(event)
        assert WORD not in str(refused.value)
    assert _written(tmp_path) == []


def test_the_log_of_an_old_run_is_shown_without_the_secret_that_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing can take it out of an append-only log; no command repeats it or writes it a second time."""
    home = tmp_path / "runs"
    stored = json.loads(invoke("config", "show", "--json").stdout)["data"]
    config: dict = {}
    for row in stored:
        inner = config
        for name in row["key"].split(".")[:-1]:
            inner = inner.setdefault(name, {})
        inner[row["key"].split(".")[-1]] = row["value"]
    config["validation"]["data"] = f"https://h/d?token={WORD}"
    with monkeypatch.context() as patched:
        patched.setattr(records, "holds_secret", lambda value: False)
        play(f"sqlite:///{home / 'diagevo.db'}", "old", root=home, rounds=1, config=config)
    play(f"sqlite:///{home / 'diagevo.db'}", "other", root=home, rounds=1)
    held = _written(tmp_path)
    assert held
    assert all("diagevo.db" in name for name in held)
    shown = [
        _asked("config", "show", "--run", "old"),
        _asked("config", "show", "--run", "old", "--json"),
        _asked("runs", "show", "old", "--json"),
        _asked("runs", "diff", "old..other", "--json"),
        _asked("memory", "log", "--run", "old", "--type", "RunConfigured", "--format", "jsonl"),
        _asked("memory", "log", "--run", "old", "--type", "RunConfigured", "--json"),
    ]
    for text in shown:
        assert "***" in text
    _asked("config", "diff", "run:old", "embedded")
    _asked("config", "show", "--run", "old", "--paper")
    _asked("memory", "log", "--run", "old", "--format", "csv", "-o", "log.csv")
    _asked("memory", "verify", "--run", "old")
    _asked("runs", "fork", "old@1", "--name", "again")
    _asked("train", "--plan", "--resume", "--run", "old")
    assert _written(tmp_path) == held


def test_no_plan_of_an_ablation_holds_a_secret(tmp_path: Path) -> None:
    serving = ["--set", f"validation.data=https://h/d?token={WORD}"]
    with pytest.raises(ConfigError) as refused:
        make_plan("p", ["full"], [0], rounds=1, arguments=serving).save(tmp_path)
    assert WORD not in str(refused.value)
    assert _written(tmp_path) == []


def test_a_traceback_goes_to_the_home_folder_for_its_owner_alone_and_without_a_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("MY_API_KEY", f"{WORD}-{WORD}")
    failing = _failing(KeyError(f"postgresql://u:{WORD}@h/db said no to {WORD}-{WORD}"))
    done = CliRunner().invoke(failing, ["fail"], env={"DIAGEVO_HOME": str(home)})
    [file] = home.glob("diagevo-*.traceback")
    assert done.exit_code == 70
    assert f"the traceback is in {file}" in done.stderr
    assert "KeyError" in file.read_text()
    assert "Traceback" not in done.stderr
    assert WORD not in file.read_text() + done.output
    assert oct(file.stat().st_mode)[-3:] == "600"


def test_no_traceback_goes_into_a_folder_that_other_users_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shared").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "shared"))
    done = CliRunner().invoke(_failing(KeyError("x")), ["fail"], env={"DIAGEVO_HOME": str(tmp_path / "none")})
    assert done.exit_code == 70
    assert "run it again with -v for the traceback" in done.stderr
    assert [path.name for path in tmp_path.rglob("*")] == ["shared"]
