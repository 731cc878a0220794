"""One tree of errors. Each says what, where and the next step, and knows its exit code."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager


class DiagEvoError(Exception):
    """Base of every error that DiagEvo raises on purpose.

    `message` says what is wrong and where; `hint` is the next step, often a command to run.
    """

    exit_code = 70
    kind = "internal"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n{self.hint}"


class ConfigError(DiagEvoError):
    """A bad option, value or configuration file."""

    exit_code = 2
    kind = "config"


class AmbiguousError(ConfigError):
    """A piece of a text fits several things. `candidates`: their words by id, which a model may have
    written."""

    def __init__(self, message: str, candidates: Mapping[str, str], left: int) -> None:
        lines = [f"{id_}  {words}" for id_, words in candidates.items()]
        lines += [f"and {left} more"] if left else []
        super().__init__(message, hint="\n  ".join(["name one of them:", *lines]))
        self.candidates = candidates


class NotFoundError(DiagEvoError):
    """No such run, round, cause, node, question or failure."""

    exit_code = 3
    kind = "not_found"


class MissingDependencyError(DiagEvoError):
    """An extra, a GPU, a driver or a model folder that the work needs is not there."""

    exit_code = 4
    kind = "missing"


@contextmanager
def extra(name: str, what: str) -> Iterator[None]:
    """Around the import of a package that only some installs have.

    Raises MissingDependencyError where it is not there: `what` needs it, and the extra that brings it.
    """
    try:
        yield
    except ImportError as error:
        raise MissingDependencyError(
            f"{what} needs {error.name or 'a package'}, which is not installed",
            hint=f"run: pip install 'diagevo[{name}]'",
        ) from error


class StoreError(DiagEvoError):
    """The database is old, new, locked, damaged or cannot be written."""

    exit_code = 5
    kind = "store"


class DamagedError(StoreError):
    """What is stored is not what DiagEvo writes. `position` is the event's, where it is one."""

    kind = "damaged"

    def __init__(self, message: str, *, position: int | None = None) -> None:
        hint = "check for more damage: diagevo memory verify --deep; restore a backup: diagevo db restore"
        super().__init__(message, hint=hint)
        self.position = position


class ChangedTextError(DamagedError):
    """A stored text is not the one that its digest names: the fault that verify finds, met while reading."""

    exit_code = 1
    kind = "fault"

    def __init__(self, digest: str) -> None:
        super().__init__(f"FAULT: the text {digest} was changed")


class StaleWriterError(StoreError):
    """The append names a sequence that is no longer the run's last: somebody else wrote in between."""

    kind = "stale_writer"


class HeldError(StoreError):
    """Somebody else writes this run: another process, or another Memory of this one."""

    kind = "held"


class ConflictError(StoreError):
    """An event of this id is recorded already, with other content."""

    kind = "conflict"


class OutOfOrderError(StoreError):
    """A step that the order of a round does not allow now."""

    kind = "out_of_order"


class InconsistentError(StoreError):
    """The log contradicts itself: an event does not follow from those before it."""

    kind = "inconsistent"


class ServiceError(DiagEvoError):
    """A model endpoint or server failed after its retries."""

    exit_code = 6
    kind = "service"


class RefusedError(ServiceError):
    """The service answered that the request is at fault: made again, it is refused again."""


class NodeLostError(ServiceError):
    """A node of the cluster went away with work of ours on it."""

    kind = "node_lost"


class OutOfMemoryError(DiagEvoError):
    """A device had too little memory. `setting` is the key that says how much is held at once, `held` the
    least value of it that would have held as much."""

    exit_code = 1
    kind = "out_of_memory"

    def __init__(self, message: str, *, setting: str = "", held: int = 1, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.setting, self.held = setting, held


class WrongTrainingError(DiagEvoError):
    """A training phase found that it trains on wrong numbers. `measures`: what it measured up to there."""

    exit_code = 1
    kind = "wrong_training"

    def __init__(self, message: str, *, hint: str | None = None, measures: object = None) -> None:
        super().__init__(message, hint=hint)
        self.measures = measures


AGAIN = "run the same command again (diagevo train with --resume): answers so far are kept"
"""The next step where a question to a model was not answered: several commands ask."""


class StoppedSafely(DiagEvoError):
    """Stopped at a safe point, from which the same command goes on; `diagevo train` with `--resume`."""

    exit_code = 75
    kind = "stopped"
