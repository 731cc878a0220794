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
    """Part of a text matches several things. `candidates`: their texts by id, which a model may have
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
    """A required extra, GPU, driver or model folder is missing."""

    exit_code = 4
    kind = "missing"


@contextmanager
def extra(name: str, what: str) -> Iterator[None]:
    """Wraps the import of an optional package.

    Raises MissingDependencyError if it is missing, naming `what` needs it and the extra that provides it.
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
    """Stored data is not what DiagEvo writes. `position` is the event's, if it is one."""

    kind = "damaged"

    def __init__(self, message: str, *, position: int | None = None) -> None:
        hint = "check for more damage: diagevo memory verify --deep; restore a backup: diagevo db restore"
        super().__init__(message, hint=hint)
        self.position = position


class ChangedTextError(DamagedError):
    """A stored text does not match its digest: the fault that verify finds, encountered while reading."""

    exit_code = 1
    kind = "fault"

    def __init__(self, digest: str) -> None:
        super().__init__(f"FAULT: the text {digest} was changed")


class StaleWriterError(StoreError):
    """The append names a sequence that is no longer the run's last: somebody else wrote in between."""

    kind = "stale_writer"


class HeldError(StoreError):
    """Somebody else is writing this run: another process, or another Memory in this one."""

    kind = "held"


class ConflictError(StoreError):
    """An event with this id is already recorded, with other content."""

    kind = "conflict"


class OutOfOrderError(StoreError):
    """A step that is not allowed at this point of a round."""

    kind = "out_of_order"


class InconsistentError(StoreError):
    """The log contradicts itself: an event does not follow from those before it."""

    kind = "inconsistent"


class ServiceError(DiagEvoError):
    """A model endpoint or server failed after its retries."""

    exit_code = 6
    kind = "service"


class RefusedError(ServiceError):
    """The service rejected the request as invalid: repeating it would fail again."""


class NodeLostError(ServiceError):
    """A cluster node running our work was lost."""

    kind = "node_lost"


class OutOfMemoryError(DiagEvoError):
    """A device ran out of memory. `setting` is the key that limits how much is held at once, `held` the
    smallest value that would have allowed as much."""

    exit_code = 1
    kind = "out_of_memory"

    def __init__(self, message: str, *, setting: str = "", held: int = 1, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.setting, self.held = setting, held


class WrongTrainingError(DiagEvoError):
    """A training phase found that it trains on wrong numbers.

    `measures`: its measurements up to that point.
    """

    exit_code = 1
    kind = "wrong_training"

    def __init__(self, message: str, *, hint: str | None = None, measures: object = None) -> None:
        super().__init__(message, hint=hint)
        self.measures = measures


AGAIN = "run the same command again (diagevo train with --resume): answers so far are kept"
"""The next step if a model did not answer a request, for several commands."""


class StoppedSafely(DiagEvoError):
    """Stopped at a safe point, from which the same command continues; `diagevo train` with `--resume`."""

    exit_code = 75
    kind = "stopped"
