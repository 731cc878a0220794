"""${message}"""

import json
from pathlib import Path

import sqlalchemy as sa
from alembic import op

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}


def _views(of: str) -> dict[str, str]:
    texts = Path(__file__).with_name(f"views_{of}.json").read_text(encoding="utf-8")
    return json.loads(texts)[op.get_bind().dialect.name]


def upgrade() -> None:
    for name in reversed(_views(down_revision)):  # no table changes under a view that reads it
        op.execute(f"DROP VIEW IF EXISTS {name}")
    ${upgrades if upgrades else "pass  # what changes in the tables: op.add_column(...)"}
    for name, query in _views(revision).items():
        op.execute(f"CREATE VIEW {name} AS {query}")
