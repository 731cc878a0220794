from diagevo.training.phase import TrainingRow
from diagevo.training.plan import PhasePlan, plan_phase

ROWS = [TrainingRow(f"q{i}", [{"role": "user", "content": str(i)}]) for i in range(11)]


def plan(rows: int = 11, **changes: int) -> PhasePlan:
    values = {"batch_questions": 4, "max_steps": 9, "group": 2, "ranks": 1, "seed": 0}
    return plan_phase(ROWS[:rows], **(values | changes))


def test_a_pass_plays_every_row_once_and_keeps_the_last_partial_batch() -> None:
    found = plan()
    assert [len(batch) for batch in found.batches] == [4, 4, 3]
    assert sorted(row.row_id for batch in found.batches for row in batch) == sorted(
        row.row_id for row in ROWS
    )


def test_the_pass_is_shuffled_by_the_seed_alone() -> None:
    assert plan().batches == plan(ranks=2).batches
    assert plan().batches != plan(seed=1).batches
    assert [row.row_id for row in plan().batches[0]] != ["q0", "q1", "q2", "q3"]


def test_more_rows_than_the_steps_hold_leave_a_seeded_sample() -> None:
    found = plan(max_steps=2)
    assert found.batches == plan().batches[:2]


def test_a_group_stays_together_in_the_order_of_the_ranks() -> None:
    found = plan(ranks=2)
    slots = [slot for rank in range(2) for slot in found.slots(1, rank)]
    assert [slot.sample for slot in slots] == [0, 1] * 4
    assert [slot.row.row_id for slot in slots[::2]] == [row.row_id for row in found.batches[0]]


def test_ranks_get_equal_shares_and_padding_counts_nowhere() -> None:
    found = plan(ranks=4)  # The last batch has 3 rows of 2: 6 completions for 4 ranks, padded to 8.
    shares = [found.slots(3, rank) for rank in range(4)]
    assert [len(share) for share in shares] == [2, 2, 2, 2]
    real = [slot for share in shares for slot in share if not slot.padding]
    assert [slot.row.row_id for slot in real[::2]] == [row.row_id for row in found.batches[2]]
    assert len(real) == found.completions(3) == 6
    assert all(not slot.padding for rank in range(4) for slot in found.slots(1, rank))


def test_another_plan_has_another_digest() -> None:
    digests = {plan().digest(), plan(seed=1).digest(), plan(rows=10).digest(), plan(group=4).digest()}
    assert len(digests) == 4
    assert plan(ranks=2).digest() == plan().digest()
