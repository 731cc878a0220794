"""The sources of configuration values: YAML text, environment variables, `key.path=value`.

Each becomes a `Layer`: values by key path, each with its source, so that an error and `diagevo config show`
can name it. An unknown key is refused here, with the closest valid one.
"""

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from diagevo.config.former import RENAMED
from diagevo.config.models import Config, Section
from diagevo.errors import ConfigError

Kind = Literal["flag", "environment", "file", "user", "profile", "default", "run"]
KeyPath = tuple[str, ...]

PREFIX = "DIAGEVO_"
NOT_CONFIGURATION = frozenset(
    {"DIAGEVO_HOME", "DIAGEVO_DB", "DIAGEVO_RUN", "DIAGEVO_CONFIG", "DIAGEVO_PROFILE"}
)
"""Variables of the command line, which are not keys."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a value was written: "diagevo.yaml, line 12", "DIAGEVO_FILTER__TAU", "--set filter.tau"."""

    kind: Kind
    where: str


@dataclass(slots=True)
class Layer:
    """The values of one source, by key path."""

    values: dict[KeyPath, Any] = field(default_factory=dict)
    sources: dict[KeyPath, Source] = field(default_factory=dict)

    def put(self, path: KeyPath, value: Any, source: Source) -> None:
        self.values[path] = value
        self.sources[path] = source

    def nested(self, over: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The values as nested dicts, merged over a copy of a configuration."""
        tree: dict[str, Any] = copy.deepcopy(dict(over or {}))
        for path, value in self.values.items():
            inner = tree
            for name in path[:-1]:
                if not isinstance(inner.get(name), dict):
                    inner[name] = {}
                inner = inner[name]
            inner[path[-1]] = value
        return tree


def fields(model: type[Section] = Config, above: KeyPath = ()) -> Iterator[tuple[KeyPath, FieldInfo]]:
    """Every setting that is not a section, in the order of the models."""
    for name, info in model.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, Section):
            yield from fields(info.annotation, (*above, name))
        else:
            yield (*above, name), info


@cache
def keys() -> dict[KeyPath, FieldInfo]:
    return dict(fields())


@cache
def _sections() -> frozenset[KeyPath]:
    return frozenset(path[:depth] for path in keys() for depth in range(1, len(path)))


def dotted(path: KeyPath) -> str:
    return ".".join(path)


def variable(path: KeyPath) -> str:
    """The environment variable of a key: filter.tau is DIAGEVO_FILTER__TAU."""
    return PREFIX + "__".join(path).upper()


def nearest(path: KeyPath) -> KeyPath | None:
    """The existing key or section closest to a misspelt one."""
    known = [*keys(), *_sections()]
    if same := [other for other in known if other[-1] == path[-1]]:
        return same[0]
    beside = {other[-1]: other for other in known if other[:-1] == path[:-1]}
    if close := get_close_matches(path[-1], beside, n=1):
        return beside[close[0]]
    everywhere = {dotted(other): other for other in known}
    close = get_close_matches(dotted(path), everywhere, n=1)
    return everywhere[close[0]] if close else None


def no_such_key(path: KeyPath, where: str, spell: Any = dotted) -> ConfigError:
    """The error for an unknown key; it gives its current name, or the closest one."""
    renamed = RENAMED.get(dotted(path))
    close = nearest(path) if renamed is None else tuple(renamed.split("."))
    if close is None:
        hint = "see the keys: diagevo config show"
    else:
        hint = f"the closest is {spell(close)}" if renamed is None else f"it is {spell(close)} now"
    return ConfigError(f"{where}: there is no key {dotted(path)}", hint=hint)


def _add(layer: Layer, path: KeyPath, value: Any, where: Mapping[KeyPath, str], kind: Kind) -> None:
    """Put a value, or the values of a section, into the layer. Raises ConfigError for an unknown key."""
    place = next(where[path[:depth]] for depth in range(len(path), -1, -1) if path[:depth] in where)
    if path in keys():
        layer.put(path, value, Source(kind, place))
    elif path in _sections() or not path:
        if value is None and path:  # a section whose keys are all commented out
            return
        if not isinstance(value, Mapping):
            name = dotted(path) or "the configuration"
            raise ConfigError(f"{place}: {name} must be a section of keys", hint="see: diagevo config show")
        for name, inner in value.items():
            _add(layer, (*path, str(name)), inner, where, kind)
    else:
        raise no_such_key(path, place)


def from_yaml(text: str, name: str, kind: Kind) -> Layer:
    """Read YAML 1.2: 1e-6 is a number, a repeated key an error. Messages begin with `name` and the line."""
    from diagevo.config.yaml_text import read

    try:
        value, tree = read(text, name)
    except ConfigError as error:
        if any(line.partition(":")[0] in Config.model_fields for line in text.splitlines()):
            raise
        raise ConfigError(
            f"{name} is not a configuration: no line begins with one of its keys",
            hint="name another file, or make one: diagevo init",
        ) from error
    layer = Layer()
    where = {(): name} | {path: f"{name}, line {line}" for path, line in _lines(tree)}
    if value is not None:
        _add(layer, (), value, where, kind)
    return layer


def _lines(node: Any, above: KeyPath = ()) -> Iterator[tuple[KeyPath, int]]:
    """The line of every key below a YAML node, to the depth of configuration keys."""
    from ruamel.yaml.nodes import MappingNode

    if isinstance(node, MappingNode) and len(above) < max(map(len, keys())):
        for key, value in node.value:
            path = (*above, str(key.value))
            yield path, key.start_mark.line + 1
            yield from _lines(value, path)


def from_file(file: Path, kind: Kind) -> Layer:
    """Read a configuration file. Raises ConfigError if it cannot be read."""
    from diagevo.config.yaml_text import BYTES

    try:
        with file.open("rb") as opened:  # it may be an endless device
            given = opened.read(BYTES + 1)
        text = given.decode("utf-8", "strict" if len(given) <= BYTES else "replace")
    except OSError as error:
        hint = "name another file with --config, or make one: diagevo init"
        raise ConfigError(f"{file} cannot be read: {error.strerror}", hint=hint) from error
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{file} is not UTF-8 text (byte {error.start})", hint="save it as UTF-8"
        ) from error
    return from_yaml(text, str(file), kind)


def from_environment(environ: Mapping[str, str]) -> Layer:
    """Read the DIAGEVO_… variables. An empty one counts as not set; a misspelt one is an error."""
    layer = Layer()
    for name in sorted(environ):
        if not name.startswith(PREFIX) or name in NOT_CONFIGURATION:
            continue
        path = tuple(name.removeprefix(PREFIX).lower().split("__"))
        if path not in keys() and path not in _sections():
            raise no_such_key(path, f"the variable {name}", variable)
        if environ[name]:
            _add(layer, path, _value(path, environ[name], name), {(): name}, "environment")
    return layer


def from_settings(settings: tuple[str, ...]) -> Layer:
    """Read the `key.path=value` of `--set`; of a repeated key the last counts."""
    layer = Layer()
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise ConfigError(f"--set {setting}: there is no value", hint="write --set key.path=value")
        path = tuple(name.strip().split("."))
        _add(layer, path, _value(path, text, f"--set {name}"), {(): f"--set {name}"}, "flag")
    return layer


def _takes_text(annotation: Any) -> bool:
    """Whether a field may be text or a path: then `1e3` and `on` are taken literally."""
    return annotation in (str, Path) or (
        get_origin(annotation) not in (tuple, dict)
        and any(_takes_text(part) for part in get_args(annotation))
    )


def _value(path: KeyPath, text: str, where: str) -> Any:
    """The value of `text` for a key: text if the field takes text, otherwise parsed as YAML."""
    from diagevo.config.yaml_text import read

    info = keys().get(path)
    if info is not None and _takes_text(info.annotation) and text != "null":
        return text
    return read(text, where)[0]
