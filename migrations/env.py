"""Alembic's entry point. `diagevo.memory.log.migrate` passes an open connection; a developer passes `-x
url=...`."""

from alembic import context
from sqlalchemy import Connection, create_engine
from sqlmodel import SQLModel

from diagevo.evaluation import store as evaluation_tables
from diagevo.memory.log import tables


def _run(connection: Connection) -> None:
    # The imports fill SQLModel.metadata.
    assert tables.EventRow
    assert evaluation_tables.EvaluationRow
    context.configure(connection=connection, target_metadata=SQLModel.metadata, transactional_ddl=False)
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    _run(given)
else:
    engine = create_engine(context.get_x_argument(as_dictionary=True)["url"])
    with engine.begin() as opened:
        _run(opened)
