"""A run that begins with a warm start, and one that would need it."""

from pathlib import Path

import pytest

from diagevo.errors import ConfigError, StoppedSafely
from diagevo.loop.roles import Roles
from diagevo.loop.run import Until, train
from diagevo.memory.events import CheckpointEvaluated, StageCompleted
from diagevo.memory.history import History
from diagevo.memory.log.database import Database
from diagevo.progress import StopFlag
from diagevo.training.warm_start import read_documents
from tests.run.small import Watcher, small_config
from tests.sampling.tiny_model import make_tiny_model

WARM = {"documents": "builtin:arithmetic", "steps": 2, "batch_documents": 4}


def play(home: Path, until: Until, *, resume: bool = False, **changes: dict[str, object]) -> Watcher:
    watcher = Watcher()
    train(
        None if resume else small_config(**changes),
        database=f"sqlite:///{home / 'diagevo.db'}",
        run_id="a",
        root=home,
        resume=resume,
        observer=watcher,
        stop=StopFlag(),
        until=until,
    )
    return watcher


@pytest.mark.slow
def test_both_roles_and_round_0_start_from_what_it_left_and_the_log_has_its_documents(tmp_path: Path) -> None:
    with pytest.raises(StoppedSafely):
        play(tmp_path, Until(1, "warm-start"), warm_start=WARM)
    watcher = play(tmp_path, Until(1), resume=True)
    assert watcher.stages[0] == (1, "challenger", 1)  # the warm start is not played again
    assert read_documents(tmp_path / "a" / "warm-start.jsonl")[0][-1]["role"] == "assistant"
    history = History(Database(f"sqlite:///{tmp_path / 'diagevo.db'}"), "a")
    completed = [r.event for r in history.events(StageCompleted) if isinstance(r.event, StageCompleted)]
    assert completed[0].stage == "warm-start"
    assert [artifact.path for artifact in completed[0].artifacts] == ["warm-start.jsonl", "warm-start"]
    evaluated = [(r.round, r.event) for r in history.events(CheckpointEvaluated)]
    assert [
        (number, event.checkpoint) for number, event in evaluated if isinstance(event, CheckpointEvaluated)
    ] == [(0, "warm-start"), (1, "rounds/001/solver")]
    assert [left.path for _, left in history.policies(["solver"], 0)] == ["warm-start"]
    assert [left.path for _, left in history.policies(["solver"], 1)] == ["warm-start", "rounds/001/solver"]


def test_a_model_of_which_nothing_can_be_read_is_shown_with_the_step_that_helps(tmp_path: Path) -> None:
    model = {"model": str(make_tiny_model(tmp_path / "model"))}
    watcher = Watcher()
    with pytest.raises(StoppedSafely):
        train(
            small_config(roles={"challenger": model, "solver": model}, sampling={"max_new_tokens": 8}),
            database=f"sqlite:///{tmp_path / 'diagevo.db'}",
            run_id="a",
            root=tmp_path,
            resume=False,
            observer=watcher,
            stop=StopFlag(),
            until=Until(1, "challenger"),
        )
    first, second, third = watcher.lines[:3]
    assert first.startswith("round 0: none of 4 answers of the solver could be read; one of them: ")
    assert second.startswith("round 0: none of 4 questions of the challenger could be read; one of them: ")
    assert "--set warm_start.documents=builtin:arithmetic" in third


def test_a_warm_start_of_two_models_or_on_several_processes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="to be one model"):
        small_config(warm_start=WARM, roles={"solver": {"model": "other"}})
    with pytest.raises(ConfigError, match="on a CPU alone"):
        Roles(small_config(warm_start=WARM, hardware={"processes": 2}), tmp_path).check()
