"""What a phase reports to TensorBoard where the configuration asks for it; by default to nobody."""

from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from diagevo.config.models import HardwareConfig
from diagevo.errors import MissingDependencyError
from diagevo.loop.roles import Roles
from tests.run.small import small_config
from tests.training import phase


@pytest.mark.parametrize("report_to", [(), ("tensorboard",)])
def test_each_step_is_in_tensorboards_file_beside_the_work_folder(
    tiny_model: Path, tmp_path: Path, report_to: tuple[str, ...]
) -> None:
    rewards: list[list[float]] = []
    phase.trained(
        tiny_model,
        tmp_path,
        output=tmp_path / "solver",
        work=tmp_path / "solver-work",
        on_step=lambda step, rollouts, values: rewards.append(values),
        hardware=HardwareConfig.model_validate({"device": "cpu", "report_to": report_to}),
    )
    files = [path.parent for path in tmp_path.rglob("events.out.tfevents*")]
    if not report_to:
        assert files == []
        return
    assert files == [tmp_path / "solver-logs"]
    written = EventAccumulator(str(files[0])).Reload()
    found = {event.step: event.value for event in written.Scalars("train/reward")}
    assert found == pytest.approx({n: sum(v) / len(v) for n, v in enumerate(rewards, 1)}, abs=1e-6)
    assert {"train/loss", "train/kl", "train/grad_norm"} <= set(written.Tags()["scalars"])


def test_a_reporter_that_is_not_installed_is_named_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("diagevo.loop.roles.find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match="report_to names trackio") as caught:
        Roles(small_config(hardware={"report_to": ["trackio"]}), tmp_path).check()
    assert caught.value.hint == "run: pip install trackio"
