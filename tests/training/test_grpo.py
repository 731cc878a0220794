"""A phase in this process, against itself killed and resumed."""

import hashlib
import json
import os
import shutil
import signal
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from diagevo.config.models import GRPOConfig, SamplingConfig, TrainingConfig
from diagevo.errors import ConfigError, MissingDependencyError, StoppedSafely, StoreError
from diagevo.progress import StopFlag
from diagevo.sampling.sampler import SamplingParams
from diagevo.sampling.transformers_sampler import TransformersSampler
from diagevo.training import checkpoints
from diagevo.training.phase import Rollout, TrainingRow, TrainingSummary
from diagevo.training.trainer import PhaseTrainer
from tests.forked import Forked
from tests.training import phase


@dataclass
class Played:
    folder: Path
    summary: TrainingSummary
    start_before: str
    start_after: str

    def steps(self) -> dict[int, Any]:
        return phase.steps(self.folder)


@pytest.fixture(scope="module")
def straight(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Played:
    folder = tmp_path_factory.mktemp("straight")
    before = digest(tiny_model)
    summary = phase.play(tiny_model, folder)
    return Played(folder, summary, before, digest(tiny_model))


def digest(folder: Path) -> str:
    content = b"".join(path.name.encode() + path.read_bytes() for path in sorted(folder.iterdir()))
    return hashlib.sha256(content).hexdigest()


def weights(folder: Path) -> bytes:
    return (folder / "final" / "model.safetensors").read_bytes()


def test_each_row_is_played_once_and_the_last_batch_is_smaller(straight: Played) -> None:
    steps = straight.steps()
    assert straight.summary.steps == 3
    assert {step: len(rollouts) for step, (rollouts, _) in steps.items()} == {1: 6, 2: 6, 3: 3}
    played = [(r["row_id"], r["sample"]) for rollouts, _ in steps.values() for r in rollouts]
    assert sorted(played) == [(row.row_id, g) for row in phase.ROWS for g in range(3)]
    assert all(r["step"] == step for step, (rollouts, _) in steps.items() for r in rollouts)


def test_rewards_are_those_of_the_whole_step_in_its_order(straight: Played) -> None:
    for rollouts, rewards in straight.steps().values():
        counts = [r["text"].count("e") for r in rollouts]
        assert rewards == pytest.approx([count - sum(counts) / len(counts) for count in counts])
    assert any(reward != 0 for _, rewards in straight.steps().values() for reward in rewards)


def test_a_step_is_reported_before_its_checkpoint_is_saved(straight: Played) -> None:
    lines = (straight.folder / "steps.jsonl").read_text().splitlines()
    assert all(saved < step for step, _, _, saved in map(json.loads, lines))


def test_a_phase_that_is_well_measures_rounding_and_finds_nothing(straight: Played) -> None:
    found = straight.summary.measures
    assert (found.steps, found.completions, found.attention, found.findings) == (3, 15, "sdpa", ())
    assert found.first_kl is not None
    assert found.sampling_gap is not None
    assert abs(found.first_kl) < 1e-9, "the policy of the first step is its own reference"
    assert found.sampling_gap < 1e-5, "the sampler is the policy"
    rewards = [reward for _, of_step in straight.steps().values() for reward in of_step]
    assert (found.reward_lowest, found.reward_highest) == (min(rewards), max(rewards))
    played = [rollout for of_step, _ in straight.steps().values() for rollout in of_step]
    assert found.cut_off == sum(rollout["truncated"] for rollout in played) > 0


def test_the_starting_weights_stay_as_they_are_and_the_new_ones_differ(
    straight: Played, tiny_model: Path
) -> None:
    assert straight.start_after == straight.start_before
    assert weights(straight.folder) != (tiny_model / "model.safetensors").read_bytes()


def test_the_output_is_a_plain_model_folder(straight: Played) -> None:
    final = straight.summary.final
    assert checkpoints.fault_of(final) is None
    assert not list(final.parent.glob(".staging*"))
    sampler = TransformersSampler(final)
    [[completion]] = sampler.sample(
        [phase.ROWS[0].prompt], n=1, params=SamplingParams(max_new_tokens=4), seed=0
    )
    assert completion.tokens <= 4


def test_only_the_newest_checkpoints_stay(straight: Played) -> None:
    assert sorted(path.name for path in (straight.folder / "work").iterdir()) == [
        "checkpoint-2",
        "checkpoint-3",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("moment", "saved"), [("step:2", 1), ("write:2", 1), ("save:2", 1), ("rotate:3", 3)])
def test_a_phase_that_was_killed_goes_on_as_if_it_had_not_been(
    straight: Played, tiny_model: Path, tmp_path: Path, moment: str, saved: int
) -> None:
    arguments = [str(tiny_model), str(tmp_path)]
    with Forked("tests.training.phase:main", arguments, env={**os.environ, "KILL": moment}) as child:
        assert child.wait(timeout=300) == -signal.SIGKILL, child.stderr.read()
    assert phase.last_saved(tmp_path / "work") == saved
    summary = phase.play(tiny_model, tmp_path)
    assert (summary.steps, summary.resumed_from) == (3, saved)
    assert phase.steps(tmp_path) == straight.steps()
    assert weights(tmp_path) == weights(straight.folder)


def test_a_stop_waits_for_the_steps_checkpoint_and_no_step_is_played_twice(
    straight: Played, tiny_model: Path, tmp_path: Path
) -> None:
    reported: list[int] = []

    def on_step(step: int, rollouts: object, rewards: object) -> None:
        reported.append(step)
        if step == 2:
            raise StoppedSafely("stopped")

    seldom = phase.SETTINGS.model_copy(update={"save_steps": 9})  # no checkpoint is due at step 2
    with pytest.raises(StoppedSafely):
        attempt(tiny_model, tmp_path, on_step=on_step, settings=seldom)()
    assert phase.last_saved(tmp_path / "work") == 2
    assert not (tmp_path / "final").exists()
    summary = attempt(tiny_model, tmp_path, on_step=on_step, settings=seldom)()
    assert summary.resumed_from == 2
    assert reported == [1, 2, 3]
    assert weights(tmp_path) == weights(straight.folder)


class StopsInTheSecondStep(phase.LetterReward):
    """While its rollouts are measured: before any weight has changed."""

    def __init__(self, stop: StopFlag) -> None:
        super().__init__()
        self.stop = stop

    def measure(self, rollouts: Sequence[Rollout]) -> list[Any]:
        if rollouts[0].step == 2:
            self.stop.set()
            self.stop.set()
        return super().measure(rollouts)


@pytest.mark.parametrize("save_steps", [1, 9])
def test_an_overdue_stop_breaks_a_step_off_and_no_finished_one_is_played_again(
    straight: Played, tiny_model: Path, tmp_path: Path, save_steps: int
) -> None:
    reported: list[int] = []
    settings = phase.SETTINGS.model_copy(update={"save_steps": save_steps})
    changes = {"settings": settings, "on_step": lambda step, rollouts, rewards: reported.append(step)}
    stop = StopFlag()
    with pytest.raises(StoppedSafely):
        attempt(tiny_model, tmp_path, reward=StopsInTheSecondStep(stop), stop=stop, **changes)()
    assert phase.last_saved(tmp_path / "work") == 1
    summary = attempt(tiny_model, tmp_path, **changes)()
    assert summary.resumed_from == 1
    assert reported == [1, 2, 3]
    assert weights(tmp_path) == weights(straight.folder)


def test_steps_between_checkpoints_may_be_others_when_a_phase_goes_on(
    straight: Played, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, saved, save = StopFlag(), list[int](), PhaseTrainer._save_checkpoint
    with pytest.raises(StoppedSafely):
        attempt(tiny_model, tmp_path, reward=StopsInTheSecondStep(stop), stop=stop)()

    def noted(self: PhaseTrainer, *given: Any) -> None:
        saved.append(self.state.global_step)
        save(self, *given)

    monkeypatch.setattr(PhaseTrainer, "_save_checkpoint", noted)
    settings = phase.SETTINGS.model_copy(update={"save_steps": 9, "micro_batch": 2})
    assert attempt(tiny_model, tmp_path, settings=settings)().resumed_from == 1
    assert saved == [3], "the last"


@pytest.mark.parametrize("save_steps", [1, 9])
def test_an_update_that_was_broken_off_is_played_again_with_the_same_dropout(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save_steps: int
) -> None:
    """The stop comes in the first micro-batch of step 2."""
    from diagevo.training.trainer import PhaseTrainer

    start = tmp_path / "start"
    shutil.copytree(tiny_model, start)
    config = json.loads((start / "config.json").read_text())
    (start / "config.json").write_text(json.dumps(config | {"attention_dropout": 0.05}))
    stop, loss = StopFlag(), PhaseTrainer.compute_loss
    bounds = TrainingConfig(first_kl=100.0, sampling_gap=100.0)  # dropout draws apart what is the same
    settings = phase.SETTINGS.model_copy(update={"save_steps": save_steps, "micro_batch": 1})
    attempt(start, tmp_path / "straight", settings=settings, training=bounds)()

    def stopping(self: PhaseTrainer, *given: Any, **named: Any) -> Any:
        found = loss(self, *given, **named)
        if self.state.global_step == 1:
            stop.set()
            stop.set()
        return found

    with monkeypatch.context() as patched:
        patched.setattr(PhaseTrainer, "compute_loss", stopping)
        with pytest.raises(StoppedSafely):
            attempt(start, tmp_path, settings=settings, training=bounds, stop=stop)()
    assert phase.last_saved(tmp_path / "work") == 1
    assert attempt(start, tmp_path, settings=settings, training=bounds)().resumed_from == 1
    assert weights(tmp_path) == weights(tmp_path / "straight")


@pytest.mark.parametrize("name", [phase.SHARD, "optimizer.pt", "rng_state.pth", "trainer_state.json"])
def test_a_checkpoint_that_misses_its_state_is_passed_over(
    straight: Played, tiny_model: Path, tmp_path: Path, name: str
) -> None:
    shutil.copytree(straight.folder / "work", tmp_path / "work")
    (tmp_path / "work/checkpoint-3" / name).unlink()
    assert phase.last_saved(tmp_path / "work") == 2
    if name == phase.SHARD:
        summary = phase.play(tiny_model, tmp_path)
        assert summary.resumed_from == 2
        assert list(phase.steps(tmp_path)) == [3]
        assert weights(tmp_path) == weights(straight.folder)


def test_a_phase_whose_steps_are_all_saved_only_writes_its_output_again(
    straight: Played, tiny_model: Path, tmp_path: Path
) -> None:
    shutil.copytree(straight.folder / "work", tmp_path / "work")
    summary = phase.play(tiny_model, tmp_path)
    assert (summary.steps, summary.resumed_from) == (3, 3)
    assert not (tmp_path / "steps.jsonl").exists()
    assert weights(tmp_path) == weights(straight.folder)


def attempt(start: Path, folder: Path, **changes: Any) -> Callable[[], TrainingSummary]:
    return lambda: phase.trained(start, folder, **changes)


def test_a_checkpoint_of_other_rows_is_not_resumed(
    straight: Played, tiny_model: Path, tmp_path: Path
) -> None:
    shutil.copytree(straight.folder / "work", tmp_path / "work")
    with pytest.raises(ConfigError, match="another plan"):
        attempt(tiny_model, tmp_path, rows=tuple(phase.ROWS[:4]))()
    assert phase.last_saved(tmp_path / "work") == 3  # Nothing is lost.


def test_rows_that_cannot_be_trained_on_are_refused(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least one row"):
        attempt(tiny_model, tmp_path, rows=())()
    with pytest.raises(ConfigError, match="same row_id"):
        attempt(tiny_model, tmp_path, rows=(phase.ROWS[0], phase.ROWS[0]))()
    long = TrainingRow("long", [{"role": "user", "content": "9" * 40}])
    with pytest.raises(ConfigError, match="long has 42 tokens"):
        attempt(tiny_model, tmp_path, rows=(long,))()


def test_a_start_that_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(MissingDependencyError, match="not a model folder"):
        attempt(tmp_path / "nowhere", tmp_path)()


def test_a_disk_that_is_full_while_a_checkpoint_is_saved_is_reported(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(checkpoints, "_digest_and_flush", full)
    with pytest.raises(StoreError, match=r"step 1 cannot be written.*No space left"):
        attempt(tiny_model, tmp_path)()
    assert phase.last_saved(tmp_path / "work") == 0


def test_the_next_step_begins_before_the_digests_of_the_last_checkpoint_are_made(
    straight: Played, tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    second_step_began, digest = threading.Event(), checkpoints._digest_and_flush
    order: list[str] = []

    def waiting(path: Path) -> str:
        """Digests of step 1 wait until step 2 has begun: made in between, they would wait in vain."""
        assert second_step_began.wait(timeout=60), "the digests stand in the way of step 2"
        order.append("digest")
        return digest(path)

    def on_step(step: int, rollouts: object, rewards: object) -> None:
        order.append(f"step {step}")
        if step == 2:
            assert phase.last_saved(tmp_path / "work") == 0
            second_step_began.set()

    monkeypatch.setattr(checkpoints, "_digest_and_flush", waiting)
    attempt(tiny_model, tmp_path, on_step=on_step)()
    assert order[:3] == ["step 1", "step 2", "digest"]
    assert phase.last_saved(tmp_path / "work") == 3
    assert weights(tmp_path) == weights(straight.folder)


def test_settings_reach_trl_as_decided(tiny_model: Path, tmp_path: Path) -> None:
    from diagevo.config.models import HardwareConfig
    from diagevo.training.grpo import trl_settings
    from diagevo.training.plan import plan_phase

    plan = plan_phase(phase.ROWS, batch_questions=2, max_steps=9, group=4, ranks=1, seed=0)
    defaults = phase.of(
        tiny_model,
        tmp_path,
        settings=GRPOConfig(max_steps=9),
        sampling=SamplingConfig(),
        hardware=HardwareConfig(device="cpu"),
    )
    found = trl_settings(plan, defaults)
    decided = {
        "num_iterations": 1,
        "scale_rewards": "group",
        "loss_type": "dapo",
        "importance_sampling_level": "token",
        "epsilon": 0.2,
        "epsilon_high": 0.3,
        "delta": 3.0,
        "beta": 0.01,
        "use_bias_correction_kl": False,
        "vllm_importance_sampling_correction": False,
        "mask_truncated_completions": False,
        "sync_ref_model": False,
        "temperature": 1.0,
        "top_p": 0.99,
        "top_k": 0,
        "max_completion_length": 4096,
        "learning_rate": 1e-6,
        "weight_decay": 0.01,
        "max_grad_norm": 1.0,
        "warmup_steps": 0,
        "use_cpu": True,
        "bf16": False,
    }
    assert {name: getattr(found, name) for name in decided} == decided
    assert str(found.lr_scheduler_type.value) == "constant"
    undivided = replace(defaults, settings=GRPOConfig(max_steps=9, advantage_scale="none"))
    assert trl_settings(plan, undivided).scale_rewards == "none"
