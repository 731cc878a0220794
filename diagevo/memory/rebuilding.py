"""Projections made again from events: they are disposable, the log is not."""

from sqlalchemy import delete

from diagevo.memory import projection
from diagevo.memory.history import History
from diagevo.memory.model import MemoryState
from diagevo.memory.projection import CAUSE, NODE, ROUND, SNAPSHOT
from diagevo.memory.projection import HISTORY as CAUSE_HISTORY
from diagevo.memory.state import advance


def rebuild_projections(history: History) -> int:
    """Write every projection and snapshot of a run again, in one transaction; the number of rounds.

    The log is folded from its first event. Raises InconsistentError at an event that does not follow; then
    nothing is changed.
    """
    run_id, log = history.run_id, history.log
    state = MemoryState(run_id)
    rounds = 0
    with history.database.write() as connection:
        log.lock(connection)
        times = {r.round: r.recorded_at for r in log.read(run_id, types=["RoundCommitted"])}
        for target in (CAUSE, NODE, ROUND, CAUSE_HISTORY, SNAPSHOT):
            connection.execute(delete(target).where(target.c.run_id == run_id))
        for fact in log.facts(run_id):
            closed = state.open
            advance(state, fact)
            if fact.type == "RoundCommitted" and closed is not None:
                projection.write(connection, state, closed, times[state.round])
                rounds += 1
    return rounds
