"""DiagEvo and R-Zero behind the interface play what they played before: their hashes were recorded then."""

from pathlib import Path
from typing import Any

import pytest

from diagevo.memory.events import catalogue as events
from diagevo.memory.history import open_history
from tests.run.small import play, small_config
from tests.run.test_round import of

UNTRAINED: dict[str, Any] = {
    "challenger_grpo": {"max_steps": 0},
    "solver_grpo": {"max_steps": 1, "batch_questions": 12},
    "validation": {"questions": None},
    "hardware": {"threads": 1},
}
"""What is sampled is sampled from the shipped weights: no hash depends on the last bits of a gradient."""
R_ZERO = {
    "schedule": {"policy": "free"},
    "filter": {"variant": "absolute"},
    "round": {"responses": 10, "challenger_votes": 10, "candidates": 48},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sections", "state"),
    [
        ({}, "7317046aea2fbd916529ad562124877443e4016a6fb04147492172642e735866"),
        (R_ZERO, "480f83629bd73e13c6fdcaf90e4962bf91ef2567d771ddd07ecb928c560c378b"),
    ],
    ids=["diagevo", "r-zero"],
)
def test_the_hash_of_a_round_is_the_one_before_the_interface(
    tmp_path: Path, sections: dict[str, Any], state: str
) -> None:
    play(tmp_path, small_config(**UNTRAINED, **sections), rounds=1)
    history = open_history(f"sqlite:///{tmp_path / 'diagevo.db'}", "a", root=tmp_path)
    scored = of(history, events.CandidateScored)
    assert {(one.label_from, tuple(one.given)) for one in scored} == {("votes", ())}
    assert history.commit(1).event.state_hash == state
    history.close()
