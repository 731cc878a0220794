"""The statements of an append: each is compiled once, for it is sent for every group of events."""

from typing import Any

from sqlalchemy import (
    ARRAY,
    BindParameter,
    ColumnClause,
    Integer,
    bindparam,
    exists,
    func,
    insert,
    literal_column,
    select,
    update,
)

from diagevo.memory.log.database import Database, in_list
from diagevo.memory.log.prepared import Prepared
from diagevo.memory.log.tables import EVENT, LOG, RUN

ONE: ColumnClause[int] = literal_column("1", Integer)
INSERT = insert(EVENT).prefix_with("OR FAIL", dialect="sqlite")
"""Of a row. With OR ABORT, its default, SQLite keeps a journal for each row of a table with triggers."""
COLUMNS = tuple(EVENT.c)
NAMES = tuple(c.name for c in COLUMNS)
HEAD = (RUN.c.sequence, RUN.c.hash)


class Statements:
    """Those of an append, each compiled once. Whoever only reads needs none of them."""

    def __init__(self, database: Database) -> None:
        self.insert = Prepared(database.engine, INSERT, NAMES)
        self.queue = Prepared(database.engine, select(LOG.c.id).where(LOG.c.id == ONE).with_for_update(), ())
        of_run = RUN.c.run_id == bindparam("run")
        known = in_list(database, EVENT.c.event_id, "ids")
        taken = exists(select(ONE).where(EVENT.c.run_id == bindparam("run"), known))
        stand = select(LOG.c.position, taken, *HEAD).select_from(LOG.outerjoin(RUN, of_run))
        self.stand = Prepared(database.engine, stand.where(LOG.c.id == ONE), ["run", "ids", "run"])
        moved = update(LOG).where(LOG.c.id == ONE).values(position=bindparam("position"))
        self.move_log = Prepared(database.engine, moved, ["position"])
        new: dict[str, BindParameter[Any]] = {name: bindparam(name) for name in ("sequence", "hash")}
        move_run = update(RUN).where(of_run).values(new)
        self.move_run = Prepared(database.engine, move_run, [*new, "run"])
        self.insert_and_move = None
        if database.dialect == "postgresql":
            moves = (moved.cte("log_moved"), move_run.cte("run_moved"))
            columns = [bindparam(f"all_{c.name}", type_=ARRAY(c.type)) for c in COLUMNS]
            given: Any = func.unnest(*columns).table_valued(*NAMES).render_derived()
            written = INSERT.from_select(NAMES, select(given)).add_cte(*moves)
            names = ["position", *new, "run", *(f"all_{name}" for name in NAMES)]
            self.insert_and_move = Prepared(database.engine, written, names)
