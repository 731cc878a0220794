"""What every command gets besides its own arguments: its `CommandContext`."""

import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from diagevo.config.loading import Resolved
    from diagevo.config.models import Config
    from diagevo.config.sources import KeyPath
    from diagevo.memory.history import History

RowFormat = Literal["table", "json", "jsonl", "csv", "parquet", "md"]


@dataclass(frozen=True, slots=True)
class CommandContext:
    """The common options: the first parameter of every command."""

    run: str | None = None
    """`--run`; None means the latest run when reading, a new name when creating."""
    db: str | None = None
    config: Path | None = None
    settings: tuple[str, ...] = ()
    profile: str | None = None
    quiet: bool = False
    verbose: bool = False
    no_color: bool = False
    format: RowFormat = "table"
    output: Path | None = None
    typed: frozenset[str] = frozenset()
    """Which of the common options were given on the command line, not in the environment."""
    stack: ExitStack = field(default_factory=ExitStack)
    """What stays open until everything is printed."""
    schema: str = ""
    """Name of the JSON the command prints, e.g. `diagevo.memory.why/1`."""

    @property
    def json(self) -> bool:
        return self.format == "json"

    @property
    def home(self) -> Path:
        """`DIAGEVO_HOME`: the default database, and a folder per run."""
        return Path(os.environ.get("DIAGEVO_HOME") or "runs")

    @property
    def database(self) -> str:
        """URL or path of the database: `--db`, `DIAGEVO_DB`, or `diagevo.db` in the home folder."""
        return self.db or f"sqlite:///{self.home / 'diagevo.db'}"

    @property
    def database_again(self) -> list[str]:
        """The arguments with which a suggested command finds the same database, without a password."""
        from diagevo.memory.log.location import database_url, shown

        if not self.db or self.db == os.environ.get("DIAGEVO_DB"):
            return []
        return ["--db", shown(database_url(self.db)) if "://" in self.db else self.db]

    def resolve(self) -> "Resolved":
        from diagevo.config.loading import resolve

        return resolve(file=self.config, settings=self.settings, profile=self.profile)

    def own_words(self) -> "dict[KeyPath, Any]":
        """The values from the user's own files, variables and `--set`, by key."""
        from diagevo.config.loading import own_layers

        layers = own_layers(file=self.config, settings=self.settings)
        return {path: value for layer in reversed(layers) for path, value in layer.values.items()}

    def config_in_log(self, history: "History", stored: "Mapping[str, Any]") -> dict[str, Any]:
        """`stored`, a configuration of the run, as it may be used here: for an imported run, settings that
        reach other machines count only if the user gave them. Raises ConfigError."""
        from diagevo.config.resume_overrides import confirmed

        if history.log.imported(history.run_id) is None:
            return dict(stored)
        return confirmed(stored, history.run_id, self.own_words())

    def load_config(self) -> "Config":
        return self.resolve().config
