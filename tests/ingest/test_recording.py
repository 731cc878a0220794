"""Groups of another trainer's rollouts: kept once, counted whatever their outcome, played as rounds."""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from fractions import Fraction

import pytest
from msgspec import structs

from diagevo.config.models import DiagnosisConfig, MemoryConfig
from diagevo.diagnosis.diagnostician import Extraction, FailurePair, KnownCause
from diagevo.diagnosis.embedder import HashingEmbedder
from diagevo.errors import ConflictError, OutOfOrderError
from diagevo.ingest.recording import IngestSummary, Recorder
from diagevo.ingest.rollout_steps import IngestedRollout, RolloutStep
from diagevo.ingest.rounds import Rounds
from diagevo.memory.audit.ingested_groups import first_mismatch
from diagevo.memory.compare.whatif import retention
from diagevo.memory.events import CandidateScored, CausePromoted, FailureObserved, GroupIngested
from diagevo.memory.history import History
from diagevo.memory.memory import Memory
from diagevo.memory.read.opened_rounds import observations
from tests.diagnosis.rounds import Scripted
from tests.ingest.conftest import DIMENSION, SETTINGS, step


def record(memory: Memory, *steps: RolloutStep) -> IngestSummary:
    report = IngestSummary()
    Recorder(memory, SETTINGS).record(steps, report)
    return report


def told(memory: Memory, event: type) -> list:
    return [r.event for r in memory.log.read(memory.run_id, types=[event.__name__])]


def diagnose(memory: Memory, said: dict[str, str]) -> Scripted:
    """Each failure is put down to the cause of its prompt; the same words are the same cause."""

    def extract(pair: FailurePair) -> Extraction:
        same = next((c for c in pair.known if c.description == said[pair.question]), None)
        if same is not None:
            return Extraction("recurrence", cause_id=same.cause_id)
        return Extraction("new_cause", description=said[pair.question])

    def duplicate(text: str, candidates: Sequence[KnownCause]) -> str | None:
        return next((c.cause_id for c in candidates if c.description == text), None)

    asked = Scripted(extract, duplicate)
    Rounds(memory).diagnose(asked, HashingEmbedder(DIMENSION), DiagnosisConfig(), MemoryConfig())
    return asked


def test_each_group_is_counted_by_its_outcome_and_keeps_what_can_be_asked_about(memory: Memory) -> None:
    report = record(memory, step(1, a="+-+-", b="----", c="++++"))
    assert report.groups == {"contrast": 1, "all_failed": 1, "all_passed": 1}
    assert (report.rollouts, report.failures) == (12, 2)
    a, b, c = told(memory, GroupIngested)
    assert memory.artifacts.get(a.reference) == "a 1 0 +"
    assert [(f.sample, memory.artifacts.get(f.trajectory)) for f in a.failed] == [
        (1, "a 1 1 -"),
        (3, "a 1 3 -"),
    ]
    assert (b.reference, len(b.failed), b.passes, b.rewards, b.answer) == (None, 4, 0, [0.0] * 4, "7")
    assert memory.artifacts.get(b.failed[3].trajectory) == "b 1 3 -"
    assert (c.reference, c.failed, c.passes) == (None, [], 4)
    kept = [[memory.artifacts.get(digest) for digest in each.passed] for each in (a, b, c)]
    assert kept == [["a 1 0 +", "a 1 2 +"], [], ["c 1 0 +"]]


def test_failures_without_any_answer_are_kept_with_what_the_files_say_of_them(memory: Memory) -> None:
    rollouts = [
        IngestedRollout("q", "one", 0.0, feedback="off by one", tags=("hard", "sums")),
        IngestedRollout("q", "two", 0.0, tags=("hard", "sums")),
    ]
    assert record(memory, RolloutStep(1, "f.jsonl", rollouts)).answered == 0
    [group] = told(memory, GroupIngested)
    assert [memory.artifacts.get(each.trajectory) for each in group.failed] == ["one", "two"]
    assert [(each.sample, memory.artifacts.get(each.text)) for each in group.feedback] == [(0, "off by one")]
    assert group.tags == ["hard", "sums"]
    assert record(memory, RolloutStep(1, "f.jsonl", rollouts)).new_steps == 0


def test_the_same_steps_again_leave_the_log_as_it_was(memory: Memory) -> None:
    steps = [step(n, a="+-", b="--") for n in range(1, 6)]
    first = record(memory, *steps)
    before = memory.state.sequence
    again = record(memory, *steps)
    assert (first.new_steps, again.new_steps) == (5, 0)
    assert again.groups == first.groups
    assert memory.state.sequence == before


