"""Triggers that bear the right name and refuse nothing, and whatever else is in a database that no migration
made."""

from pathlib import Path

import pytest
from sqlalchemy import insert, select

from diagevo.memory.audit.verify import verify
from diagevo.memory.audit.verify_stored import _aliased, _wrong_views
from diagevo.memory.log.check import MADE, check, digest, found_in
from diagevo.memory.log.migrate import declared
from diagevo.memory.log.tables import CAUSE
from diagevo.memory.read.views import views
from tests.contracts.databases import PostgresStores, SQLiteStores, Store
from tests.memory.play import first_round

_REFUSING = "EXECUTE FUNCTION event_append_only()"
_REFUSES = "BEGIN SELECT RAISE(ABORT, 'event is append-only'); END"

TRIGGERS = [sql for name, sql in declared().items() if name.startswith("trigger")]
ALTERED, FOREIGN = "is not as the migrations make it", "is of no migration: drop it"


def _trigger(name: str) -> str:
    return f"trigger {name} on event"


ON_SQLITE = {
    **{
        f"{name} WHEN 0": (
            [f"DROP TRIGGER {name}", f"CREATE TRIGGER {name} BEFORE {what} ON event WHEN 0 {_REFUSES}"],
            f"{_trigger(name)} {ALTERED}",
        )
        for name, what in (("event_no_update", "UPDATE"), ("event_no_delete", "DELETE"))
    },
    "a dropped trigger": (["DROP TRIGGER event_no_update"], f"{_trigger('event_no_update')} is missing"),
    "event_no_replace of nothing": (
        [
            "DROP TRIGGER event_no_replace",
            "CREATE TRIGGER event_no_replace BEFORE INSERT ON event WHEN 0 BEGIN SELECT 1; END",
        ],
        f"{_trigger('event_no_replace')} {ALTERED}",
    ),
    "a trigger that does nothing": (
        [
            "DROP TRIGGER event_no_delete",
            "CREATE TRIGGER event_no_delete BEFORE DELETE ON event BEGIN SELECT 1; END",
        ],
        f"{_trigger('event_no_delete')} {ALTERED}",
    ),
    "a trigger on another table": (
        [
            "DROP TRIGGER event_no_delete",
            f"CREATE TRIGGER event_no_delete BEFORE DELETE ON cause {_REFUSES}",
        ],
        f"trigger event_no_delete on cause {FOREIGN}; {_trigger('event_no_delete')} is missing",
    ),
    "a trigger of one's own": (
        ["CREATE TRIGGER mine AFTER INSERT ON Event BEGIN DELETE FROM cause; END"],
        f"trigger mine on Event {FOREIGN}",
    ),
    "a trigger that deletes replies": (
        ["CREATE TRIGGER mine AFTER UPDATE ON run BEGIN DELETE FROM reply; END"],
        f"trigger mine on run {FOREIGN}",
    ),
    "a trigger whose name SQLite's own almost have": (
        ["CREATE TRIGGER sqliteXmine AFTER INSERT ON reply BEGIN DELETE FROM reply; END"],
        f"trigger sqliteXmine on reply {FOREIGN}",
    ),
    "a trigger of a table's name": (
        ["CREATE TRIGGER reply AFTER INSERT ON reply BEGIN DELETE FROM reply; END"],
        f"trigger reply on reply {FOREIGN}",
    ),
    "a view that shows something else": (
        ["DROP VIEW v_node", "CREATE VIEW v_node AS SELECT * FROM skill_node"],
        f"view v_node {ALTERED}",
    ),
    "a view": (["CREATE VIEW mine AS SELECT * FROM event"], f"view mine {FOREIGN}"),
    "a table": (["CREATE TABLE mine (a)"], f"table mine {FOREIGN}"),
    "a table with its index": (
        ["CREATE TABLE mine (a UNIQUE)", "CREATE INDEX its ON mine (a)"],
        f"index its on mine {FOREIGN}; table mine {FOREIGN}",
    ),
    "an index that allows one reply": (
        ["CREATE UNIQUE INDEX mine ON reply (input_tokens)"],
        f"index mine on reply {FOREIGN}",
    ),
    "a dropped index": (["DROP INDEX ix_event_run_cause"], "index ix_event_run_cause on event is missing"),
    "a table without its unique keys": (
        [
            "CREATE TABLE kept AS SELECT * FROM event",
            "DROP TRIGGER event_no_delete",
            "PRAGMA legacy_alter_table = ON",  # views may name what is not there
            "DROP TABLE event",
            "ALTER TABLE kept RENAME TO event",
            *TRIGGERS,
            *(sql for name, sql in declared().items() if name.startswith("index ix_event_")),
        ],
        f"table event {ALTERED}",
    ),
}

