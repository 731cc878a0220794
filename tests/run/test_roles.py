"""Who plays: what is validated on, and which questions may be asked."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from diagevo.arithmetic import held_out
from diagevo.errors import ConfigError, NotFoundError
from diagevo.loop.players import Challenger, Solver, SolverReward
from diagevo.loop.roles import Roles
from diagevo.memory.history import open_history
from diagevo.methods.self_play import ChallengerReward
from diagevo.progress import StopFlag
from diagevo.sampling.engine import EngineSampler
from diagevo.sampling.model_folder import encode_prompts, load_tokenizer
from diagevo.training.phase import no_update
from tests.evaluation.published import write_folder
from tests.run.small import play, small_config

QUESTION = "start at 7 and make 2 jumps of 5"
WRITTEN = f"<question>{QUESTION}</question>"


def test_a_question_whose_prompt_is_longer_than_the_limit_is_invalid(tmp_path: Path) -> None:
    roles = Roles(small_config(), tmp_path)
    [ids] = encode_prompts(load_tokenizer(roles.solver), [roles.templates.solver(QUESTION)])
    for limit, read in ((len(ids), (QUESTION, None)), (len(ids) - 1, (None, "too_long"))):
        config = small_config(sampling={"max_prompt_tokens": limit})
        assert Roles(config, tmp_path).read_question(WRITTEN) == read


@pytest.mark.parametrize(
    ("files", "said"), [([], "none"), (["solver_usr.txt"], "solver_usr.txt, which is none")]
)
def test_a_folder_of_prompts_that_replaces_nothing_is_refused(
    tmp_path: Path, files: list[str], said: str
) -> None:
    for name in files:
        (tmp_path / name).write_text("Solve <question>")
    config = small_config().model_copy(update={"prompts": str(tmp_path)})
    with pytest.raises(ConfigError) as refused:
        Roles(config, tmp_path / "logs").check()
    assert refused.value.message.endswith(f"{tmp_path} holds {said}")
    (tmp_path / "solver_user.txt").write_text("Solve <question>")
    for name in files:
        (tmp_path / name).unlink()
    assert Roles(config, tmp_path / "logs").templates.texts["solver_user"] == "Solve <question>"


def test_a_completion_that_gives_no_question_says_why(tmp_path: Path) -> None:
    held = next(iter(held_out()))[0]
    read = Roles(small_config(), tmp_path).read_question
    assert read("no block at all") == (None, "unreadable")
    assert read("<question>who wrote Hamlet?</question>") == (None, "outside_world")
    assert read(f"<question>{held}</question>") == (None, "held_out")
    assert read(WRITTEN) == (QUESTION, None)


def test_where_the_challenger_must_box_an_answer_a_question_without_one_is_invalid(tmp_path: Path) -> None:
    read = Roles(small_config(round={"boxed_answers": True}), tmp_path).read_question
    assert read(WRITTEN) == (None, "unanswered")
    assert read(WRITTEN + r" \boxed{17}") == (QUESTION, None)
    assert read(r"\boxed{17}") == (None, "unreadable")


def test_a_run_is_validated_on_a_benchmark_that_its_configuration_names(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "files", "jsonl")
    named = {"questions": "benchmark:validation", "data": str(folder), "limit": None}
    found = Roles(small_config(validation=named), tmp_path).validation
    assert found is not None
    # Level 5 of MATH train is not validated on; the rest is one question of MATH and two of MMLU.
    assert [(q.kind, q.reference) for q in found.questions] == [
        ("answer", "4"),
        ("choice", "B"),
        ("choice", "A"),
    ]
    assert "(B) 5" in found.questions[1].text


def test_a_validation_benchmark_that_does_not_exist_is_refused_with_the_names(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no benchmark 'math600'"):
        Roles(small_config(validation={"questions": "benchmark:math600"}), tmp_path).check()


def test_a_limit_of_the_held_out_set_is_the_same_questions_each_time(tmp_path: Path) -> None:
    config = small_config(validation={"limit": 5})
    first, again = (Roles(config, tmp_path).validation for _ in range(2))
    assert first is not None
    assert again is not None
    assert len(first.questions) == 5
    assert first.digest == again.digest


@pytest.mark.parametrize(
    ("hardware", "gpu", "expected"),
    [
        ({"device": "auto"}, False, "here"),
        ({"device": "auto"}, True, "processes of its own"),
        ({"device": "cpu"}, True, "here"),
        ({"device": "cpu", "processes": 2}, False, "processes of its own"),
        ({"device": "cuda"}, True, "processes of its own"),
    ],
)
def test_what_holds_a_gpu_or_has_ranks_plays_in_processes_of_its_own(
    hardware: dict[str, Any], gpu: bool, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpu)
    monkeypatch.setattr("diagevo.loop.players.play_phase", lambda *_: "here")
    monkeypatch.setattr("diagevo.training.workers.Workers.play", lambda *_: "processes of its own")
    config = small_config(hardware=hardware)
    solver = Solver(tmp_path, Roles(config, tmp_path))
    where: Any = solver.train(
        [],
        1,
        output=tmp_path / "solver",
        work=tmp_path / "work",
        on_step=lambda *_: None,
        on_update=no_update,
    )
    assert where == expected


@pytest.mark.parametrize(("processes", "opened"), [(2, 0), (1, 1)])
def test_the_frozen_solver_is_held_once_while_the_challenger_trains(
    processes: int, opened: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the processes that train, who load it themselves; else here."""
    held: list[Path] = []

    def holds(self: Roles, policy: Path) -> Any:
        held.append(policy)
        return SimpleNamespace(close=lambda: None)

    monkeypatch.setattr(Roles, "open_sampler", holds)
    monkeypatch.setattr("diagevo.loop.players.play", lambda *_, **__: "played")
    config = small_config(hardware={"device": "cpu", "processes": processes})
    roles = Roles(config, tmp_path)
    solver = Solver(roles.solver, roles)
    where: Any = {"output": tmp_path, "work": tmp_path, "on_step": lambda *_: None, "on_update": no_update}
    Challenger(roles.challenger, roles).train([], solver, 1, **where)
    assert held == [roles.solver] * opened


