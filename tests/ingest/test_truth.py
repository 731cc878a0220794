"""Each format's files, made by its writer's own code, against what is true of the rollouts (`writers/`)."""

import json
from collections import Counter
from typing import Any

import pytest

from diagevo.ingest.formats import Format, read
from diagevo.ingest.rollout_steps import RolloutGroup, grouped
from tests.ingest.conftest import DATA

WRITERS: dict[str, Format] = {
    "verl_v1": "verl",
    "nemo_rl/dynamic": "nemo-rl",
    "nemo_rl/plain": "nemo-rl",
    "prime_rl": "prime-rl",
    "slime/plain": "slime",
    "slime/keyed": "slime",
    "areal/single": "areal",
    "areal/turns": "areal",
    "areal/alone": "areal",
    "skyrl": "jsonl",
    "trl_evaluated": "trl",
    "trl_sparse": "trl",
}
TOLD = {"trl_evaluated": (1, 3, 5), "trl_sparse": (3, 6)}
"""Steps whose training batch is in a file: the others' are not, or an evaluation stands in their place."""


ASKED: dict[str, dict[str, Any]] = {
    "slime/keyed": {"reward": "acc"},
    "skyrl": {
        "mapped": {
            "prompt": "input_prompt",
            "response": "output_response",
            "reward": "score",
            "group": "env_extras.uid",
            "answer": "env_extras.reward_spec.ground_truth",
        }
    },
}
"""What is to be said of them."""
FILES = {"skyrl": "held_out.jsonl"}
"""The file that is read, where another one stands beside it."""


def truth(written: str) -> list[dict[str, Any]]:
    """The groups that a file has; of prime-rl, which counts from 1, those of step 0 are in none."""
    found = json.loads((DATA / written / "truth.json").read_text(encoding="utf-8"))["groups"]
    told = [group for group in found if group["step"] in TOLD.get(written, (group["step"],))]
    return [group for group in told if group["step"] or written != "prime_rl"]


def groups_read(written: str) -> list[tuple[int, RolloutGroup]]:
    path, asked = DATA / written / FILES.get(written, ""), ASKED.get(written, {})
    steps = read(WRITERS[written], path, on_cut=pytest.fail, **asked)
    return [(step.number, group) for step in steps for group in grouped(step.rollouts)]


def is_of(response: str, texts: list[str]) -> bool:
    """Whether a response has these texts in this order."""
    place = 0
    for text in texts:
        place = response.find(text, place)
        if place < 0:
            return False
        place += len(text)
    return True


def matches(group: RolloutGroup, true: dict[str, Any]) -> bool:
    """Whether these are the rollouts of the truth, each with its reward."""
    if group.prompt != true["prompt"] or Counter(group.rewards) != Counter(
        each["reward"] for each in true["rollouts"]
    ):
        return False
    left = list(zip(group.responses, group.rewards, strict=True))
    for each in true["rollouts"]:
        found = next(
            (
                (response, reward)
                for response, reward in left
                if reward == each["reward"] and is_of(response, each["texts"])
            ),
            None,
        )
        if found is None:
            return False
        left.remove(found)
    return not left


@pytest.mark.parametrize("written", WRITERS)
def test_every_group_is_read_with_the_rollouts_and_rewards_that_are_true(written: str) -> None:
    left = truth(written)
    found = groups_read(written)
    found = [(step, group) for step, group in found if step in TOLD.get(written, (step,))]
    assert len(found) == len(left)
    for step, group in found:
        true = [t for t in left if t["step"] == step and matches(group, t)]
        assert true, (step, group)
        if true[0]["answer"] is not None:
            assert group.answer == true[0]["answer"]
        left.remove(true[0])
