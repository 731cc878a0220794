"""A trainer's own candidates are held against their votes when they are recorded: a wrong one is refused."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from diagevo.errors import OutOfOrderError
from diagevo.memory.events import CandidateScored, DuplicateJudged, Embedder, RunConfigured, StageAbandoned
from diagevo.memory.history import VoidedAttempts
from tests.memory.play import candidate, failure, opened

RIGHT = candidate("r1.q0", 8)
"""8 of 12 votes for "1"; four other answers have one each."""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"first": 9}, "its votes give 8 and 1 of 12, recorded are 9 and 1"),
        ({"second": 4}, "its votes give 8 and 1 of 12, recorded are 8 and 4"),
        ({"label": "other 0"}, "its label is not the answer that has the most votes"),
        ({"label": None}, "its label is not the answer that has the most votes"),
        ({"responses": 11}, "12 votes of 11 responses"),
        ({"votes": [("1", 8), ("2", 0)], "second": 0}, "an answer with 0 votes"),
        (
            {"verdict": "contested"},
            "its votes give kept (1/4 ≤ p₁ = 2/3 ≤ 3/4 and p₁ ≥ τ·p₂ = 8/5·1/12",
        ),
        ({"verdict": "invalid"}, "an invalid question has no votes, counts, label or reference"),
        ({"invalid_reason": "unreadable"}, "only an invalid question has a reason why it is invalid"),
        ({"votes_are": "rewards"}, "its votes are not 8 passed and 4 failed of 12 rewards"),
        ({"undecided": 11}, "11 undecided pairs of 5 answers"),
        ({"drawn_round": 1}, "round 1, which it was drawn for, is not an earlier one"),
        ({"stitched_cause_id": "c1"}, "a stitched question has a partner, and nothing else has"),
    ],
    ids=str,
)
def test_a_candidate_that_its_votes_do_not_give_is_refused(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    with opened(tmp_path) as memory:
        memory.open_round(1)
        before = memory.state.sequence
        wrong = replace(RIGHT, **change)
        with pytest.raises(OutOfOrderError) as refused:
            memory.score([wrong])
        assert refused.value.message.startswith("CandidateScored r1.q0 refused: ")
        assert said in refused.value.message
        assert memory.state.sequence == before
        memory.score([RIGHT])


def test_of_two_answers_with_as_many_votes_the_first_is_the_label(tmp_path: Path) -> None:
    tie = {"votes": [("b", 3), ("a", 5), ("c", 5)], "first": 5, "second": 5, "responses": 13}
    tie |= {"verdict": "contested"}
    with opened(tmp_path) as memory:
        memory.open_round(1)
        with pytest.raises(OutOfOrderError, match="its label is not"):
            memory.score([replace(RIGHT, **tie, label="c")])
        memory.score([replace(RIGHT, **tie, label="a")])


def _configured(config: dict[str, Any]) -> RunConfigured:
    embedder = Embedder(name="none", dimension=8, revision="")
    return RunConfigured(config=config, models={}, embedder=embedder, version="1")


def test_the_filter_is_the_one_that_the_trainer_configured(tmp_path: Path) -> None:
    """12 of 12 is too easy for the paper's filter, and kept by one that ends at 1."""
    easy = candidate("r1.q0", 12)
    assert easy.verdict == "too_easy"
    kept = replace(easy, verdict="kept")
    with opened(tmp_path) as memory:
        memory.configure(_configured({"filter": {"p_high": "1"}}))
        memory.open_round(1)
        with pytest.raises(OutOfOrderError, match=r"its votes give kept \(1/4 ≤ p₁ = 1 ≤ 1 "):
            memory.score([easy])
        memory.score([kept])


def test_a_configuration_that_says_how_many_responses_are_asked_for_is_kept_to(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        memory.configure(_configured({"round": {"responses": 10}}))
        memory.open_round(1)
        with pytest.raises(OutOfOrderError, match=r"it has 12 responses, round\.responses is 10"):
            memory.score([RIGHT])
        memory.score([candidate("r1.q0", 7, responses=10)])


def test_where_labels_are_a_worlds_answers_the_label_is_the_truth_or_missing(tmp_path: Path) -> None:
    def said(label: str | None, verdict: str, **more: Any) -> CandidateScored:
        told = {"label": label, "verdict": verdict, "truth": "42"} | more
        return replace(RIGHT, **told)

    with opened(tmp_path) as memory:
        memory.configure(_configured({"round": {"true_labels": True}}))
        memory.open_round(1)
        with pytest.raises(OutOfOrderError, match="its label is not the true answer"):
            memory.score([said("1", "kept")])
        with pytest.raises(OutOfOrderError, match="its votes give no_label"):
            memory.score([said(None, "kept", reference=None)])
        memory.score([said("42", "kept")])


def test_a_label_of_the_executor_has_its_task_and_is_the_truth_of_a_world(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        memory.configure(_configured({"method": "absolute-zero", "filter": {"variant": "none"}}))
        memory.open_round(1)
        task = memory.artifacts.put("a task")
        executed = replace(RIGHT, label_from="executor", label="9", truth=None, label_true=None, task=task)
        for forged, why in [
            (replace(executed, task=None), "has its label from there"),
            (replace(executed, label_from="votes"), "no label of its method comes from: votes"),
            (replace(executed, truth="8"), "not the true answer"),
        ]:
            with pytest.raises(OutOfOrderError, match=why):
                memory.score([forged])
        memory.score([executed])


@pytest.mark.parametrize("source", ["proposer", "human"])
def test_a_label_is_no_fact_where_the_method_votes(tmp_path: Path, source: Any) -> None:
    with opened(tmp_path) as memory:
        memory.configure(_configured({"method": "diagevo"}))
        memory.open_round(1)
        with pytest.raises(OutOfOrderError, match=f"no label of its method comes from: {source}"):
            memory.score([replace(RIGHT, label_from=source, label="9")])
        memory.score([RIGHT])


def test_a_judgement_says_what_the_description_is() -> None:
    new = {"candidates": [], "nearest": None, "duplicate": False, "cause_id": None}
    found = DuplicateJudged(failure_id="r1.q0.a0", **new)
    assert found.sentence() == "no duplicate"
    assert replace(found, duplicate=True, cause_id="c7").sentence() == "the same as c7"


def test_a_failure_is_void_where_one_attempt_that_took_over_began_before_it() -> None:
    """Attempt 1 was given up at step 5, attempt 2 at step 2, and of another stage nothing was."""
    found = VoidedAttempts()
    at = failure("r1.q0.a0", attempt=1, step=4, trajectory="0" * 64, reference="0" * 64)
    assert not found.void(1, at)
    for attempt, after in ((1, 5), (2, 2)):
        found.add(1, StageAbandoned(stage="solver", attempt=attempt, after_step=after))
    assert [found.void(1, replace(at, step=step)) for step in (2, 3, 5, 6)] == [False, True, True, True]
    assert [found.void(1, replace(at, attempt=3, step=step)) for step in (2, 6)] == [False, False]
    assert not found.void(2, at)
