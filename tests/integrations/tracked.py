"""Exports rounds to one tracker as its client is set up by the environment: three, the same again, one more,
then those of another run of that name. Prints what each added, and what the client's own reader finds.

    python -m tests.integrations.tracked CLIENT, with a JSON list of rows on stdin
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from diagevo.errors import ConfigError
from diagevo.integrations.trackers import Tracker, export


def stored(to: Tracker) -> list[dict[str, Any]]:
    match to:
        case "trackio":
            from trackio.sqlite_storage import SQLiteStorage

            return SQLiteStorage.get_logs("math", "played")
        case "wandb":
            files = sorted(Path(os.environ["WANDB_DIR"]).glob("wandb/offline-run-*/run-played.wandb"))
            read = [sys.executable, "-m", "wandb", "leet", "inspect", "--json"]
            told = [subprocess.check_output([*read, str(file)], text=True).splitlines() for file in files]
            records = [json.loads(line) for lines in told for line in lines]
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
    added = [export(to, "math", "played", part) for part in (rows[:-1], rows[:-1], rows, rows)]
    try:
        export(to, "math", "played", [row | {"failures": 99} for row in rows])
        refused = ""
    except ConfigError as error:
        refused = error.message
    numbers = [[row["round"] for row in part] for part in added]
    print(json.dumps({"added": numbers, "refused": refused, "stored": stored(to)}))


if __name__ == "__main__":
    main(sys.argv[1])  # pyright: ignore[reportArgumentType]  (the test gives one of the three)
