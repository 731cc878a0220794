"""A run with LoRA: both adapters go on over rounds, a fork and a resume; the base is never another."""

from pathlib import Path

import pytest

from diagevo.arithmetic import WEIGHTS
from diagevo.errors import StoppedSafely
from diagevo.loop.run import Until
from diagevo.memory.events import catalogue as events
from diagevo.memory.history import open_history
from diagevo.memory.transfer.fork import fork
from diagevo.sampling.model_folder import base_of
from diagevo.training.adapters import adapted
from tests.run.small import play, small_config
from tests.run.test_round import of

ROUNDS = 2
START = "start"


def weights(home: Path, number: int, role: str, run_id: str = "a") -> bytes:
    return (home / run_id / f"rounds/{number:03d}/{role}/adapter_model.safetensors").read_bytes()


@pytest.mark.slow
def test_adapters_go_on_over_rounds_resumed_and_forked_and_the_base_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[tuple[str, str]] = []

    def noting(start: Path, rank: int, output: Path, *rest: object, **options: object) -> object:
        begun.append((START if start == WEIGHTS else "/".join(start.parts[-2:]), "/".join(output.parts[-2:])))
        return adapted(start, rank, output, *rest, **options)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr("diagevo.training.grpo.adapted", noting)
    config = small_config(
        training={"lora": 4},
        round={"candidates": 32},
        challenger_grpo={"learning_rate": 1e-2},
        solver_grpo={"learning_rate": 1e-2},
    )
    play(tmp_path, config)
    assert begun == [
        (START, "001/challenger"),
        (START, "001/solver"),
        ("001/challenger", "002/challenger"),
        ("001/solver", "002/solver"),
    ]
    for number in (1, ROUNDS):
        for role in ("challenger", "solver"):
            folder = tmp_path / f"a/rounds/{number:03d}/{role}"
            base = base_of(folder)
            assert base is not None
            assert base.samefile(WEIGHTS)
            assert not (folder / "model.safetensors").exists()
    assert weights(tmp_path, 1, "solver") != weights(tmp_path, 2, "solver")

    history = open_history(f"sqlite:///{tmp_path / 'diagevo.db'}", "a", root=tmp_path)
    measured = of(history, events.CheckpointEvaluated)
    assert [event.checkpoint for event in measured] == [
        "builtin:arithmetic",
        "rounds/001/solver",
        "rounds/002/solver",
    ]
    fork(history, 1, "b", root=tmp_path)
    history.close()
    with pytest.raises(StoppedSafely):
        play(tmp_path, None, run_id="b", resume=True, until=Until(2, "challenger"))
    play(tmp_path, None, run_id="b", resume=True)
    for role in ("challenger", "solver"):
        assert weights(tmp_path, 2, role, "b") == weights(tmp_path, 2, role)
