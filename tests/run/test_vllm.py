"""Rounds of the embedded world whose two ranks keep a real vLLM each, on the CPU."""

import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from diagevo.arithmetic import WEIGHTS, held_out
from diagevo.loop.roles import Roles
from diagevo.memory.events import catalogue as events
from diagevo.memory.history import open_history
from diagevo.progress import StageProgress
from diagevo.sampling.sampler import Sampler, SamplingParams
from diagevo.sampling.transformers_sampler import TransformersSampler
from diagevo.training.ranks import LocalRanks
from diagevo.training.workers import SamplingJob
from tests.run.small import Watcher, play, small_config
from tests.run.test_round import of
from tests.sampling.processes import members
from tests.sampling.real_vllm import REAL_VLLM

pytestmark = [*REAL_VLLM, pytest.mark.timeout(1800)]
GREEDY = SamplingParams(temperature=0.0, max_new_tokens=48)


class Noted:
    """What the ranks of a run were, and what they answered."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.groups: list[list[Any]] = []
        """Processes of the ranks, each time they were started."""
        self.policies: list[Path] = []
        self.answers: list[list[str]] = []
        """Of each policy as it was opened."""
        self.twice = 0
        """Answers that were there already when they came."""
        start, open_sampler, on_message = LocalRanks.start, Roles.open_sampler, SamplingJob.on_message
        prompts: list[Any] = []

        def started(ranks: LocalRanks, *given: Any) -> Any:
            self.groups.append(start(ranks, *given))
            return self.groups[-1]

        def opened(roles: Roles, policy: Path) -> Sampler:
            prompts[:] = prompts or [roles.templates.solver(question) for question, _ in held_out()[:6]]
            sampler = open_sampler(roles, policy)
            self.policies.append(policy)
            self.answers.append(greedy(sampler, prompts))
            return sampler

        def counted(job: SamplingJob, rank: int, message: tuple[Any, ...]) -> None:
            if message[0] == "answered":
                self.twice += len(message[1].keys() & job._answers.rows.keys())
            on_message(job, rank, message)

        monkeypatch.setattr(LocalRanks, "start", started)
        monkeypatch.setattr(Roles, "open_sampler", opened)
        monkeypatch.setattr(SamplingJob, "on_message", counted)
        program = [sys.executable, str(Path(__file__).with_name("rank_with_vllm.py"))]
        monkeypatch.setattr("diagevo.training.ranks.worker_command", lambda spec: [*program, str(spec)])
        self.prompts = prompts


def greedy(sampler: Sampler, prompts: list[Any]) -> list[str]:
    return [group[0].text for group in sampler.sample(prompts, n=1, params=GREEDY, seed=0)]


def config(**hardware: Any) -> Any:
    inside = {"device": "cpu", "processes": 2, "threads": 1, "colocate_vllm": True}
    return small_config(
        hardware=inside | hardware,
        round={"candidates": 32},
        solver_grpo={"learning_rate": 1e-2},  # so far that greedy answers differ
        validation={"limit": 2},
    )


def starts(home: Path) -> list[int]:
    """How often each rank's log says that an engine was started."""
    logs = sorted((home / "a" / "logs").glob("rank-*.log"))
    return [len(re.findall("Initializing a V1 LLM engine", log.read_text())) for log in logs]


def check(noted: Noted, home: Path, policies: list[Path]) -> None:
    assert noted.policies == policies
    for policy, answers in zip(policies, noted.answers, strict=True):
        local = TransformersSampler(policy)
        assert answers == greedy(local, noted.prompts), policy
        local.close()
    assert noted.answers[-1] != noted.answers[0], "after the update they are other weights"
    assert noted.twice == 0
    assert [members(rank.pid) for ranks in noted.groups for rank in ranks] == [{}] * 2 * len(noted.groups)
    history = open_history(f"sqlite:///{home / 'diagevo.db'}", "a", root=home)
    try:
        assert len(of(history, events.CandidateScored, 1)) == 32
        assert of(history, events.FailureObserved, 1)
    finally:
        history.close()


def test_two_rounds_start_one_engine_a_rank_and_each_stage_has_the_newest_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = Noted(monkeypatch)
    play(tmp_path, config(), rounds=2)
    one, two = (tmp_path / f"a/rounds/00{number}" for number in (1, 2))
    policies = [WEIGHTS, one / "challenger", WEIGHTS, one / "solver"]
    policies += [two / "challenger", one / "solver", two / "solver"]
    check(noted, tmp_path, policies)
    assert len(noted.groups) == 1
    assert starts(tmp_path) == [1, 1]


def test_a_rank_that_is_killed_while_it_votes_costs_what_it_had_not_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = Noted(monkeypatch)

    class Killer(Watcher):
        def stage_progress(self, round: int, stage: str, progress: StageProgress) -> None:
            if stage == "votes" and progress.done and len(noted.groups) == 1:
                for pid in members(noted.groups[0][1].pid):
                    os.kill(pid, signal.SIGKILL)

    watcher = play(tmp_path, config(rows_at_once=24), rounds=1, watcher=Killer())
    one = tmp_path / "a/rounds/001"
    check(noted, tmp_path, [WEIGHTS, one / "challenger", WEIGHTS, one / "solver"])
    assert len(noted.groups) == 2
    assert starts(tmp_path) == [2, 2]
    lost = "a, round 1: votes: Training rank 1 of 2 was ended by signal 9 (SIGKILL) while answering."
    assert [line for line in watcher.lines if line.startswith(lost)]
