"""A run that came in a bundle knows which run it was there. Of one that came before this it is not known."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    op.add_column("run", sa.Column("imported_run", sa.String))
