"""Triggers that bear the right name and refuse nothing, and whatever else opens the log to a change."""

from pathlib import Path

import pytest

from diagevo.memory.audit.verify import verify
from diagevo.memory.log.check import SQLITE, check
from tests.contracts.databases import PostgresStores, SQLiteStores, Store
from tests.memory.play import first_round

_REFUSING = "EXECUTE FUNCTION event_append_only()"

ON_SQLITE = {
    **{
        f"{name} WHEN 0": ([f"DROP TRIGGER {name}", sql.replace(" BEGIN", " WHEN 0 BEGIN")], name)
        for name, sql in SQLITE.items()
        if sql.startswith("CREATE") and " WHEN " not in sql
    },
    "a dropped trigger": (["DROP TRIGGER event_no_update"], "event_no_update"),
    "event_no_replace of nothing": (
        [
            "DROP TRIGGER event_no_replace",
            "CREATE TRIGGER event_no_replace BEFORE INSERT ON event WHEN 0 BEGIN SELECT 1; END",
        ],
        "event_no_replace",
    ),
    "a trigger that does nothing": (
        [
            "DROP TRIGGER event_no_delete",
            "CREATE TRIGGER event_no_delete BEFORE DELETE ON event BEGIN SELECT 1; END",
        ],
        "event_no_delete",
    ),
    "a trigger on another table": (
        [
            "DROP TRIGGER event_no_delete",
            "CREATE TRIGGER event_no_delete BEFORE DELETE ON cause"
            " BEGIN SELECT RAISE(ABORT, 'event is append-only'); END",
        ],
        "event_no_delete",
    ),
    "a trigger of one's own": (
        ["CREATE TRIGGER mine AFTER INSERT ON Event BEGIN DELETE FROM cause; END"],
        "mine",
    ),
    "a table without its unique keys": (
        [
            "CREATE TABLE kept AS SELECT * FROM event",
            "DROP TRIGGER event_no_delete",
            "PRAGMA legacy_alter_table = ON",  # views may name what is not there
            "DROP TABLE event",
            "ALTER TABLE kept RENAME TO event",
            *(sql for sql in SQLITE.values() if sql.startswith("CREATE")),
        ],
        "the primary key (position), the unique key (run_id, event_id), the unique key (run_id, sequence)",
    ),
}

ON_POSTGRES = {
    "a dropped trigger": (["DROP TRIGGER event_no_update ON event"], "event_no_update"),
    "a disabled trigger": (["ALTER TABLE event DISABLE TRIGGER event_no_update"], "event_no_update"),
    "event_no_update WHEN (false)": (
        [
            "DROP TRIGGER event_no_update ON event",
            "CREATE TRIGGER event_no_update BEFORE UPDATE OR DELETE ON event FOR EACH ROW"
            f" WHEN (false) {_REFUSING}",
            "ALTER TABLE event ENABLE ALWAYS TRIGGER event_no_update",
        ],
        "event_no_update",
    ),
    "event_no_update of one column": (
        [
            "DROP TRIGGER event_no_update ON event",
            f"CREATE TRIGGER event_no_update BEFORE UPDATE OF round ON event FOR EACH ROW {_REFUSING}",
            "ALTER TABLE event ENABLE ALWAYS TRIGGER event_no_update",
        ],
        "event_no_update",
    ),
    "a function that returns": (
        [
            "CREATE OR REPLACE FUNCTION event_append_only() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RETURN coalesce(NEW, OLD); END $$"
        ],
        "event_no_truncate, event_no_update",
    ),
    "a function of another schema": (
        [
            "CREATE SCHEMA other",
            "CREATE FUNCTION other.event_append_only() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE EXCEPTION 'event is append-only'; END $$",
            "DROP TRIGGER event_no_update ON event",
            "CREATE TRIGGER event_no_update BEFORE UPDATE OR DELETE ON event"
            " FOR EACH ROW EXECUTE FUNCTION other.event_append_only()",
            "ALTER TABLE event ENABLE ALWAYS TRIGGER event_no_update",
        ],
        "event_no_update",
    ),
    "a trigger that replicas pass over": (
        ["ALTER TABLE event ENABLE TRIGGER event_no_truncate"],
        "event_no_truncate",
    ),
    "a trigger that only replicas meet": (
        ["ALTER TABLE event ENABLE REPLICA TRIGGER event_no_update"],
        "event_no_update",
    ),
    "a rule": (["CREATE RULE lost AS ON INSERT TO event DO INSTEAD NOTHING"], "the rule lost"),
    "row-level security": (["ALTER TABLE event ENABLE ROW LEVEL SECURITY"], "row-level security"),
    "an heir": (["CREATE TABLE heir () INHERITS (event)"], "the inheriting table heir"),
    "a dropped key": (
        ["ALTER TABLE event DROP CONSTRAINT uq_event_run_sequence"],
        "the unique key (run_id, sequence)",
    ),
}


def _found(store: Store) -> tuple[str, list[str]]:
    """What `db status` says of the triggers, and `verify`."""
    with store.log() as log:
        [finding] = [finding for finding in check(log.database) if finding.check == "triggers"]
        report = verify(log, "a", store.root / "a")
    faults = [fault.message for fault in report.faults if fault.check == "triggers"]
    assert finding.ok is (not faults)
    return finding.detail, faults


def _is_told(store: Store, statements: list[str], named: str) -> None:
    with store.open() as memory:
        first_round(memory, [])
    assert _found(store)[1] == []
    with store.log() as log, log.database.write() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    said = f"missing, disabled or altered: {named}; the log can be changed"
    assert _found(store) == (said, [said])


@pytest.mark.parametrize("attack", ON_SQLITE)
def test_a_log_that_can_be_changed_is_told_on_sqlite(
    sqlite_stores: SQLiteStores, tmp_path: Path, attack: str
) -> None:
    _is_told(sqlite_stores.new(tmp_path), *ON_SQLITE[attack])


@pytest.mark.parametrize("attack", ON_POSTGRES)
def test_a_log_that_can_be_changed_is_told_on_postgresql(
    postgres_stores: PostgresStores, tmp_path: Path, attack: str
) -> None:
    _is_told(postgres_stores.new(tmp_path), *ON_POSTGRES[attack])


def test_with_triggers_of_the_right_names_an_event_is_deleted_without_a_word(
    sqlite_stores: SQLiteStores, tmp_path: Path
) -> None:
    """Why `db status` compares more than names."""
    store = sqlite_stores.new(tmp_path)
    with store.open() as memory:
        first_round(memory, [])
    with store.log() as log, log.database.write() as connection:
        for statements, _ in (ON_SQLITE[attack] for attack in ON_SQLITE if "WHEN 0" in attack):
            for statement in statements:
                connection.exec_driver_sql(statement)
        assert connection.exec_driver_sql("DELETE FROM event WHERE position = 1").rowcount == 1
        connection.rollback()
