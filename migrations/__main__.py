"""`python -m migrations "a column of v_node"`: the next revision, with the views as they are now."""

import json
import sys
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

from diagevo.memory.read.views import views


def main(message: str) -> None:
    config = Config("alembic.ini")
    head = ScriptDirectory.from_config(config).get_current_head()
    revision = f"{int(head or 0) + 1:04}"
    texts = {dialect: views(dialect) for dialect in ("sqlite", "postgresql")}
    file = Path(__file__).parent / "versions" / f"views_{revision}.json"
    file.write_text(json.dumps(texts, indent=1) + "\n", encoding="utf-8")
    command.revision(config, message, rev_id=revision)


if __name__ == "__main__":
    main(sys.argv[1])
