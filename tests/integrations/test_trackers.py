"""The figures of a run's rounds in trackers: each through its own client, into its own local store."""

import json
import shutil
import subprocess
import sys
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from diagevo.integrations.trackers import figures
from diagevo.memory.history import History, open_history
from diagevo.memory.log.database import Database
from diagevo.memory.transfer.bundle import export_bundle, import_bundle
from diagevo.memory.transfer.fork import fork
from tests.cli.program import clean_environment, invoke, run
from tests.ingest.conftest import DATA, diagnose_by_rules
from tests.memory.audit.played import CONFIG

pytestmark = pytest.mark.slow

ROWS: list[dict[str, Any]] = [
    # F₁ = 4, so z = F/4; ε and the counts as worked out in tests/memory/audit/played.py, where only the label
    # of a round's q2 is false: of three kept in round 2, and of four in round 3
    {"round": 0, "mean_at_k": 0.5, "greedy": 0.9},
    {"round": 1, "failures": 4, "z": 1.0, "epsilon_next": 1 / 3, "active": 3, "mastered": 0}
    | {"labels_true": 1.0, "mean_at_k": 0.6, "greedy": 0.9},
    {"round": 2, "failures": 5, "z": 1.25, "epsilon_next": 2 / 7, "active": 2, "mastered": 1}
    | {"labels_true": 2 / 3, "mean_at_k": 0.7, "greedy": 0.9},
    {"round": 3, "failures": 5, "z": 1.25, "epsilon_next": 2 / 7, "active": 3, "mastered": 1}
    | {"labels_true": 3 / 4, "mean_at_k": 0.7, "greedy": 0.9},
    {"round": 4, "failures": 3, "z": 0.75, "epsilon_next": 2 / 5, "active": 3, "mastered": 1}
    | {"labels_true": 1.0, "mean_at_k": 0.65, "greedy": 0.9},
]


def needs(client: str) -> None:
    if find_spec(client) is None:
        pytest.skip(f"{client} is not installed: pip install 'diagevo[{client}]'")


def of(url: str, run: str) -> list[dict[str, Any]]:
    with closing(open_history(url, run)) as history:
        return figures(history)


def test_a_row_holds_the_figures_of_its_round(history: History) -> None:
    assert figures(history) == ROWS


@pytest.mark.parametrize("client", ["trackio", "wandb", "mlflow"])
def test_a_tracker_gets_each_round(client: str, tmp_path: Path) -> None:
    needs(client)
    done = subprocess.run(
        [sys.executable, "-m", "tests.integrations.tracked", client],
        cwd=tmp_path,
        env=clean_environment(
            PYTHONPATH=str(Path(__file__).parents[2]),
            TRACKIO_DIR=str(tmp_path),
            WANDB_DIR=str(tmp_path),
            WANDB_MODE="offline",
            MLFLOW_TRACKING_URI=f"sqlite:///{tmp_path}/mlflow.db",
        ),
        input=json.dumps(ROWS),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    own = {name for row in ROWS for name in row}
    assert [{n: value for n, value in row.items() if n in own} for row in found["stored"]] == ROWS
    config = {"schedule": {"k": "1"}, "profile": "embedded", "diagevo": "0.1.0"}
    assert {name: value for name, value in found["config"].items() if name in config} == config
    if client == "mlflow":
        assert found["config"]["params"] == {"schedule.k": "1", "profile": "embedded", "diagevo": "0.1.0"}


def test_a_fork_and_an_imported_run_have_the_figures_too(run_folder: Path, tmp_path: Path) -> None:
    """The fork ends with the commit of round 2, before anything was measured; k = 1, so ε₃ = 4/(4 + 5)."""
    url = f"sqlite:///{tmp_path}/log.db"
    shutil.copy(run_folder / "log.db", tmp_path)
    with closing(open_history(url, "played", root=tmp_path)) as history:
        fork(history, 2, "forked", CONFIG | {"schedule": {"k": "1"}}, root=tmp_path)
        export_bundle(history, history.end, tmp_path / "bundle")
    database = Database(url)
    import_bundle(tmp_path / "bundle", database, "imported", root=tmp_path)
    database.close()
    assert of(url, "imported") == ROWS
    without = {"mean_at_k", "greedy"}
    first, second = ({n: v for n, v in row.items() if n not in without} for row in ROWS[1:3])
    assert of(url, "forked") == [first, second | {"epsilon_next": 4 / 9}]


def test_an_ingested_run_has_no_accuracy_and_is_exported_by_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pass rates by round are those of `runs show`."""
    needs("mlflow")
    monkeypatch.chdir(tmp_path)  # where MLflow keeps artifacts, unless it is told otherwise
    env = {"DIAGEVO_HOME": str(tmp_path), "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"}
    verl = DATA / "verl" / "rollouts"
    assert invoke("ingest", "verl", verl, "--run", "v", "--steps-per-round", "3", env=env).exit_code == 0
    empty = invoke("runs", "export", "v", "--to", "mlflow", env=env)
    assert (empty.exit_code, "no committed round yet" in empty.stderr) == (3, True)
    diagnose_by_rules(f"sqlite:///{tmp_path / 'diagevo.db'}", "v")
    first = invoke("runs", "export", "--to", "mlflow", "--json", env=env)
    rows = json.loads(first.stdout)["data"]
    assert [row["round"] for row in rows] == [1, 2]
    assert set(rows[0]) == {"round", "failures", "z", "epsilon_next", "active", "mastered", "pass_rate"}
    story = json.loads(invoke("runs", "show", "v", "--json", env=env).stdout)["data"]
    assert [row["pass_rate"] for row in rows] == [line["pass_rate"] for line in story["rounds"]]


@pytest.mark.parametrize("client", ["trackio", "wandb", "mlflow"])
def test_a_client_that_is_not_installed_is_told_with_its_extra(
    client: str, run_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, client, None)
    said = invoke("runs", "export", "--to", client, "--db", f"sqlite:///{run_folder}/log.db")
    assert said.exit_code == 4
    assert f"--to {client} needs {client}, which is not installed" in said.stderr
    assert f"pip install 'diagevo[{client}]'" in said.stderr


@pytest.mark.parametrize(
    ("client", "env", "code", "told"),
    [
        ("mlflow", {"MLFLOW_TRACKING_URI": "nowhere://x"}, 6, "mlflow did not accept the rounds"),
        ("wandb", {"WANDB_MODE": "disabled"}, 2, "wandb is disabled here"),
    ],
)
def test_a_tracker_that_cannot_take_them_says_why(
    client: str, env: dict[str, str], code: int, told: str, run_folder: Path, tmp_path: Path
) -> None:
    needs(client)
    database = f"sqlite:///{run_folder}/log.db"
    said = run("runs", "export", "--to", client, "--db", database, cwd=tmp_path, env=env)
    assert (said.returncode, told in said.stderr) == (code, True), said.stderr
    assert said.stdout == ""
