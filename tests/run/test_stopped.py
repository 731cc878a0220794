"""A run that is stopped in the midst of every stage and taken up again, against one left alone.

Where it is stopped is counted in batches of answers, so that nothing here depends on a clock.
"""

import signal
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from diagevo.errors import StoppedSafely
from diagevo.progress import StageProgress, StopFlag, now_playing
from diagevo.sampling import decoding
from diagevo.training.checkpoints import find
from tests.run.program import RESUMED, Moment, assert_same_end, first, played
from tests.run.small import Watcher, play, small_config

pytestmark = pytest.mark.slow

CONFIG = small_config(
    hardware={"rows_at_once": 16},
    validation={"limit": 16},  # two batches, one greedy, two colder
    challenger_grpo={"save_steps": 9},  # no checkpoint is due
)
KEPT = ("validation", "candidates", "votes")


@dataclass(frozen=True)
class Stop:
    """After so many batches of a stage in this process; `times` 2: what is under way is broken off."""

    where: str
    batches: int
    times: int = 1


class Batches:
    """Counts what is decoded: begun and finished, by what was played; a row by its seed, prompt, sample and
    temperature."""

    def __init__(self) -> None:
        self.rows: Counter[tuple[str, object, float]] = Counter()
        self.at: Stop | None = None
        self.flag = StopFlag()
        self.begun_after: list[str] = []
        self._done: Counter[str] = Counter()

    def plan(self, at: Stop | None) -> StopFlag:
        self.at, self.flag = at, StopFlag()
        self._done.clear()
        return self.flag

    def decode(self, original: Any, model: Any, prompts: Any, rows: list[Any], settings: Any) -> None:
        where = now_playing().removeprefix("a, round ")
        late = bool(self.flag)
        keys = [(where, str(row.generator.bit_generator.state), settings.temperature) for row in rows]
        original(model, prompts, rows, settings)
        if late:
            self.begun_after.append(where)
        if where.endswith(KEPT):
            self.rows.update(keys)
        self._done[where] += 1
        if self.at is not None and (where, self._done[where]) == (self.at.where, self.at.batches):
            for _ in range(self.at.times):
                self.flag.set()


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> Iterator[Batches]:
    counted, original = Batches(), decoding._decode_batch
    monkeypatch.setattr(decoding, "_decode_batch", lambda *given: counted.decode(original, *given))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # batches one after another
    yield counted
    torch.set_num_threads(threads)


class Stopping(Watcher):
    """Stops in the midst of the update of the solver's second step: when it is told of the step."""

    def __init__(self, flag: StopFlag | None = None) -> None:
        super().__init__()
        self.flag = flag
        self.steps: list[int] = []
        self.answered: list[tuple[str, int, int | None]] = []

    def stage_progress(self, round: int, stage: str, progress: StageProgress) -> None:
        if stage in KEPT:
            self.answered.append((stage, progress.done, progress.total))
        if stage == "solver":
            self.steps.append(progress.done)
        if stage == "solver" and progress.done == 2 and self.flag is not None:
            self.flag.set()
            self.flag.set()


STOPS = [
    Stop("0: first look", 1),
    Stop("0: validation", 1),
    Stop("0: validation", 2),  # the rest of the samples, and the greedy answers
    Stop("1: challenger", 7, times=2),  # votes in its second step
    Stop("1: candidates", 1),
    Stop("1: votes", 3),
    Stop("1: votes", 9, times=2),
    Stop("1: validation", 1),
]


def test_stopped_in_every_stage_the_run_ends_as_one_left_alone_and_asks_nothing_twice(
    tmp_path: Path, batches: Batches
) -> None:
    whole, home = tmp_path / "whole", tmp_path / "stopped"
    batches.plan(None)
    alone = Stopping()
    play(whole, CONFIG, rounds=1, watcher=alone)
    once, batches.rows = batches.rows, Counter()
    assert max(once.values()) == 1
    work = home / "a/rounds/001/challenger-work"
    resume = False
    for at in STOPS:
        if at.where == "1: validation":
            flag = batches.plan(None)
            with pytest.raises(StoppedSafely, match="stopped in a, round 1: solver, as asked"):
                play(home, None, rounds=1, resume=True, stop=flag, watcher=Stopping(flag))
            assert find(home / "a/rounds/001/solver-work").step == 1, "the second step is played again"
        batches.begun_after.clear()
        with pytest.raises(StoppedSafely) as stopped:
            play(home, None if resume else CONFIG, rounds=1, resume=resume, stop=batches.plan(at))
        resume = True
        assert batches.begun_after == [], "no batch was asked for after the flag"
        assert f"stopped in a, round {at.where}" in stopped.value.message
        assert stopped.value.hint == "continue with: diagevo train --resume"
        if at.where.endswith(KEPT):
            assert " answers are kept" in stopped.value.message
            [file] = (home / "a").rglob("*-answers.jsonl")
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
        elif at.where.endswith("challenger"):
            assert find(work).step == 1, "the step before was saved, though none was due"
    last = Stopping()
    play(home, None, rounds=1, resume=True, stop=batches.plan(None), watcher=last)
    assert batches.rows == once, "every answer was asked for once, the same ones as by the run left alone"
    assert list((home / "a").rglob("*-answers.jsonl")) == [], "what is recorded is not kept twice"
    assert_same_end(home, whole).close()
    asked = {stage: (done, total) for stage, done, total in alone.answered}
    assert all(done == total for done, total in asked.values())
    assert asked.keys() == {"candidates", "votes", "validation"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_signal_in_the_midst_of_the_votes_costs_no_vote(
    unbroken: Path, tmp_path: Path, number: signal.Signals
) -> None:
    ended = played(
        tmp_path,
        first(tmp_path),
        Moment("votes", "stage_progress", lambda process: process.send_signal(number)),
    )
    file = tmp_path / "a/rounds/001/votes-answers.jsonl"
    if number == signal.SIGKILL:
        assert ended.code == -signal.SIGKILL
        assert file.stat().st_size > 0
    else:
        assert ended.code == 75, ended.stderr[-3000:]
        assert ended.error()["kind"] == "stopped"
    done = played(tmp_path, RESUMED)
    assert done.code == 0, done.stderr[-3000:]
    told = [told.steps("votes") for told in (ended, done)]
    assert sorted({*told[0], *told[1]}) == sorted(told[0] + told[1]), "none is answered a second time"
    assert_same_end(tmp_path, unbroken).close()
