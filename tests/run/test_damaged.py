"""What a run does with checkpoints and policies that are not as they were written."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from diagevo.arithmetic import WEIGHTS
from diagevo.errors import MissingDependencyError, StoppedSafely, StoreError
from diagevo.loop.run import Until
from diagevo.memory.history import open_history
from diagevo.progress import StageProgress, StopFlag
from tests.run.program import assert_same_end
from tests.run.small import ONE_STEP, Watcher, play, small_config
from tests.training.phase import SHARD

WORK = Path("a/rounds/001/solver-work")


class StopsInSolver(Watcher):
    """Asks for a stop when step 2 of 3 is told."""

    def __init__(self) -> None:
        super().__init__()
        self.stop = StopFlag()

    def stage_progress(self, round: int, stage: str, progress: StageProgress) -> None:
        if (stage, progress.done) == ("solver", 2):
            self.stop.set()


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a run that was stopped after the solver's second step."""
    home, stopping = tmp_path_factory.mktemp("stopped"), StopsInSolver()
    with pytest.raises(StoppedSafely, match="stopped after step 2"):
        play(home, small_config(), rounds=1, watcher=stopping, stop=stopping.stop)
    return home


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (
            {f"checkpoint-2/{SHARD}": cut},
            [
                f"checkpoint-2: {SHARD} has ",
                "solver was interrupted and resumes after step 1",
            ],
        ),
        (
            {"checkpoint-2/rng_state.pth": Path.unlink, f"checkpoint-1/{SHARD}": flip},
            [
                "checkpoint-2: rng_state.pth is missing",
                f"checkpoint-1: {SHARD} has changed",
                "solver was interrupted and begins again",
            ],
        ),
    ],
    ids=["newest", "all"],
)
def test_a_damaged_checkpoint_is_passed_over_with_its_fault_and_the_run_ends_as_if_it_were_whole(
    unbroken: Path, stopped: Path, tmp_path: Path, damage: dict[str, Callable[[Path], None]], said: list[str]
) -> None:
    shutil.copytree(stopped, tmp_path, dirs_exist_ok=True)
    for name, harm in damage.items():
        harm(tmp_path / WORK / name)
    told = play(tmp_path, None, resume=True, rounds=1).lines[: len(said)]
    for line, expected in zip(told, said, strict=True):
        assert expected in line
    assert_same_end(tmp_path, unbroken).close()


@pytest.mark.parametrize(
    ("harm", "problem"),
    [(lambda folder: flip(folder / "model.safetensors"), "has changed"), (shutil.rmtree, "is gone")],
    ids=["changed", "gone"],
)
def test_a_policy_that_is_not_what_its_round_left_is_refused(
    unbroken: Path, tmp_path: Path, harm: Callable[[Path], None], problem: str
) -> None:
    shutil.copytree(unbroken, tmp_path, dirs_exist_ok=True)
    harm(tmp_path / "a/rounds/001/challenger")
    with pytest.raises(StoreError, match=f"challenger left behind, {problem}"):
        play(tmp_path, None, resume=True, rounds=2)
    history = open_history(f"sqlite:///{tmp_path / 'diagevo.db'}", "a", root=tmp_path)
    assert list(history.log.read("a", rounds=(2, 2))) == [], "nothing was played"
    history.close()


@pytest.mark.parametrize("lora", [None, 4])
def test_a_model_that_changed_since_the_run_began_is_refused_before_anything_is_played(
    tmp_path: Path, lora: int | None
) -> None:
    """Also where only adapters train, whose folders hold nothing of it."""
    start = tmp_path / "start"
    shutil.copytree(WEIGHTS, start)
    model, few = {"model": str(start)}, {"candidates": 8, "train_challenger": lora is not None}
    roles, training = {"solver": model, "challenger": model}, {"lora": lora}
    config = small_config(**ONE_STEP, roles=roles, training=training, round=few, validation={"limit": 1})
    if lora is None:
        with pytest.raises(StoppedSafely):
            play(tmp_path, config, until=Until(1, "candidates"))
    else:
        play(tmp_path, config, rounds=1)
    (start / "generation_config.json").write_text('{"eos_token_id": 1}')
    with pytest.raises(StoreError, match="began with, has changed since"):
        play(tmp_path, None, resume=True, rounds=2)


@pytest.mark.skipif(torch.cuda.is_available(), reason="has the GPU that is missing elsewhere")
def test_a_run_without_the_device_it_asks_for_records_nothing(tmp_path: Path) -> None:
    with pytest.raises(MissingDependencyError, match="no CUDA device"):
        play(tmp_path, small_config(hardware={"device": "cuda"}))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_best_by_validation_is_kept_and_of_equals_the_earlier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    accuracy = iter([0.9, 0.4, 0.6, 0.6])  # of the start and of rounds 1 to 3
    monkeypatch.setattr("diagevo.loop.run.validate", lambda *_, **__: dict.fromkeys(METRICS, next(accuracy)))
    few = {"max_steps": 1, "batch_questions": 2}
    small = {"keep_checkpoints": 1, "candidates": 24}
    play(tmp_path, small_config(round=small, challenger_grpo=few, solver_grpo=few), rounds=3)
    left = {f.parent.relative_to(tmp_path / "a/rounds") for f in tmp_path.rglob("model.safetensors")}
    assert left == {Path("002/solver"), Path("003/solver"), Path("003/challenger")}


METRICS = ("mean_at_k", "greedy")
