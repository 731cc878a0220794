"""TRL's GRPOTrainer with a memory beside it, each time a real training of the shipped model.

Of every group of four the first rollout passes (trl_training.py), so a group has three failures, all of one
cause.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

import diagevo
from diagevo.config.models import DiagnosisConfig, MemoryConfig
from diagevo.diagnosis.embedder import HashingEmbedder, identity
from diagevo.ingest.rounds import Rounds
from diagevo.memory.audit.verify import verify
from diagevo.memory.events import CandidateScored, GroupIngested, RoundCommitted, RoundsSuperseded
from diagevo.memory.memory import Memory
from tests.cli.program import clean_environment, invoke
from tests.diagnosis.server import Answer, Server
from tests.forked import Forked
from tests.training.forked_ranks import play_ranks

pytestmark = pytest.mark.slow

MAIN = "tests.ingest.trl_training:main"


def training(folder: Path, *, ranks: int = 1, ends: int = 0, **told: Any) -> str:
    """Train as told, and what the training said."""
    arguments = [str(folder), json.dumps({"steps": 1, "arguments": {}} | told)]
    env = clean_environment(OMP_NUM_THREADS="1")
    if ranks > 1:
        return play_ranks(MAIN, arguments, os.environ | env, ranks=ranks)
    with (folder / "log").open("w") as log, Forked(MAIN, arguments, env=env, into=log) as program:
        code = program.wait(500)
    said = (folder / "log").read_text()
    assert code == ends, said
    return said


def memory_of(folder: Path) -> Memory:
    embedder = identity(HashingEmbedder(64))
    return diagevo.open(f"sqlite:///{folder}/mine.db", run="mine", embedder=embedder)


def told(memory: Memory, event: type) -> list[tuple[int, Any]]:
    return [(r.round, r.event) for r in memory.log.read(memory.run_id, types=[event.__name__])]


def rounds_of_steps(memory: Memory) -> dict[int, set[int]]:
    """The recorded steps of each round; no group twice."""
    found: dict[int, set[int]] = {}
    for round_, group in told(memory, GroupIngested):
        found.setdefault(round_, set()).add(group.step)
    return found


def committed(memory: Memory) -> list[int]:
    return [round_ for round_, _ in told(memory, RoundCommitted)]


def sound(memory: Memory) -> bool:
    return verify(memory.log, memory.run_id, memory.folder, deep=True).ok


def caught_up(memory: Memory) -> list[int]:
    """What `diagevo diagnose` does later; the rounds that are committed then."""
    from tests.ingest.trl_training import well

    Rounds(memory).diagnose(well(), HashingEmbedder(64), DiagnosisConfig(), MemoryConfig())
    return committed(memory)


def test_prompts_of_the_users_own_are_observed_and_those_of_an_evaluation_are_not(tmp_path: Path) -> None:
    """Eight rows, four a step: two epochs are four steps, a round of three and one of one. Every row came
    twice, and two rows are one prompt: in step 1 they stand in one batch, and are two groups."""
    training(
        tmp_path,
        steps=3,
        eval=True,
        arguments={
            "num_train_epochs": 2,
            "shuffle_dataset": False,
            "eval_strategy": "steps",
            "eval_steps": 1,
        },
    )
    with memory_of(tmp_path) as memory:
        assert rounds_of_steps(memory) == {1: {1, 2, 3}, 2: {4}}
        groups = [group for _, group in told(memory, GroupIngested)]
        assert [len(group.rewards) for group in groups] == [4] * 16
        assert {(group.passes, len(group.failed), group.draw) for group in groups} == {(1, 3, None)}
        assert groups[0].question == groups[1].question
        texts = memory.artifacts.get_many([group.question for group in groups])
        assert sorted(texts.values()) == [f"What is {number} + 1?" for number in range(1, 8)]
        assert [event.failures for _, event in told(memory, RoundCommitted)] == [36, 48]
        assert {event.mode for round_, event in told(memory, CandidateScored) if round_ == 1} == {"free"}
        assert sound(memory)


def test_steps_without_rollouts_make_no_round_and_end_nothing(tmp_path: Path) -> None:
    """Rollouts are made in steps 1, 3, 5 and used twice; step 1 is not rewarded at all."""
    said = training(tmp_path, reward="nothing", arguments={"num_iterations": 2, "max_steps": 6})
    assert "trained 6 steps" in said
    assert "WARNING" not in said
    assert "The training continues" not in said
    with memory_of(tmp_path) as memory:
        assert rounds_of_steps(memory) == {1: {3}, 2: {5}}
        assert committed(memory) == [1, 2]
        assert sound(memory)


def test_batches_of_an_accumulated_gradient_are_groups_of_one_step(tmp_path: Path) -> None:
    """Two batches of 8 completions a step, each generated on its own."""
    arguments = {
        "per_device_train_batch_size": 8,
        "gradient_accumulation_steps": 2,
        "steps_per_generation": 1,
        "max_steps": 2,
    }
    training(tmp_path, arguments=arguments)
    with memory_of(tmp_path) as memory:
        places = [(group.step, group.group, len(group.rewards)) for _, group in told(memory, GroupIngested)]
        assert places == [(step, place, 4) for step in (1, 2) for place in range(4)]
        assert committed(memory) == [1, 2]


def test_a_group_that_spans_two_ranks_is_one(tmp_path: Path) -> None:
    """Six completions a rank: three prompts of four, the second one's two and two. Rank 1 has no memory to
    write, and waits for nobody: the rounds are rank 0's."""
    arguments = {"per_device_train_batch_size": 6, "max_steps": 2, "shuffle_dataset": False}
    assert "trained 2 steps" in training(tmp_path, ranks=2, rows=6, arguments=arguments)
    with memory_of(tmp_path) as memory:
        groups = [group for _, group in told(memory, GroupIngested)]
        assert [(group.step, group.rewards) for group in groups] == [
            (step, [1.0, 0.0, 0.0, 0.0]) for step in (1, 2) for _ in range(3)
        ]
        asked = [memory.artifacts.get(group.question) for group in groups]
        assert asked == [f"What is {number} + 1?" for number in (1, 1, 2, 3, 4, 5)]
        assert committed(memory) == [1, 2]


