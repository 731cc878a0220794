"""A memory that takes rollouts, and short words for them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from diagevo.config.models import IngestConfig
from diagevo.ingest.rollouts import Rollout, Step
from diagevo.memory.events import Embedder, RunConfigured
from diagevo.memory.memory import Memory
from tests.memory.play import opened

DATA = Path(__file__).parent / "data"
SETTINGS = IngestConfig(steps_per_round=2)
DIMENSION = 64


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with opened(tmp_path) as memory:
        memory.configure(
            RunConfigured(
                config={"ingest": SETTINGS.model_dump()},
                models={},
                embedder=Embedder(name="hashing", dimension=DIMENSION, revision="words-bigrams-1"),
                version="test",
            )
        )
        yield memory


def step(number: int, **groups: str) -> Step:
    """One step; each prompt with its rollouts, `+` passed and `-` failed: step(1, a="+--")."""
    return Step(
        number,
        f"{number}.jsonl",
        [
            Rollout(prompt, f"{prompt} {number} {sample} {sign}", float(sign == "+"), "7")
            for prompt, signs in groups.items()
            for sample, sign in enumerate(signs)
        ],
    )
