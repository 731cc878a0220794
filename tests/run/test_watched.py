"""What a person at the terminal is told of a real run."""

import re
import threading
from pathlib import Path
from typing import Any

import pytest
from diagevo.cli.call import CommandContext  # pyright: ignore[reportMissingImports]  (cli/, as installed)
from diagevo.cli.screens.display import PlainDisplay  # pyright: ignore[reportMissingImports]  (cli/, as installed)

from diagevo.errors import StoppedSafely
from diagevo.loop.run import Until, train
from diagevo.progress import StopFlag
from diagevo.sampling.transformers_sampler import TransformersSampler
from tests.run.small import small_config


@pytest.mark.slow
def test_a_slow_sampler_is_spoken_for_and_a_resumed_run_knows_what_was_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every call of the sampler takes until something was said of it."""
    quick, still = TransformersSampler.sample, PlainDisplay._unless_within
    waiting, spoken = threading.Event(), threading.Event()

    def slow(self: TransformersSampler, *given: Any, **named: Any) -> Any:
        waiting.set()
        spoken.wait()
        waiting.clear()
        spoken.clear()
        return quick(self, *given, **named)

    def speaks(display: PlainDisplay, seconds: float) -> None:
        waited, before = waiting.is_set(), display._spoke
        still(display, seconds)
        if waited and display._spoke > before:
            spoken.set()

    monkeypatch.setattr(TransformersSampler, "sample", slow)
    monkeypatch.setattr(PlainDisplay, "_unless_within", speaks)

    def watched(stage: str, *, resume: bool) -> list[str]:
        display = PlainDisplay(CommandContext(), "a")
        display.silence = 0.05
        with display.showing(), pytest.raises(StoppedSafely):
            train(
                None if resume else small_config(round={"train_challenger": False}),
                database=f"sqlite:///{tmp_path / 'diagevo.db'}",
                run_id="a",
                root=tmp_path,
                resume=resume,
                until=Until(1, stage),
                observer=display,
                stop=StopFlag(),
            )
        assert (display.earlier == {}) is not resume
        return [line.split(" ", 1)[1] for line in capsys.readouterr().err.splitlines()]

    told = watched("candidates", resume=False)
    assert told.index("base model validation: started") < told.index("round 1 of 2: ε 1")
    # 8 questions: twice at T = 1, once greedily, twice at T = 0.5.
    assert any(re.match(r"base model validation: 0/40, mean@2, \d:\d\d so far", line) for line in told), told
    done = next(line for line in told if line.startswith("base model validation: done in "))
    assert re.search(
        r": mean@2 0\.\d{3}, greedy 0\.\d{3}, at a lower temperature 0\.\d{3} \(T = 0\.5\),"
        r" at its best temperature 0\.\d{3}$",
        done,
    )
    assert any(re.match(r"round 1 candidates: .*\d:\d\d so far", line) for line in told), told
    told = watched("votes", resume=True)
    assert not any("base model" in line or "candidates" in line for line in told)
    assert any(re.match(r"round 1 votes: .*\d:\d\d so far", line) for line in told), told
