"""Rebuilds projections and the vector index: they are disposable, the log is not."""

import shlex
from dataclasses import dataclass

from sqlalchemy import delete, select

from diagevo.errors import DiagEvoError
from diagevo.memory.events import Embedder
from diagevo.memory.history import History
from diagevo.memory.log.check import Finding
from diagevo.memory.log.database import Database
from diagevo.memory.log.log import Log
from diagevo.memory.log.migrate import upgrade
from diagevo.memory.log.tables import SNAPSHOT
from diagevo.memory.memory import Memory
from diagevo.memory.state import projection
from diagevo.memory.state.projector import PROJECTED, Projector
from diagevo.memory.state.walk import walk


@dataclass(frozen=True, slots=True)
class Rebuilding:
    """What was rebuilt."""

    rounds: int
    embedder: Embedder
    """The embedding model of the run."""
    indexed: int
    """Causes in the vector index; 0 if there are too few to need one."""


def snapshots(database: Database) -> Finding:
    """Finds runs whose snapshots have another version's format: these are ignored, and a long run is read
    from its first event until they are rebuilt."""
    old = select(SNAPSHOT.c.run_id).where(SNAPSHOT.c.version != projection.VERSION).distinct()
    with database.read() as connection:
        runs = sorted(connection.execute(old).scalars())
    if not runs:
        return Finding("snapshots", True, "of the form that this version reads")
    detail = f"of an older form, and passed over, in {len(runs)} run{'s' * (len(runs) > 1)}: reads are slow"
    more = f" (then {', '.join(runs[1:4])}{', …' * (len(runs) > 4)})" if len(runs) > 1 else ""
    return Finding("snapshots", True, detail, f"diagevo memory rebuild --run {shlex.quote(runs[0])}{more}")


def rebuild(memory: Memory) -> Rebuilding:
    """Projections, snapshots and the vector index of a run. Raises StoreError if another process is writing
    to it."""
    memory.claim()
    history = History(memory.database, memory.run_id, memory.root)
    rounds = rebuild_projections(history)
    indexed = memory.rebuild_index()
    return Rebuilding(rounds, history.configuration().embedder, indexed)


def rebuild_projections(history: History) -> int:
    """Rewrite every projection and snapshot of a run, in one transaction. Returns the number of rounds.

    The log is folded from its first event. Raises InconsistentError at an event that does not follow; then
    nothing is changed.
    """
    run_id, log = history.run_id, history.log
    rounds = 0
    with history.database.write() as connection:
        log.lock(connection)
        times = {r.round: r.recorded_at for r in log.read(run_id, types=["RoundCommitted"])}
        for target in projection.ALL:
            connection.execute(delete(target).where(target.c.run_id == run_id))
        projector = Projector(history.database, run_id)
        for fact, before, state, closed in walk(log, run_id, lambda state, _: state.open):
            if fact.type in PROJECTED:
                projector.take(fact, state, before, times.get(fact.round, ""))
            rounds += closed is not None
        projector.flush()
    return rounds


def migrated(database: Database) -> list[str]:
    """Migrate a database and make the projections of its runs again, in one transaction; the runs whose log
    does not replay, which stay without. Raises StoreError where the database is somebody else's."""
    unread: list[str] = []
    with database.write() as connection:
        upgrade(database)
        for run_id in Log(database).runs():
            try:
                with connection.begin_nested():
                    rebuild_projections(History(database, run_id))
            except DiagEvoError:
                unread.append(run_id)
    return unread
