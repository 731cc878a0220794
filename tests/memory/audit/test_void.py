"""Which observations count after training went back to an earlier checkpoint: in the fold, in the audits."""

from contextlib import closing
from pathlib import Path

from msgspec.structs import replace

from diagevo.memory.history import open_history
from diagevo.memory.read.round_figures import rounds
from diagevo.memory.stories.failures import failure_story
from diagevo.memory.stories.references import resolve
from tests.memory.play import candidate, failure, opened, other


def test_a_failure_is_void_once_any_later_attempt_goes_back_before_its_step(tmp_path: Path) -> None:
    """Attempt 1 sees steps 1 to 6 and is given up after 5; attempt 2 goes back to 4, its checkpoint being
    broken; attempt 3 plays 5 and 6 again. The fold counts six failures, and so do the audits."""
    kept: list[str] = []
    void: list[bool] = []
    with opened(tmp_path) as memory:
        memory.open_round(1)
        memory.score([replace(candidate(f"r1.q{i}", 9), truth="9", label_true=False) for i in range(1, 7)])
        for after, steps in ((5, range(1, 7)), (4, ()), (None, (5, 6))):
            attempt = memory.start_stage("solver")
            memory.observe(
                [replace(failure(f"r1.q{i}.a0", step=i, attempt=attempt), right=True) for i in steps]
            )
            if after is not None:
                memory.abandon_stage("solver", after_step=after)
            if after == 4:
                assert memory.state.open is not None
                kept = sorted(memory.state.open.failures)
                with closing(open_history(str(tmp_path / "log.db"), "a", root=tmp_path)) as history:
                    void = [
                        failure_story(history, resolve(history, f"r1.q{i}.a0", history.end), history.end).void
                        for i in range(1, 7)
                    ]
        memory.complete_stage("solver")
        left = memory.undiagnosed()
        memory.diagnosed([other(f.failure_id, "unresolved", attempt=f.attempt) for f in left])
        memory.commit()
    assert kept == [f"r1.q{i}.a0" for i in range(1, 5)]
    assert void == [False, False, False, False, True, True]
    with closing(open_history(str(tmp_path / "log.db"), "a", root=tmp_path)) as history:
        [line] = rounds(history)
    assert (line.observed, line.against_false_labels, line.right) == (6, 6, 6)
