"""The figures of a run's rounds and of its steps of training in a tracker: trackio, Weights & Biases or
MLflow, by its own client.

The run's configuration goes with them. Where a tracker keeps them is its own setting: TRACKIO_DIR, WANDB_MODE
and WANDB_DIR, MLFLOW_TRACKING_URI. A row is written once: only those go that come after the last one that
the tracker has. Steps are a run of their own there, `RUN-steps`: a tracker counts one thing from left to
right.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from math import isclose
from pathlib import Path
from typing import Any, Literal

from diagevo.errors import ConfigError, DiagEvoError, ServiceError, extra
from diagevo.memory.history import History
from diagevo.memory.read.rounds import MEASURED, rounds, step_metrics, validations
from diagevo.memory.state.stored_config import leaves

Tracker = Literal["trackio", "wandb", "mlflow"]
Row = dict[str, float]
New = Callable[[Mapping[str, Any] | None], list[Row]]
"""From the tracker's last row of the run to the rows that it has not."""

FIGURES = ("failures", "z", "epsilon_next", "active", "mastered")
FIGURES += ("pass_rate", "labels_true", "mean_at_k", "greedy", "mean_at_k_best")
KEPT = ("failures", "epsilon_next", "active", "mastered", "step_of_round", "completions")
"""What every commit has, or every step: by these two runs of one name are told apart."""
ROUND, STEP = "round", "training_step"
"""What rows are counted by: the first of their figures."""


def figures(history: History) -> list[Row]:
    """A row a committed round, without what was not measured; round 0 is the accuracy before the first.

    A round that still waits for its validation, as those before it had, is left for the next time.
    """
    before = validations(history, 0).get(0, {})
    found = [_row(0, {name: before.get(name) for name in FIGURES})]
    found += [_row(line.round, {name: getattr(line, name) for name in FIGURES}) for line in rounds(history)]
    validated = ["mean_at_k" in row for row in found]
    if any(validated) and not validated[-1]:
        found.pop()
    return [row for row in found if len(row) > 1]


def steps(history: History) -> list[Row]:
    """A row a step of training of the committed rounds, counted over all of them; figures are named by their
    stage: challenger/loss."""
    committed = {commit.round for commit in history.commits}
    played = [one for one in step_metrics(history) if one.round in committed]
    return [
        {
            STEP: number,
            "round": one.round,
            "step_of_round": one.step,
            "completions": one.completions,
            **_given({f"{one.stage}/{name}": getattr(one, name) for name in MEASURED}),
        }
        for number, one in enumerate(played, 1)
    ]


def _row(number: int, values: Mapping[str, Any]) -> Row:
    return {ROUND: number} | _given(values)


def _given(values: Mapping[str, Any]) -> Row:
    return {
        name: value if isinstance(value, int) else float(value)
        for name, value in values.items()
        if value is not None
    }


def configuration(history: History) -> dict[str, Any]:
    """The settings in force after the last round, with the version of DiagEvo."""
    in_force = history.configuration()
    return {**in_force.config, "diagevo": in_force.version}


def export(to: Tracker, project: str, run: str, rows: Sequence[Row], config: Mapping[str, Any]) -> list[Row]:
    """Write what the tracker has not, and return it. All rows are counted by the same figure.

    Raises ConfigError where it has another run of this name, MissingDependencyError where its client is not
    installed, and ServiceError for whatever the client says.
    """
    by = next(iter(rows[0]))

    def new(last: Mapping[str, Any] | None) -> list[Row]:
        if last is None or by not in last:
            return list(rows)
        until = int(last[by])
        known = next((row for row in rows if row[by] == until), None)
        if known is None or not all(isclose(known[n], last[n]) for n in KEPT if n in known and n in last):
            raise ConfigError(
                f"project {project} in {to} has another run {run}, up to {by} {until}",
                hint="export into another project: --project NAME",
            )
        return [row for row in rows if row[by] > until]

    write = {"trackio": _trackio, "wandb": _wandb, "mlflow": _mlflow}[to]
    try:
        with redirect_stdout(sys.stderr):  # trackio and wandb talk there
            return write(project, run, by, new, config)
    except DiagEvoError:
        raise
    except Exception as error:  # a client's own errors have no base that all three share
        raise ServiceError(
            f"{to} did not accept the rounds: {type(error).__name__}: {error}",
            hint="run the same command again to add what is missing; the tracker's own variables "
            "say where it writes",
        ) from error


