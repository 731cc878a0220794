"""What a run may be told anew when it is resumed, or finds by itself: no weight depends on it."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from diagevo.config.resume_overrides import adjusted
from diagevo.config.sources import from_settings
from diagevo.errors import ConfigError, OutOfMemoryError
from diagevo.memory.audit.verify import verify
from diagevo.memory.events import catalogue as events
from diagevo.memory.history import open_history
from diagevo.training.trainer import PhaseTrainer
from tests.run.small import play, small_config

CONFIG = small_config(
    round={"train_challenger": False, "rounds": 1},
    solver_grpo={"batch_questions": 1, "max_steps": 5, "group": 8, "learning_rate": 1e-4, "micro_batch": 8},
    sampling={"max_new_tokens": 96, "max_prompt_tokens": 96},
    validation={"questions": None},
)


def weights(home: Path) -> dict[str, torch.Tensor]:
    return load_file(home / "a/rounds/001/solver/model.safetensors")


def apart(a: Path, b: Path) -> float:
    first, second = weights(a), weights(b)
    return max(float((first[name] - second[name]).abs().max()) for name in first)


@pytest.fixture(scope="module")
def straight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("straight")
    play(home, CONFIG)
    return home


class Device:
    """One on which no more than so many tokens of a forward pass fit, from a step on."""

    def __init__(self, tokens: int, patch: pytest.MonkeyPatch, from_step: int = 5) -> None:
        self.refused: list[tuple[int, int]] = []
        loss = PhaseTrainer.compute_loss

        def bounded(trainer: Any, model: Any, inputs: dict[str, Any], *rest: Any, **named: Any) -> Any:
            width = inputs["completion_ids"].size(1) + inputs["prompt_ids"].size(1)
            step, held = trainer.state.global_step + 1, len(inputs["prompt_ids"]) * width
            if step >= from_step and held > tokens:
                self.refused.append((step, held))
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.50 GiB.\nMore.")
            return loss(trainer, model, inputs, *rest, **named)

        patch.setattr(PhaseTrainer, "compute_loss", bounded)


def recorded(home: Path, kind: type[Any]) -> list[Any]:
    with closing(open_history(f"sqlite:///{home / 'diagevo.db'}", "a", root=home)) as history:
        return [fact.event for fact in history.events(kind)]


@pytest.mark.slow
def test_out_of_memory_halves_the_micro_batch_and_plays_the_step_again(
    straight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A completion of full length has 192 tokens: what step 5 holds are two of them."""
    with monkeypatch.context() as patch:
        device = Device(200, patch)
        watcher = play(tmp_path, CONFIG)
    assert [step for step, _ in device.refused] == [5]
    assert 192 < device.refused[0][1] <= 2 * 192
    assert apart(straight, tmp_path) < 1e-6
    [first, second] = recorded(tmp_path, events.RunConfigured)
    assert (first.config["solver_grpo"]["micro_batch"], second.config["solver_grpo"]["micro_batch"]) == (8, 1)
    [abandoned] = recorded(tmp_path, events.StageAbandoned)
    told = (
        "out of memory: CUDA out of memory. Tried to allocate 2.50 GiB. "
        "solver_grpo.micro_batch is 1 from now on; it was 8"
    )
    assert (abandoned.stage, abandoned.after_step, abandoned.reason) == ("solver", 4, told)
    assert f"round 1: {told}" in watcher.lines
    assert recorded(tmp_path, events.RoundCommitted) == recorded(straight, events.RoundCommitted)


@pytest.mark.slow
def test_a_phase_that_fits_no_more_ends_with_what_may_change_and_goes_on_with_it(
    straight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        Device(10, patch)
        with pytest.raises(OutOfMemoryError) as error:
            play(tmp_path, CONFIG)
    assert "solver_grpo.micro_batch can be no lower" in (error.value.hint or "")
    assert "--resume --set" in (error.value.hint or "")
    given = from_settings(("hardware.threads=1", "solver_grpo.micro_batch=2", "solver_grpo.save_steps=3"))
    watcher = play(tmp_path, None, resume=True, given=given)
    assert apart(straight, tmp_path) < 1e-6
    assert watcher.lines[0] == (
        "from here on: solver_grpo.micro_batch 1 → 2, solver_grpo.save_steps 1 → 3, hardware.threads None → 1"
    )
    found = recorded(tmp_path, events.RunConfigured)
    assert [event.number for event in found] == [1, 2, 3]
    assert found[-1].config["hardware"]["threads"] == 1
    with closing(open_history(f"sqlite:///{tmp_path / 'diagevo.db'}", "a", root=tmp_path)) as history:
        assert verify(history.log, "a", tmp_path / "a").faults == []
    with pytest.raises(ConfigError, match=r"filter\.tau cannot change when a run is resumed") as refused:
        play(tmp_path, None, resume=True, given=from_settings(("filter.tau=2",)))
    assert "diagevo runs fork a@N --set filter.tau=…" in (refused.value.hint or "")


def test_a_value_that_is_none_is_refused_where_it_was_said() -> None:
    stored = CONFIG.model_dump(mode="json")
    with pytest.raises(ConfigError, match=r"--set hardware\.processes: .* greater than or equal to 1"):
        adjusted(stored, from_settings(("hardware.processes=0",)), "a")
    del stored["hardware"]["restarts"]  # a key that is new since the run
    values, config = adjusted(stored, from_settings(("training.first_kl=0.5",)), "a")
    assert (values["training"]["first_kl"], config.training.first_kl) == (0.5, 0.5)
    assert "restarts" not in values["hardware"]
