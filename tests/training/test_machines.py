"""A phase on two machines, which are two launchers on this one that meet at its address.

Their ranks are forked; tests/run/test_processes.py starts some as the program does.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from diagevo.config.models import HardwareConfig, TrainingConfig
from diagevo.errors import ConfigError, ServiceError
from diagevo.training.launch_spec import NAME, LaunchSpec, RewardSpec
from diagevo.training.machines import join
from diagevo.training.ranks import start_ranks
from diagevo.training.rollouts import TrainingRow
from tests.training import phase
from tests.training.launched import LOGS, assert_steps_of_one, launch

pytestmark = pytest.mark.slow
TWO = HardwareConfig(device="cpu", threads=1, rank_timeout=120, machines=2, address="127.0.0.1")


@contextmanager
def joined(run: Path, machine: int = 1) -> Iterator[list[str]]:
    """Another machine that joins the run; what it says, complete once the block is left."""
    over, said = threading.Event(), []
    other = threading.Thread(
        target=join, args=[run, machine], kwargs={"is_played": lambda: not over.is_set(), "say": said.append}
    )
    other.start()
    try:
        yield said
    finally:
        over.set()
        other.join()


@pytest.mark.usefixtures("forked")
def test_two_machines_play_the_phase_of_one_also_when_a_rank_of_the_other_was_killed_on_the_way(
    tiny_model: Path, tmp_path: Path
) -> None:
    run, logs = tmp_path / "run", tmp_path / "run" / LOGS
    with joined(run) as said, pytest.raises(ServiceError) as caught:
        launch(tiny_model, run, TWO, kill=1)
    said_of_it = "Training rank 1 of 2, on machine 1, has ended or cannot be reached; it was measuring the"
    assert said_of_it in caught.value.message
    assert "measuring the rollouts of step 2" in caught.value.message
    assert str(logs / "rank-1.log") in caught.value.message
    assert said == [
        f"joining {LOGS}",
        f"{LOGS}: a rank was ended by signal 9 (SIGKILL); its log: {logs / 'rank-1.log'}",
    ]
    assert not (logs / NAME).exists(), "nobody is to join a phase that is over"

    with joined(run) as said:
        summary, reports = launch(tiny_model, run, TWO, resume=True)
    assert said == [f"joining {LOGS}"]
    assert (summary.steps, summary.resumed_from, sorted(reports)) == (3, 1, [2, 3])
    assert_steps_of_one(tiny_model, tmp_path / "one", reports)


def a_job(folder: Path, **hardware: Any) -> tuple[Path, LaunchSpec]:
    spec = LaunchSpec(
        start=folder,
        rows=(TrainingRow("r1.q0", [{"role": "user", "content": "1 + 1 = ?"}]),),
        reward=RewardSpec("a:b", {"weights": [1, 0.5], "name": None}),
        settings=phase.SETTINGS,
        sampling=phase.SAMPLING,
        output=folder / "solver",
        work=folder / "work",
        seed=0,
        resume=False,
        hardware=HardwareConfig.model_validate({"machines": 2, "address": "node0", **hardware}),
        training=TrainingConfig(),
        address=("node0", 4001),
        rendezvous=("node0", 4002),
        key="00",
    )
    file = folder / LOGS / NAME
    spec.write(file)
    return file, spec


def test_a_machine_that_the_run_does_not_count_on_is_refused(tmp_path: Path) -> None:
    file, spec = a_job(tmp_path)
    assert file.stat().st_mode & 0o077 == 0, "it holds the key"
    assert LaunchSpec.read(file) == spec
    with pytest.raises(ConfigError, match="there is no machine 2: the run trains on machines 0 to 1"):
        join(tmp_path, 2, is_played=lambda: True, say=print)


@pytest.mark.parametrize(("machine", "ranks"), [(0, [0, 1]), (1, [2, 3])])
def test_each_machine_starts_its_own_ranks_of_all(
    machine: int, ranks: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[tuple[list[str], Path, dict[str, str]]] = []
    monkeypatch.setattr(
        "diagevo.training.ranks.SupervisedProcess", lambda argv, log, env: started.append((argv, log, env))
    )
    file, spec = a_job(tmp_path, processes=2)
    start_ranks(file, spec, machine)
    assert [log.name for _, log, _ in started] == [f"rank-{rank}.log" for rank in ranks]
    assert [(env["RANK"], env["LOCAL_RANK"]) for _, _, env in started] == [
        (str(rank), str(local)) for local, rank in enumerate(ranks)
    ]
    for argv, _, env in started:
        assert argv[1:] == ["-m", "diagevo.training.worker", str(file)]
        assert (env["WORLD_SIZE"], env["LOCAL_WORLD_SIZE"]) == ("4", "2")
        assert (env["MASTER_ADDR"], env["MASTER_PORT"]) == ("node0", "4002")


def test_several_machines_need_an_address() -> None:
    with pytest.raises(ValueError, match=r"hardware\.address"):
        HardwareConfig(machines=2)
