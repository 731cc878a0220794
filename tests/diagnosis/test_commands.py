"""`diagevo memory calibrate` and `diagnose --again --dry-run`, through the program's entry point."""

import json
from pathlib import Path

import pytest

import diagevo
from diagevo.config.loading import of_profile
from diagevo.config.models import DiagnosisConfig, MemoryConfig
from diagevo.diagnosis.embedder import HashingEmbedder
from diagevo.diagnosis.maintain import maintain
from diagevo.memory.events import Embedder, RunConfigured
from tests.cli.program import invoke
from tests.diagnosis.rounds import Question, Scripted, play
from tests.diagnosis.server import Answer, Server
from tests.diagnosis.test_maintain import by_text

DIMENSION = 256
NEAR = "forgets to check the domain of the original equation after squaring"
SLIP = '{"matched_cause_id": null, "error_cause": null}'


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with one run of one round: three failures of one cause, one of another."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    config = of_profile("embedded").config
    memory = diagevo.open(str(tmp_path / "diagevo.db"), run="a")
    embedder = HashingEmbedder(DIMENSION)
    with memory:
        memory.configure(
            RunConfigured(
                config=config.model_dump(mode="json"),
                models={},
                embedder=Embedder(name="hashing", dimension=DIMENSION, revision=embedder.revision),
                version="test",
            )
        )
        play(memory, 1, [Question([NEAR, f"{NEAR} both", f"{NEAR} twice", "swaps sides without the sign"])])
        asked = Scripted(by_text, duplicate=lambda text, candidates: candidates[0].cause_id)
        maintain(memory, asked, embedder, DiagnosisConfig(), MemoryConfig())
        memory.commit()
    return tmp_path


def test_calibrate_proposes_from_the_runs_own_pairs(home: Path):
    found = invoke("memory", "calibrate", "--json", env={"DIAGEVO_HOME": str(home)})
    assert found.exit_code == 0, found.output
    dup, merge = json.loads(found.stdout)["data"]
    assert (dup["threshold"], dup["same"], dup["different"], dup["enough"]) == ("theta_dup", 2, 0, False)
    assert 0.5 < dup["proposed"] < 1
    assert (merge["threshold"], merge["proposed"]) == ("theta_merge", None)
    assert "2 pairs judged the same: too few to rely on" in found.stderr
    table = invoke("memory", "calibrate", env={"DIAGEVO_HOME": str(home)})
    assert "theta_dup" in table.stdout
    assert "hashing" in table.stdout


@pytest.mark.slow
def test_a_dry_run_asks_the_diagnostician_that_the_options_name(home: Path):
    with Server(lambda request, before: Answer(SLIP)) as server:
        options = [
            "--set",
            "roles.diagnostician.engine=openai",
            "--set",
            f"roles.diagnostician.base_url={server.url}",
            "--set",
            "diagnosis.retries=0",
        ]
        found = invoke("diagnose", "--again", "--dry-run", *options, env={"DIAGEVO_HOME": str(home)})
        asked = len(server.requests)
        data = invoke("diagnose", "--again", "--dry-run", "--json", *options, env={"DIAGEVO_HOME": str(home)})
    assert found.exit_code == 0, found.output
    assert asked == 8  # 4 extractions, 2 duplicates, 2 nodes
    assert (
        "extract 0 of 4 (0.0%), duplicate 0 of 2 (0.0%), assign 0 of 2 (0.0%)" in found.stdout + found.stderr
    )
    lines = json.loads(data.stdout)["data"]
    assert len(lines) == 8
    first = lines[0]
    assert (first["answered"], first["agrees"]) == ("slip", False)


def test_a_dry_run_of_a_round_that_is_not_committed_says_which_are(home: Path):
    found = invoke("diagnose", "--again", "--dry-run", "--round", "7", env={"DIAGEVO_HOME": str(home)})
    assert found.exit_code == 3
    assert "round 7 of run a is not committed" in found.stderr
