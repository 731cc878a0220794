"""Steps of training in `v_step_metric`, on both databases: what an abandonment voided is not there."""

from msgspec import structs

from diagevo.memory.events import GroupRewards, StepTrained
from diagevo.memory.history import History
from diagevo.memory.read.asking import select_rows
from diagevo.memory.read.round_figures import StepMetric, step_metrics
from tests.contracts.databases import Store

STEP = StepTrained(
    stage="solver",
    attempt=1,
    step=1,
    groups=[GroupRewards(prompt="r1.q0", rewards=[1.0, -1.0]), GroupRewards(prompt="r1.q1", rewards=[1.0])],
    loss=0.5,
    entropy=None,
    grad_norm=0.25,
    kl=0.0,
)
LAST = [GroupRewards(prompt="r1.q2", rewards=[-1.0])]


def test_a_step_has_the_mean_over_its_completions_and_its_newest_attempt_counts(store: Store) -> None:
    """Attempt 1 was given up after step 1, attempt 2 after none: its checkpoint was broken."""
    with store.open() as memory:
        memory.open_round(1)
        memory.start_stage("solver")
        memory.step_trained(STEP)
        memory.step_trained(structs.replace(STEP, step=2, groups=LAST))
        memory.abandon_stage("solver", after_step=1)
        memory.start_stage("solver")
        again = structs.replace(STEP, attempt=2, step=2, groups=LAST, loss=-0.5)
        memory.step_trained(again)
        history = History(memory.database, memory.run_id)
        seen = step_metrics(history)
        assert [(one.attempt, one.step, one.loss) for one in seen] == [(1, 1, 0.5), (2, 2, -0.5)]
        assert (seen[0].round, seen[0].stage, seen[0].completions) == (1, "solver", 3)
        assert abs(seen[0].reward - 1 / 3) < 1e-12
        assert (seen[0].entropy, seen[0].grad_norm, seen[0].kl) == (None, 0.25, 0.0)
        assert (seen[1].completions, seen[1].reward) == (1, -1.0)
        assert select_rows(history, "v_step_metric", StepMetric, order="position") == seen
        memory.abandon_stage("solver", after_step=0)
        memory.start_stage("solver")
        assert step_metrics(history) == []
