"""A memory that takes rollouts, and short words for them."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from diagevo.arithmetic.rule_diagnostician import by_rules
from diagevo.config.models import Config, IngestConfig
from diagevo.diagnosis.embedder import embedder_for
from diagevo.errors import ConfigError
from diagevo.ingest.rollout_steps import IngestedRollout, RolloutStep
from diagevo.ingest.rounds import Rounds
from diagevo.memory.events import Embedder, RunConfigured
from diagevo.memory.memory import Memory
from diagevo.memory.opening import open_memory
from tests.cli.program import invoke
from tests.memory.play import opened

DATA = Path(__file__).parent / "data"
SETTINGS = IngestConfig(steps_per_round=2)
DIMENSION = 64
CONFIGURED = RunConfigured(
    config={"ingest": SETTINGS.model_dump()},
    models={},
    embedder=Embedder(name="hashing", dimension=DIMENSION, revision="words-bigrams-1"),
    version="test",
)


def configured(folder: Path) -> Memory:
    """A memory for rollouts of another trainer."""
    memory = opened(folder)
    memory.configure(CONFIGURED)
    return memory


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with configured(tmp_path) as memory:
        yield memory


def step(number: int, **groups: str) -> RolloutStep:
    """One step; each prompt with its rollouts, `+` passed and `-` failed: step(1, a="+--")."""
    return RolloutStep(
        number,
        f"{number}.jsonl",
        [
            IngestedRollout(prompt, f"{prompt} {number} {sample} {sign}", float(sign == "+"), "7")
            for prompt, signs in groups.items()
            for sample, sign in enumerate(signs)
        ],
    )


def diagnose_by_rules(url: str, run: str) -> None:
    """For rollouts of the world's own model: its rules name the causes, which the command leaves to a
    language model where a run was not played there."""
    with open_memory(url, run, create=False) as memory:
        config = Config.model_validate(memory.state.config)
        asked, embedder = by_rules("rules:arithmetic", config.seed), embedder_for(config.roles.embedder)
        Rounds(memory).diagnose(asked, embedder, config.diagnosis, config.memory)


def ingest_verl(home: Path, run: str = "v") -> None:
    """verl's files, two steps a round: rounds 1 to 3, by the world's rules."""
    words = ["ingest", "verl", DATA / "verl" / "rollouts", "--run", run, "--steps-per-round", "2"]
    result = invoke(*words, env={"DIAGEVO_HOME": str(home)})
    assert result.exit_code == 0, result.output
    diagnose_by_rules(f"sqlite:///{home / 'diagevo.db'}", run)


def complaint(take: Callable[[], object]) -> str:
    """What a refusal says, with its next step; "" where all was read."""
    try:
        take()
    except ConfigError as error:
        return f"{error.message}\n{error.hint}"
    return ""
