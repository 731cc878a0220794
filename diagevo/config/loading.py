"""The configuration of a run from all its sources, and where each value came from.

Highest first: `--set`, DIAGEVO_… variables, the file of `--config`, ./diagevo.yaml, the user's file, the
profile, the defaults of the models.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, get_args

from pydantic import ValidationError

from diagevo.config.method import unknown_keys
from diagevo.config.models import Config, EmbedderRole, Section
from diagevo.config.shipped import PROFILES
from diagevo.config.sources import (
    KeyPath,
    Kind,
    Layer,
    Source,
    dotted,
    from_environment,
    from_file,
    from_settings,
    from_yaml,
    keys,
)
from diagevo.errors import ConfigError
from diagevo.text.redaction import holds_secret, masked, redacted

LOCAL_FILE = "diagevo.yaml"

_DEFAULT = Source("default", "default")


@dataclass(frozen=True, slots=True)
class Setting:
    key: str
    value: Any
    source: Source
    description: str


@dataclass(frozen=True, slots=True)
class Resolved:
    """A configuration, and the source of each value."""

    config: Config
    sources: Mapping[KeyPath, Source]

    def settings(self) -> list[Setting]:
        """Every value in the order of the models; ratios as exact fractions in text, secrets masked: the log
        of an old or imported run may hold one."""
        tree = redacted(self.config.model_dump(mode="json"))
        return [
            Setting(dotted(path), value_at(tree, path), self.sources[path], info.description or "")
            for path, info in keys().items()
        ]


def value_at(tree: Mapping[str, Any], path: Sequence[str]) -> Any:
    value: Any = tree
    for name in path:
        value = value[name]
    return value


def user_file(environ: Mapping[str, str]) -> Path:
    """The user's own file: diagevo/config.yaml where the system keeps such files."""
    base = environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "diagevo" / "config.yaml"


def profile_text(name: str) -> str:
    """The YAML of a profile, with its comments. Raises ConfigError for an unknown name."""
    if name not in PROFILES:
        raise ConfigError(f"there is no profile {name}", hint=f"one of: {', '.join(PROFILES)}")
    return (files("diagevo.config") / "profiles" / f"{name}.yaml").read_text(encoding="utf-8")


def _of_profile(name: str) -> Layer:
    read = _read_profile(name)
    return Layer(dict(read.values), dict(read.sources))  # a method is put into it


@cache
def _read_profile(name: str) -> Layer:
    return from_yaml(profile_text(name), f"profile {name}", "profile")


SMALL_MODEL = "builtin:arithmetic"
METHODS = ("r-zero", "r-few", "absolute-zero", "darc", "spice")
"""Those with values of their own."""


def put_method(layers: Sequence[Layer], world: Any = None) -> None:
    """If a layer, highest first, names a method other than the paper's, add the method's values to it,
    below the layer's own. A world has its own scale and prompts; `world` is the one below the layers."""
    named = next((layer for layer in layers if ("method",) in layer.values), None)
    if named is None or named.values["method",] not in METHODS:
        return
    world = next((layer.values["world",] for layer in layers if ("world",) in layer.values), world)
    method = named.values["method",]
    name = method if world is None else f"{method}-{world}"
    own = values_of_method(name)
    for path, value in own.values.items():
        below = next((layer.values[path] for layer in layers if path in layer.values), None)
        # Weights that read a method's prompts replace the shipped ones, never the user's own model.
        kept = path[-1] == "model" and below not in (None, SMALL_MODEL)
        if path not in named.values and not kept:
            named.put(path, value, own.sources[path])


def values_of_method(name: str) -> Layer:
    """The values of a method's file."""
    file = files("diagevo.config") / "methods" / f"{name}.yaml"
    return from_yaml(file.read_text(encoding="utf-8"), f"method {name}", "profile")