def test_the_votes_on_rollouts_are_drawn_by_the_engine_that_draws_them(tmp_path: Path) -> None:
    """As a process of training makes its reward. The solver's asks nobody."""
    config = small_config(hardware={"device": "cpu", "colocate_vllm": True})
    solver = Roles(config, tmp_path).solver
    engine = cast(Any, object())
    spec = Roles(config, tmp_path).challenger_reward(solver, 1, {})
    voting = spec.build(StopFlag(), engine)
    assert isinstance(voting, ChallengerReward)
    assert isinstance(voting.solver, EngineSampler)
    assert voting.solver.engine is engine
    asks_nobody = Roles(config, tmp_path).solver_reward({"labels": {}, "earned": {}, "tasks": {}})
    assert isinstance(asks_nobody.build(StopFlag(), engine), SolverReward)


@pytest.mark.slow
def test_without_a_diagnostician_failures_are_recorded_and_no_memory_grows(tmp_path: Path) -> None:
    config = small_config(diagnosis={"enabled": False}, round={"candidates": 24, "rounds": 1})
    [done] = play(tmp_path, config).rounds
    history = open_history(f"sqlite:///{tmp_path / 'diagevo.db'}", "a", root=tmp_path)
    types = Counter(recorded.type for recorded in history.log.read(history.run_id))
    history.close()
    assert types["FailureObserved"] > 0
    assert types["FailureDiagnosed"] == types["CauseCreated"] == 0
    assert (done.failures, done.epsilon_next, done.active) == (0, 1, 0)
    assert "diagnosis" not in done.seconds