FAULTS = {
    "locked": "rollouts cannot be recorded now: ",
    "disk": "rollouts cannot be recorded now: ",
    "service": "rollouts cannot be diagnosed now: the diagnostician is gone",
    "broken": "rollouts cannot be diagnosed now: ValueError: it is my own and it is broken; its key is ***",
}


@pytest.mark.parametrize("until", [3, 9])
@pytest.mark.parametrize(("fault", "says"), FAULTS.items())
def test_nothing_that_the_memory_or_the_diagnostician_meets_ends_a_training(
    tmp_path: Path, fault: str, says: str, until: int
) -> None:
    """Until step 3 of 4, or to the end. What was rolled out waits, in the log or beside it; the rounds come
    later, whoever asks for them."""
    said = training(tmp_path, fault=fault, until=until, arguments={"max_steps": 4})
    assert "trained 4 steps" in said
    assert said.count("The training continues") == said.count(says) == 1
    recorded = until == 3 or fault in ("service", "broken")
    lost = "not recorded, and lost with this process: step 1, 2, 3, 4" in said
    assert lost == (not recorded)
    if fault in ("service", "broken"):
        assert f"diagevo diagnose --run mine --db sqlite:///{tmp_path}/mine.db" in said
    with memory_of(tmp_path) as memory:
        assert rounds_of_steps(memory) == ({n: {n} for n in (1, 2, 3, 4)} if recorded else {})
        assert committed(memory) == ([1, 2, 3, 4] if until == 3 else [])
        assert caught_up(memory) == ([1, 2, 3, 4] if recorded else [])
        assert not recorded or sound(memory)


def test_a_diagnostician_that_cannot_be_read_ends_no_training(tmp_path: Path) -> None:
    with Server(lambda request, before: Answer("I would rather not say.")) as server:
        said = training(tmp_path, url=server.url, arguments={"max_steps": 2})
        assert "trained 2 steps" in said
        assert server.requests
    with memory_of(tmp_path) as memory:
        assert rounds_of_steps(memory)
        assert sound(memory)


