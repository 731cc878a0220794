"""A run knows that it came from outside: its endpoints and keys count only when they are said again here."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    op.add_column("run", sa.Column("imported", sa.String))
