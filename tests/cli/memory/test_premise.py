"""A result of the arithmetic world is nowhere shown without what it rests on."""

from pathlib import Path

import pytest

from diagevo.arithmetic import PREMISE
from tests.cli.program import invoke
from tests.memory.audit.played import CONFIG, play


@pytest.fixture(autouse=True)
def runs() -> None:
    for name, config in (("laboratory", CONFIG | {"world": "arithmetic"}), ("open", CONFIG)):
        play("runs/diagevo.db", name, root=Path("runs"), rounds=1, config=config)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (["runs", "list"], True),
        (["runs", "diff", "open..laboratory"], True),
        (["runs", "diff", "open..open"], False),
    ],
)
def test_results_stand_beside_the_premise_of_their_world_once(asked: list[str], told: bool) -> None:
    result = invoke(*asked)
    assert result.exit_code == 0, result.output
    assert result.stderr.count(PREMISE) == told
    assert PREMISE not in result.stdout


def test_what_eval_list_proposes_can_be_answered_in_the_runs_world() -> None:
    assert "eval run held-out" in invoke("eval", "show", "--run", "laboratory").stderr
    assert "eval run math500" in invoke("eval", "show", "--run", "open").stderr
