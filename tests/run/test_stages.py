"""What a stage leaves in the log beside its work."""

import os
import time
from pathlib import Path

from diagevo.memory.events import StageAbandoned
from diagevo.progress import StopFlag, Unobserved
from diagevo.stages import Outcome, Stages
from tests.memory import play


def test_an_interrupted_attempt_says_how_long_it_ran(tmp_path: Path) -> None:
    """Up to the last file among its checkpoints, written 90 s after its start."""
    work = tmp_path / "work"
    work.mkdir()
    with play.opened(tmp_path) as memory:
        memory.open_round(1)
        memory.start_stage("solver")
        written = time.time() + 90
        (work / "trainer.json").write_text("{}")
        os.utime(work / "trainer.json", (written, written))
        stages = Stages(memory, 1, tmp_path, Unobserved(), StopFlag())
        stages.play("solver", Outcome, checkpoints=work)
        [recorded] = memory.log.read(memory.run_id, types=["StageAbandoned"])
    assert isinstance(recorded.event, StageAbandoned)
    assert recorded.event.seconds is not None
    assert 90 <= recorded.event.seconds < 120