ON_POSTGRES = {
    "a dropped trigger": (
        ["DROP TRIGGER event_no_update ON event"],
        f"{_trigger('event_no_update')} is missing",
    ),
    "a disabled trigger": (
        ["ALTER TABLE event DISABLE TRIGGER event_no_update"],
        f"{_trigger('event_no_update')} {ALTERED}",
    ),
    "event_no_update WHEN (false)": (
        [
            "DROP TRIGGER event_no_update ON event",
            "CREATE TRIGGER event_no_update BEFORE UPDATE OR DELETE ON event FOR EACH ROW"
            f" WHEN (false) {_REFUSING}",
            "ALTER TABLE event ENABLE ALWAYS TRIGGER event_no_update",
        ],
        f"{_trigger('event_no_update')} {ALTERED}",
    ),
    "event_no_update of one column": (
        [
            "DROP TRIGGER event_no_update ON event",
            f"CREATE TRIGGER event_no_update BEFORE UPDATE OF round ON event FOR EACH ROW {_REFUSING}",
            "ALTER TABLE event ENABLE ALWAYS TRIGGER event_no_update",
        ],
        f"{_trigger('event_no_update')} {ALTERED}",
    ),
    "a function that returns": (
        [
            "CREATE OR REPLACE FUNCTION event_append_only() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RETURN coalesce(NEW, OLD); END $$"
        ],
        f"{_trigger('event_no_truncate')} {ALTERED}; {_trigger('event_no_update')} {ALTERED}",
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
        f"{_trigger('event_no_update')} {ALTERED}",
    ),
    "a trigger that replicas pass over": (
        ["ALTER TABLE event ENABLE TRIGGER event_no_truncate"],
        f"{_trigger('event_no_truncate')} {ALTERED}",
    ),
    "a trigger that only replicas meet": (
        ["ALTER TABLE event ENABLE REPLICA TRIGGER event_no_update"],
        f"{_trigger('event_no_update')} {ALTERED}",
    ),
    "a rule": (
        ["CREATE RULE lost AS ON INSERT TO event DO INSTEAD NOTHING"],
        f"rule lost on event {FOREIGN}",
    ),
    "row-level security": (
        ["ALTER TABLE event ENABLE ROW LEVEL SECURITY"],
        f"row-level security on event {FOREIGN}",
    ),
    "an heir": (
        ["CREATE TABLE heir () INHERITS (event)"],
        f"table heir {FOREIGN}; table heir inherits event {FOREIGN}",
    ),
    "a dropped key": (
        ["ALTER TABLE event DROP CONSTRAINT uq_event_run_sequence"],
        "the unique key (run_id, sequence) of event is missing",
    ),
    "a trigger that deletes replies": (
        [
            "CREATE FUNCTION mine() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN DELETE FROM reply; RETURN NEW; END $$",
            "CREATE TRIGGER mine AFTER UPDATE ON run FOR EACH ROW EXECUTE FUNCTION mine()",
        ],
        f"trigger mine on run {FOREIGN}",
    ),
    "a rule on another table": (
        ["CREATE RULE lost AS ON INSERT TO cause DO INSTEAD NOTHING"],
        f"rule lost on cause {FOREIGN}",
    ),
    "a policy": (
        ["ALTER TABLE reply ENABLE ROW LEVEL SECURITY", "CREATE POLICY mine ON reply USING (false)"],
        f"policy mine on reply {FOREIGN}; row-level security on reply {FOREIGN}",
    ),
    "a view": (["CREATE VIEW mine AS SELECT * FROM event"], f"view mine {FOREIGN}"),
    "a materialized view": (
        ["CREATE MATERIALIZED VIEW mine AS SELECT * FROM event"],
        f"materialized view mine {FOREIGN}",
    ),
    "a table with a sequence": (
        ["CREATE TABLE mine (a serial)"],
        f"sequence mine_a_seq {FOREIGN}; table mine {FOREIGN}",
    ),
    "an index that allows one reply": (
        ["CREATE UNIQUE INDEX mine ON reply (input_tokens)"],
        f"index mine on reply {FOREIGN}",
    ),
    "a key that allows one reply": (
        ["ALTER TABLE reply ADD UNIQUE (input_tokens)"],
        f"the unique key (input_tokens) of reply {FOREIGN}",
    ),
    "a condition": (
        ["ALTER TABLE reply ADD CONSTRAINT mine CHECK (input_tokens < 9)"],
        f"constraint mine on reply {FOREIGN}",
    ),
    "a dropped view": (["DROP VIEW v_tag"], "view v_tag is missing"),
}


