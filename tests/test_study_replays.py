"""A run of each study, played again from nothing, comes to the row that the results have of it.

No part of `make test`: `make replay`. The study with SmolLM2-135M is not among them: its start takes hours.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from diagevo.evaluation.ablation import load_plan
from diagevo.progress import StopFlag
from diagevo.sampling.model_folder import sha256_of
from studies.content import REPLAYS, untouched
from studies.results import HERE, collect, read

pytestmark = [pytest.mark.replay, pytest.mark.slow, pytest.mark.timeout(3600)]
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


def _run(*command: str, **environment: str) -> str:
    return subprocess.run(
        command, check=True, cwd=HERE.parent, env=ONE_THREAD | environment, stdout=subprocess.PIPE, text=True
    ).stdout


def test_a_run_of_the_study_comes_to_its_recorded_memory(tmp_path: Path) -> None:
    plan: dict[str, Any] = json.loads((HERE / "study.json").read_bytes())
    plan["runs"] = [run for run in plan["runs"] if run["run"] == "study.full.s3"]
    folder = tmp_path / "ablations" / "study"
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text(json.dumps(plan), encoding="utf-8")
    diagevo = str(Path(sys.executable).with_name("diagevo"))
    _run(diagevo, "ablate", "run", "study", DIAGEVO_HOME=str(tmp_path))
    [played] = collect(load_plan(tmp_path, "study"), f"sqlite:///{tmp_path / 'diagevo.db'}")
    [recorded] = [run for run in read() if run["run"] == "study.full.s3"]
    assert _last(played) == _last(recorded)
    assert played["state_hash"] == recorded["state_hash"]


def _last(run: Mapping[str, Any]) -> dict[str, float]:
    """Scores after the last round that both measured."""
    return {name: run["scores"]["5"][name] for name in ("mean_at_k", "greedy")}


def test_a_run_of_the_study_of_what_causes_say_comes_to_its_recorded_memory(tmp_path: Path) -> None:
    """Not to the row of its first play, whose weights are not known: docs/reference/study-content.md."""
    make = "from studies.content import Path, break_weights; break_weights(Path(r'{}'), 0)"
    _run(sys.executable, "-c", make.format(tmp_path / "weights-0"))  # `weights` measures them as well
    [base] = [row for row in untouched() if row["weights"] == "weights-0"]
    ours = sha256_of(tmp_path / "weights-0", StopFlag())
    assert ours == base["weights_sha256"], "other weights: a CPU with other kernels makes other last bits"
    one = ("one", "--home", str(tmp_path), "--arm", "full", "--seed", "10")
    played = json.loads(_run(sys.executable, "-m", "studies.content", *one).splitlines()[-1])
    [recorded] = [row for row in read(REPLAYS) if row["run"] == played["run"]]
    for name in ("state_hash", "by_round", "broken_at_1", "broken_greedy"):
        assert played[name] == recorded[name], name
