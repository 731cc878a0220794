"""A round of the embedded world with a real vLLM serving the frozen policies, on the CPU."""

import os
import signal
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from diagevo.arithmetic import WEIGHTS, held_out
from diagevo.loop.roles import Roles
from diagevo.memory.events import catalogue as events
from diagevo.memory.history import open_history
from diagevo.progress import StageProgress
from diagevo.sampling.sampler import Sampler, SamplingParams
from diagevo.sampling.transformers_sampler import TransformersSampler
from diagevo.sampling.vllm_server import VLLMServer
from tests.run.small import Watcher, play, small_config
from tests.run.test_round import of
from tests.sampling.processes import members
from tests.sampling.real_vllm import CPU_OPTIONS, REAL_VLLM

pytestmark = [*REAL_VLLM, pytest.mark.timeout(1800)]
GREEDY = SamplingParams(temperature=0.0, max_new_tokens=48)


@dataclass
class Opened:
    """A server that the run opened: its policy, and what it answered at once."""

    policy: Path
    server: VLLMServer
    answers: list[str]
    groups: list[int | None] = field(default_factory=list)


def test_a_round_is_served_by_vllm_each_stage_with_the_newest_weights_and_survives_its_death(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small_config(
        hardware={
            "device": "cpu",
            "processes": 2,
            "threads": 1,
            "serve": "vllm",
            "serve_options": [*CPU_OPTIONS, "--max-model-len", "512"],
        },
        round={"candidates": 32},
        solver_grpo={"learning_rate": 1e-2},  # so far that greedy answers differ
        validation={"limit": 2},
    )
    opened: list[Opened] = []
    templates = Roles(config, tmp_path).templates
    prompts = [templates.solver(question) for question, _ in held_out()[:6]]

    def greedy(sampler: Sampler) -> list[str]:
        return [group[0].text for group in sampler.sample(prompts, n=1, params=GREEDY, seed=0)]

    open_sampler = Roles.open_sampler

    def noting(self: Roles, policy: Path) -> Sampler:
        server = open_sampler(self, policy)
        assert isinstance(server, VLLMServer)
        opened.append(Opened(policy, server, greedy(server), [server.pid]))
        return server

    class Killer(Watcher):
        """Kills the server's engine while it votes."""

        def stage_progress(self, round: int, stage: str, progress: StageProgress) -> None:
            if stage == "votes" and len(opened[-1].groups) == 1:
                serving = opened[-1]
                [group] = serving.groups
                assert group is not None
                serving.groups.append(None)
                for pid in members(group):
                    if pid != group:
                        os.kill(pid, signal.SIGKILL)

    monkeypatch.setattr(Roles, "open_sampler", noting)
    play(tmp_path, config, rounds=1, watcher=Killer())

    rounds = tmp_path / "a/rounds/001"
    solver, challenger = rounds / "solver", rounds / "challenger"
    assert [server.policy for server in opened] == [WEIGHTS, challenger, WEIGHTS, solver]
    assert opened[2].groups == [opened[2].groups[0], None], "killed while it voted"
    for server in opened:
        local = TransformersSampler(server.policy)
        assert server.answers == greedy(local), server.policy
        local.close()
        assert server.server.pid is None, "ended with its stage"
    assert opened[-1].answers != opened[0].answers, "after the update they are other weights"
    history = open_history(f"sqlite:///{tmp_path / 'diagevo.db'}", "a", root=tmp_path)
    try:
        assert len(of(history, events.CandidateScored, 1)) == 32
        assert of(history, events.FailureObserved, 1)
    finally:
        history.close()
