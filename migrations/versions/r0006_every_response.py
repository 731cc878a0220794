"""A view of every response."""

import json
from pathlib import Path

from alembic import op

revision = "0006"
down_revision = "0005"


def _views(of: str) -> dict[str, str]:
    texts = Path(__file__).with_name(f"views_{of}.json").read_text(encoding="utf-8")
    return json.loads(texts)[op.get_bind().dialect.name]


def upgrade() -> None:
    for name in reversed(_views(down_revision)):  # no table changes under a view that reads it
        op.execute(f"DROP VIEW IF EXISTS {name}")
    for name, query in _views(revision).items():
        op.execute(f"CREATE VIEW {name} AS {query}")
