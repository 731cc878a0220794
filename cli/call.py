"""What every command is given beside its own arguments: its `CommandContext`."""

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
    """What was asked for beside the command's own arguments: the first parameter of every command."""

    run: str | None = None
    """`--run`; None means the latest run where a run is read, a new name where one is made."""
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
    """Which of the common options stand on the command line, not in the environment."""
    stack: ExitStack = field(default_factory=ExitStack)
    """What stays open until all is printed."""
    schema: str = ""
    """Name of the JSON the command prints, e.g. `diagevo.memory.why/1`."""

    @property
    def json(self) -> bool:
        return self.format == "json"

    @property
    def home(self) -> Path:
        """`DIAGEVO_HOME`: the default database, and a folder a run."""
        return Path(os.environ.get("DIAGEVO_HOME") or "runs")

    @property
    def database(self) -> str:
        """URL or path of the database: `--db`, `DIAGEVO_DB`, or `diagevo.db` in the home folder."""
        return self.db or f"sqlite:///{self.home / 'diagevo.db'}"

    @property
    def database_again(self) -> list[str]:
        """The arguments by which a command that is suggested finds the same database; no password in them."""
        from diagevo.memory.log.location import database_url, shown

        if not self.db or self.db == os.environ.get("DIAGEVO_DB"):
            return []
        return ["--db", shown(database_url(self.db)) if "://" in self.db else self.db]

    def resolve(self) -> "Resolved":
        from diagevo.config.loading import resolve

        return resolve(file=self.config, settings=self.settings, profile=self.profile)

    def own_words(self) -> "dict[KeyPath, Any]":
        """What the user's own files, variables and `--set` say, by key."""
        from diagevo.config.loading import own_layers

        layers = own_layers(file=self.config, settings=self.settings)
        return {path: value for layer in reversed(layers) for path, value in layer.values.items()}

    def config_in_log(self, history: "History", stored: "Mapping[str, Any]") -> dict[str, Any]:
        """`stored`, a configuration of the run, as it may be used here: of a run from outside, what reaches
        other machines counts only in the user's own words. Raises ConfigError."""
        from diagevo.config.resume_overrides import confirmed

        if history.log.imported(history.run_id) is None:
            return dict(stored)
        return confirmed(stored, history.run_id, self.own_words())

    def load_config(self) -> "Config":
        return self.resolve().config
