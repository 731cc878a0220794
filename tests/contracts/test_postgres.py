"""What only PostgreSQL can do to a log: replicas' sessions, and holders that stand still."""

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from diagevo.memory.backup import check
from diagevo.memory.database import Database
from diagevo.memory.events import StageStarted
from diagevo.memory.log import Log
from diagevo.memory.migrate import upgrade
from diagevo.memory.records import pending
from tests.contracts.databases import PostgresStores

EVENT = pending("a", 1, StageStarted(stage="solver", attempt=1))
CHANGES = ["DELETE FROM event", "UPDATE event SET round = 2", "TRUNCATE event"]


def test_a_session_of_a_replica_changes_no_event_after_the_upgrade(postgres_stores: PostgresStores) -> None:
    database = Database(postgres_stores.empty())

    def changed(change: str) -> None:
        with database.write() as connection:
            connection.execute(text("SET LOCAL session_replication_role = replica"))
            connection.execute(text(change))
            connection.rollback()

    upgrade(database, "0003")
    Log(database).append("a", 0, [EVENT])
    for change in CHANGES:
        changed(change)
    [finding] = [f for f in check(database) if f.check == "triggers"]
    assert (finding.ok, "event_no_truncate, event_no_update" in finding.detail) == (False, True)
    upgrade(database)
    for change in CHANGES:
        with pytest.raises(DBAPIError, match="event is append-only"):
            changed(change)
    assert all(finding.ok for finding in check(database))
    database.close()
