"""The command that plays again what `memory what-if` cannot say, and what it would miss."""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from diagevo.errors import ConfigError

from ..call import Call

if TYPE_CHECKING:
    from diagevo.memory.audit.history import History
    from diagevo.memory.audit.timeline.rounds import Observed


def command(
    call: Call, history: "History", observed: Sequence["Observed"], rerun: int, changed: dict[str, str]
) -> str | None:
    """Play again from round `rerun` on, configured as that round was but for `changed`, values by key.

    There is no commit before round 1 to fork from: that is a new run. None where `train` cannot play it,
    because another trainer wrote the configuration.
    """
    from diagevo.config.outside import REACHING, harmless

    config = observed[rerun - 1].config
    if rerun == 1:
        words = _train(history, config)
        if words is None:
            return None
        start, below = words
    else:
        start = ["runs", "fork", history.run_id, "--round", str(rerun - 1)]
        below = _since(observed[rerun - 2].config, config)
    if history.log.imported(history.run_id) is not None:  # never put into the user's mouth
        paths = {key: tuple(key.split(".")) for key in below}
        below = {
            key: value
            for key, value in below.items()
            if paths[key] not in REACHING or harmless(paths[key], value)
        }
    sets = [f"--set {shlex.quote(f'{key}={_text(value)}')}" for key, value in (below | changed).items()]
    return " ".join([shlex.join(["diagevo", *start, *call.database_again]), *sets])


def missing(history: "History", rerun: int) -> list[str]:
    """The policies that a fork before round `rerun` goes on from, where their folders are not there: a bundle
    or a copied database holds the log alone."""
    from diagevo.memory.audit.history import expect
    from diagevo.memory.events import StageCompleted
    from diagevo.memory.places import runs_folder

    newest: dict[str, list[str]] = {}
    for recorded in history.log.read(history.run_id, types=["StageCompleted"], rounds=(1, rerun - 1)):
        event = expect(recorded, StageCompleted)
        if event.stage in ("challenger", "solver") and event.artifacts:
            newest[event.stage] = [artifact.path for artifact in event.artifacts]
    folder = runs_folder(history.database) / history.run_id
    return [str(folder / path) for paths in newest.values() for path in paths if not (folder / path).exists()]


def _train(history: "History", config: Mapping[str, Any]) -> tuple[list[str], dict[str, Any]] | None:
    """How `train` comes to the recorded configuration here and now: from the file kept beside the run, or
    from its profile, with whatever the two leave different."""
    from diagevo.config.loading import of_run, resolve
    from diagevo.memory.places import runs_folder

    try:
        wanted = of_run(config, history.run_id)
    except ConfigError:
        return None
    kept = runs_folder(history.database) / history.run_id / "config.yaml"
    file, profile = (kept, None) if kept.exists() else (None, wanted.config.profile)
    try:
        here = {setting.key: setting.value for setting in resolve(file=file, profile=profile).settings()}
    except ConfigError:  # `train` will say what is wrong with the settings here; the line gives every value
        here = {}
    start = ["train", "-c", str(kept)] if profile is None else ["train", "--profile", profile]
    return start, {s.key: s.value for s in wanted.settings() if (s.key, s.value) not in here.items()}


def _since(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """What was configured anew between two rounds: a fork takes up the configuration of the first."""
    from diagevo.config.sources import dotted, keys

    return {dotted(path): _at(after, path) for path in keys() if _at(before, path) != _at(after, path)}


def _at(config: Mapping[str, Any], path: Sequence[str]) -> Any:
    value: Any = config
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _text(value: Any) -> str:
    """A value as `--set` reads it."""
    return value if isinstance(value, str) else json.dumps(value)
