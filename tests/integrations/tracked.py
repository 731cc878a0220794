"""Exports rounds to one tracker as its client is set up by the environment. Prints what the client's own
reader finds.

    python -m tests.integrations.tracked CLIENT, with a JSON list of rows on stdin
"""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

from diagevo.integrations.trackers import Tracker, export


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
            [file] = Path(os.environ["WANDB_DIR"]).glob("wandb/offline-run-*/run-*.wandb")
            records = inspected(file)
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
            [file] = Path(os.environ["WANDB_DIR"]).glob("wandb/offline-run-*/run-*.wandb")
            records = inspected(file)
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
    export(to, "math", "played", rows, {"schedule": {"k": "1"}, "profile": "embedded", "diagevo": "0.1.0"})
    print(json.dumps({"stored": stored(to), "config": kept(to)}))


if __name__ == "__main__":
    main(sys.argv[1])  # pyright: ignore[reportArgumentType]  (the test gives one of the three)