@pytest.mark.parametrize("diagnosed", [False, True])
def test_a_step_that_has_grown_or_shrunk_is_refused_whether_its_round_is_committed_or_not(
    memory: Memory, diagnosed: bool
) -> None:
    record(memory, step(1, a="+-", b="+-"), step(2, c="+-"))
    if diagnosed:
        diagnose(memory, {"a": "forgets", "b": "forgets", "c": "forgets"})
    before = memory.state.sequence
    for other in (step(1, a="+-", b="+-", d="+--"), step(1, a="+-")):
        with pytest.raises(ConflictError, match=r"step 1 of 1\.jsonl is recorded with other rollouts"):
            record(memory, other)
    assert memory.state.sequence == before
    assert record(memory, step(1, a="+-", b="+-")).new_steps == 0


def test_two_steps_make_a_round_and_none_goes_into_an_open_one(memory: Memory) -> None:
    record(memory, *(step(n, a="+-") for n in (1, 2, 3)))
    assert [r.round for r in memory.log.read(memory.run_id, types=["GroupIngested"])] == [1, 1, 2]
    assert Rounds(memory).open_next() == 1
    record(memory, step(4, a="+-"), step(5, a="+-"))
    assert [r.round for r in memory.log.read(memory.run_id, types=["GroupIngested"])] == [1, 1, 2, 2, 3]


def test_candidates_say_that_their_votes_are_rewards(memory: Memory) -> None:
    record(memory, step(1, a="+---", b="----", c="++++"))
    Rounds(memory).open_next()
    a, b, c = told(memory, CandidateScored)
    assert {e.votes_are for e in (a, b, c)} == {"rewards"}
    assert (a.verdict, a.first, a.responses, a.votes) == ("kept", 1, 4, [("passed", 1), ("failed", 3)])
    assert (b.verdict, b.first, b.reference) == ("too_hard", 0, None)
    assert (c.verdict, c.first, c.reference) == ("too_easy", 4, None)
    assert [f.failure_id for f in told(memory, FailureObserved)] == ["r1.q0.a1", "r1.q0.a2", "r1.q0.a3"]


def test_no_filter_moves_a_question_that_rewards_decided(memory: Memory) -> None:
    """1 of 8 passed, which is kept; as an agreement, p₁ = 1/8 would be below p_low = 1/4."""
    record(memory, step(1, a="+-------", b="++++++++"))
    diagnose(memory, {"a": "sign"})
    with closing(History(memory.log.database, memory.run_id)) as history:
        observed = observations(history, history.end)
        assert [of.votes.total() for of in observed] == [2]
        assert all(of.same for of in retention(observed, {"p_low": Fraction(1, 4)}))


def test_a_prompt_that_comes_back_aims_at_the_cause_of_its_last_failures_and_promotes_it(
    memory: Memory,
) -> None:
    """Round 1: a fails twice by "sign". Round 2: a comes back, 3 of 4 pass: acc = 3/4 ≥ 7/10, so c1 is
    promoted; its one failure reactivates it with f = 1. b is new, so it aims at nothing."""
    record(memory, step(1, a="++--"), step(2, b="++++"), step(3, a="+++-"), step(4, d="+-"))
    diagnose(memory, {"a": "sign", "d": "carry"})
    by_id = {e.question_id: e for e in told(memory, CandidateScored)}
    assert (by_id["r1.q0"].mode, by_id["r1.q0"].cause_id) == ("free", None)
    assert (by_id["r2.q0"].mode, by_id["r2.q0"].cause_id) == ("targeted", "c1")
    assert (by_id["r2.q1"].mode, by_id["r2.q1"].cause_id) == ("free", None)
    [promoted] = told(memory, CausePromoted)
    assert (promoted.cause_id, promoted.consistency, promoted.questions) == ("c1", "3/4", 1)
    c1, c2 = memory.state.causes.values()
    assert (c1.description, c1.state, c1.frequency) == ("sign", "active", 1)
    assert (c2.description, c2.state, c2.frequency) == ("carry", "active", 1)


def test_diagnosing_again_asks_nothing(memory: Memory) -> None:
    record(memory, step(1, a="+-"))
    assert diagnose(memory, {"a": "sign"}).asked["extract"] == 1
    assert diagnose(memory, {"a": "sign"}).asked == {}


def test_a_round_of_another_trainer_is_not_ours_to_commit(memory: Memory) -> None:
    memory.open_round(1)
    with pytest.raises(OutOfOrderError, match="is open and was not ingested"):
        diagnose(memory, {})


