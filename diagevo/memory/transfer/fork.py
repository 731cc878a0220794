"""A new run from a committed round of another one. The old run stays as it is; nothing is ever rewound."""

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec
from sqlalchemy import Connection, func, insert, select

from diagevo.errors import ConfigError, StoreError
from diagevo.memory.events import Origin, RunConfigured, StageCompleted, Trait, having
from diagevo.memory.history import AsOf, History, expect, point_of
from diagevo.memory.log.tables import VECTOR, imported_vector_key
from diagevo.memory.places import check_name, check_place, runs_folder
from diagevo.memory.state.stored_config import leaves
from diagevo.memory.transfer.copying import CopiedRun, Copy, keep_heads
from diagevo.private import private_folder

WORDING = frozenset({"prompts", "round.boxed_answers", "schedule.stitching", "roles.diagnostician.engine"})
"""Keys that name other prompt templates."""


@dataclass(frozen=True, slots=True)
class Forked:
    """The new run, and which of the old one's files it has."""

    written: CopiedRun
    origin: Origin
    changed: tuple[str, ...]
    """Configuration keys that differ from the old run's."""
    files: tuple[str, ...]
    missing: tuple[str, ...]
    """Files that the old run recorded but no longer has."""


def fork(
    history: History,
    round: int,
    name: str,
    config: Mapping[str, Any] | None = None,
    *,
    prompts: Mapping[str, str] | None = None,
    root: Path | None = None,
) -> Forked:
    """Copy a run up to the commit of `round` into the new run `name`, configured by `config` (None: as it
    was). `prompts` are the digests of its templates, which count where the configuration names others.

    The events, the new configuration with its origin, projections and snapshots are one transaction. Files
    that completed stages recorded are linked into the new run's folder (copied where it is on another
    disk). Raises NotFoundError for a round that is not committed, ConfigError for a bad name or another
    embedding model, ConfigError where the new run exists.
    """
    check_name(name)
    as_of = _with_tail(history, point_of(history.commit(round)))
    before = history.configuration(as_of)
    values = before.config if config is None else dict(config)
    changed = changed_keys(before.config, values)
    if _embedder(before.config) != _embedder(values):
        raise ConfigError(
            "a fork keeps the embedding model, because its thresholds and vectors belong to it",
            hint="fork first, then: diagevo memory rebuild --embedder",
        )
    origin = Origin(run=history.run_id, position=as_of.position)
    number = before.number + 1
    same = WORDING.isdisjoint(changed)
    changes = {
        "config": values,
        "origin": origin,
        "number": number,
        "prompts": before.prompts if same else dict(prompts or {}),
    }
    configured = msgspec.structs.replace(before, **changes)
    folder = runs_folder(history.database, root)
    check_place(history.database, folder / name)
    with history.database.write() as connection:
        copy = Copy(connection, history.log, name, folder / name)
        source = history.log.read(history.run_id, until=as_of.position)
        see = f"see what is wrong: diagevo memory verify --run {history.run_id}"
        copy.take(source, f"run {history.run_id}", see)
        copy.append(configured, round)
        # A fork with an imported run's configuration counts as imported too.
        outside = history.log.imported(history.run_id) if config is None else None
        written = copy.finish(imported=outside)
        _copy_brought(connection, history.run_id, name)
    keep_heads(folder / name, written)
    files, missing = _link(history, as_of, folder / history.run_id, folder / name)
    return Forked(written, origin, changed, files, missing)


def _with_tail(history: History, commit: AsOf) -> AsOf:
    """After what belongs to the round and follows its commit: the fork begins with the same weights, whose
    measurements are the same, and with the same words. A configuration on the way comes along, and that with
    which a fork began at this round."""
    end, tail = commit, having(Trait.TAIL)
    for one in history.log.read(history.run_id, after=commit.position):
        if one.round != commit.round and one.type != RunConfigured.__name__:
            break
        began = one.type == RunConfigured.__name__ and expect(one, RunConfigured).origin is not None
        if began or one.type in tail:
            end = AsOf(commit.round, one.position, one.sequence)
        elif one.type != RunConfigured.__name__:
            break
    return end


def _copy_brought(connection: Connection, old: str, new: str) -> None:
    """Vectors that came with the old run's import are the fork's too: its causes may have no others."""
    end, model = imported_vector_key("", old), VECTOR.c.model
    renamed = func.substr(model, 1, func.length(model) - len(old)).concat(new)
    theirs = func.substr(model, func.length(model) - len(end) + 1) == end
    copied = select(renamed, VECTOR.c.text_hash, VECTOR.c.vector).where(theirs)
    connection.execute(insert(VECTOR).from_select(["model", "text_hash", "vector"], copied))


def _embedder(config: Mapping[str, Any]) -> Any:
    role: object = config.get("roles", {}).get("embedder")
    if not isinstance(role, Mapping):
        return role
    values = cast("Mapping[str, Any]", role)
    return {key: value for key, value in values.items() if key not in ("base_url", "api_key_env")}


def changed_keys(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[str, ...]:
    """Dotted keys whose values differ, in order."""
    old, new = dict(leaves(before)), dict(leaves(after))
    return tuple(key for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key))


def _link(
    history: History, as_of: AsOf, source: Path, target: Path
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Link recorded files into the new folder. They are written once and never changed, so a hard link
    is as good as a copy."""
    files: list[str] = []
    missing: list[str] = []
    completed = history.events(StageCompleted, as_of=as_of)
    for path in dict.fromkeys(artifact.path for fact in completed for artifact in fact.event.artifacts):
        if not (source / path).exists():
            missing.append(path)
            continue
        try:
            _copy(source / path, target / path)
        except OSError as error:
            raise StoreError(
                f"cannot copy {source / path} to {target / path}: {error.strerror}",
                hint="the fork is made; make room there, and copy that file by hand",
            ) from error
        files.append(path)
    return tuple(files), tuple(missing)


def _copy(source: Path, target: Path) -> None:
    private_folder(target.parent)
    if source.is_dir():
        shutil.copytree(source, target, copy_function=_link_file)
    else:
        _link_file(str(source), str(target))


def _link_file(source: str, target: str) -> None:
    """Never overwrites an existing file: it may be the new run's own."""
    try:
        os.link(source, target)
    except FileExistsError:
        if not os.path.samefile(source, target):
            raise
    except OSError:
        shutil.copy2(source, target)
