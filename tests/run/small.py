"""A run of the embedded world that is small enough for a test: the real round with fewer of everything."""

import json
import pickle
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import pytest

from diagevo.config.models import Config
from diagevo.config.sources import Layer
from diagevo.loop.run import Until, train
from diagevo.progress import VALIDATION, Observer, RoundFigures, StopFlag
from tests.once import once

SMALL = {
    "seed": 2,  # its first step of the solver's training has failures
    "world": "arithmetic",
    "prompts": "builtin:arithmetic",
    "round": {"candidates": 48, "responses": 12, "challenger_votes": 4, "rounds": 2},
    "challenger_grpo": {
        "max_steps": 2,
        "batch_questions": 4,
        "group": 4,
        "learning_rate": 4e-4,
        "micro_batch": 16,
    },
    "solver_grpo": {
        "max_steps": 3,
        "batch_questions": 3,
        "group": 4,
        "learning_rate": 4e-4,
        "micro_batch": 24,
    },
    "sampling": {"max_new_tokens": 160, "max_prompt_tokens": 256},
    "validation": {
        "questions": "builtin:arithmetic",
        "limit": 8,
        "samples": 2,
        "temperatures": [0.5],
    },
    "roles": {
        "challenger": {"model": "builtin:arithmetic"},
        "solver": {"model": "builtin:arithmetic"},
        "diagnostician": {"engine": "rules:arithmetic"},
        "embedder": {"engine": "hashing", "model": "hashing", "dimension": 256},
    },
}
ONE_STEP = {"challenger_grpo": {"max_steps": 1}, "solver_grpo": {"max_steps": 1}}
"""For a comparison of two ranks with one: later steps sum the same gradients in another order."""


def small_config(**changes: Mapping[str, object]) -> Config:
    """The small configuration with whole sections changed key by key."""
    values = json.loads(json.dumps(SMALL))
    for section, change in changes.items():
        values.setdefault(section, {}).update(change)
    return Config.model_validate(values)


class Watcher(Observer):
    """Keeps what a run said."""

    def __init__(self) -> None:
        self.rounds: list[RoundFigures] = []
        self.epsilons: list[Fraction] = []
        self.stages: list[tuple[int, str, int]] = []
        self.lines: list[str] = []
        self.told: dict[tuple[int, str], Mapping[str, object]] = {}

    def round_started(self, round: int, rounds: int, epsilon: Fraction, failures: int | None) -> None:
        self.epsilons.append(epsilon)

    def stage_started(self, round: int, stage: str, attempt: int, total: int | None) -> None:
        if stage != VALIDATION:
            self.stages.append((round, stage, attempt))

    def stage_finished(self, round: int, stage: str, seconds: float, summary: Mapping[str, object]) -> None:
        self.told[round, stage] = summary

    def round_finished(self, round: int, figures: RoundFigures) -> None:
        self.rounds.append(figures)

    def message(self, text: str) -> None:
        self.lines.append(text)


def play(
    home: Path,
    config: Config | None,
    *,
    run_id: str = "a",
    resume: bool = False,
    rounds: int | None = None,
    until: Until | None = None,
    watcher: Watcher | None = None,
    stop: StopFlag | None = None,
    given: Layer | None = None,
) -> Watcher:
    """Play a run under `home` in this process; what it said."""
    watcher = watcher or Watcher()
    train(
        config,
        database=f"sqlite:///{home / 'diagevo.db'}",
        run_id=run_id,
        root=home,
        resume=resume,
        rounds=rounds,
        until=until,
        observer=watcher,
        stop=StopFlag() if stop is None else stop,
        given=given,
    )
    return watcher


def two_rounds(factory: pytest.TempPathFactory) -> Path:
    """The home of a run `a` of two rounds, and beside it (`.watcher`) who watched it."""

    def make(home: Path) -> None:
        home.with_suffix(".watcher").write_bytes(pickle.dumps(play(home, small_config())))

    return once(factory, "two-rounds", make)


def one_step(factory: pytest.TempPathFactory) -> Path:
    """The home of a run `a` of one round with one step a phase, played once in all tests."""
    return once(factory, "one-step", lambda home: play(home, small_config(**ONE_STEP), rounds=1))
