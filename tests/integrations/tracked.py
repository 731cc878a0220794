"""Exports rounds to one tracker as its client is set up by the environment: three, the same again, one more
with another configuration, then those of another run of that name. Prints what each added, and what the
client's own reader finds.

    python -m tests.integrations.tracked CLIENT, with a JSON list of rows on stdin
"""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from diagevo.errors import ConfigError
from diagevo.integrations.trackers import Tracker, export


def configured(k: str) -> dict[str, Any]:
    return {"schedule": {"k": k}, "profile": "embedded", "diagevo": "0.1.0"}


@cache
def inspected(file: Path) -> list[dict[str, Any]]:
    """The records of an offline run of wandb's."""
    read = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(file)]
    return [json.loads(line) for line in subprocess.check_output(read, text=True).splitlines()]


def kept(to: Tracker) -> dict[str, Any]:
    """The configuration."""
    match to:
        case "trackio":
            from trackio.sqlite_storage import SQLiteStorage

            return SQLiteStorage.get_run_config("math", "played") or {}
        case "wandb":
            files = sorted(Path(os.environ["WANDB_DIR"]).glob("wandb/offline-run-*"))
            records = inspected(files[-1] / "run-played.wandb")
            return next(record["run"]["config"]["update"] for record in records if record["type"] == "run")
        case "mlflow":
            import mlflow
            import mlflow.artifacts

            mlflow.set_experiment("math")
            runs: Any = mlflow.search_runs(output_format="list")
            [run] = runs
            config = mlflow.artifacts.load_dict(f"runs:/{run.info.run_id}/configuration.json")
            return {**config, "params": run.data.params}


def stored(to: Tracker) -> list[dict[str, Any]]:
    match to:
        case "trackio":
            from trackio.sqlite_storage import SQLiteStorage

            return SQLiteStorage.get_logs("math", "played")
        case "wandb":
            files = sorted(Path(os.environ["WANDB_DIR"]).glob("wandb/offline-run-*/run-played.wandb"))
            records = [record for file in files for record in inspected(file)]
            return [record["history"]["item"] for record in records if record["type"] == "history"]
        case "mlflow":
            from mlflow import MlflowClient

            client = MlflowClient()
            experiment = client.get_experiment_by_name("math")
            assert experiment is not None
            [run] = client.search_runs([experiment.experiment_id])
            rows: dict[int, dict[str, Any]] = {}
            for name in run.data.metrics:
                for metric in client.get_metric_history(run.info.run_id, name):
                    assert name not in rows.setdefault(metric.step, {}), "a figure stands there twice"
                    rows[metric.step][name] = metric.value
            return [rows[step] for step in sorted(rows)]


def main(to: Tracker) -> None:
    rows = json.load(sys.stdin)
    parts = ((rows[:-1], "1/2"), (rows[:-1], "1/2"), (rows, "1"), (rows, "1"))
    added = [export(to, "math", "played", part, configured(k)) for part, k in parts]
    try:
        export(to, "math", "played", [row | {"failures": 99} for row in rows], configured("1"))
        refused = ""
    except ConfigError as error:
        refused = error.message
    numbers = [[row["round"] for row in part] for part in added]
    print(json.dumps({"added": numbers, "refused": refused, "stored": stored(to), "config": kept(to)}))


if __name__ == "__main__":
    main(sys.argv[1])  # pyright: ignore[reportArgumentType]  (the test gives one of the three)
