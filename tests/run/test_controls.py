"""The study's controls, and a policy of one's own, in the real round."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from diagevo.config.models import Config
from diagevo.errors import ConfigError, NotFoundError, StoppedSafely
from diagevo.loop.players import Solver
from diagevo.loop.roles import Roles
from diagevo.loop.run import Until
from diagevo.memory import events
from diagevo.memory.history import open_history
from diagevo.memory.state.projected_schedule import Draw
from diagevo.methods.interface import Written
from diagevo.sampling.sampler import Completion
from tests.run.small import SMALL, play, small_config

QUESTION = "how many pens are in 7 boxes of 6 and 4 packs of 6"  # 66
FEW = {"round": {"candidates": 8, "responses": 4, "challenger_votes": 2}, "challenger_grpo": {"max_steps": 1}}
OWN = """
from diagevo.equations.policy import Frequency

class Mine(Frequency):
    pass
"""


class Scripted:
    """Answers every question by the same list."""

    def __init__(self, answers: Sequence[str | None]) -> None:
        self._texts = ["no box" if a is None else rf"thus \boxed{{{a}}}" for a in answers]

    def sample(self, prompts: Sequence[Any], **_: Any) -> list[list[Completion]]:
        return [[Completion(text, 5, False) for text in self._texts] for _ in prompts]

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("answers", "true_labels", "label", "reference"),
    [
        (["67"] * 6 + ["66"] * 4 + [None] * 2, False, "67", r"thus \boxed{67}"),
        (["67"] * 6 + ["66"] * 4 + [None] * 2, True, "66", r"thus \boxed{66}"),
        (["66"] * 8 + ["67"] * 4, True, "66", r"thus \boxed{66}"),
        (["67"] * 6 + ["68"] * 6, True, None, None),  # nothing to compare a failure with
    ],
)
def test_a_true_label_is_the_worlds_answer_and_its_reference_gives_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answers: list[str | None],
    true_labels: bool,
    label: str | None,
    reference: str | None,
) -> None:
    config = small_config(round={"true_labels": true_labels})
    roles = Roles(config, tmp_path)
    monkeypatch.setattr(roles, "open_sampler", lambda *_, **__: Scripted(answers))
    with roles.checker:
        solver = Solver(tmp_path, roles)
        [answered] = solver.answer(
            [Written(Draw(0, "free"), "", QUESTION)], 1, tmp_path / "kept", lambda *_: None
        )
    assert (answered.label, answered.reference) == (label, reference)
    assert answered.votes is not None
    assert answered.votes.label == answers[0]  # what was voted stays what it was


@pytest.mark.slow
def test_true_labels_are_practised_and_the_log_says_what_they_are(tmp_path: Path) -> None:
    config = small_config(
        round={**FEW["round"], "candidates": 24, "true_labels": True}, challenger_grpo={"max_steps": 1}
    )
    with pytest.raises(StoppedSafely):
        play(tmp_path, config, until=Until(1, "votes"))
    history = open_history(f"sqlite:///{tmp_path / 'diagevo.db'}", "a")
    scored = [r.event for r in history.events(events.CandidateScored)]
    assert history.configuration().config["round"]["true_labels"] is True
    history.close()
    valid = [e for e in scored if isinstance(e, events.CandidateScored) and e.label is not None]
    assert valid
    assert all(event.label_true for event in valid)


def test_true_labels_need_a_world_that_knows_them() -> None:
    values = SMALL | {"world": None, "round": {"true_labels": True}}
    with pytest.raises(ValueError, match=r"round\.true_labels needs a world"):
        Config.model_validate(values)


@pytest.mark.slow
def test_a_run_goes_on_with_its_policy(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(OWN)
    config = small_config(**FEW, schedule={"policy": f"{file}:Mine"})
    with pytest.raises(StoppedSafely):
        play(tmp_path, config, until=Until(1, "challenger"))
    with pytest.raises(StoppedSafely, match="before the stage votes of round 1"):
        play(tmp_path, None, resume=True, until=Until(1, "candidates"))


def test_a_policy_that_is_not_there_ends_a_new_run_before_anything_is_recorded(tmp_path: Path) -> None:
    config = small_config(**FEW, schedule={"policy": f"{tmp_path}/none.py:Mine"})
    with pytest.raises(ConfigError, match=r"cannot be made: FileNotFoundError.*none\.py"):
        play(tmp_path, config)
    with pytest.raises(NotFoundError, match="has no runs yet"):
        open_history(f"sqlite:///{tmp_path / 'diagevo.db'}", "a")
