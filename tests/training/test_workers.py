"""Ranks that stay: phases and answers in turns, on two processes, as by one."""

import gc
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from transformers import PreTrainedModel, Trainer

from diagevo.config.models import HardwareConfig, TrainingConfig
from diagevo.errors import MissingDependencyError, ServiceError, StoppedSafely
from diagevo.progress import StopFlag
from diagevo.sampling.sampler import Answers, Prompt, SamplingParams
from diagevo.sampling.transformers_sampler import TransformersSampler
from diagevo.training import worker
from diagevo.training.workers import Workers, WorkersSampler
from tests.sampling.tiny_model import make_tiny_model
from tests.training import phase
from tests.training.forked_ranks import ForkedRank

pytestmark = pytest.mark.slow
TWO = HardwareConfig(device="cpu", processes=2, threads=1)
PROMPTS: list[Prompt] = [[{"role": "user", "content": f"{k % 30}?"}] for k in range(32)]
"""Two come twice, and draw other samples the second time, on whichever rank."""
PARAMS = SamplingParams(max_new_tokens=6)


@pytest.fixture
def workers(forked: list[ForkedRank], tiny_model: Path, tmp_path: Path) -> Iterator[Workers]:
    """`forked`: their processes."""
    training, logs = TrainingConfig(), tmp_path / "logs"
    found = Workers(tiny_model, phase.SAMPLING, training, logs=logs)
    with closing(found):
        yield found
    assert not [rank for rank in forked if rank.status() is None], "none outlives the run"
    assert sorted(file.name for file in logs.iterdir()) == ["rank-0.log", "rank-1.log"]


def of_one(policy: Path) -> list[list[str]]:
    groups = TransformersSampler(policy).sample(PROMPTS, n=2, params=PARAMS, seed=7)
    return [[each.text for each in group] for group in groups]


def ask(
    workers: Workers,
    policy: Path,
    answers: Answers | None = None,
    hardware: HardwareConfig = TWO,
    stop: StopFlag | None = None,
    say: Callable[[str], None] = print,
) -> list[list[str]]:
    stop = StopFlag() if stop is None else stop
    sampler = WorkersSampler(workers, policy, hardware, {}, say, stop)
    groups = sampler.sample(PROMPTS, n=2, params=PARAMS, seed=7, answers=answers)
    return [[each.text for each in group] for group in groups]


def test_the_same_two_ranks_answer_train_and_answer_again(
    workers: Workers, forked: list[ForkedRank], tiny_model: Path, tmp_path: Path
) -> None:
    assert ask(workers, tiny_model) == of_one(tiny_model)
    policy = tiny_model
    for name in ("one", "two"):
        given = phase.of(policy, tmp_path / name, hardware=TWO)
        summary = workers.play(given, lambda *_: None, StopFlag())
        assert (summary.steps, summary.resumed_from) == (3, None)
        policy = summary.final
        assert ask(workers, policy) == of_one(policy)
    assert of_one(policy) != of_one(tiny_model)
    assert len(forked) == 2
    assert ask(workers, tiny_model, hardware=TWO.model_copy(update={"rows_at_once": 4})) == of_one(tiny_model)
    assert len(forked) == 4, "they were started with another setting"


def test_a_rank_that_dies_while_it_answers_costs_what_was_under_way(
    workers: Workers, forked: list[ForkedRank], tiny_model: Path
) -> None:
    kept: list[tuple[int, int]] = []
    said: list[str] = []

    def keep(rows: object) -> None:
        assert isinstance(rows, dict)
        kept.extend(rows)
        if len(forked) == 2:
            forked[1]._process.kill()

    assert ask(workers, tiny_model, Answers(len(PROMPTS), 2, keep=keep), say=said.append) == of_one(
        tiny_model
    )
    assert len(kept) == len(set(kept)) == 64, "no answer came twice"
    assert len(forked) == 4
    [told] = said  # the first answers may come before rank 1 has loaded the policy
    assert re.search(
        r"Training rank 1 of 2 was ended by signal 9 \(SIGKILL\) while (answering|loading|waiting)", told
    )
    assert told.endswith("What it had not answered is asked again")


def test_what_a_rank_reports_is_no_reason_to_try_again(workers: Workers, forked: list[ForkedRank]) -> None:
    with pytest.raises(MissingDependencyError, match="nowhere is not a model folder"):
        ask(workers, Path("nowhere"))
    assert len(forked) == 2


def test_where_no_answer_comes_they_are_not_started_again(
    workers: Workers, forked: list[ForkedRank], tiny_model: Path
) -> None:
    class Killing(StopFlag):
        """Looked at before the first prompt is asked."""

        def check_overdue(self) -> None:
            forked[-1]._process.kill()

    with pytest.raises(ServiceError, match=r"rank 1 of 2 was ended by signal 9"):
        ask(workers, tiny_model, stop=Killing())
    assert len(forked) == 2


def test_where_answers_are_kept_a_stop_asks_nothing_new(workers: Workers, tiny_model: Path) -> None:
    stop, kept = StopFlag(), dict[tuple[int, int], object]()

    def keep(rows: object) -> None:
        assert isinstance(rows, dict)
        kept.update(rows)
        stop.set()

    with pytest.raises(StoppedSafely):
        ask(workers, tiny_model, Answers(len(PROMPTS), 2, keep=keep), stop=stop)
    assert 0 < len(kept) < 64
    assert len({place for place, _ in kept}) * 2 == len(kept), "what was under way has come whole"


def test_a_model_of_another_shape_is_answered_for_too(workers: Workers, tmp_path: Path) -> None:
    """Without vLLM a rank holds one policy after the other."""
    wide = make_tiny_model(tmp_path / "wide", width=128)
    assert ask(workers, wide) == of_one(wide)


def test_nothing_of_a_phase_is_held_after_it(tiny_model: Path, tmp_path: Path) -> None:
    """Its memory is the next one's, in the same process."""
    gc.collect()  # what other tests left
    before = _models()
    phase.trained(tiny_model, tmp_path)
    worker._forget_the_trainer()
    assert _models() - before == set()


def _models() -> set[int]:
    return {id(each) for each in gc.get_objects() if isinstance(each, (PreTrainedModel, Trainer))}