def test_a_service_that_is_gone_leaves_rounds_that_wait(tmp_path: Path) -> None:
    """Nobody listens there."""
    said = training(tmp_path, url="http://127.0.0.1:9/v1", arguments={"max_steps": 2})
    assert said.count("rollouts cannot be diagnosed now") == 1
    with memory_of(tmp_path) as memory:
        assert committed(memory) == []
        assert caught_up(memory) == [1, 2]


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A training that saved itself in step 3 and was killed after step 7; rounds are of two steps."""
    folder = tmp_path_factory.mktemp("saved")
    arguments = {"max_steps": 8, "save_strategy": "steps", "save_steps": 3}
    training(folder, ends=9, steps=2, fault="killed", until=7, arguments=arguments)
    return folder


def test_a_training_that_goes_on_from_an_earlier_checkpoint_records_another_attempt(saved: Path) -> None:
    """From step 3: rounds 1 to 3 are committed and step 7 waits for round 4. Steps 4 to 10 are rolled out:
    of round 2 step 3 stays, and rounds 2 and 3 are superseded."""
    with memory_of(saved) as memory:
        assert (committed(memory), rounds_of_steps(memory)[4]) == ([1, 2, 3], {7})
    said = training(saved, steps=2, resume=str(saved / "out" / "checkpoint-3"), arguments={"max_steps": 10})
    assert "run mine holds rollouts up to step 7, and this training resumes from step 3" in said
    with memory_of(saved) as memory:
        groups = [(group.step, group.attempt) for _, group in told(memory, GroupIngested)]
        assert sorted(groups) == sorted(
            [(step, 1) for step in range(1, 8) for _ in range(4)]
            + [(step, 2) for step in range(4, 11) for _ in range(4)]
        )
        [superseded] = [event for _, event in told(memory, RoundsSuperseded)]
        assert (superseded.first, superseded.last) == (2, 3)
        standing = [batch for one in memory.state.began if (batch := memory.state.batch(one.round))]
        assert standing == [1, 2, 3, 4, 5]
        assert sound(memory)


TIDY = "the trainer has 2 reward functions, whose sum need not say what passed: tidy, first_of_four"


def test_of_several_reward_functions_the_one_that_says_what_passed_is_named(tmp_path: Path) -> None:
    """Every sum is at least 0.6, and so would pass."""
    arguments = {"max_steps": 1}
    assert TIDY in training(tmp_path, reward="tidy", ends=1, arguments=arguments)
    unknown = training(tmp_path, reward="tidy", named={"reward": "right"}, ends=1, arguments=arguments)
    assert "no reward function 'right'" in unknown
    with memory_of(tmp_path) as memory:
        assert memory.state.sequence == 0
    arguments |= {"logging_strategy": "steps", "logging_steps": 1}
    named = {"reward": "first_of_four"}
    said = training(tmp_path, reward="tidy", named=named, report=True, arguments=arguments)
    figures = {"memory/failures": 12.0, "memory/z": 1.0, "memory/epsilon_next": 1 / 3, "memory/created": 1.0}
    assert json.loads(said.partition("reported ")[2].partition("\n")[0]) == pytest.approx(figures)
    with memory_of(tmp_path) as memory:
        groups = [group for _, group in told(memory, GroupIngested)]
        assert [(group.passes, len(group.failed)) for group in groups] == [(1, 3)] * 4
        assert memory.config["ingest"]["reward"] == "first_of_four"
        assert [group.answer for group in groups] == ["7"] * 4
        assert sound(memory)


def test_rewards_of_another_scale_are_not_recorded_until_the_bar_is_named(tmp_path: Path) -> None:
    arguments = {"max_steps": 2}
    said = training(tmp_path, reward="hundred", arguments=arguments)
    assert "trained 2 steps" in said
    assert said.count("rewards range from 0 to 100, and 0.5 or more would pass") == 1
    assert "set the lowest reward that passes: RoundCallback(…, pass_at=100)" in said
    with memory_of(tmp_path) as memory:
        assert memory.state.sequence == 0
    training(tmp_path, reward="hundred", named={"pass_at": 100, "answer": "right"}, arguments=arguments)
    with memory_of(tmp_path) as memory:
        assert committed(memory) == [1, 2]
        assert [(g.passes, g.answer) for _, g in told(memory, GroupIngested)] == [(1, "8")] * 8
        assert sound(memory)
    other = training(tmp_path, reward="hundred", named={"pass_at": 50}, ends=1, arguments=arguments)
    assert "run mine was recorded with pass_at = 100.0, not 50" in other


def test_a_training_is_recorded_once(tmp_path: Path) -> None:
    """A second callback on one trainer is refused; a second training from scratch is another training."""
    arguments = {"max_steps": 2}
    twice = training(tmp_path, callbacks=2, ends=1, arguments=arguments)
    assert "this trainer has a RoundCallback already" in twice
    said = training(tmp_path, trainings=2, arguments=arguments)
    assert said.count("run mine holds the rollouts of a training up to step 2, and this one begins") == 1
    with memory_of(tmp_path) as memory:
        assert rounds_of_steps(memory) == {1: {1}, 2: {2}}
        assert len(told(memory, GroupIngested)) == 8
        assert sound(memory)


def test_a_drawn_prompt_that_waits_keeps_its_draw(tmp_path: Path) -> None:
    """Diagnosis goes again after step 3 of 3: all were drawn by the schedule of round 1."""
    said = training(
        tmp_path, drawn=True, fault="service", until=2, arguments={"max_steps": 3, "shuffle_dataset": False}
    )
    assert "trained 3 steps" in said
    with memory_of(tmp_path) as memory:
        draws = [group.draw for _, group in told(memory, GroupIngested)]
        assert [(draw.round, draw.cause_id) for draw in draws] == [(1, None)] * 12
        drawn = [(round_, event.drawn_round, event.mode) for round_, event in told(memory, CandidateScored)]
        expected = [(1, None, "free")] * 4 + [(2, 1, "free")] * 4 + [(3, 1, "free")] * 4
        assert drawn == expected
    told_of = invoke("memory", "why", "r2.q0", "--run", "mine", "--db", f"sqlite:///{tmp_path}/mine.db")
    assert "free exploration, ε₂ = 0.333; drawn by the schedule of round 1" in told_of.stdout
    assert "by rewards of its trainer" in told_of.stdout


def test_what_cannot_be_steered_is_refused(tmp_path: Path) -> None:
    said = training(tmp_path, drawn=True, ends=1, arguments={"max_steps": 1, "shuffle_dataset": True})
    assert "shuffle_dataset draws 1,000 prompts by the first schedule" in said


NAMED = {"matched_cause_id": None, "error_cause": "counts one step too many when it adds two small numbers"}
NAMED |= {"duplicate": True, "create_new_node": True, "assigned_node": None, "new_node_label": "addition"}
NAMED |= {"merge": False, "merged_label": None}


def test_one_line_with_a_model_observes_diagnoses_and_is_remembered(tmp_path: Path) -> None:
    """A sum of two functions is the reward, one of them async: the first pass of a group has 1 - 0.1, and 1
    where the second function says nothing."""

    def behave(request: dict[str, Any], before: int) -> Answer:
        form = json.dumps(request["response_format"])
        found = {name: value for name, value in NAMED.items() if f'"{name}"' in form}
        if "matched_cause_id" in found and "c1" in json.dumps(request["messages"]):
            found |= {"matched_cause_id": "c1", "error_cause": None}
        return Answer(json.dumps(found))

    with Server(behave) as server:
        named = {"reward": "first_of_four+0.1*brevity"}
        arguments = {"max_steps": 2}
        said = training(tmp_path, asked=server.url, reward="two", named=named, arguments=arguments)
        assert "trained 2 steps" in said
        assert "The training continues" not in said
        assert "2 rounds diagnosed: diagevo memory show --run mine --db" in said
        assert {request["model"] for request in server.requests} == {"asked"}
    with diagevo.open(f"sqlite:///{tmp_path}/mine.db", run="mine") as memory:
        assert committed(memory) == [1, 2]
        rewards = [group.rewards for _, group in told(memory, GroupIngested)]
        assert rewards[0] == pytest.approx([1.0, -0.1, -0.1, -0.1])
        assert rewards[1] == pytest.approx([0.9, -0.1, -0.1, -0.1])
        assert len(memory.state.causes) == 1
        assert sound(memory)
        role = memory.config["roles"]["diagnostician"]
        assert (role["engine"], role["model"], role["base_url"]) == ("openai", "asked", server.url)
        assert memory.config["ingest"]["steps_per_round"] == 1


def test_a_model_that_is_not_there_leaves_rounds_for_diagnose_which_knows_whom_to_ask(tmp_path: Path) -> None:
    gone = "http://127.0.0.1:9/v1"
    said = training(tmp_path, asked=gone, arguments={"max_steps": 2})
    assert "trained 2 steps" in said
    assert "2 rounds to diagnose: diagevo diagnose --run mine --db" in said
    asked = invoke("diagnose", "--run", "mine", "--plan", "--json", "--db", f"sqlite:///{tmp_path}/mine.db")
    [plan] = json.loads(asked.stdout)["data"]
    assert (plan["rounds"], plan["failures"], plan["model"]) == (2, 24, "asked")


def test_rloo_keeps_a_memory_too(tmp_path: Path) -> None:
    assert "trained 2 steps" in training(tmp_path, rloo=True, arguments={"max_steps": 2})
    with memory_of(tmp_path) as memory:
        assert rounds_of_steps(memory) == {1: {1}, 2: {2}}
        assert [group.passes for _, group in told(memory, GroupIngested)] == [1] * 8
        assert committed(memory) == [1, 2]


@pytest.mark.parametrize("ranks", [1, 2])
def test_rows_of_a_data_set_of_the_users_own_come_by_the_schedule(tmp_path: Path, ranks: int) -> None:
    """Every failure is of the one cause, so in round 3 about (1 - ε) of the prompts are targeted at it, each
    a row that failed of it before; rank 1 draws the same."""
    arguments = {"max_steps": 6, "shuffle_dataset": False}
    said = training(tmp_path, ranks=ranks, steered=True, steps=2, arguments=arguments)
    assert said.count("trained 6 steps") == 1
    with memory_of(tmp_path) as memory:
        assert committed(memory) == [1, 2, 3]
        failed: set[str] = set()
        targeted = 0
        for round_, scored in told(memory, CandidateScored):
            if scored.mode == "targeted":
                targeted += 1
                assert round_ > 1
                assert scored.question in failed
            failed.add(scored.question)
        assert targeted > 0
        assert sound(memory)