def _trackio(project: str, run: str, by: str, new: New, config: Mapping[str, Any]) -> list[Row]:
    with extra("trackio", "--to trackio"):
        import trackio
        from trackio.sqlite_storage import SQLiteStorage
    elsewhere = next(
        (name for name in ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL") if os.environ.get(name)), None
    )
    if elsewhere is not None:
        raise ConfigError(
            f"--to trackio writes into the local store, and {elsewhere} names another one",
            hint=f"unset {elsewhere}, export, then: trackio sync --project {project} --space-id ID",
        )
    logged = SQLiteStorage.get_logs(project, run)
    rows = new(logged[-1] if logged else None)
    if rows:
        own = {"resume": "allow", "embed": False, "auto_log_cpu": False, "auto_log_gpu": False}
        tracked = trackio.init(project=project, name=run, config=dict(config), **own)
        for row in rows:
            tracked.log(row, step=int(row[by]))
        trackio.finish()
    return rows


def _wandb(project: str, run: str, by: str, new: New, config: Mapping[str, Any]) -> list[Row]:
    with extra("wandb", "--to wandb"):
        import wandb
    settings = wandb.setup().settings
    if settings.mode == "disabled":
        raise ConfigError("wandb is disabled here", hint="set WANDB_MODE to online or offline")
    rows: list[Row] = []
    if settings.mode == "offline":
        rows = new(_offline(Path(settings.wandb_dir), project, run, by))
        if not rows:
            return rows
    own = wandb.Settings(
        console="off", disable_git=True, disable_code=True, x_disable_stats=True, silent=True
    )
    named: dict[str, Any] = {"project": project, "id": run, "name": run, "resume": "allow"}
    with wandb.init(**named, settings=own, config=dict(config), allow_val_change=True) as tracked:
        if not tracked.offline:
            rows = new(dict(tracked.summary))
        for row in rows:
            tracked.log(row, step=int(row[by]))
    return rows


def _offline(folder: Path, project: str, run: str, by: str) -> Mapping[str, Any] | None:
    """The last row that offline runs have, read by wandb's own reader. They cannot be resumed, so each export
    that adds something is a folder more; `wandb sync` puts them together."""
    for file in sorted(folder.glob(f"offline-run-*-{run}/run-{run}.wandb"), reverse=True):
        read = [sys.executable, "-P", "-m", "wandb", "leet", "inspect", "--summary", "--json", str(file)]
        told = subprocess.run(read, check=True, capture_output=True, text=True).stdout
        found: dict[str, Any] = json.loads(told)
        if found["project"] == project and by in found["summary"]:
            return found["summary"]
    return None


def _mlflow(project: str, run: str, by: str, new: New, config: Mapping[str, Any]) -> list[Row]:
    with extra("mlflow", "--to mlflow"):
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param
    client = MlflowClient()
    experiment = client.get_experiment_by_name(project)
    number = client.create_experiment(project) if experiment is None else experiment.experiment_id
    runs = client.search_runs([number], f"tags.`diagevo.run` = '{run}'", max_results=1)
    rows = new(runs[0].data.metrics if runs else None)
    if rows:
        tracked = runs[0] if runs else client.create_run(number, run_name=run, tags={"diagevo.run": run})
        params = [] if runs else [Param(name, str(value)) for name, value in leaves(config)]
        for start in range(0, len(params), 100):  # the most of one batch; a parameter never changes
            client.log_batch(tracked.info.run_id, params=params[start : start + 100])
        client.log_dict(tracked.info.run_id, dict(config), "configuration.json")
        for row in rows:
            at = int(time.time() * 1000)
            metrics = [Metric(name, value, at, int(row[by])) for name, value in row.items()]
            client.log_batch(tracked.info.run_id, metrics)
        client.set_terminated(tracked.info.run_id)
    return rows
