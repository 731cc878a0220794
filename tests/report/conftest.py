"""The run that most report tests draw: four rounds played by hand (tests/memory/audit), test data."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from diagevo.memory.events import CheckpointEvaluated
from diagevo.memory.history import History, open_history
from diagevo.memory.opening import open_memory
from diagevo.report.report_data import Material, gather
from tests.memory.audit import played

ACCURACY = {0: 0.5, 1: 0.6, 2: 0.7, 3: 0.7, 4: 0.65}
"""Mean accuracy by round, made up: the best rounds are 2 and 3, so that the earlier must be chosen."""


def validated(number: int) -> CheckpointEvaluated:
    """What the solver can do after this round."""
    metrics = {"mean_at_k": ACCURACY[number], "mean_at_k_se": 0.02, "greedy": 0.9, "greedy_se": 0.01}
    conditions = {"samples": 8, "temperature": 1.0}
    if number == 0:
        metrics |= {"mean_at_k_T0.77": 0.62, "mean_at_k_T0.77_se": 0.02}
    return CheckpointEvaluated(
        role="solver",
        checkpoint=f"rounds/{number}",
        benchmark="validation",
        questions=100,
        conditions=conditions,
        metrics=metrics,
    )


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("played")
    url = f"sqlite:///{folder / 'log.db'}"
    played.play(url, root=folder)
    with open_memory(url, "played", root=folder) as memory:
        for number in ACCURACY:
            memory.evaluated(validated(number), number)
    return folder


@pytest.fixture
def history(run_folder: Path) -> Iterator[History]:
    history = open_history(str(run_folder / "log.db"), "played", root=run_folder)
    yield history
    history.close()


@pytest.fixture(scope="session")
def material(run_folder: Path) -> Material:
    history = open_history(str(run_folder / "log.db"), "played", root=run_folder)
    try:
        return gather(history)
    finally:
        history.close()