def _found(store: Store) -> tuple[str, list[str]]:
    """What `db status` says of what is declared, and `verify`."""
    with store.log() as log:
        [finding] = [finding for finding in check(log.database) if finding.check == "schema"]
        report = verify(log, "a", store.root / "a")
    faults = [fault.message for fault in report.faults if fault.check == "schema"]
    assert finding.ok is (not faults)
    return finding.detail, faults


def _is_told(store: Store, statements: list[str], named: str) -> None:
    with store.open() as memory:
        first_round(memory, [])
    assert _found(store)[1] == []
    with store.log() as log, log.database.write() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
    assert _found(store) == (named, named.split("; "))


def test_rows_of_no_run_are_told(store: Store) -> None:
    """The views show them, and no run's projections are theirs."""
    with store.open() as memory:
        first_round(memory, [("a slip", "sums", 1)])
    with store.log() as log:
        with log.database.write() as connection:
            row = dict(connection.execute(select(CAUSE)).mappings().first() or {})
            connection.execute(insert(CAUSE).values(row | {"run_id": "ghost"}))
        faults = verify(log, "a", store.root / "a").faults
    assert [(f.check, f.message) for f in faults] == [
        ("projection", "cause has rows of ghost, which is no run")
    ]


def test_a_database_that_is_right_is_known_without_making_another(store: Store) -> None:
    """A revision that makes something else has another digest, which is put into `MADE`."""
    with store.log() as log, log.database.read() as connection:
        assert digest(found_in(connection, store.dialect)) == MADE[store.dialect]


def test_a_view_that_a_dump_of_postgresql_restores_is_known(
    postgres_stores: PostgresStores, tmp_path: Path
) -> None:
    """A dump has views as PostgreSQL prints them, with other names for tables that stand twice."""
    with postgres_stores.new(tmp_path).log() as log, log.database.write() as connection:
        changed = 0
        for name in views("postgresql"):
            printed = f"SELECT pg_get_viewdef('{name}'::regclass)"
            text = connection.exec_driver_sql(printed).scalar_one()
            changed += "g_1" in text
            connection.exec_driver_sql(f"CREATE OR REPLACE VIEW {name} AS {text.replace('%', '%%')}")
        assert changed
        assert list(_wrong_views(connection)) == []


def test_plans_are_alike_up_to_the_names_of_their_tables() -> None:
    one = ["Hash Join", "  Hash Cond: (g_1.run_id = w.run_id)", "  ->  Seq Scan on public.ingested_group g_1"]
    other = [line.replace("g_1", "g") for line in one]
    assert _aliased(one) == _aliased(other)
    assert _aliased(["(g.a = g_1.a)"]) == _aliased(["(g_1.a = g.a)"])
    assert _aliased(["(g.a = g_1.a)"]) != _aliased(["(g.a = g.a)"])
    assert _aliased(["(g.a = g_1.b)"]) != _aliased(["(g.b = g_1.a)"])
    assert _aliased(["(g.a = w.a)"]) != _aliased(["(g.a = h.a)"])


@pytest.mark.parametrize("attack", ON_SQLITE)
def test_a_log_that_can_be_changed_is_told_on_sqlite(
    sqlite_stores: SQLiteStores, tmp_path: Path, attack: str
) -> None:
    _is_told(sqlite_stores.new(tmp_path), *ON_SQLITE[attack])


@pytest.mark.parametrize(
    "statements",
    [
        ["CREATE OR REPLACE VIEW v_tag AS SELECT * FROM v_tag_before WHERE passes > 1"],
        ["DROP VIEW v_tag", "CREATE VIEW v_tag AS SELECT run_id AS run, tag FROM ingested_sum"],
    ],
)
def test_a_view_that_shows_something_else_is_told_by_the_deep_check_of_postgresql(
    postgres_stores: PostgresStores, tmp_path: Path, statements: list[str]
) -> None:
    store = postgres_stores.new(tmp_path)
    with store.open() as memory:
        first_round(memory, [])
    with store.log() as log:
        assert "schema" not in {f.check for f in verify(log, "a", store.root / "a", deep=True).faults}
        with log.database.write() as connection:
            query = views("postgresql")["v_tag"]
            for statement in statements:
                connection.exec_driver_sql(statement.replace("v_tag_before", f"({query}) before"))
        faults = verify(log, "a", store.root / "a", deep=True).faults
    told = [fault.message for fault in faults if fault.check == "schema"]
    assert told == [f"view v_tag {ALTERED}"]


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
