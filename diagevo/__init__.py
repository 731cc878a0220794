"""DiagEvo: diagnosis-guided self-play with an event-sourced memory of error causes.

The memory as a library, for your own trainer:

    import diagevo

    memory = diagevo.open("sqlite:///runs/a.db", run="a")
    schedule = memory.open_round(1)        # ε₁ and p₁ as committed in the round before
    plan = schedule.draw(256, seed=7)      # free, targeted(cause) or stitched(cause, mastered)
    memory.score(candidates)               # votes of every candidate; promotions follow
    memory.observe(failures)               # failed trajectories of the kept questions; idempotent
    memory.diagnosed(diagnoses)            # the diagnostician's verdicts, in any order
    memory.settle(failure_id, ...)         # one by one: matched, or a new cause
    memory.commit()                        # → ε₂, p₂

`diagevo.read("sqlite:///runs/a.db", "a")` gives a run as polars frames, without writing to it. An evaluation,
from its file to its causes:

    evals = diagevo.load("results.json")   # of any format of `diagevo ingest`
    evals.diagnose(local=True).causes()

Events are `diagevo.CandidateScored`, `diagevo.FailureObserved` and so on (`diagevo.memory.events` has them
all); errors are in `diagevo.errors`. Importing diagevo is cheap: everything else is loaded when it is first
used.
"""

import os.path
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from diagevo.config.models import Config
    from diagevo.ingest.voted import voted
    from diagevo.memory.events import (
        CandidateScored,
        DuplicateJudged,
        Embedder,
        FailureDiagnosed,
        FailureObserved,
        NodeAssigned,
        NodePairJudged,
        RunConfigured,
        SuppliedCause,
    )
    from diagevo.memory.frames import RunFrames
    from diagevo.memory.memory import Memory
    from diagevo.memory.state.projected_schedule import Draw, Schedule
    from diagevo.view.notebook import NotebookRun

if not os.path.isdir(os.path.join(__path__[0], "cli")):
    __path__.append(os.path.dirname(__path__[0]))  # a checkout has cli/ and migrations/ beside the package

__version__ = "0.1.0"
__all__ = [
    "CandidateScored",
    "Draw",
    "DuplicateJudged",
    "Embedder",
    "FailureDiagnosed",
    "FailureObserved",
    "Memory",
    "NodeAssigned",
    "NodePairJudged",
    "RunConfigured",
    "RunFrames",
    "Schedule",
    "SuppliedCause",
    "__version__",
    "load",
    "open",
    "read",
    "voted",
]

_HOMES = {
    "Memory": "diagevo.memory.memory",
    "RunFrames": "diagevo.memory.frames",
    "NotebookRun": "diagevo.view.notebook",
    "Draw": "diagevo.memory.state.projected_schedule",
    "Schedule": "diagevo.memory.state.projected_schedule",
    "voted": "diagevo.ingest.voted",
} | dict.fromkeys(
    (
        "CandidateScored",
        "DuplicateJudged",
        "Embedder",
        "FailureDiagnosed",
        "FailureObserved",
        "NodeAssigned",
        "NodePairJudged",
        "RunConfigured",
        "SuppliedCause",
    ),
    "diagevo.memory.events",
)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'diagevo' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)


def open(
    url: str,
    run: str,
    *,
    create: bool = True,
    root: "Path | None" = None,
    config: "Config | None" = None,
    embedder: "Embedder | None" = None,
) -> "Memory":
    """Open the memory of a run, for writing.

    Args:
        url: a SQLAlchemy URL or the path of an SQLite file. A missing file is created and migrated.
        run: the name of the run.
        create: whether to create a missing database or run.
        root: the folder of the runs (default: the SQLite file's folder, else $DIAGEVO_HOME, else ./runs). The
            run's own folder in it holds the chain heads and the vector index.
        config: the configuration of a new run, recorded when its first round opens unless
            `Memory.configure` was called before.
        embedder: the model whose vectors the run will hold, recorded with `config`.

    Returns:
        The memory. Close it, or use it in a `with` statement.

    Raises:
        StoreError: the database is at another revision.
        NotFoundError: the run does not exist, with `create=False`.
        ConfigError: the run's vectors belong to another model than `embedder`;
            `Memory.change_embedder` re-embeds a run.
    """
    from diagevo.memory.opening import open_memory

    return open_memory(url, run, create=create, root=root, config=config, embedder=embedder)


def read(
    url: str = "sqlite:///runs/diagevo.db", run: str | None = None, *, root: "Path | None" = None
) -> "RunFrames":
    """Read a run, even while it is being played, without writing to its database.

    Args:
        url: A SQLAlchemy URL or the path of an SQLite file.
        run: Its name; None or "latest" means the most recently written run.
        root: The folder of the runs (default: as in `open`).

    Returns:
        The run, whose methods give polars frames (extra `polars`): `causes`, `history`,
        `rounds`, `candidates`, `failures`, `steps`, `groups`, `events`; `why` returns a
        cause's evidence and needs no extra.

    Raises:
        StoreError: The database is missing, or at another revision.
        NotFoundError: It has no such run.
    """
    from diagevo.memory.frames import RunFrames
    from diagevo.memory.history import open_history

    return RunFrames(open_history(url, run, root=root))


def load(
    path: "str | Path",
    run: str | None = None,
    *,
    url: str = "sqlite:///runs/diagevo.db",
    format: str | None = None,
    map: "Mapping[str, str] | None" = None,
    reward: str | None = None,
    pass_at: float | None = None,
) -> "NotebookRun":
    """Read an evaluation, or another trainer's rollouts, into the log, as `diagevo ingest` does. Loading
    the same file again changes nothing.

    Args:
        path: A file or a folder.
        run: The run's name; the default is the file's.
        url: A SQLAlchemy URL or the path of an SQLite file; a missing file is created.
        format: What wrote it; by default it is
        detected. map: For your own rows, the path of each
        field. reward: The reward field, if not the format's default.
        pass_at: The lowest reward that passes (default: 0.5).

    Returns:
        The run: `diagnose` finds its causes; `passed`, `causes`, `responses`, `compare` and the methods of
        `read` give polars frames (extra `polars`).

    Raises:
        ConfigError: The format is unknown, or a row does not fit it.
    """
    from pathlib import Path

    from diagevo.view import notebook

    return notebook.load(Path(path), run, url, format, map, {"reward": reward, "pass_at": pass_at})
