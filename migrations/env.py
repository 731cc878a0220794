"""Alembic's entry point. `diagevo.memory.log.migrate` passes an open connection; a developer passes `-x
url=...`."""

from collections.abc import Sequence

from alembic import context
from sqlalchemy import Connection, MetaData, create_engine


def _run(connection: Connection, target: Sequence[MetaData] = ()) -> None:
    context.configure(connection=connection, target_metadata=target, transactional_ddl=False)
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    _run(given)
else:
    from diagevo.evaluation import oracle, store
    from diagevo.memory.log.tables import METADATA

    assert oracle.ORACLE.metadata is store.EVALUATION.metadata is METADATA  # declared by the imports
    engine = create_engine(context.get_x_argument(as_dictionary=True)["url"])
    with engine.begin() as opened:
        _run(opened, [METADATA])
