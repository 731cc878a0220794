"""A phase in two real processes over gloo, against the same phase in one.

Most are forked; tests/run/test_processes.py starts them as the program does.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Client, Connection
from pathlib import Path
from types import SimpleNamespace

import pytest

from diagevo.config.models import HardwareConfig, TrainingConfig
from diagevo.errors import ConfigError, ServiceError, StoppedSafely
from diagevo.progress import StopFlag, handling_stops
from diagevo.training import checkpoints
from diagevo.training.phase import RewardSpec, Rollout, TrainingSummary
from diagevo.training.ranks import LaunchSpec
from diagevo.training.workers import _Group
from tests.training import phase
from tests.training.forked_ranks import ForkedRank
from tests.training.launched import LOGS, assert_steps_of_one, launch, play_alone

pytestmark = pytest.mark.slow
Reports = dict[int, tuple[list[Rollout], list[float]]]


def two() -> HardwareConfig:
    return HardwareConfig(device="cpu", processes=2, threads=1, rank_timeout=300)


@pytest.mark.usefixtures("forked")
def test_two_processes_play_the_phase_of_one_also_when_one_was_killed_on_the_way(
    tiny_model: Path, tmp_path: Path
) -> None:
    with pytest.raises(ServiceError) as caught:
        launch(tiny_model, tmp_path, two(), kill=1)
    assert "rank 1 of 2" in caught.value.message
    assert "SIGKILL" in caught.value.message
    assert "measuring the rollouts of step 2" in caught.value.message
    assert "rank-1.log" in caught.value.message

    summary, reports = launch(tiny_model, tmp_path, two())
    logs = sorted(path.name for path in (tmp_path / LOGS).iterdir())
    assert logs == ["rank-0.log", "rank-1.log"], "the launch spec is gone once it is done"
    assert (summary.steps, summary.resumed_from, sorted(reports)) == (3, 1, [2, 3])
    alone = assert_steps_of_one(tiny_model, tmp_path / "one", reports)
    assert_close(tmp_path / "final", tmp_path / "one/final")
    for name in ("loss", "kl", "entropy"):  # in the last step one rank has nothing but padding
        of_one = [entry[name] for entry in alone.log]
        assert [entry[name] for entry in summary.log] == pytest.approx(of_one, rel=0.02, abs=1e-4), name


def assert_close(a: Path, b: Path) -> None:
    import torch
    from safetensors.torch import load_file

    first, second = (load_file(folder / "model.safetensors") for folder in (a, b))
    moved = load_file(b.parent / "work/checkpoint-2" / phase.SHARD)
    for name, value in first.items():
        # Sums are taken in another order; a step of Adam is 1e-3 for each weight.
        assert torch.allclose(value, second[name], atol=2e-4), name
    assert any(not torch.allclose(value, moved[f"model.{name}"], atol=2e-4) for name, value in first.items())


@pytest.mark.usefixtures("forked")
def test_an_overdue_stop_ends_ranks_in_the_midst_of_a_step_and_costs_that_step(
    tiny_model: Path, tmp_path: Path
) -> None:
    """Rank 1 hangs in the second step, as in one that takes long."""
    stop = StopFlag()

    def overdue(_: _Group) -> None:
        if phase.last_saved(tmp_path / "work") == 1:
            stop.set()
            stop.set()

    with pytest.raises(StoppedSafely) as stopped:
        launch(tiny_model, tmp_path, two(), hang=1, meanwhile=overdue, stop=stop)
    assert stopped.value.hint == "continue with: diagevo train --resume"
    summary, reports = launch(tiny_model, tmp_path, two())
    assert (summary.steps, summary.resumed_from, sorted(reports)) == (3, 1, [2, 3])
    assert_steps_of_one(tiny_model, tmp_path / "one", reports)
    assert_close(tmp_path / "final", tmp_path / "one/final")


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("ranks", [(2, 1), (1, 2)])
def test_a_phase_goes_on_with_another_number_of_ranks(
    tiny_model: Path, tmp_path: Path, ranks: tuple[int, int]
) -> None:
    from safetensors.torch import load_file

    settings = phase.SETTINGS.model_copy(update={"learning_rate": 1e-4})

    def play(folder: Path, processes: int, last: int = 9) -> TrainingSummary:
        def on_step(step: int, rollouts: object, rewards: object) -> None:
            if step == last:
                raise StoppedSafely("stopped")

        hardware = two().model_copy(update={"processes": processes})
        given = phase.of(tiny_model, folder, settings=settings, hardware=hardware)
        return play_alone(given, on_step)

    first, second = ranks
    with pytest.raises(StoppedSafely):
        play(tmp_path / "changed", first, last=2)
    assert play(tmp_path / "changed", second).resumed_from == 2
    play(tmp_path / "straight", 1)
    found, straight = (load_file(tmp_path / n / "final/model.safetensors") for n in ("changed", "straight"))
    assert max(float((found[name] - straight[name]).abs().max()) for name in found) < 1e-6


@pytest.mark.usefixtures("forked")
@pytest.mark.parametrize("slow", [[3, 0], [2, 1]])
def test_ctrl_c_in_a_long_step_saves_the_steps_before_it_and_plays_it_again(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, slow: list[int]
) -> None:
    """No checkpoint is due before it, and it ends only once its slow rank hears of the stop."""
    monkeypatch.setattr("diagevo.progress.PATIENCE", 1.0)
    whole, broken, stop = tmp_path / "whole", tmp_path / "broken", StopFlag()
    undisturbed, _ = launch(tiny_model, whole, two(), save_steps=4)
    interrupted: list[float] = []

    def interrupt(_: _Group) -> None:
        if not interrupted and (broken / "work" / phase.SLOW).exists():
            interrupted.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

    with handling_stops(lambda *_: stop.set()), pytest.raises(StoppedSafely) as stopped:
        launch(tiny_model, broken, two(), meanwhile=interrupt, stop=stop, save_steps=4, slow=slow)
    assert (stopped.value.hint or "").endswith("diagevo train --resume")
    assert time.monotonic() - interrupted[0] >= 1.0, "the patience"
    assert phase.last_saved(broken / "work") == slow[0] - 1
    resumed, reports = launch(tiny_model, broken, two(), save_steps=4)
    assert (resumed.steps, resumed.resumed_from, min(reports)) == (3, slow[0] - 1, slow[0])
    for file in ("model.safetensors", "config.json"):
        assert (broken / "final" / file).read_bytes() == (whole / "final" / file).read_bytes()
    assert [measured(entry) for entry in resumed.log] == [measured(entry) for entry in undisturbed.log]


def measured(entry: Mapping[str, float]) -> dict[str, float]:
    """What the trainer logs of a step, but for how long it took."""
    return {name: value for name, value in entry.items() if "time" not in name}


def test_a_stop_that_one_rank_is_told_of_first_costs_no_checkpoint(
    forked: list[ForkedRank], tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The launcher waits for no other once one rank has said that it ends."""
    monkeypatch.setattr("diagevo.training.workers._ANSWER", 0.0)

    def stop(step: int) -> None:
        raise StoppedSafely(f"stopped after step {step}")

    with pytest.raises(StoppedSafely, match="stopped after step 1"):
        launch(tiny_model, tmp_path, two(), on_step=stop)
    assert checkpoints.find(tmp_path / "work").step == 1


