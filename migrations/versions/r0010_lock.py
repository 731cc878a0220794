"""Who may write a run is a lock that the system keeps, and nothing in the database."""

from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    for name in ("holder", "fence", "renewed_at"):
        op.drop_column("run", name)