def resume(memory: Memory, *steps: RolloutStep) -> IngestSummary:
    report = IngestSummary()
    Recorder(memory, SETTINGS, resumed=True).record(steps, report)
    return report


def test_a_resumed_training_voids_its_later_steps_and_supersedes_their_rounds(memory: Memory) -> None:
    """Rounds 1 and 2 hold steps 1 to 4. Resumed before step 3: round 1 stays, steps 3 and 4 are void, and the
    new step 3 is played as round 3. Step 4 stands on disk as it was, so it is left until it is written."""
    record(memory, *(step(n, a="+-", b="+-") for n in (1, 2, 3, 4)))
    diagnose(memory, {"a": "sign", "b": "carry"})
    with pytest.raises(ConflictError, match="recorded with other") as refused:
        record(memory, step(3, c="+--"))
    assert "--resumed" in str(refused.value.hint)
    report = resume(
        memory, *(step(n, a="+-", b="+-") for n in (1, 2)), step(3, c="+--"), step(4, a="+-", b="+-")
    )
    assert (report.new_steps, report.left) == (1, [4])
    assert memory.state.superseded == ((2, 2),)
    waiting = list(Rounds(memory).waiting())
    assert [(batch, g.step, g.attempt) for batch, g in waiting] == [(2, 3, 2)]
    again = record(memory, step(3, c="+--"), step(4, d="+-"))
    assert (again.new_steps, again.left) == (1, [])
    assert [(b, g.step, g.attempt) for b, g in Rounds(memory).waiting()] == [(2, 3, 2), (2, 4, 2)]
    asked = diagnose(memory, {"c": "forgets", "d": "forgets"})
    assert asked.asked["extract"] == 3
    assert {c.description for c in memory.state.causes.values()} == {"sign", "carry", "forgets"}
    assert [c.frequency for c in memory.state.causes.values()] == [2, 2, 3]


def test_a_round_whose_first_step_stays_is_played_again_with_it(memory: Memory) -> None:
    """Round 1 holds steps 1 and 2; the training is resumed before step 2."""
    record(memory, step(1, a="+-"), step(2, b="+-"))
    diagnose(memory, {"a": "sign", "b": "carry"})
    resume(memory, step(1, a="+-"), step(2, c="+-"))
    assert [(b, g.step, g.attempt) for b, g in Rounds(memory).waiting()] == [(1, 1, 1), (1, 2, 2)]
    diagnose(memory, {"a": "sign", "c": "slip"})
    assert [c.description for c in memory.state.causes.values()] == ["sign", "slip"]


def test_a_step_that_has_only_grown_is_no_resumed_training(memory: Memory) -> None:
    record(memory, step(1, a="+-"), step(2, b="+-"))
    before = memory.state.sequence
    for other in (step(1, a="+--"), step(1, a="+-", b="+-")):
        with pytest.raises(ConflictError, match="has grown since"):
            resume(memory, other)
    assert memory.state.sequence == before


def test_a_training_may_be_resumed_before_its_round_is_opened_and_again(memory: Memory) -> None:
    record(memory, *(step(n, a="+-") for n in (1, 2, 3)))
    resume(memory, step(2, b="+-"), step(3, b="+-"))
    resume(memory, step(2, c="--+"))
    assert memory.state.superseded == ()
    assert [(g.step, g.attempt) for _, g in Rounds(memory).waiting()] == [(1, 1), (2, 3)]


def test_a_step_with_the_same_rewards_for_other_responses_is_a_resumed_trainings(memory: Memory) -> None:
    """Nothing of it has grown."""
    record(memory, step(1, a="+-"))
    written_again = step(1, a="+-")
    [rollout, *rest] = written_again.rollouts
    other = structs.replace(rollout, response=f"{rollout.response}, said otherwise")
    report = resume(memory, replace(written_again, rollouts=[other, *rest]))
    assert report.new_steps == 1
    assert [(g.step, g.attempt) for _, g in Rounds(memory).waiting()] == [(1, 2)]


def test_a_step_that_was_missing_is_no_beginning_of_the_attempt_that_it_comes_in(memory: Memory) -> None:
    """Step 1 comes when the training has long been resumed before step 3: step 2 still stands."""
    record(memory, step(2, a="+-"), step(3, a="++"))
    resume(memory, step(3, a="--"))
    record(memory, step(1, a="-+"))
    assert set(Recorder(memory, SETTINGS).batches) == {1, 2, 3}
    assert first_mismatch(memory.log, memory.state) is None