@pytest.mark.usefixtures("forked")
def test_a_rank_that_hangs_ends_the_run_with_its_name(tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(ServiceError) as caught:
        launch(tiny_model, tmp_path, two(), hang=1, patience=1.0)
    assert "rank 1 of 2 did not answer" in caught.value.message
    assert "measuring the rollouts of step 2" in caught.value.message


@pytest.mark.usefixtures("forked")
def test_a_rank_alone_that_hangs_ends_the_run_too(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other waits for it: four times rank_timeout without a word are the bound."""
    alone, step = HardwareConfig(device="cpu", processes=1, threads=1), "measuring the rollouts of step 2"
    ahead = 0.0

    def time_passes(ranks: _Group) -> None:
        nonlocal ahead
        if ranks._place.get(0) == step:
            ahead = 4 * alone.rank_timeout

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead, sleep=time.sleep)
    monkeypatch.setattr("diagevo.training.workers.time", clock)
    with pytest.raises(ServiceError) as caught:
        launch(tiny_model, tmp_path, alone, hang=0, meanwhile=time_passes)
    assert f"responded for 7200 s: rank 0 was {step}. Its log:" in caught.value.message
    assert caught.value.message.endswith("rank-0.log")
    assert "diagevo train --resume" in (caught.value.hint or "")


def says_nothing(spec: LaunchSpec) -> Connection:
    return Client(spec.address)


def stops_in_a_message(spec: LaunchSpec) -> Connection:
    connection = Client(spec.address, authkey=bytes.fromhex(spec.key))
    os.write(connection.fileno(), (1000).to_bytes(4, "big") + b"and no more of the thousand bytes")
    return connection


@pytest.mark.parametrize("stranger", [says_nothing, stops_in_a_message])
def test_one_that_hangs_before_or_in_its_message_keeps_no_rank_from_being_heard(
    stranger: Callable[[LaunchSpec], Connection],
    tiny_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    met: list[Connection] = []

    def start(argv: Sequence[str], *, log: Path, env: Mapping[str, str]) -> ForkedRank:
        if not met:
            met.append(stranger(LaunchSpec.read(Path(argv[-1]))))
        return ForkedRank(argv, log=log, env=env)

    monkeypatch.setattr("diagevo.training.ranks.SupervisedProcess", start)
    summary, _ = launch(tiny_model, tmp_path, two())
    assert summary.steps == 3
    assert not [thread for thread in threading.enumerate() if "_accept" in thread.name], "it listens no more"
    met[0].close()


def test_a_stop_is_obeyed_by_all_ranks_once_the_step_is_saved(
    forked: list[ForkedRank], tiny_model: Path, tmp_path: Path
) -> None:
    def stop(step: int) -> None:
        raise StoppedSafely(f"stopped after step {step}", hint="go on")

    with pytest.raises(StoppedSafely) as caught:
        launch(tiny_model, tmp_path, two(), on_step=stop)
    assert (caught.value.message, caught.value.hint) == ("stopped after step 1", "go on")
    assert checkpoints.find(tmp_path / "work").step == 1
    assert [rank.status() for rank in forked] == [1, 1], "each has ended itself"


def test_a_reward_that_cannot_be_built_is_an_error_of_the_configuration(
    tiny_model: Path, tmp_path: Path
) -> None:
    spec = RewardSpec("tests.training.phase:NoReward")
    with pytest.raises(ConfigError, match=r"no reward 'tests\.training\.phase:NoReward'"):
        spec.build(StopFlag())


def test_what_a_phase_is_launched_with_is_for_its_user_alone(tmp_path: Path) -> None:
    spec = LaunchSpec(
        model=tmp_path,
        hardware=two(),
        sampling=phase.SAMPLING,
        training=TrainingConfig(lora=8),
        address=("node0", 4001),
        rendezvous=("node0", 4002),
        key="00",
    )
    spec.write(tmp_path / LOGS / "launch.json")
    assert (tmp_path / LOGS / "launch.json").stat().st_mode & 0o077 == 0, "it holds the key"
    assert LaunchSpec.read(tmp_path / LOGS / "launch.json") == spec
