"""The line that plays a run again from where another filter would have led it another way."""

import json
import os
import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from diagevo.errors import ConfigError

from .options import Call
from .whatif_asked import KEYS, Values

if TYPE_CHECKING:
    from diagevo.memory.history import History
    from diagevo.memory.whatif import Observed


def settings(values: Values) -> dict[str, Any]:
    """The changes as keys of the configuration."""
    return {KEYS[name]: str(given.value) for name, given in values.items()}


def line(
    call: Call, history: "History", observed: Sequence["Observed"], rerun: int, values: Values
) -> str | None:
    """Play again from round `rerun` on, configured as that round was but for `values`.

    There is no commit before round 1 to fork from: that is a new run. None where `train` cannot play it,
    because another trainer wrote the configuration.
    """
    config = observed[rerun - 1].config
    if rerun == 1:
        words = _train(history, config)
        if words is None:
            return None
        start, below = words
    else:
        start = ["runs", "fork", history.run_id, "--round", str(rerun - 1)]
        below = _since(observed[rerun - 2].config, config)
    sets = [
        f"--set {shlex.quote(f'{key}={_text(value)}')}" for key, value in (below | settings(values)).items()
    ]
    return " ".join([shlex.join(["diagevo", *start, *_database(call)]), *sets])


def _database(call: Call) -> list[str]:
    from diagevo.memory.database import database_url, shown

    if not call.db or call.db == os.environ.get("DIAGEVO_DB"):
        return []
    return ["--db", shown(database_url(call.db)) if "://" in call.db else call.db]


def _train(history: "History", config: Mapping[str, Any]) -> tuple[list[str], dict[str, Any]] | None:
    """How `train` comes to the recorded configuration here and now: from the file kept beside the run, or
    from its profile, with whatever the two leave different."""
    from diagevo.config.loading import of_run, resolve
    from diagevo.memory.opening import runs_folder

    try:
        wanted = of_run(config, history.run_id)
    except ConfigError:
        return None
    kept = runs_folder(history.database) / history.run_id / "config.yaml"
    profile = wanted.config.profile
    if kept.exists():
        start, here = ["train", "-c", str(kept)], resolve(file=kept)
    else:
        start, here = ["train", "--profile", profile], resolve(profile=profile)
    pairs = zip(wanted.settings(), here.settings(), strict=True)
    return start, {ours.key: ours.value for ours, there in pairs if ours.value != there.value}


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
