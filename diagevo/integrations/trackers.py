"""Exports the figures of a run's rounds and training steps to a tracker: trackio, Weights & Biases or
MLflow, with its own client.

The run's configuration goes with them. The tracker's own settings say where to write: TRACKIO_DIR, WANDB_MODE
and WANDB_DIR, MLFLOW_TRACKING_URI. Each export is a separate run there. Steps go to another, `RUN-steps`: a
tracker has one x axis per run.
"""

import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from typing import Any, Literal

from diagevo.errors import ConfigError, DiagEvoError, ServiceError, extra
from diagevo.memory.history import History
from diagevo.memory.read.round_figures import MEASURED, rounds, step_metrics, validations
from diagevo.memory.state.stored_config import leaves

Tracker = Literal["trackio", "wandb", "mlflow"]
Row = dict[str, float]

FIGURES = ("failures", "z", "epsilon_next", "active", "mastered")
FIGURES += ("pass_rate", "labels_true", "mean_at_k", "greedy", "mean_at_k_best")
ROUND, STEP = "round", "training_step"
"""The x axis of the rows: the first of their figures."""


def figures(history: History) -> list[Row]:
    """One row per committed round, without missing measurements; round 0 is the accuracy before the first."""
    before = validations(history, 0).get(0, {})
    found = [_row(0, {name: before.get(name) for name in FIGURES})]
    found += [_row(line.round, {name: getattr(line, name) for name in FIGURES}) for line in rounds(history)]
    return [row for row in found if len(row) > 1]


def steps(history: History) -> list[Row]:
    """One row per training step of the committed rounds, numbered across all of them; figures have their
    stage as a prefix: challenger/loss."""
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


def export(to: Tracker, project: str, run: str, rows: Sequence[Row], config: Mapping[str, Any]) -> None:
    """Write rows, all counted by the same figure, as a new run of this name.

    Raises MissingDependencyError if the tracker's client is not installed, ServiceError for its own errors.
    """
    write = {"trackio": _trackio, "wandb": _wandb, "mlflow": _mlflow}[to]
    by = next(iter(rows[0]))
    try:
        with redirect_stdout(sys.stderr):  # trackio and wandb print there
            write(project, run, [(int(row[by]), row) for row in rows], config)
    except DiagEvoError:
        raise
    except Exception as error:  # the three clients' errors have no common base class
        raise ServiceError(
            f"{to} did not accept the rounds: {type(error).__name__}: {error}",
            hint="the tracker's own variables say where it writes; the same command again writes a new run",
        ) from error


def _trackio(project: str, run: str, rows: Sequence[tuple[int, Row]], config: Mapping[str, Any]) -> None:
    with extra("trackio", "--to trackio"):
        import trackio
    own: dict[str, Any] = {"embed": False, "auto_log_cpu": False, "auto_log_gpu": False}
    tracked = trackio.init(project=project, name=run, config=dict(config), **own)
    for step, row in rows:
        tracked.log(row, step=step)
    trackio.finish()


def _wandb(project: str, run: str, rows: Sequence[tuple[int, Row]], config: Mapping[str, Any]) -> None:
    with extra("wandb", "--to wandb"):
        import wandb
    if wandb.setup().settings.mode == "disabled":
        raise ConfigError("wandb is disabled here", hint="set WANDB_MODE to online or offline")
    own = wandb.Settings(
        console="off", disable_git=True, disable_code=True, x_disable_stats=True, silent=True
    )
    with wandb.init(project=project, name=run, settings=own, config=dict(config)) as tracked:
        for step, row in rows:
            tracked.log(row, step=step)


def _mlflow(project: str, run: str, rows: Sequence[tuple[int, Row]], config: Mapping[str, Any]) -> None:
    with extra("mlflow", "--to mlflow"):
        import mlflow
    mlflow.set_experiment(project)
    params = [(name, str(value)) for name, value in leaves(config)]
    with mlflow.start_run(run_name=run):
        for start in range(0, len(params), 100):  # the maximum of one batch
            mlflow.log_params(dict(params[start : start + 100]))
        mlflow.log_dict(dict(config), "configuration.json")
        for step, row in rows:
            mlflow.log_metrics(row, step=step)