def resolve(
    *,
    file: Path | None = None,
    settings: Sequence[str] = (),
    profile: str | None = None,
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Resolved:
    """The configuration as it is here and now.

    `file`, `settings` and `profile` are the options of the command line; `environ` and `folder` default to
    the process's. Raises ConfigError: which key, where it is written, and the closest valid one.
    """
    environ = os.environ if environ is None else environ
    layers = own_layers(file=file, settings=settings, environ=environ, folder=folder)
    if profile:
        layers[0].put(("profile",), profile, Source("flag", "--profile"))
    elif named := environ.get("DIAGEVO_PROFILE"):
        layers[1].put(("profile",), named, Source("environment", "DIAGEVO_PROFILE"))
    name = next((layer.values["profile",] for layer in layers if ("profile",) in layer.values), PROFILES[0])
    return _resolved([*layers, _of_profile(str(name))])


def own_layers(
    *,
    file: Path | None = None,
    settings: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> list[Layer]:
    """The user's own layers, highest first: everything but profile and defaults. Raises as `resolve`."""
    environ = os.environ if environ is None else environ
    layers = [from_settings(tuple(settings)), from_environment(environ)]
    file = file or (Path(environ["DIAGEVO_CONFIG"]) if environ.get("DIAGEVO_CONFIG") else None)
    local = Path(LOCAL_FILE) if folder is None else folder / LOCAL_FILE
    if file is not None:
        layers.append(from_file(file, "file"))
    if local.is_file() and (file is None or not file.samefile(local)):
        layers.append(from_file(local, "file"))
    if user_file(environ).is_file():
        layers.append(from_file(user_file(environ), "user"))
    return layers


def of_profile(name: str) -> Resolved:
    """A profile alone, without anything from this machine."""
    named = Layer()
    named.put(("profile",), name, Source("profile", f"profile {name}"))
    return _resolved([named, _of_profile(name)])


def of_file(file: Path) -> Resolved:
    """A file over the profile that it names, without the environment and other files."""
    layer = from_file(file, "file")
    name = str(layer.values.get(("profile",), PROFILES[0]))
    return _resolved([layer, _of_profile(name)])


def _refuse_unknown(stored: Mapping[str, Any], run: str) -> None:
    if unknown := unknown_keys(stored, Config):
        raise ConfigError(
            f"run {run} was configured with {', '.join(unknown)}, which this version does not know",
            hint="another trainer wrote it, or another version, which can read it: diagevo memory log"
            f" --type RunConfigured --run {run}",
        )


def of_run(stored: Mapping[str, Any], run: str) -> Resolved:
    """The configuration in a run's log. Raises ConfigError if `train` did not write it."""
    sources = dict.fromkeys(keys(), Source("run", f"run {run}"))
    _refuse_unknown(stored, run)
    try:
        return Resolved(Config.model_validate(stored), sources)
    except ValidationError as error:
        raise ConfigError(
            f"the configuration in the log of run {run} is not one of `diagevo train`: "
            f"{error.errors(include_url=False)[0]['msg']}",
            hint="it was written by another trainer; see: diagevo runs show",
        ) from error


def _defaults() -> Layer:
    """The defaults of whole sections, so that a file may set a single key of a section."""
    layer = Layer()
    for name, info in Config.model_fields.items():
        if isinstance(info.default, Section):
            layer.values |= {(name, key): value for key, value in info.default.model_dump().items()}
    return layer


def _resolved(layers: Sequence[Layer]) -> Resolved:
    """Merge the layers, highest first, and validate."""
    put_method(layers)
    written = Layer()
    for layer in reversed([*layers, _defaults()]):
        written.values |= layer.values
    sources = {
        path: next((layer.sources[path] for layer in layers if path in layer.sources), _DEFAULT)
        for path in keys()
    }
    try:
        config = Config.model_validate(written.nested())
    except ValidationError as error:
        raise explained(error, sources) from error
    refuse_secrets(config, sources)
    refuse_unused_model(config, layers)
    return Resolved(config, sources)


def apply_overrides(stored: Mapping[str, Any], given: Layer, run: str) -> Config:
    """A run's `stored` configuration with the given values applied. Raises ConfigError for a wrong value,
    with where it was written."""
    sources = {path: given.sources.get(path, Source("run", f"run {run}")) for path in keys()}
    _refuse_unknown(stored, run)
    try:
        config = Config.model_validate(given.nested(stored))
    except ValidationError as error:
        raise explained(error, sources) from error
    refuse_secrets(config, sources)
    return config


def refuse_secrets(config: Config, sources: Mapping[KeyPath, Source]) -> None:
    """Raise ConfigError for a password, key or token in any value: a run's log keeps its configuration for
    ever. It is not a rule of the models, or a run that once stored one could not be read."""
    tree = config.model_dump(mode="json")
    for path in keys():
        if holds_secret(value_at(tree, path)):
            raise ConfigError(
                f"{_placed(sources.get(path, _DEFAULT), path)}: a password, key or token does "
                "not belong in a configuration, which is stored and shown",
                hint="put it into the environment: a role names its variable with api_key_env, and a program"
                " that is started reads its own (HF_TOKEN, VLLM_API_KEY)",
            )


def refuse_unused_model(config: Config, layers: Sequence[Layer]) -> None:
    """Raise ConfigError where an embedding model is named and the engine is hashing, which has none: the log
    would name a model that nothing used. A name below the layer of the engine belongs to the engine that gave
    way; the file that a run keeps has both in one layer, as its log has. So it is no rule of the models."""
    if config.roles.embedder.engine != "hashing":
        return
    engine, model = (("roles", "embedder", name) for name in ("engine", "model"))
    for layer in layers:
        source, settled = layer.sources.get(model), engine in layer.values
        kept = settled and source is not None and source.kind not in ("flag", "environment")
        if source is not None and not kept and (named := layer.values[model]) != "hashing":
            others = [e for e in get_args(EmbedderRole.model_fields["engine"].annotation) if e != "hashing"]
            raise ConfigError(
                f"{_placed(source, model)}: the engine hashing has no model (it is {named!r})",
                hint=f"also give --set roles.embedder.engine={' or '.join(others)}",
            )
        if settled:
            return


def _placed(source: Source, path: KeyPath) -> str:
    return source.where if dotted(path) in source.where else f"{source.where}: {dotted(path)}"


def shown_value(path: KeyPath, given: Any) -> str:
    """A refused value, for the end of an error; nothing if it may be a secret."""
    if not isinstance(given, str | int | float) or (path[-1:] and path[-1].endswith(("_url", "_env"))):
        return ""
    try:
        text = masked(repr(given))
    except ValueError:  # Python writes no integer of thousands of digits
        return ""
    return f" (it is {text if len(text) <= 80 else text[:80] + '…'})"


def _names(what: str, path: KeyPath) -> bool:
    """Whether an error of the whole configuration mentions the key, or its section."""
    words = {word.strip(",.:") for word in what.split()}
    return any(dotted(path[:depth]) in words for depth in range(1, len(path) + 1))


def explained(error: ValidationError, sources: Mapping[KeyPath, Source]) -> ConfigError:
    """State for each wrong value where it was written and what it must be; possible secrets are not shown."""
    lines = []
    for found in error.errors(include_url=False):
        path = tuple(str(part) for part in found["loc"])
        while path and path not in sources and not any(key[: len(path)] == path for key in sources):
            path = path[:-1]
        what = found["msg"].removeprefix("Value error, ")
        below = [sources[key] for key in sources if (key[: len(path)] == path if path else _names(what, key))]
        written = min(below, key=lambda source: get_args(Kind).index(source.kind), default=_DEFAULT)
        given = found.get("input")
        shown = shown_value(path, given)
        lines.append(f"{_placed(written, path)}: {what}{shown}")
    return ConfigError(
        "\n".join(dict.fromkeys(lines)), hint="what each key takes: diagevo config show --schema"
    )
